"""aiokafka against the broker."""

import asyncio
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, ProducerFenced
from checks import BOOTSTRAP, broker, check, equal, fresh, run, stored_as

PARTITIONS = 3


async def topic(name, partitions=PARTITIONS):
    made = fresh(name)
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    await admin.create_topics([NewTopic(made, partitions, 1)])
    await admin.close()
    return made


async def read(of, partitions=PARTITIONS, **options):
    """All records of a topic by partition, [[record]], up to the end that `end_offsets` says."""
    consumer = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, **options)
    await consumer.start()
    assignment = [TopicPartition(of, p) for p in range(partitions)]
    consumer.assign(assignment)
    ends = await consumer.end_offsets(assignment)
    for partition in assignment:
        consumer.seek(partition, 0)
    found, until = [[] for _ in range(partitions)], time.monotonic() + 30
    while any([await consumer.position(p) < ends[p] for p in assignment]):
        assert time.monotonic() < until, f"no end of {of}: {[(await consumer.position(p), ends[p]) for p in assignment]}"
        for of_partition, records in (await consumer.getmany(timeout_ms=100)).items():
            found[of_partition.partition] += records
    await consumer.stop()
    return found


async def values(of, **options):
    return [[r.value for r in partition] for partition in await read(of, **options)]


@check("produce and consume: every record with its offset, key, headers in order, under each codec, and stored under it")
async def codecs():
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        t, sent, futures = await topic(f"codec-{codec}", 1), [], []
        async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, compression_type=codec, linger_ms=5, enable_idempotence=True) as p:
            for i in range(300):
                key, value, headers = b"key-%d" % (i % 7), b"value %06d " % i * 20, [("same", b"1"), ("same", b"%d" % i)]
                futures.append(await p.send(t, value, key, partition=0, headers=headers, timestamp_ms=1_700_000_000_000 + i))
                sent.append((i, key, value, headers, 1_700_000_000_000 + i))
            equal([(await f).offset for f in futures], range(300), "offsets of the reports")
        found = (await read(t, partitions=1, check_crcs=True))[0]
        equal([(r.offset, r.key, r.value, list(r.headers), r.timestamp) for r in found], sent, f"records under {codec}")
        stored_as(codec or "none", t)


@check("an idempotent producer over two kill -9 of the broker: nothing lost, nothing twice, in order")
async def killed_broker():
    t, count = await topic("killed"), 3_000
    futures, kills = [], []
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True, max_batch_size=1000, request_timeout_ms=60_000) as p:
        for i in range(count):
            futures.append(await p.send(t, b"%d" % i, partition=i % PARTITIONS))
            if i in (count // 3, 2 * count // 3):
                kills.append(asyncio.create_task(asyncio.to_thread(broker, "restart")))
            if i % 50 == 0:
                await asyncio.sleep(0.01)
        await asyncio.gather(*kills)
        reports = [await f for f in futures]
    found = await read(t)
    for n in range(PARTITIONS):
        equal([r.value for r in found[n]], [b"%d" % i for i in range(n, count, PARTITIONS)], f"partition {n}")
        equal([r.offset for r in reports if r.partition == n], [r.offset for r in found[n]], "acknowledged offsets")


@check("transactions: committed ones are seen, aborted ones aren't; a second producer under the same id fences the first")
async def transactions():
    t, name = await topic("transactions"), fresh("id")
    committed, there = [[] for _ in range(PARTITIONS)], [[] for _ in range(PARTITIONS)]
    first = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=name)
    await first.start()
    for n in range(30):
        await first.begin_transaction()
        for i in range(6):
            await first.send_and_wait(t, b"%d/%d" % (n, i), partition=i % PARTITIONS)
            there[i % PARTITIONS].append(b"%d/%d" % (n, i))
            if n % 3 != 1:
                committed[i % PARTITIONS].append(b"%d/%d" % (n, i))
        if n % 3 == 1:
            await first.abort_transaction()
        else:
            await first.commit_transaction()
    await first.begin_transaction()
    await first.send_and_wait(t, b"left open", partition=0)
    second = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=name)
    await second.start()
    async with second.transaction():
        await second.send_and_wait(t, b"of the second", partition=0)
    there[0] += [b"left open", b"of the second"]
    committed[0].append(b"of the second")
    try:
        await first.commit_transaction()
        raise AssertionError("the zombie could commit")
    except ProducerFenced:
        pass
    await second.stop()
    try:
        await first.stop()
    except KafkaError:
        pass
    for n in range(PARTITIONS):
        equal((await values(t, isolation_level="read_committed"))[n], committed[n], f"read_committed {n}")
        equal((await values(t))[n], there[n], f"read_uncommitted {n}")


@check("consume, transform, produce with offsets in the transaction, a worker replaced twice: each output once")
async def exactly_once():
    source, sink, group, count = await topic("source", 4), await topic("sink", 4), fresh("group"), 1_000

    async def send(begin, end):
        async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP) as p:
            for i in range(begin, end):
                await p.send(source, b"%d" % i, partition=i % 4)

    seen = [0]

    async def member(name, transactions):
        """Works until its transactions are used up; the last one it leaves open, as a crash would."""
        consumer = AIOKafkaConsumer(source, bootstrap_servers=BOOTSTRAP, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
                                    isolation_level="read_committed", session_timeout_ms=6000, heartbeat_interval_ms=300, max_poll_records=30)
        producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=f"{group}-{name}")
        await consumer.start()
        await producer.start()
        used = 0
        try:
            while seen[0] < count:
                batch = await consumer.getmany(timeout_ms=200)
                if not batch:
                    continue
                used += 1
                await producer.begin_transaction()
                for partition, records in batch.items():
                    for record in records:
                        await producer.send(sink, b"out " + record.value, partition=partition.partition)
                if used > transactions:
                    await producer.flush()
                    return
                try:
                    await producer.send_offsets_to_transaction({p: r[-1].offset + 1 for p, r in batch.items()}, group)
                    await producer.commit_transaction()
                    seen[0] += sum(len(r) for r in batch.values())
                except KafkaError:
                    await producer.abort_transaction()
                    raise
        finally:
            await consumer.stop()
            # `stop` leaves an open transaction open; the next one under the same id aborts it.
            await producer.stop()

    await send(0, count // 2)
    await asyncio.wait_for(member("first", 3), 60)
    sending = asyncio.create_task(send(count // 2, count))
    # One after the other within one process: aiokafka's offsets in transactions carry no generation, so overlapping members could repeat.
    await asyncio.wait_for(member("first", 5), 60)
    await sending
    await asyncio.wait_for(member("first", 1_000_000), 60)
    found = await values(sink, partitions=4, isolation_level="read_committed")
    for n in range(4):
        equal(found[n], [b"out %d" % i for i in range(n, count, 4)], f"output {n}")
    consumer = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, group_id=group, enable_auto_commit=False)
    await consumer.start()
    equal([await consumer.committed(TopicPartition(source, n)) for n in range(4)], [count // 4] * 4, "committed offsets")
    await consumer.stop()


@check("a group of two shares the partitions, a third joins after a kill of the broker; every record comes")
async def groups():
    t, group, count = await topic("group", 4), fresh("group"), 800
    seen, owners, tasks = {}, {}, {}

    async def member(name):
        async with AIOKafkaConsumer(t, bootstrap_servers=BOOTSTRAP, group_id=group, auto_offset_reset="earliest", enable_auto_commit=True,
                                    auto_commit_interval_ms=100, session_timeout_ms=6000, heartbeat_interval_ms=200) as consumer:
            while len(seen) < count:
                for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                    for record in records:
                        equal([seen.setdefault((partition.partition, record.offset), record.value)], [record.value], "the same record")
                owners[name] = len(consumer.assignment())

    async def send(begin, end):
        async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True) as p:
            for i in range(begin, end):
                await p.send(t, b"%d" % i, partition=i % 4)

    async def until(condition, what):
        end = time.monotonic() + 40
        while not condition():
            for task in tasks.values():
                assert not task.done() or task.exception() is None, task.exception()
            assert time.monotonic() < end, f"{what}: {owners}, {len(seen)} seen"
            await asyncio.sleep(0.05)

    try:
        for name in ("first", "second"):
            tasks[name] = asyncio.create_task(member(name))
        await send(0, count // 2)
        await until(lambda: owners == {"first": 2, "second": 2}, "each has two")
        await asyncio.to_thread(broker, "restart")
        tasks["third"] = asyncio.create_task(member("third"))
        await until(lambda: sorted(owners.values()) == [1, 1, 2], "three members")
        await send(count // 2, count)
        await until(lambda: len(seen) == count, "all are seen")
        await asyncio.wait_for(asyncio.gather(*tasks.values()), 30)
    finally:
        for task in tasks.values():
            task.cancel()
    for n in range(4):
        equal([v for (p, o), v in sorted(seen.items()) if p == n], [b"%d" % i for i in range(n, count, 4)], f"partition {n}")


run(lambda function: asyncio.run(function()))
