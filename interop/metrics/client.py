"""The broker's metrics, read by Prometheus' own Python parser and compared with what was produced and committed."""

import os
import time
import urllib.request
from pathlib import Path

from checks import BOOTSTRAP, broker, check, equal, fresh, run
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

ADDRESS = f"http://127.0.0.1:{(Path(os.environ['INTEROP_STATE']) / 'metrics.port').read_text()}"


def page():
    """All families by name; their samples as {(name, labels): value}."""
    with urllib.request.urlopen(f"{ADDRESS}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    families = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in families, f"{family.name} comes twice"
        assert family.documentation and family.type != "unknown", f"{family.name} has no help or no type"
        families[family.name] = {(s.name, frozenset(s.labels.items())): s.value for s in family.samples}
        assert len(families[family.name]) == len(family.samples), f"{family.name} has a series twice"
    return families


def value(families, family, name=None, **labels):
    """One sample; 0 for a counter that hasn't counted yet."""
    return families[family].get((name or family, frozenset(labels.items())), 0)


def topic(name, partitions):
    made = fresh(name)
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(made, partitions, 1)])[made].result(20)
    return made


def produce(of, partition, ages):
    """Records of these ages in seconds."""
    p = Producer({"bootstrap.servers": BOOTSTRAP, "compression.type": "zstd"})
    now = time.time()
    for age in ages:
        p.produce(of, b"value", partition=partition, timestamp=int((now - age) * 1000))
    assert p.flush(20) == 0
    return now


@check("lag per group and partition, in records and in seconds, follows what is produced and committed")
def lag():
    t, group = topic("lag", 2), fresh("group")
    began = produce(t, 0, [300 - i for i in range(200)])
    produce(t, 1, [10])
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group, "enable.auto.commit": False})
    for committed, records, age in [(0, 200, 300), (50, 150, 250), (199, 1, 101), (200, 0, None)]:
        consumer.commit(offsets=[TopicPartition(t, 0, committed)], asynchronous=False)
        families = page()
        labels = {"group": group, "topic": t, "partition": "0"}
        assert value(families, "cutwater_group_lag_records", **labels) == records
        seconds = value(families, "cutwater_group_lag_seconds", **labels)
        if age is None:
            assert seconds == 0, seconds
        else:
            assert age - 0.01 <= seconds <= age + (time.time() - began) + 0.01, (seconds, age)
        assert value(families, "cutwater_group_total_lag_records", group=group) == records
    consumer.close()


@check("requests, errors and latencies are counted once each")
def requests():
    before = page()
    t = topic("counted", 1)
    p = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for i in range(20):
        p.produce(t, b"%d" % i)
        assert p.flush(20) == 0
    # An answer is counted once it has gone, so that its client may be faster.
    until, after = time.monotonic() + 20, page()

    def answered(families):
        return value(families, "cutwater_request_seconds", "cutwater_request_seconds_count", api="Produce")

    while answered(after) - answered(before) < 20:
        assert time.monotonic() < until, "the answers aren't counted"
        after = page()

    def grown(family, name, **labels):
        return value(after, family, name, **labels) - value(before, family, name, **labels)

    assert grown("cutwater_requests", "cutwater_requests_total", api="Produce") == 20
    assert grown("cutwater_request_seconds", "cutwater_request_seconds_count", api="Produce") == 20
    assert grown("cutwater_requests", "cutwater_requests_total", api="CreateTopics") == 1
    assert grown("cutwater_received_bytes", "cutwater_received_bytes_total", api="Produce") > 20 * 61
    assert grown("cutwater_log_synced_write_seconds", "cutwater_log_synced_write_seconds_count") >= 20
    of_produce = [labels for _, labels in after["cutwater_response_errors"] if ("api", "Produce") in labels]
    assert not of_produce, of_produce
    assert value(after, "cutwater_partition_high_watermark", topic=t, partition="0") == 20
    buckets = [(float(dict(labels)["le"]), count) for (name, labels), count in after["cutwater_request_seconds"].items()
               if name.endswith("_bucket") and ("api", "Produce") in labels]
    counts = [count for _, count in sorted(buckets)]
    equal(counts, sorted(counts), "buckets hold what is smaller, too")


@check("an open transaction shows its age and holds the last stable offset, until it ends")
def transactions():
    t = topic("transaction", 1)
    p = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": fresh("id"), "log_level": 2})
    p.init_transactions(20)
    p.begin_transaction()
    p.produce(t, b"value")
    assert p.flush(20) == 0
    time.sleep(0.3)
    families = page()
    open_ones = value(families, "cutwater_transactions", state="open", whose="client")
    assert open_ones == 1, open_ones
    assert 0.3 <= value(families, "cutwater_oldest_transaction_seconds", state="open", whose="client") < 60
    assert value(families, "cutwater_partition_high_watermark", topic=t, partition="0") == 1
    assert value(families, "cutwater_partition_last_stable_offset", topic=t, partition="0") == 0
    p.commit_transaction(20)
    families = page()
    assert value(families, "cutwater_transactions", state="open", whose="client") == 0
    assert value(families, "cutwater_partition_last_stable_offset", topic=t, partition="0") == 2


@check("members and states of groups, before and after the broker was killed")
def groups():
    t, group = topic("members", 2), fresh("group")
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group, "auto.offset.reset": "earliest", "log_level": 2})
    consumer.subscribe([t])
    produce(t, 0, [1])
    until = time.monotonic() + 30
    while consumer.poll(0.2) is None:
        assert time.monotonic() < until, "nothing was read"
    for _ in range(2):
        families = page()
        assert value(families, "cutwater_group_members", group=group) == 1
        assert value(families, "cutwater_group_state", group=group, protocol="classic", state="Stable") == 1
        assert value(families, "cutwater_group_epoch", group=group) >= 1
        broker("restart")
    consumer.close()


@check("the page of health says yes, and anything else isn't there")
def health():
    with urllib.request.urlopen(f"{ADDRESS}/healthz", timeout=20) as answer:
        assert answer.read() == b"ok\n"
    try:
        urllib.request.urlopen(f"{ADDRESS}/else", timeout=20)
        raise AssertionError("another page was there")
    except urllib.error.HTTPError as refused:
        assert refused.code == 404


run()
