"""librdkafka in a round of chaos: an idempotent producer, a transactional one, a consumer of what is committed."""

import os
import random
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from telling import PARTITIONS, TOPIC, Recorder, arguments, stage, value

BROKER, RECORDER, SEED, FIRST = arguments()
OVER = stage()
COMMON = {"bootstrap.servers": BROKER, "log_level": 0, "reconnect.backoff.max.ms": 200, "socket.timeout.ms": 6000}


def delivered(recorder, stamp, process, partition, sent):
    def report(error, message):
        if error is None:
            recorder.end(stamp, process, "ok", f"send {partition} {sent} {message.offset()}")
        else:
            recorder.end(stamp, process, "unknown", f"send {partition} {sent} -1")

    return report


def plain(process):
    recorder, dice, number = Recorder(RECORDER), random.Random(SEED), 0
    p = Producer({**COMMON, "enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 300_000, "batch.num.messages": 20})
    while not OVER.is_set():
        number += 1
        partition = dice.randrange(PARTITIONS)
        for index in range(dice.randrange(1, 20)):
            sent = value(process, number, index)
            p.produce(TOPIC, str(sent), partition=partition, on_delivery=delivered(recorder, recorder.start(), process, partition, sent))
        p.poll(0)
        if len(p) > 500:
            p.flush(1)
    left = p.flush(80)
    if left:
        recorder.trouble(f"librdkafka's idempotent producer has {left} messages left")


def transactional(process):
    recorder, dice, number = Recorder(RECORDER), random.Random(SEED + 1), 0

    def fresh():
        p = Producer({**COMMON, "transactional.id": f"librdkafka-{process}", "linger.ms": 0, "transaction.timeout.ms": 300_000})
        while True:
            try:
                p.init_transactions(10)
                return p
            except KafkaException as error:
                if not error.args[0].retriable():
                    recorder.trouble(f"init_transactions: {error}")
                    raise

    p = fresh()
    while not OVER.is_set():
        number += 1
        recorder.end(recorder.start(), process, "ok", f"begin {number}")
        stamp = None
        try:
            p.begin_transaction()
            for index in range(dice.randrange(1, 10)):
                partition, sent = dice.randrange(PARTITIONS), value(process, number, index)
                p.produce(TOPIC, str(sent), partition=partition, on_delivery=delivered(recorder, recorder.start(), process, partition, sent))
            if dice.randrange(4) == 0:
                p.flush(30)
                stamp = recorder.start()
                surely(lambda: p.abort_transaction(10))
                recorder.end(stamp, process, "ok", f"abort {number}")
            else:
                stamp = recorder.start()
                surely(lambda: p.commit_transaction(10))
                recorder.end(stamp, process, "ok", f"commit {number}")
        except KafkaException as error:
            if stamp is None:
                stamp = recorder.start()
            recorder.end(stamp, process, "unknown", f"commit {number}")
            try:
                if not error.args[0].txn_requires_abort():
                    raise
                surely(lambda: p.abort_transaction(10))
            except KafkaException:
                # As a program would that is started again. What is under way is given up, and told of as unknown.
                p.purge()
                p.flush(5)
                p = fresh()


def surely(act):
    """Again, as long as the library says that this is right."""
    while True:
        try:
            return act()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def consumer(process):
    recorder = Recorder(RECORDER)
    c = Consumer({**COMMON, "group.id": f"librdkafka-{process}", "isolation.level": "read_committed", "enable.auto.commit": False,
                  "auto.offset.reset": "error", "fetch.wait.max.ms": 50, "check.crcs": True})
    c.assign([TopicPartition(TOPIC, n, 0) for n in range(PARTITIONS)])
    position = [0] * PARTITIONS
    while not OVER.is_set():
        # One stamp for each partition, all of them older than the call.
        stamps, found = [recorder.start() for _ in range(PARTITIONS)], {}
        for message in c.consume(500, 0.1):
            if message.error() is None:
                found.setdefault(message.partition(), []).append((message.offset(), message.value().decode()))
            elif message.error().code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                recorder.trouble(f"librdkafka's consumer: {message.error()}")
        for partition, records in found.items():
            since = position[partition]
            position[partition] = records[-1][0] + 1
            listed = " ".join(f"{offset}:{sent}" for offset, sent in records)
            recorder.end(stamps[partition], process, "ok", f"poll {partition} {since} {position[partition]} 0 {listed}")
    c.close()


def died(what):
    Recorder(RECORDER).trouble(f"librdkafka: {what.thread.name} has died: {what.exc_value}")


threading.excepthook = died
# The administrator fences it again and again, and it would say so each time. What goes wrong here is told to the recorder.
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
threads = [threading.Thread(target=of, args=(FIRST + n,), daemon=True) for n, of in enumerate((plain, transactional, consumer))]
for thread in threads:
    thread.start()
OVER.wait()
until = time.monotonic() + 85
for thread in threads:
    thread.join(max(0.1, until - time.monotonic()))
stuck = [thread.name for thread in threads if thread.is_alive()]
if stuck:
    Recorder(RECORDER).trouble(f"librdkafka: {stuck} don't come to an end")
os._exit(1 if stuck else 0)
