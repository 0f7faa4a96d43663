import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.*;

/** Kafka's Java client through TLS and SCRAM, and at the wrong door. */
public final class Security {
    static final String AT = System.getenv("SECURITY_AT");

    static Properties tls(String where) {
        return Check.with("bootstrap.servers", where, "security.protocol", "SSL", "ssl.truststore.type", "PEM", "ssl.truststore.location", AT + "/ca.pem",
            "default.api.timeout.ms", 10000, "request.timeout.ms", 5000, "max.block.ms", 8000);
    }

    static Properties user(String name, String password, String mechanism) {
        Properties made = tls(System.getenv("SECURITY_SASL_TLS"));
        made.put("security.protocol", "SASL_SSL");
        made.put("sasl.mechanism", mechanism);
        made.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"" + name + "\" password=\"" + password + "\";");
        return made;
    }

    static Properties user(String name) { return user(name, name + "'s password", "SCRAM-SHA-512"); }

    static void raises(Class<? extends Exception> what, Check.Body body) throws Exception {
        try {
            body.run();
        } catch (ExecutionException why) {
            Check.that(what.isInstance(why.getCause()), why.getCause() + " instead of " + what.getSimpleName());
            return;
        } catch (Exception why) {
            Check.that(what.isInstance(why), why + " instead of " + what.getSimpleName());
            return;
        }
        throw new AssertionError("nothing was refused with " + what.getSimpleName());
    }

    static Producer<String, String> producer(Properties of, Object... more) {
        Properties made = new Properties();
        made.putAll(of);
        for (int i = 0; i < more.length; i += 2) made.put(more[i], more[i + 1].toString());
        return new KafkaProducer<>(made, new StringSerializer(), new StringSerializer());
    }

    static List<String> read(Properties of, String topic, int count) {
        Properties made = new Properties();
        made.putAll(of);
        made.put("auto.offset.reset", "earliest");
        List<String> values = new ArrayList<>();
        try (Consumer<String, String> consumer = new KafkaConsumer<>(made, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            for (long until = System.nanoTime() + 20_000_000_000L; values.size() < count && System.nanoTime() < until;)
                consumer.poll(Duration.ofMillis(500)).forEach(record -> values.add(record.value()));
        }
        return values;
    }

    static AclBinding rule(String name, ResourceType kind, String resource, AclOperation operation, AclPermissionType permission) {
        return new AclBinding(new ResourcePattern(kind, resource, PatternType.LITERAL), new AccessControlEntry("User:" + name, "*", operation, permission));
    }

    public static void main(String[] arguments) {
        Check.check("Java: both mechanisms, rights, and a denial wins", () -> {
            String topic = Check.fresh("java");
            try (Admin admin = Admin.create(user("admin"))) {
                admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
                try (Admin alice = Admin.create(user("alice"))) {
                    Check.that(!alice.listTopics().names().get().contains(topic), "it isn't named to who has no right");
                    raises(TopicAuthorizationException.class, () -> alice.describeTopics(List.of(topic)).allTopicNames().get());
                    raises(ClusterAuthorizationException.class, () -> alice.describeAcls(AclBindingFilter.ANY).values().get());
                    raises(TopicAuthorizationException.class, () -> alice.deleteTopics(List.of(topic)).all().get());
                }
                try (Producer<String, String> producer = producer(user("alice"))) {
                    raises(TopicAuthorizationException.class, () -> producer.send(new ProducerRecord<>(topic, "refused")).get());
                }
                admin.createAcls(List.of(rule("alice", ResourceType.TOPIC, topic, AclOperation.WRITE, AclPermissionType.ALLOW),
                    rule("alice", ResourceType.TOPIC, topic, AclOperation.READ, AclPermissionType.ALLOW),
                    rule("alice", ResourceType.TRANSACTIONAL_ID, topic, AclOperation.WRITE, AclPermissionType.ALLOW))).all().get();
                for (String mechanism : List.of("SCRAM-SHA-256", "SCRAM-SHA-512"))
                    try (Producer<String, String> producer = producer(user("alice", "alice's password", mechanism))) {
                        producer.send(new ProducerRecord<>(topic, mechanism)).get();
                    }
                try (Producer<String, String> producer = producer(user("alice"), "transactional.id", topic)) {
                    producer.initTransactions();
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>(topic, "in a transaction"));
                    producer.commitTransaction();
                }
                try (Producer<String, String> producer = producer(user("alice"), "transactional.id", topic + "-other")) {
                    raises(TransactionalIdAuthorizationException.class, producer::initTransactions);
                }
                Check.equal(read(user("alice"), topic, 3), List.of("SCRAM-SHA-256", "SCRAM-SHA-512", "in a transaction"), "read");
                AclBinding denial = rule("alice", ResourceType.TOPIC, topic, AclOperation.READ, AclPermissionType.DENY);
                admin.createAcls(List.of(denial)).all().get();
                raises(TopicAuthorizationException.class, () -> read(user("alice"), topic, 1));
                Check.equal(new ArrayList<>(admin.deleteAcls(List.of(denial.toFilter())).all().get()), List.of(denial), "deleted");
                Check.that(read(user("alice"), topic, 3).size() == 3, "allowed again");
            }
        });
        Check.check("Java: users are made and changed over the wire", () -> {
            try (Admin admin = Admin.create(user("admin"))) {
                ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096);
                admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("dave", info, "new secret"))).all().get();
                try (Admin dave = Admin.create(user("dave", "new secret", "SCRAM-SHA-512"))) { dave.listTopics().names().get(); }
                Check.equal(admin.describeUserScramCredentials(List.of("dave")).description("dave").get().credentialInfos(), List.of(info), "described");
                raises(UnacceptableCredentialException.class, () -> admin.alterUserScramCredentials(List.of(
                    new UserScramCredentialUpsertion("dave", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4095), "weak"))).all().get());
                admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion("dave", ScramMechanism.SCRAM_SHA_512))).all().get();
                raises(ResourceNotFoundException.class, () -> admin.describeUserScramCredentials(List.of("dave")).description("dave").get());
            }
        });
        Check.check("Java: a wrong password, an unknown user, the wrong door", () -> {
            for (Properties of : List.of(user("alice", "guessed", "SCRAM-SHA-256"), user("mallory", "x", "SCRAM-SHA-512")))
                try (Admin admin = Admin.create(of)) { raises(SaslAuthenticationException.class, () -> admin.listTopics().names().get()); }
            Properties untrusting = tls(System.getenv("SECURITY_TLS"));
            untrusting.put("ssl.truststore.location", AT + "/other.pem");
            try (Admin admin = Admin.create(untrusting)) { raises(SslAuthenticationException.class, () -> admin.listTopics().names().get()); }
            // A connection that is closed in the handshake isn't told from one that is lost.
            try (Admin admin = Admin.create(tls(System.getenv("SECURITY_PLAIN")))) {
                raises(org.apache.kafka.common.errors.TimeoutException.class, () -> admin.listTopics().names().get());
            }
            for (String where : List.of("SECURITY_TLS", "SECURITY_SASL_TLS"))
                try (Admin admin = Admin.create(Check.with("bootstrap.servers", System.getenv(where), "default.api.timeout.ms", 4000, "request.timeout.ms", 3000))) {
                    raises(org.apache.kafka.common.errors.TimeoutException.class, () -> admin.listTopics().names().get());
                }
        });
        Check.end();
    }
}
