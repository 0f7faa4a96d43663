import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

/**
 * Kafka's own producer, consumer and admin client. Run twice: with the clients of Kafka 4, whose transactions are of version 2 (the produce
 * request begins them, every end raises the epoch), and with those of Kafka 3.9, whose transactions are of version 1.
 */
final class Clients {
    static final int PARTITIONS = 3;

    static String topic(String name, int partitions) throws Exception {
        String made = Check.fresh(name);
        try (Admin admin = Admin.create(Check.with())) {
            admin.createTopics(List.of(new NewTopic(made, partitions, (short) 1))).all().get(20, TimeUnit.SECONDS);
        }
        return made;
    }

    static KafkaProducer<String, String> producer(Object... options) {
        return new KafkaProducer<>(Check.with(options), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Object... options) {
        return new KafkaConsumer<>(Check.with(options), new StringDeserializer(), new StringDeserializer());
    }

    static List<List<ConsumerRecord<String, String>>> read(String topic, int partitions, String isolation) {
        List<List<ConsumerRecord<String, String>>> found = new ArrayList<>();
        try (var consumer = consumer("isolation.level", isolation, "enable.auto.commit", "false", "auto.offset.reset", "earliest")) {
            List<TopicPartition> all = IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).toList();
            all.forEach(p -> found.add(new ArrayList<>()));
            consumer.assign(all);
            var ends = consumer.endOffsets(all);
            long until = System.nanoTime() + 30_000_000_000L;
            while (all.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                Check.that(System.nanoTime() < until, "no end of " + topic + ": " + ends);
                consumer.poll(Duration.ofMillis(100)).forEach(r -> found.get(r.partition()).add(r));
            }
        }
        return found;
    }

    static List<List<String>> values(String topic, int partitions, String isolation) {
        return read(topic, partitions, isolation).stream().map(p -> p.stream().map(ConsumerRecord::value).toList()).toList();
    }

    static void codecs() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = topic("codec-" + codec, 1);
            List<String> sent = new ArrayList<>();
            List<Future<RecordMetadata>> reports = new ArrayList<>();
            try (var p = producer("compression.type", codec, "linger.ms", 5)) {
                for (int i = 0; i < 500; i++) {
                    var record = new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i, "key-" + i % 7, ("value " + i + " ").repeat(20));
                    record.headers().add("same", "1".getBytes()).add("same", ("" + i).getBytes()).add("none", null);
                    reports.add(p.send(record));
                    sent.add(i + " " + record.key() + " " + record.value() + " [same=1, same=" + i + ", none=null] " + record.timestamp());
                }
                p.flush();
            }
            for (int i = 0; i < 500; i++) Check.equal(List.of(reports.get(i).get().offset()), List.of((long) i), "offset of a report");
            List<String> found = read(topic, 1, "read_committed").get(0).stream().map(r -> r.offset() + " " + r.key() + " " + r.value() + " "
                + StreamSupport.stream(r.headers().spliterator(), false).map(Clients::show).toList() + " " + r.timestamp()).toList();
            Check.equal(found, sent, "records under " + codec);
            Check.storedAs(codec, topic);
        }
    }

    private static String show(Header h) { return h.key() + "=" + (h.value() == null ? null : new String(h.value())); }

    static void killedBroker() throws Exception {
        String topic = topic("killed", PARTITIONS);
        int count = 6_000;
        List<Future<RecordMetadata>> reports = new ArrayList<>();
        List<Thread> kills = new ArrayList<>();
        try (var p = producer("linger.ms", 2, "batch.size", 500, "delivery.timeout.ms", 90_000, "request.timeout.ms", 5_000, "reconnect.backoff.max.ms", 300)) {
            for (int i = 0; i < count; i++) {
                reports.add(p.send(new ProducerRecord<>(topic, i % PARTITIONS, null, "" + i)));
                if (i == count / 3 || i == 2 * count / 3) {
                    Thread kill = new Thread(() -> { try { Check.broker("restart"); } catch (Exception e) { throw new RuntimeException(e); } });
                    kills.add(kill);
                    kill.start();
                }
                if (i % 50 == 0) Thread.sleep(10);
            }
            p.flush();
        }
        for (Thread kill : kills) kill.join();
        var found = read(topic, PARTITIONS, "read_committed");
        for (int n = 0; n < PARTITIONS; n++) {
            int partition = n;
            Check.equal(found.get(n).stream().map(ConsumerRecord::value).toList(), numbers(n, count, PARTITIONS, ""), "partition " + n);
            List<Long> acknowledged = IntStream.range(0, count).filter(i -> i % PARTITIONS == partition).mapToObj(i -> now(reports.get(i)).offset()).toList();
            Check.equal(acknowledged, found.get(n).stream().map(ConsumerRecord::offset).toList(), "acknowledged offsets");
        }
    }

    static <T> T now(Future<T> f) { try { return f.get(30, TimeUnit.SECONDS); } catch (Exception e) { throw new AssertionError(e); } }

    static List<String> numbers(int from, int to, int step, String before) {
        return IntStream.iterate(from, i -> i < to, i -> i + step).mapToObj(i -> before + i).toList();
    }

    static void transactions() throws Exception {
        String topic = topic("transactions", PARTITIONS);
        List<List<String>> committed = new ArrayList<>(), all = new ArrayList<>();
        for (int i = 0; i < PARTITIONS; i++) { committed.add(new ArrayList<>()); all.add(new ArrayList<>()); }
        try (var p = producer("transactional.id", Check.fresh("id"), "compression.type", "zstd", "linger.ms", 0)) {
            p.initTransactions();
            for (int n = 0; n < 100; n++) {
                p.beginTransaction();
                for (int i = 0; i < 6; i++) {
                    String value = n + "/" + i;
                    var report = p.send(new ProducerRecord<>(topic, i % PARTITIONS, null, value));
                    all.get(i % PARTITIONS).add(value);
                    if (n % 3 != 1) committed.get(i % PARTITIONS).add(value);
                    if (n % 3 == 1) now(report);
                }
                if (n % 3 == 1) p.abortTransaction(); else p.commitTransaction();
                // With nothing in them.
                p.beginTransaction();
                if (n % 2 == 0) p.commitTransaction(); else p.abortTransaction();
            }
        }
        for (int i = 0; i < PARTITIONS; i++) {
            Check.equal(values(topic, PARTITIONS, "read_committed").get(i), committed.get(i), "read_committed " + i);
            Check.equal(values(topic, PARTITIONS, "read_uncommitted").get(i), all.get(i), "read_uncommitted " + i);
        }
    }

    static void zombie() throws Exception {
        String topic = topic("zombie", 1), id = Check.fresh("id");
        var first = producer("transactional.id", id);
        first.initTransactions();
        first.beginTransaction();
        now(first.send(new ProducerRecord<>(topic, "left open")));
        try (var second = producer("transactional.id", id)) {
            second.initTransactions();
            second.beginTransaction();
            now(second.send(new ProducerRecord<>(topic, "of the second")));
            second.commitTransaction();
            try {
                first.send(new ProducerRecord<>(topic, "late"));
                first.commitTransaction();
                throw new AssertionError("the zombie could commit");
            } catch (KafkaException e) {
                // The class files serve two versions, whose hierarchies of errors differ: so no catch of two classes here.
                Throwable why = e.getCause() == null ? e : e.getCause();
                Check.that(why instanceof ProducerFencedException || why instanceof InvalidProducerEpochException, "" + e);
            }
            second.beginTransaction();
            now(second.send(new ProducerRecord<>(topic, "again")));
            second.commitTransaction();
        }
        first.close(Duration.ofSeconds(1));
        Check.equal(values(topic, 1, "read_committed").get(0), List.of("of the second", "again"), "read_committed");
    }

    /** Reads a group's share on a thread of its own. */
    static final class Member extends Thread {
        final KafkaConsumer<String, String> consumer;
        final Map<String, String> seen;
        volatile boolean stop = false;
        volatile Set<TopicPartition> has = Set.of();
        volatile Throwable failure = null;
        volatile int generation = -1;
        final java.util.concurrent.atomic.AtomicInteger assigned = new java.util.concurrent.atomic.AtomicInteger();

        Member(String topic, String group, String protocol, Map<String, String> seen) {
            this(topic, group, protocol, seen, null);
        }

        Member(String topic, String group, String protocol, Map<String, String> seen, String instance) {
            consumer = protocol.equals("consumer")
                ? consumer(instance == null ? "client.id" : "group.instance.id", instance == null ? "member" : instance, "group.id", group,
                    "group.protocol", "consumer", "auto.offset.reset", "earliest", "auto.commit.interval.ms", 100)
                : consumer(instance == null ? "client.id" : "group.instance.id", instance == null ? "member" : instance, "group.id", group, "auto.offset.reset", "earliest", "auto.commit.interval.ms", 100, "session.timeout.ms", 6000,
                    "heartbeat.interval.ms", 200, "partition.assignment.strategy", protocol);
            this.seen = seen;
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override public void onPartitionsRevoked(Collection<TopicPartition> from) {}
                @Override public void onPartitionsAssigned(Collection<TopicPartition> to) { assigned.incrementAndGet(); }
            });
            start();
        }

        @Override public void run() {
            try (consumer) {
                while (!stop) {
                    for (var r : consumer.poll(Duration.ofMillis(100))) {
                        String before = seen.put(r.partition() + "/" + r.offset(), r.value());
                        Check.that(before == null || before.equals(r.value()), "the same record");
                    }
                    generation = consumer.groupMetadata().generationId();
                    has = Set.copyOf(consumer.assignment());
                }
            } catch (Throwable why) {
                failure = why;
            }
            has = Set.of();
        }
    }

    static void groups(String protocol) throws Exception {
        String topic = topic("group", 4), group = Check.fresh("group");
        Map<String, String> seen = new ConcurrentHashMap<>();
        List<Member> members = new ArrayList<>();
        try (var p = producer("linger.ms", 5); Admin admin = Admin.create(Check.with())) {
            send(p, topic, 0, 400);
            members.add(new Member(topic, group, protocol, seen));
            Check.waitFor(() -> alive(members) && members.get(0).has.size() == 4 && seen.size() == 400, 30, "the first has all");
            members.add(new Member(topic, group, protocol, seen));
            Check.waitFor(() -> alive(members) && members.get(0).has.size() == 2 && members.get(1).has.size() == 2, 30, "each has two");
            send(p, topic, 400, 800);
            Check.waitFor(() -> alive(members) && seen.size() == 800, 30, "800 are seen");
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            Check.equal(List.of(described.members().size(), described.members().stream().mapToInt(m -> m.assignment().topicPartitions().size()).sum()),
                List.of(2, 4), "members and partitions as described");
            members.get(0).stop = true;
            Check.waitFor(() -> alive(members) && members.get(1).has.size() == 4, 30, "the second has all");
            send(p, topic, 800, 1200);
            Check.waitFor(() -> alive(members) && seen.size() == 1200, 30, "all are seen");
        } finally {
            for (Member member : members) { member.stop = true; member.join(10_000); }
        }
        Check.that(alive(members), "a member failed");
        for (int n = 0; n < 4; n++) {
            int partition = n;
            Check.equal(IntStream.range(0, 300).mapToObj(o -> seen.get(partition + "/" + o)).toList(), numbers(n, 1200, 4, ""), "partition " + n);
        }
        try (Admin admin = Admin.create(Check.with())) {
            var offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            Check.equal(IntStream.range(0, 4).mapToObj(n -> offsets.get(new TopicPartition(topic, n)).offset()).toList(), List.of(300L, 300L, 300L, 300L), "committed");
            admin.deleteConsumerGroups(List.of(group)).all().get();
            // The newer listGroups isn't in 3.9, with which this runs too.
            Check.that(admin.listConsumerGroups().all().get().stream().noneMatch(g -> g.groupId().equals(group)), "the group is deleted");
        }
    }

    /** KIP-848: a static member that comes back, a broker and a member that are killed, and what the tool says of it all. */
    static void consumerGroup() throws Exception {
        String topic = topic("consumer", 4), group = Check.fresh("group");
        String tool = Tools.TOOLS + "consumer.group.ConsumerGroupCommand";
        Map<String, String> seen = new ConcurrentHashMap<>();
        List<Member> members = new ArrayList<>();
        Process victim = null;
        try (var p = producer("linger.ms", 5); Admin admin = Admin.create(Check.with())) {
            send(p, topic, 0, 400);
            members.add(new Member(topic, group, "consumer", seen, "one"));
            members.add(new Member(topic, group, "consumer", seen, "two"));
            Check.waitFor(() -> alive(members) && seen.size() == 400 && members.get(0).has.size() == 2 && members.get(1).has.size() == 2, 40, "each has two");
            Set<TopicPartition> first = members.get(0).has, second = members.get(1).has;
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            Check.equal(List.of(described.type().toString(), described.partitionAssignor()), List.of("Consumer", "uniform"), "type and assignor");
            int epoch = described.groupEpoch().get();
            members.get(1).stop = true;
            members.get(1).join(10_000);
            members.add(new Member(topic, group, "consumer", seen, "two"));
            Check.waitFor(() -> alive(members) && members.get(2).has.equals(second), 30, "the static member has again what it had");
            Check.equal(List.copyOf(members.get(0).has), List.copyOf(first), "the other one noticed nothing");
            Check.equal(List.of(admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupEpoch().get()), List.of(epoch), "the group's epoch");

            Check.broker("restart");
            send(p, topic, 400, 800);
            Check.waitFor(() -> alive(members) && seen.size() == 800, 60, "all are seen after the broker was killed");
            Check.equal(List.copyOf(members.get(0).has), List.copyOf(first), "it went on with what it had");

            victim = new ProcessBuilder("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                "-cp", System.getProperty("java.class.path"), Tools.TOOLS + "consumer.ConsoleConsumer", "--bootstrap-server", Check.BOOTSTRAP, "--topic", topic,
                "--group", group, "--consumer-property", "group.protocol=consumer").redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
            Check.waitFor(() -> {
                var it = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                return it.groupState() == org.apache.kafka.common.GroupState.STABLE && it.members().size() == 3
                    && it.members().stream().allMatch(m -> !m.assignment().topicPartitions().isEmpty());
            }, 60, "three have something");
            Tools.contains(Tools.run("", tool, "--bootstrap-server", Check.BOOTSTRAP, "--describe", "--group", group, "--members", "--verbose"), "one", "two");
            Tools.contains(Tools.run("", tool, "--bootstrap-server", Check.BOOTSTRAP, "--describe", "--group", group, "--state"), "Stable", "uniform");
            victim.destroyForcibly().waitFor();
            Check.waitFor(() -> alive(members) && members.get(0).has.size() + members.get(2).has.size() == 4, 60, "two have all that the dead one had");
            send(p, topic, 800, 1200);
            Check.waitFor(() -> alive(members) && seen.size() == 1200, 60, "all are seen");
        } finally {
            if (victim != null) victim.destroyForcibly();
            for (Member member : members) { member.stop = true; member.join(10_000); }
        }
        Check.that(alive(members), "a member failed");
        for (int n = 0; n < 4; n++) {
            int partition = n;
            Check.equal(IntStream.range(0, 300).mapToObj(o -> seen.get(partition + "/" + o)).toList(), numbers(n, 1200, 4, ""), "partition " + n);
        }
        try (Admin admin = Admin.create(Check.with())) {
            // Static members that are away are taken out, by their instances; then the group is empty and its offsets can be reset.
            admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all().get();
            Check.waitFor(() -> admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().isEmpty(), 30, "nobody is in it");
        }
        Tools.run("", tool, "--bootstrap-server", Check.BOOTSTRAP, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute");
        String after = Tools.run("", tool, "--bootstrap-server", Check.BOOTSTRAP, "--describe", "--group", group);
        Check.equal(List.of(after.lines().filter(l -> l.startsWith(group)).mapToInt(l -> Integer.parseInt(l.split(" +")[5])).sum()), List.of(1200), "lag after the reset: " + after);
        Tools.contains(Tools.run("", tool, "--bootstrap-server", Check.BOOTSTRAP, "--list", "--type", "consumer"), group);
        Tools.contains(Tools.run("", tool, "--bootstrap-server", Check.BOOTSTRAP, "--delete", "--group", group), "successful");
    }

    private static boolean alive(List<Member> members) {
        for (Member m : members) if (m.failure != null) throw new AssertionError(m.failure);
        return true;
    }

    private static void send(KafkaProducer<String, String> p, String topic, int from, int to) {
        for (int i = from; i < to; i++) p.send(new ProducerRecord<>(topic, i % 4, null, "" + i));
        p.flush();
    }

    static void exactlyOnce() throws Exception {
        String source = topic("source", PARTITIONS), sink = topic("sink", PARTITIONS), group = Check.fresh("group"), id = Check.fresh("id");
        int count = 900;
        try (var p = producer("linger.ms", 5)) {
            for (int i = 0; i < count; i++) p.send(new ProducerRecord<>(source, i % PARTITIONS, null, "" + i));
        }
        // Each a process of its own; the first two die by their own hand, with a transaction open, and one of them with its offsets sent.
        for (String death : List.of("records", "offsets", "none")) {
            Process worker = child("worker", source, sink, group, id, death);
            String said = new String(worker.getInputStream().readAllBytes());
            Check.equal(List.of(worker.waitFor()), List.of(death.equals("none") ? 0 : 137), "the end of a worker that dies with: " + death + ": " + said);
        }
        for (int n = 0; n < PARTITIONS; n++)
            Check.equal(values(sink, PARTITIONS, "read_committed").get(n), numbers(n, count, PARTITIONS, "out "), "output " + n);
    }

    /** A process of our own class files and clients, which is started to be killed. */
    static Process child(String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp", System.getProperty("java.class.path"), "Clients"));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).redirectErrorStream(true).start();
    }

    /** kill -9 of ourselves. */
    private static void die() throws Exception {
        new ProcessBuilder("kill", "-9", "" + ProcessHandle.current().pid()).start().waitFor();
        Thread.sleep(60_000);
    }

    /** Consumes, transforms, produces, aborts each third transaction; dies in its fifth as it is told, or leaves at the end of the source. */
    static void worker(String source, String sink, String group, String id, String death) throws Exception {
        try (var p = producer("transactional.id", id); var c = consumer("group.id", group, "group.instance.id", "worker", "enable.auto.commit", "false",
                "auto.offset.reset", "earliest", "isolation.level", "read_committed", "max.poll.records", 40, "session.timeout.ms", 6000, "heartbeat.interval.ms", 300)) {
            p.initTransactions();
            c.subscribe(List.of(source));
            int done = 0, quiet = 0;
            while (quiet < (done == 0 ? 60 : 6)) {
                var batch = c.poll(Duration.ofMillis(100));
                if (batch.isEmpty()) { quiet++; continue; }
                quiet = 0;
                done++;
                p.beginTransaction();
                for (var r : batch) p.send(new ProducerRecord<>(sink, r.partition(), null, "out " + r.value()));
                if (done == 5 && death.equals("records")) { p.flush(); die(); }
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                for (var r : batch) next.put(new TopicPartition(source, r.partition()), new OffsetAndMetadata(r.offset() + 1));
                p.sendOffsetsToTransaction(next, c.groupMetadata());
                if (done == 5 && death.equals("offsets")) { p.flush(); die(); }
                if (done % 3 == 2) {
                    p.abortTransaction();
                    var held = c.committed(batch.partitions());
                    for (var of : batch.partitions()) c.seek(of, held.get(of) == null ? 0 : held.get(of).offset());
                } else p.commitTransaction();
            }
        }
    }

    /**
     * Transactions while the broker is killed twice, the second time with a transaction's records sent and its end not. What the client was told
     * holds: a commit that was answered is there, an abort isn't, and where the client gave up a reader finds all of it or nothing.
     */
    static void brokerInTransactions() throws Exception {
        String topic = topic("shaken", PARTITIONS), id = Check.fresh("id");
        Object[] settings = {"transactional.id", id, "request.timeout.ms", 5_000, "max.block.ms", 60_000, "delivery.timeout.ms", 60_000, "reconnect.backoff.max.ms", 300};
        var p = producer(settings);
        p.initTransactions();
        List<List<String>> expected = new ArrayList<>();
        for (int i = 0; i < PARTITIONS; i++) expected.add(new ArrayList<>());
        Thread kill = null;
        for (int n = 0; n < 30; n++) {
            boolean aborts = n % 4 == 3;
            for (int tries = 0; ; tries++) {
                Check.that(tries < 20, "no end of transaction " + n);
                List<String> mine = new ArrayList<>();
                boolean there;
                try {
                    p.beginTransaction();
                    for (int i = 0; i < PARTITIONS; i++) {
                        mine.add(n + "/" + tries + "/" + i);
                        p.send(new ProducerRecord<>(topic, i, null, mine.get(i)));
                    }
                    if (n == 10 && tries == 0) {
                        kill = new Thread(() -> { try { Check.broker("restart"); } catch (Exception e) { throw new RuntimeException(e); } });
                        kill.start();
                    }
                    if (n == 20 && tries == 0) {
                        p.flush();
                        Check.broker("restart");
                    }
                    if (aborts) p.abortTransaction(); else p.commitTransaction();
                    there = !aborts;
                } catch (KafkaException e) {
                    // Whatever it is: a new producer ends what the old one left, and what it left is looked for.
                    p.close(Duration.ZERO);
                    p = producer(settings);
                    p.initTransactions();
                    var all = values(topic, PARTITIONS, "read_committed");
                    long found = IntStream.range(0, mine.size()).filter(i -> all.get(i).contains(mine.get(i))).count();
                    Check.that(found == 0 || found == mine.size() && !aborts, "torn, or there though it was aborted: " + found + " of " + mine);
                    there = found > 0;
                }
                if (there) for (int i = 0; i < PARTITIONS; i++) expected.get(i).add(mine.get(i));
                if (there || aborts) break;
            }
        }
        p.close();
        kill.join();
        for (int i = 0; i < PARTITIONS; i++) Check.equal(values(topic, PARTITIONS, "read_committed").get(i), expected.get(i), "read_committed " + i);
    }

    /** Classic groups: a static member that comes back within its session has what it had, and nobody else notices; of two with one name the first is fenced. */
    static void staticMembers() throws Exception {
        String topic = topic("static", 4), group = Check.fresh("group"), range = RangeAssignor.class.getName();
        Map<String, String> seen = new ConcurrentHashMap<>();
        List<Member> members = new ArrayList<>();
        Member late = null;
        try (var p = producer("linger.ms", 5)) {
            send(p, topic, 0, 400);
            members.add(new Member(topic, group, range, seen, "one"));
            members.add(new Member(topic, group, range, seen, "two"));
            Check.waitFor(() -> alive(members) && seen.size() == 400 && members.get(0).has.size() == 2 && members.get(1).has.size() == 2, 40, "each has two");
            Set<TopicPartition> first = members.get(0).has, second = members.get(1).has;
            int generation = members.get(0).generation, rebalances = members.get(0).assigned.get();
            members.get(1).stop = true;
            members.get(1).join(10_000);
            members.set(1, new Member(topic, group, range, seen, "two"));
            Check.waitFor(() -> alive(members) && members.get(1).has.equals(second), 30, "the static member has again what it had");
            send(p, topic, 400, 800);
            Check.waitFor(() -> alive(members) && seen.size() == 800, 30, "800 are seen");
            Check.equal(List.of(members.get(0).assigned.get(), members.get(0).generation), List.of(rebalances, generation),
                "rebalances that the other one noticed, and its generation");
            Check.that(members.get(0).has.equals(first), "the other one has what it had");

            Member older = members.get(1);
            late = new Member(topic, group, range, seen, "two");
            members.set(1, late);
            Check.waitFor(() -> older.failure != null, 30, "the first of two with one name is fenced");
            Check.that(older.failure instanceof FencedInstanceIdException, "fenced: " + older.failure);
            send(p, topic, 800, 1200);
            Check.waitFor(() -> alive(members) && members.get(1).has.equals(second) && seen.size() == 1200, 40, "its successor has its share, and all are seen");
        } finally {
            for (Member member : members) { member.stop = true; member.join(10_000); }
        }
        Check.that(alive(members), "a member failed");
    }

    static void admin() throws Exception {
        try (Admin admin = Admin.create(Check.with())) {
            String topic = topic("admin", 2), id = Check.fresh("id");
            var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            Check.that(described.partitions().size() == 2 && described.partitions().get(1).leader() != null, "" + described);
            Check.that(admin.listTopics().names().get().contains(topic), "the topic is listed");
            Check.that(admin.describeCluster().nodes().get().size() == 1 && admin.describeCluster().controller().get() != null, "one node, which is the controller");
            try { admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get(); throw new AssertionError("made twice"); }
            catch (ExecutionException e) { Check.that(e.getCause() instanceof TopicExistsException, "" + e.getCause()); }
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            Check.waitFor(() -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 3, 10, "three partitions");
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "123456"), AlterConfigOp.OpType.SET)))).all().get();
            Check.waitFor(() -> admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value().equals("123456"), 10, "the setting");
            var partition = new TopicPartition(topic, 0);
            try (var p = producer("transactional.id", id)) {
                p.initTransactions();
                for (int i = 0; i < 10; i++) {
                    p.beginTransaction();
                    now(p.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i, null, "" + i)));
                    if (i == 9) {
                        var open = admin.describeProducers(List.of(partition)).all().get().get(partition).activeProducers();
                        Check.that(open.size() == 1 && open.get(0).currentTransactionStartOffset().orElse(-1) == 18, "the open producer: " + open);
                        var listed = admin.listTransactions().all().get().stream().filter(t -> t.transactionalId().equals(id)).toList();
                        Check.that(listed.size() == 1 && listed.get(0).state() == TransactionState.ONGOING, "listed: " + listed);
                        var one = admin.describeTransactions(List.of(id)).all().get().get(id);
                        Check.that(one.state() == TransactionState.ONGOING && one.topicPartitions().equals(Set.of(partition)), "" + one);
                        Check.equal(List.of(end(admin, partition, IsolationLevel.READ_COMMITTED), end(admin, partition, IsolationLevel.READ_UNCOMMITTED)), List.of(18L, 19L), "ends");
                    }
                    p.commitTransaction();
                }
            }
            Check.equal(List.of(end(admin, partition, IsolationLevel.READ_COMMITTED)), List.of(20L), "the end");
            // Where there are no markers, whose times are the broker's.
            var plain = new TopicPartition(topic, 1);
            try (var p = producer()) {
                for (int i : new int[] {0, 1, 2, 3, 9, 4, 5}) now(p.send(new ProducerRecord<>(topic, 1, 1_700_000_000_000L + i, null, "" + i)));
            }
            Check.equal(List.of(now(admin.listOffsets(Map.of(plain, OffsetSpec.forTimestamp(1_700_000_000_003L))).partitionResult(plain)).offset(),
                now(admin.listOffsets(Map.of(plain, OffsetSpec.maxTimestamp())).partitionResult(plain)).offset()), List.of(3L, 4L), "offsets of times");
            Check.equal(List.of(now(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(7))).lowWatermarks().get(partition)).lowWatermark()), List.of(7L), "low watermark");
            Check.equal(values(topic, 1, "read_committed").get(0), numbers(4, 10, 1, ""), "what is left");
            admin.deleteTopics(List.of(topic)).all().get();
            Check.waitFor(() -> !admin.listTopics().names().get().contains(topic), 10, "the topic is gone");
        }
    }

    private static long end(Admin admin, TopicPartition partition, IsolationLevel isolation) {
        return now(admin.listOffsets(Map.of(partition, OffsetSpec.latest()), new ListOffsetsOptions(isolation)).partitionResult(partition)).offset();
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0) { worker(arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]); return; }
        boolean old = org.apache.kafka.common.utils.AppInfoParser.getVersion().startsWith("3.");
        String by = " [" + org.apache.kafka.common.utils.AppInfoParser.getVersion() + "]";
        String protocol = "version " + (old ? 1 : 2);
        Check.check("codecs: records, keys, headers, timestamps, offsets in order under each codec, and stored under it" + by, Clients::codecs);
        Check.check("killed broker: a producer over two kill -9 of the broker; nothing lost, nothing twice, in order" + by, Clients::killedBroker);
        Check.check("transactions, " + protocol + ": 100 committed or aborted, and 100 empty ones" + by, Clients::transactions);
        Check.check("broker killed in transactions, " + protocol + ": each whole and once, as the client was told" + by, Clients::brokerInTransactions);
        Check.check("zombie: a second producer fences the first and aborts what it left open" + by, Clients::zombie);
        Check.check("exactly once: consume, transform, produce with the group's offsets, aborts, two workers killed" + by, Clients::exactlyOnce);
        Check.check("group, eager: joins and leaves in the middle; described, committed, deleted" + by, () -> groups(RangeAssignor.class.getName()));
        Check.check("group, static members: one comes back and nobody notices; of two with one name the first is fenced" + by, Clients::staticMembers);
        Check.check("admin: topics, partitions, configs, offsets, delete records, producers, transactions" + by, Clients::admin);
        if (!old) {
            Check.check("group, cooperative: the same" + by, () -> groups(CooperativeStickyAssignor.class.getName()));
            Check.check("group, by KIP-848: joins and leaves in the middle; described, committed, deleted" + by, () -> groups("consumer"));
            Check.check("group, by KIP-848: a static member comes back, the broker and a member are killed, the tool describes and resets" + by, Clients::consumerGroup);
            Check.check("tools: each of Kafka's command line tools" + by, Tools::all);
            Check.check("streams: exactly_once_v2 word count and join; it and the broker killed; every output once" + by, Streams::killed);
        }
        Check.end();
    }
}
