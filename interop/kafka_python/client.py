"""kafka-python against the broker."""

import threading
import time

from checks import BOOTSTRAP, broker, check, equal, fresh, run, stored_as
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import OffsetAndMetadata

PARTITIONS = 3


def topic(name, partitions=PARTITIONS):
    made = fresh(name)
    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    admin.create_topics([NewTopic(made, partitions, 1)])
    admin.close()
    return made


def read(of, partitions=PARTITIONS, **options):
    """All records of a topic by partition, [[record]], up to the end that `end_offsets` says."""
    consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, **options)
    assignment = [TopicPartition(of, p) for p in range(partitions)]
    consumer.assign(assignment)
    ends = consumer.end_offsets(assignment)
    consumer.seek_to_beginning()
    found, until = [[] for _ in range(partitions)], time.monotonic() + 30
    while any(consumer.position(p) < ends[p] for p in assignment):
        assert time.monotonic() < until, f"no end of {of}: {[(consumer.position(p), ends[p]) for p in assignment]}"
        for of_partition, records in consumer.poll(100).items():
            found[of_partition.partition] += records
    consumer.close()
    return found


def values(of, **options):
    return [[r.value for r in partition] for partition in read(of, **options)]


@check("produce and consume: every record with its offset, key, headers in order, under each codec, and stored under it")
def codecs():
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        t, sent, futures = topic(f"codec-{codec}", 1), [], []
        p = KafkaProducer(bootstrap_servers=BOOTSTRAP, compression_type=codec, linger_ms=5, acks="all")
        for i in range(300):
            key, value, headers = b"key-%d" % (i % 7), b"value %06d " % i * 20, [("same", b"1"), ("same", b"%d" % i)]
            futures.append(p.send(t, value, key, headers, partition=0, timestamp_ms=1_700_000_000_000 + i))
            sent.append((i, key, value, headers, 1_700_000_000_000 + i))
        p.flush(20)
        equal([f.get(10).offset for f in futures], range(300), "offsets of the reports")
        p.close()
        found = read(t, partitions=1, check_crcs=True)[0]
        equal([(r.offset, r.key, r.value, [tuple(h) for h in r.headers], r.timestamp) for r in found], sent, f"records under {codec}")
        stored_as(codec or "none", t)


@check("timestamps: the offset of a time, the first and the last offset")
def times():
    t = topic("times", 1)
    p = KafkaProducer(bootstrap_servers=BOOTSTRAP)
    for i in range(50):
        p.send(t, b"%d" % i, partition=0, timestamp_ms=1_700_000_000_000 + i * 1000).get(10)
    p.close()
    c, partition = KafkaConsumer(bootstrap_servers=BOOTSTRAP), TopicPartition(t, 0)
    found = [c.offsets_for_times({partition: 1_700_000_000_000 + s})[partition] for s in (0, 1, 41_000, 49_000, 49_001)]
    equal([f and f.offset for f in found], [0, 1, 41, 49, None], "offsets of times")
    equal([c.beginning_offsets([partition])[partition], c.end_offsets([partition])[partition]], [0, 50], "first and last offset")
    c.close()


@check("an idempotent producer over two kill -9 of the broker: nothing lost, nothing twice, in order")
def killed_broker():
    t, count = topic("killed"), 3_000
    p = KafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True, acks="all", linger_ms=5, batch_size=1000, reconnect_backoff_max_ms=500)
    futures, kills = [], []
    for i in range(count):
        futures.append(p.send(t, b"%d" % i, partition=i % PARTITIONS))
        if i in (count // 3, 2 * count // 3):
            kills.append(threading.Thread(target=broker, args=("restart",)))
            kills[-1].start()
        if i % 50 == 0:
            time.sleep(0.01)
    for kill in kills:
        kill.join()
    reports = [f.get(60) for f in futures]
    p.close()
    found = read(t)
    for n in range(PARTITIONS):
        equal([r.value for r in found[n]], [b"%d" % i for i in range(n, count, PARTITIONS)], f"partition {n}")
        equal([r.offset for r in reports if r.partition == n], [r.offset for r in found[n]], "acknowledged offsets")


@check("a group of two: a member joins and leaves in the middle; every record comes, in order, again only where it moved")
def groups():
    t, group, count = topic("group", 4), fresh("group"), 1_200
    seen, assigned, failures = [], {}, []
    stop = {"first": threading.Event(), "second": threading.Event()}

    def member(name):
        try:
            c = KafkaConsumer(t, bootstrap_servers=BOOTSTRAP, group_id=group, auto_offset_reset="earliest", enable_auto_commit=True,
                              auto_commit_interval_ms=200, session_timeout_ms=6000, heartbeat_interval_ms=200, max_poll_records=50)
            while not stop[name].is_set():
                for records in c.poll(100).values():
                    seen.extend((r.partition, r.offset, r.value, name) for r in records)
                assigned[name] = sorted(p.partition for p in c.assignment())
            assigned[name] = []
            c.close()
        except Exception as error:
            failures.append(error)
            raise

    def wait_for(condition, what):
        until = time.monotonic() + 40
        while not condition():
            assert time.monotonic() < until and not failures, f"{what}: {assigned}, {len(seen)} records seen, {failures}"
            time.sleep(0.05)

    p = KafkaProducer(bootstrap_servers=BOOTSTRAP, linger_ms=5)

    def send(begin, end):
        for i in range(begin, end):
            p.send(t, b"%d" % i, partition=i % 4)
        p.flush(20)

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
    assert not failures, failures
    for partition in range(4):
        due, before = 0, None
        for n, offset, value, name in seen:
            if n != partition:
                continue
            # What was polled and not yet committed comes again when the member leaves or the partition is given out anew.
            assert offset <= due and (offset == due or name != before or offset == 0), f"partition {partition}: {offset} came to {name} where {due} was due"
            equal([value], [b"%d" % (offset * 4 + partition)], "the value")
            due, before = offset + 1, name
        equal([due], [count // 4], f"partition {partition}")
    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    committed = admin.list_group_offsets(group)
    committed = committed.get(group, committed)
    equal([committed[TopicPartition(t, n)].offset for n in range(4)], [count // 4] * 4, "committed offsets")
    admin.close()


@check("transactions: committed ones are seen, aborted ones aren't, with offsets of a group in them")
def transactions():
    t, source, group = topic("transactions"), topic("source", 1), fresh("group")
    p = KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=fresh("id"))
    p.init_transactions()
    committed, there = [[] for _ in range(PARTITIONS)], [[] for _ in range(PARTITIONS)]
    # Consumers' group metadata of nobody in particular: offsets of a group without members.
    consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, group_id=group, enable_auto_commit=False)
    for n in range(30):
        p.begin_transaction()
        sent = [p.send(t, b"%d/%d" % (n, i), partition=i % PARTITIONS) for i in range(6)]
        [f.get(20) for f in sent]
        p.send_offsets_to_transaction({TopicPartition(source, 0): OffsetAndMetadata(n + 1, "", -1)}, consumer.group_metadata())
        for i in range(6):
            there[i % PARTITIONS].append(b"%d/%d" % (n, i))
            if n % 3 != 2:
                committed[i % PARTITIONS].append(b"%d/%d" % (n, i))
        if n % 3 == 2:
            p.abort_transaction()
        else:
            p.commit_transaction()
    p.close()
    consumer.close()
    for n in range(PARTITIONS):
        equal(values(t, isolation_level="read_committed")[n], committed[n], f"read_committed {n}")
        equal(values(t)[n], there[n], f"read_uncommitted {n}")
    c = KafkaConsumer(bootstrap_servers=BOOTSTRAP, group_id=group, enable_auto_commit=False)
    equal([c.committed(TopicPartition(source, 0))], [29], "the group's offset: of the last committed transaction")
    c.close()


run()
