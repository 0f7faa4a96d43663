"""librdkafka through TLS and SCRAM: good and bad passwords, rights, and what happens at the wrong door."""

import os
import time

from checks import check, equal, fresh, run
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient, NewTopic, ResourcePatternType, ResourceType,
    ScramCredentialInfo, ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion,
)

AT = os.environ["SECURITY_AT"]
PLAIN, TLS = os.environ["SECURITY_PLAIN"], os.environ["SECURITY_TLS"]
SASL_TLS, SASL = os.environ["SECURITY_SASL_TLS"], os.environ["SECURITY_SASL"]


def user(name, password=None, mechanism="SCRAM-SHA-256", **more):
    """The settings of a user behind TLS."""
    return {
        "bootstrap.servers": SASL_TLS, "security.protocol": "SASL_SSL", "ssl.ca.location": f"{AT}/ca.pem",
        "sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password or f"{name}'s password",
        "socket.timeout.ms": 5000, **more,
    }


KEPT = []


def admin(settings=None):
    """An admin client that outlives what it was asked: one that is dropped takes its answers with it."""
    KEPT.append(AdminClient(settings or user("admin")))
    return KEPT[-1]


def allow(name, kind, resource, operation, pattern=ResourcePatternType.LITERAL, permission=AclPermissionType.ALLOW):
    rule = AclBinding(kind, resource, pattern, f"User:{name}", "*", operation, permission)
    for done in admin().create_acls([rule]).values():
        done.result(10)
    return rule


def topic(name):
    for done in admin().create_topics([NewTopic(name, 1, 1)]).values():
        done.result(10)
    return name


def write(settings, where, values):
    """Codes of failed deliveries, in order; None for one that was acknowledged."""
    producer = Producer({**settings, "message.timeout.ms": 8000})
    codes = []
    for value in values:
        producer.produce(where, value, on_delivery=lambda error, _: codes.append(error and error.code()))
    producer.flush(20)
    return codes


def read(settings, where, count, group=None):
    """Values of the first `count` records, or raises what the consumer says."""
    # Without a right to its group a consumer that commits by itself waits for three quarters of a minute at its close for a coordinator.
    commits = {"enable.auto.commit": group is not None}
    consumer = Consumer({**settings, "group.id": group or fresh("reader"), "auto.offset.reset": "earliest", **commits})
    values = []
    try:
        if group:
            consumer.subscribe([where])
        else:
            consumer.assign([TopicPartition(where, 0, 0)])
        until = time.monotonic() + 20
        while len(values) < count:
            message = consumer.poll(0.5)
            assert time.monotonic() < until, f"{len(values)} of {count} records"
            if message is None:
                continue
            if message.error() and not group and message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                # It asks after its group though it is told what to read, and goes on without.
                continue
            if message.error():
                raise KafkaException(message.error())
            values.append(message.value().decode())
    finally:
        consumer.close()
    return values


def reads_nothing(settings, where, within=5):
    """librdkafka doesn't always say why it gets nothing of what it was assigned; that it gets nothing counts."""
    consumer = Consumer({**settings, "group.id": fresh("reader"), "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.assign([TopicPartition(where, 0, 0)])
    until = time.monotonic() + within
    while time.monotonic() < until:
        message = consumer.poll(0.5)
        assert message is None or message.error(), f"it read {message.value()}"
    consumer.close()


def failure(settings, within=10):
    """Codes of the errors that a client meets that gets nowhere."""
    codes = []
    client = AdminClient({**settings, "log_level": 0, "error_cb": lambda error: codes.append(error.code())})
    until = time.monotonic() + within
    while time.monotonic() < until and not codes:
        try:
            client.list_topics(timeout=1)
            raise AssertionError("it was let in")
        except KafkaException as why:
            if why.args[0].code() != KafkaError._TRANSPORT:
                codes.append(why.args[0].code())
        client.poll(0.2)
    return codes


def raises(code, act):
    try:
        act()
    except KafkaException as why:
        assert why.args[0].code() == code, f"{why.args[0]} instead of {code}"
        return
    raise AssertionError(f"nothing was refused with {code}")


@check("both mechanisms, and the right password is let in")
def good():
    name = topic(fresh("good"))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        metadata = admin(user("admin", mechanism=mechanism)).list_topics(timeout=10)
        assert name in metadata.topics
        host, port = SASL_TLS.rsplit(":", 1)
        broker = metadata.brokers[1]
        equal([(broker.host, str(broker.port))], [(host, port)], "the address that clients are told")
    equal(write(user("admin"), name, ["a", "b"]), [None, None], "acknowledged")
    equal(read(user("admin"), name, 2), ["a", "b"], "read")


@check("a wrong password, an unknown user and another mechanism are refused")
def bad():
    for settings in (user("alice", "guessed"), user("mallory", "alice's password")):
        assert KafkaError._AUTHENTICATION in (codes := failure(settings)), codes
    assert failure(user("alice", mechanism="PLAIN")), "PLAIN isn't served"


@check("who has no right gets nothing: topics, groups, transactional ids, the cluster")
def denied():
    name = topic(fresh("secret"))
    equal(write(user("admin"), name, ["a"]), [None], "acknowledged")
    equal(write(user("alice"), name, ["b"]), [KafkaError.TOPIC_AUTHORIZATION_FAILED], "refused")
    reads_nothing(user("alice"), name)
    assert name not in admin(user("alice")).list_topics(timeout=10).topics, "it isn't even named"
    raises(KafkaError.TOPIC_AUTHORIZATION_FAILED,
           lambda: [f.result(10) for f in admin(user("alice")).create_topics([NewTopic(fresh("mine"), 1, 1)]).values()])
    equal(read(user("admin"), name, 1), ["a"], "what was refused isn't there")
    allow("alice", ResourceType.TOPIC, name, AclOperation.READ)
    equal(read(user("alice"), name, 1), ["a"], "with a right")
    raises(KafkaError.GROUP_AUTHORIZATION_FAILED, lambda: read(user("alice"), name, 1, group=fresh("g")))
    transactional = Producer(user("alice", **{"transactional.id": fresh("t")}))
    raises(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, lambda: transactional.init_transactions(10))


@check("rights by name and by prefix, and a denial wins")
def rights():
    prefix = fresh("team")
    one, two = topic(f"{prefix}-one"), topic(f"{prefix}-two")
    allow("bob", ResourceType.TOPIC, prefix, AclOperation.ALL, ResourcePatternType.PREFIXED)
    allow("bob", ResourceType.GROUP, prefix, AclOperation.READ, ResourcePatternType.PREFIXED)
    allow("bob", ResourceType.TRANSACTIONAL_ID, prefix, AclOperation.WRITE, ResourcePatternType.PREFIXED)
    equal(write(user("bob"), one, ["a", "b"]), [None, None], "acknowledged")
    equal(read(user("bob"), one, 2, group=f"{prefix}-g"), ["a", "b"], "in a group")
    producer = Producer(user("bob", **{"transactional.id": f"{prefix}-t"}))
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(two, "c")
    producer.commit_transaction(10)
    equal(read(user("bob", **{"isolation.level": "read_committed"}), two, 1), ["c"], "in a transaction")
    allow("bob", ResourceType.TOPIC, two, AclOperation.WRITE, permission=AclPermissionType.DENY)
    equal(write(user("bob"), two, ["d"]), [KafkaError.TOPIC_AUTHORIZATION_FAILED], "denied")
    equal(write(user("bob"), one, ["e"]), [None], "the other one isn't")
    anything = AclBindingFilter(ResourceType.TOPIC, two, ResourcePatternType.MATCH, "User:bob", None, AclOperation.ANY, AclPermissionType.ANY)
    found = admin().describe_acls(anything).result(10)
    equal(sorted((r.name, r.operation.name, r.permission_type.name) for r in found),
          [(prefix, "ALL", "ALLOW"), (two, "WRITE", "DENY")], "the rules about it")
    denial = AclBindingFilter(ResourceType.TOPIC, two, ResourcePatternType.LITERAL, None, None, AclOperation.ANY, AclPermissionType.DENY)
    gone = [f.result(10) for f in admin().delete_acls([denial]).values()]
    equal([len(rules) for rules in gone], [1], "deleted")
    equal(write(user("bob"), two, ["f"]), [None], "allowed again")


@check("users are made, given another password and removed over the wire, by who may")
def users():
    name = fresh("carol")
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    make = lambda password: UserScramCredentialUpsertion(name, info, password)
    alter = lambda client, change: [f.result(10) for f in client.alter_user_scram_credentials([change]).values()]
    raises(KafkaError.CLUSTER_AUTHORIZATION_FAILED, lambda: alter(admin(user("alice")), make(b"x")))
    alter(admin(), make(b"new secret"))
    admin(user(name, "new secret")).list_topics(timeout=10)
    described = admin().describe_user_scram_credentials([name])[name].result(10)
    equal([(i.mechanism.name, i.iterations) for i in described.scram_credential_infos], [("SCRAM_SHA_256", 8192)], "described")
    alter(admin(), make(b"another new secret"))
    assert KafkaError._AUTHENTICATION in failure(user(name, "new secret"))
    admin(user(name, "another new secret")).list_topics(timeout=10)
    alter(admin(), UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256))
    assert KafkaError._AUTHENTICATION in failure(user(name, "another new secret"))


@check("the wrong door: plain to TLS, TLS to plain, TLS without SCRAM, an untrusted server")
def doors():
    plain = {"security.protocol": "PLAINTEXT", "socket.timeout.ms": 3000}
    tls = {"security.protocol": "SSL", "ssl.ca.location": f"{AT}/ca.pem", "socket.timeout.ms": 3000}
    for settings in (
        {**plain, "bootstrap.servers": TLS}, {**plain, "bootstrap.servers": SASL_TLS}, {**plain, "bootstrap.servers": SASL},
        {**tls, "bootstrap.servers": PLAIN}, {**tls, "bootstrap.servers": SASL_TLS},
        {**tls, "bootstrap.servers": TLS, "ssl.ca.location": f"{AT}/other.pem"},
    ):
        assert failure(settings), settings
    # In by the right door, but nobody: it sees nothing.
    for settings in ({**tls, "bootstrap.servers": TLS}, {**plain, "bootstrap.servers": PLAIN}):
        equal(admin(settings).list_topics(timeout=10).topics, [], "nobody has no rights")
    admin({**user("alice"), "security.protocol": "SASL_PLAINTEXT", "bootstrap.servers": SASL}).list_topics(timeout=10)


run()
