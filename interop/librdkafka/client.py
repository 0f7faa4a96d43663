"""librdkafka against the broker: what its users do, and what they lose when a broker is wrong."""

import threading
import time

import confluent_kafka
from checks import BOOTSTRAP, broker, check, equal, fresh, run, stored_as
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 3
LEFT_OPEN = []
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def topic(name, partitions=PARTITIONS):
    made = fresh(name)
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(made, partitions, 1)])[made].result(20)
    return made


def producer(**options):
    return Producer({"bootstrap.servers": BOOTSTRAP, "linger.ms": 5, "log_level": 2, **{k.replace("_", "."): v for k, v in options.items()}})


class Delivered:
    """Collects delivery reports: [(partition, offset, value)]."""

    def __init__(self):
        self.records, self.errors = [], []

    def __call__(self, error, message):
        if error is not None:
            self.errors.append(error)
        else:
            self.records.append((message.partition(), message.offset(), message.value()))


def read(of, isolation="read_committed", partitions=PARTITIONS):
    """All records of a topic by partition: [[(offset, key, value, headers)]], up to the end as that isolation sees it."""
    consumer = Consumer({
        "bootstrap.servers": BOOTSTRAP, "log_level": 2, "group.id": fresh("reader"), "isolation.level": isolation, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "enable.partition.eof": True, "check.crcs": True,
    })
    consumer.assign([TopicPartition(of, p, 0) for p in range(partitions)])
    found, open_ones, until = [[] for _ in range(partitions)], set(range(partitions)), time.monotonic() + 30
    while open_ones:
        assert time.monotonic() < until, f"no end of {of}: {open_ones} are still open"
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                found[message.partition()].append((message.offset(), message.key(), message.value(), message.headers()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                open_ones.discard(message.partition())
            else:
                raise KafkaException(message.error())
    consumer.close()
    return found


def values(of, **options):
    return [[record[2] for record in partition] for partition in read(of, **options)]


@check("produce and consume: every record with its offset, key, headers in order, under each codec, and stored under it")
def codecs():
    for codec in CODECS:
        t, sent, reports = topic(f"codec-{codec}", 1), [], Delivered()
        p = producer(compression_type=codec, enable_idempotence=True, batch_num_messages=50)
        for i in range(500):
            key, value = b"key-%d" % (i % 7), b"value %06d " % i * 20
            headers = [("same", b"1"), ("same", b"%d" % i), ("none", None)]
            p.produce(t, value, key, partition=0, headers=headers, on_delivery=reports)
            sent.append((i, key, value, headers))
        assert p.flush(20) == 0 and not reports.errors, reports.errors
        equal([r[1] for r in reports.records], range(500), "offsets of the reports")
        equal(read(t, partitions=1)[0], sent, f"records under {codec}")
        stored_as(codec, t)


@check("produce versions: as a broker of 0.10 and later delivered and stored compressed; as an older one refused, and told so")
def versions():
    for fallback in ("0.8.0", "0.9.0", "0.10.0", "0.11.0", "2.0.0"):
        t, reports = topic(f"version-{fallback}", 1), Delivered()
        # Below 0.10 it doesn't ask what the broker has, and sends message sets, which no broker of Kafka 4 takes either.
        p = Producer({"bootstrap.servers": BOOTSTRAP, "log_level": 0, "compression.type": "gzip", "message.timeout.ms": 3_000, "linger.ms": 50,
                      "api.version.request": False, "broker.version.fallback": fallback, "error_cb": lambda _: None})
        for i in range(30):
            p.produce(t, b"value %06d " % i * 20, partition=0, on_delivery=reports)
        assert p.flush(20) == 0, "a record that nothing was said of"
        if fallback in ("0.8.0", "0.9.0"):
            assert len(reports.errors) == 30 and not reports.records, (fallback, reports.records[:3])
            equal(read(t, partitions=1)[0], [], f"what was written as to {fallback}")
        else:
            equal([r[1] for r in reports.records], range(30), f"reports as to {fallback}")
            stored_as("gzip", t)


@check("timestamps: the offset of a time, the first and the last offset")
def times():
    t, p = topic("times", 1), producer()
    for i in range(100):
        p.produce(t, b"%d" % i, partition=0, timestamp=1_700_000_000_000 + i * 1000)
        if i % 10 == 9:
            p.flush(20)
    c = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": fresh("times")})
    at = [c.offsets_for_times([TopicPartition(t, 0, 1_700_000_000_000 + s)], 10)[0].offset for s in (0, 1, 41_000, 99_000, 99_001)]
    equal(at, [0, 1, 41, 99, confluent_kafka.OFFSET_END], "offsets of times")
    equal(c.get_watermark_offsets(TopicPartition(t, 0), 10), (0, 100), "first and last offset")
    c.close()


@check("an idempotent producer over two kill -9 of the broker: nothing lost, nothing twice, in order")
def killed_broker():
    t, reports = topic("killed"), Delivered()
    p = producer(enable_idempotence=True, batch_num_messages=20, **{"message.timeout.ms": 60_000, "reconnect.backoff.max.ms": 500})
    count = 6_000
    for i in range(count):
        p.produce(t, b"%d" % i, partition=i % PARTITIONS, on_delivery=reports)
        p.poll(0)
        if i in (count // 3, 2 * count // 3):
            # While requests are on their way.
            threading.Thread(target=broker, args=("restart",)).start()
        if i % 50 == 0:
            time.sleep(0.01)
    assert p.flush(60) == 0 and not reports.errors, reports.errors
    found = read(t)
    for partition in range(PARTITIONS):
        equal([r[2] for r in found[partition]], [b"%d" % i for i in range(partition, count, PARTITIONS)], f"partition {partition}")
        acknowledged = sorted((o, v) for (n, o, v) in reports.records if n == partition)
        equal(acknowledged, [(r[0], r[2]) for r in found[partition]], "acknowledged offsets")


@check("transactions: committed ones are seen, aborted ones aren't, under all isolation levels and codecs")
def transactions():
    t = topic("transactions")
    committed, all_of_them = [[] for _ in range(PARTITIONS)], [[] for _ in range(PARTITIONS)]
    p = producer(transactional_id=fresh("id"), compression_type="lz4")
    p.init_transactions(20)
    for n in range(60):
        p.begin_transaction()
        for i in range(6):
            value = b"%d/%d" % (n, i)
            p.produce(t, value, partition=i % PARTITIONS)
            all_of_them[i % PARTITIONS].append(value)
            if n % 3 != 1:
                committed[i % PARTITIONS].append(value)
        if n % 3 == 1:
            p.flush(20)
            p.abort_transaction(20)
        else:
            p.commit_transaction(20)
    for partition, (found, expected) in enumerate(zip(values(t), committed)):
        equal(found, expected, f"read_committed {partition}")
    for partition, (found, expected) in enumerate(zip(values(t, isolation="read_uncommitted"), all_of_them)):
        equal(found, expected, f"read_uncommitted {partition}")


@check("an open transaction holds back those who read committed records, and nobody else")
def held_back():
    t, p = topic("held", 1), producer(transactional_id=fresh("id"))
    p.init_transactions(20)
    p.begin_transaction()
    p.produce(t, b"open", partition=0)
    assert p.flush(20) == 0
    plain = producer()
    plain.produce(t, b"after it", partition=0)
    assert plain.flush(20) == 0
    equal(values(t, partitions=1)[0], [], "read_committed while it is open")
    equal(values(t, isolation="read_uncommitted", partitions=1)[0], [b"open", b"after it"], "read_uncommitted while it is open")
    p.commit_transaction(20)
    equal(values(t, partitions=1)[0], [b"open", b"after it"], "read_committed once it is committed")


@check("a second producer under the same id fences the first and aborts what it left open")
def zombie():
    t, name = topic("zombie", 1), fresh("id")
    first = producer(transactional_id=name)
    first.init_transactions(20)
    first.begin_transaction()
    first.produce(t, b"of the zombie", partition=0)
    assert first.flush(20) == 0
    second = producer(transactional_id=name)
    second.init_transactions(20)
    second.begin_transaction()
    second.produce(t, b"of the second", partition=0)
    second.commit_transaction(20)
    try:
        first.produce(t, b"late", partition=0)
        first.commit_transaction(20)
        raise AssertionError("the zombie could commit")
    except KafkaException as error:
        assert error.args[0].fatal() and error.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH), error
    equal(values(t, partitions=1)[0], [b"of the second"], "committed")


@check("a group of two: a member joins and leaves in the middle, cooperatively; every record comes, in order, again only where it moved")
def groups():
    groups_of("cooperative-sticky")


@check("the same with eager rebalances")
def eager_groups():
    groups_of("range")


@check("the same by KIP-848, the broker assigning")
def newer_groups():
    groups_of(None)


@check("static members: one comes back within its session and nobody notices; of two with one name the first is fenced")
def static_members():
    t, group, assigned, told = topic("static", 4), fresh("group"), {"one": 0, "two": 0}, []

    def member(name):
        def on_assign(*_):
            assigned[name] += 1

        c = Consumer({
            "bootstrap.servers": BOOTSTRAP, "log_level": 0, "group.id": group, "group.instance.id": name, "enable.auto.commit": False,
            "partition.assignment.strategy": "range", "session.timeout.ms": 6000, "heartbeat.interval.ms": 200,
            "error_cb": lambda error: told.append((name, error)),
        })
        c.subscribe([t], on_assign=on_assign)
        return c

    def has(c):
        return sorted(p.partition for p in c.assignment())

    def wait_for(condition, members, what):
        until = time.monotonic() + 40
        while not condition():
            assert time.monotonic() < until, f"never: {what}: {[has(c) for c in members]}"
            for c in members:
                c.poll(0.05)

    one, two = member("one"), member("two")
    wait_for(lambda: len(has(one)) == 2 and len(has(two)) == 2, [one, two], "each has two")
    first, second, before = has(one), has(two), assigned["one"]
    two.close()
    two = member("two")
    wait_for(lambda: has(two) == second, [one, two], "the one that comes back has what it had")
    # Some heartbeats later a rebalance would have been heard of.
    since = time.monotonic()
    wait_for(lambda: time.monotonic() > since + 1.5, [one, two], "time passes")
    equal([assigned["one"], has(one), has(two)], [before, first, second], "rebalances the other one heard of, and what both have")
    assert not told, told
    later = member("two")

    def fenced():
        message = two.poll(0.05)
        if message is not None and message.error() is not None:
            told.append(("two", message.error()))
        return any(name == "two" and error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID) for name, error in told)

    wait_for(fenced, [one, later], "the first of two with one name is fenced")
    wait_for(lambda: has(later) == second, [one, later], "its successor has its share")
    for c in (two, later, one):
        c.close()


def groups_of(strategy):
    t, group, count = topic("group", 4), fresh("group"), 2_000
    seen, lock, assigned = [], threading.Lock(), {}
    stop = {"first": threading.Event(), "second": threading.Event()}

    def member(name):
        c = Consumer({
            "bootstrap.servers": BOOTSTRAP, "log_level": 2, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            **({"group.protocol": "consumer"} if strategy is None else
               {"partition.assignment.strategy": strategy, "session.timeout.ms": 6000, "heartbeat.interval.ms": 200}),
        })
        c.subscribe([t])
        while not stop[name].is_set():
            message = c.poll(0.1)
            assigned[name] = sorted(p.partition for p in c.assignment())
            if message is None:
                continue
            assert message.error() is None, message.error()
            with lock:
                seen.append((message.partition(), message.offset(), message.value(), name))
            try:
                c.commit(message, asynchronous=False)
            except KafkaException as error:
                # A rebalance is going on; what is committed next covers this too, unless the partition moves first.
                assert error.args[0].code() in (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.STALE_MEMBER_EPOCH), error
        assigned[name] = []
        c.close()

    def wait_for(condition, what):
        until = time.monotonic() + 40
        while not condition():
            assert time.monotonic() < until, f"{what}: {assigned}, {len(seen)} records seen"
            time.sleep(0.05)

    p = producer()

    def send(begin, end):
        for i in range(begin, end):
            p.produce(t, b"%d" % i, partition=i % 4)
        assert p.flush(20) == 0

    threads = {n: threading.Thread(target=member, args=(n,)) for n in stop}
    try:
        threads["first"].start()
        send(0, count // 4)
        wait_for(lambda: assigned.get("first") == [0, 1, 2, 3], "the first has all")
        threads["second"].start()
        send(count // 4, count // 2)
        wait_for(lambda: len(assigned["first"]) == 2 and len(assigned.get("second", [])) == 2, "each has two")
        assert sorted(assigned["first"] + assigned["second"]) == [0, 1, 2, 3], assigned
        send(count // 2, 3 * count // 4)
        stop["first"].set()
        wait_for(lambda: assigned["second"] == [0, 1, 2, 3], "the second has all")
        send(3 * count // 4, count)
        wait_for(lambda: len({r[:2] for r in seen}) >= count, "all are seen")
    finally:
        for name, thread in threads.items():
            stop[name].set()
            if thread.ident:
                thread.join(30)
    # A record comes again only to another member than the one that had it, whose commit the rebalance refused; nothing is left out.
    for partition in range(4):
        due, before = 0, None
        for n, offset, value, name in seen:
            if n != partition:
                continue
            assert offset == due or (offset < due and name != before), f"partition {partition}: {offset} came to {name} where {due} was due"
            equal([value], [b"%d" % (offset * 4 + partition)], "the value")
            due, before = offset + 1, name
        equal([due], [count // 4], f"partition {partition}")
    c = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group})
    equal([p.offset for p in c.committed([TopicPartition(t, n) for n in range(4)], 10)], [count // 4] * 4, "committed offsets")
    c.close()


@check("consume, transform, produce with offsets in the transaction, the worker replaced twice: each output once")
def exactly_once():
    source, sink, group, name, count = topic("source"), topic("sink"), fresh("group"), fresh("id"), 1_200
    p = producer()
    for i in range(count):
        p.produce(source, b"%d" % i, key=b"%d" % i, partition=i % PARTITIONS)
    assert p.flush(20) == 0

    def worker(transactions, abort_every):
        """Goes on where the group is; leaves the last transaction open, as one that crashes would. True: at the end."""
        c = Consumer({
            "bootstrap.servers": BOOTSTRAP, "log_level": 2, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "session.timeout.ms": 6000, "heartbeat.interval.ms": 300, "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        })
        c.subscribe([source])
        out = producer(transactional_id=name)
        out.init_transactions(30)
        ended, done = set(), 0
        while len(ended) < PARTITIONS or done == 0:
            batch = []
            for message in c.consume(40, 0.5):
                if message.error() is None:
                    batch.append(message)
                    ended.discard(message.partition())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise KafkaException(message.error())
            if not batch:
                if len(ended) == PARTITIONS:
                    break
                continue
            out.begin_transaction()
            for message in batch:
                out.produce(sink, b"out " + message.value(), key=message.key(), partition=message.partition())
            positions = {}
            for message in batch:
                positions[message.partition()] = message.offset() + 1
            if done == transactions:
                out.flush(20)
                c.close()
                # As little is left to do for it as for a process that hangs.
                LEFT_OPEN.append(out)
                return False
            out.send_offsets_to_transaction([TopicPartition(source, n, o) for n, o in positions.items()], c.consumer_group_metadata(), 30)
            done += 1
            if done % abort_every == 0:
                out.flush(30)
                out.abort_transaction(30)
                # Back to what is committed, as every such program must.
                held = c.committed([TopicPartition(source, n) for n in positions], 30)
                for partition in held:
                    partition.offset = max(partition.offset, 0)
                    c.seek(partition)
                    ended.discard(partition.partition)
            else:
                out.commit_transaction(30)
        c.close()
        return True

    ended = worker(5, 3)
    ended = worker(6, 4) or ended
    worker(1_000_000, 5)
    for partition, found in enumerate(values(sink)):
        equal(found, [b"out %d" % i for i in range(partition, count, PARTITIONS)], f"output {partition}")
    c = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group})
    equal([p.offset for p in c.committed([TopicPartition(source, n) for n in range(PARTITIONS)], 10)], [count // PARTITIONS] * PARTITIONS, "offsets")
    c.close()


@check("consume, transform, produce over three deaths of the broker: each output once")
def exactly_once_over_deaths():
    source, sink, group, count = topic("source"), topic("sink"), fresh("group"), 900
    p = producer()
    for i in range(count):
        p.produce(source, b"%d" % i, partition=i % PARTITIONS)
    assert p.flush(20) == 0
    # By default it may lose the group's coordinator for good when all brokers were down: docs/interop.md.
    stays = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 500}
    c = Consumer({
        "bootstrap.servers": BOOTSTRAP, "log_level": 2, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
        "isolation.level": "read_committed", "session.timeout.ms": 6000, "heartbeat.interval.ms": 300, "enable.partition.eof": True,
        "fetch.wait.max.ms": 50, **stays,
    })
    c.subscribe([source])
    out = producer(transactional_id=fresh("id"), **stays)

    def surely(act):
        """Again, as long as the library says that this is right."""
        until = time.monotonic() + 60
        while True:
            try:
                return act()
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise

    def back():
        for at in c.committed([TopicPartition(source, n) for n in range(PARTITIONS)], 10):
            at.offset = max(at.offset, 0)
            c.seek(at)
            ended.discard(at.partition)

    surely(lambda: out.init_transactions(10))
    ended, rounds, until = set(), 0, time.monotonic() + 90
    while len(ended) < PARTITIONS:
        assert time.monotonic() < until, f"no end: {ended}, {rounds} transactions"
        batch = []
        for message in c.consume(20, 0.5):
            if message.error() is None:
                batch.append(message)
                ended.discard(message.partition())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        if not batch:
            continue
        rounds += 1
        if rounds in (8, 16, 24):
            threading.Thread(target=broker, args=("restart",)).start()
        try:
            out.begin_transaction()
            for message in batch:
                out.produce(sink, b"out " + message.value(), partition=message.partition())
            positions = {message.partition(): message.offset() + 1 for message in batch}
            listed = [TopicPartition(source, n, o) for n, o in positions.items()]
            surely(lambda: out.send_offsets_to_transaction(listed, c.consumer_group_metadata(), 10))
            surely(lambda: out.commit_transaction(10))
        except KafkaException as error:
            assert error.args[0].txn_requires_abort(), error
            surely(lambda: out.abort_transaction(10))
            surely(back)
    for partition, found in enumerate(values(sink)):
        equal(found, [b"out %d" % i for i in range(partition, count, PARTITIONS)], f"output {partition}")
    c.close()


run()
