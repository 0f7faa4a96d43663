"""An old librdkafka, out of the wheel that once carried it: `old.py LIBRARY` runs it through its C interface.

Its own Python module wants an older Python; the library itself wants nothing. What it prints is one line; it fails with an exception.
Under each codec: an idempotent producer, the reports' offsets, the codec as it is stored, the records read back. Then, where it has them,
transactions: one committed, one aborted, the next one committed.
"""

import ctypes
import os
import socket
import struct
import sys
import time
from pathlib import Path
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p, create_string_buffer

from checks import BOOTSTRAP, equal, fresh, stored_as

# What the wheel brings along beside it is found by nobody else.
for beside in Path(sys.argv[1]).parent.glob("libz-*"):
    ctypes.CDLL(str(beside), ctypes.RTLD_GLOBAL)
lib = ctypes.CDLL(sys.argv[1])
PRODUCER, CONSUMER, COPY, EOF = 0, 1, 2, -191


class Message(Structure):
    _fields_ = [("err", c_int), ("rkt", c_void_p), ("partition", c_int32), ("payload", c_void_p), ("len", c_size_t), ("key", c_void_p),
                ("key_len", c_size_t), ("offset", c_int64), ("private", c_void_p)]


REPORT = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)
for name, result, arguments in [
    ("rd_kafka_version_str", c_char_p, []), ("rd_kafka_version", c_int, []), ("rd_kafka_conf_new", c_void_p, []),
    ("rd_kafka_conf_set", c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]),
    ("rd_kafka_conf_set_dr_msg_cb", None, [c_void_p, REPORT]), ("rd_kafka_new", c_void_p, [c_int, c_void_p, c_char_p, c_size_t]),
    ("rd_kafka_topic_new", c_void_p, [c_void_p, c_char_p, c_void_p]),
    ("rd_kafka_produce", c_int, [c_void_p, c_int32, c_int, c_char_p, c_size_t, c_char_p, c_size_t, c_void_p]),
    ("rd_kafka_flush", c_int, [c_void_p, c_int]), ("rd_kafka_destroy", None, [c_void_p]),
    ("rd_kafka_topic_partition_list_new", c_void_p, [c_int]),
    ("rd_kafka_topic_partition_list_add", c_void_p, [c_void_p, c_char_p, c_int32]),
    ("rd_kafka_topic_partition_list_set_offset", c_int, [c_void_p, c_char_p, c_int32, c_int64]),
    ("rd_kafka_assign", c_int, [c_void_p, c_void_p]), ("rd_kafka_consumer_poll", POINTER(Message), [c_void_p, c_int]),
    ("rd_kafka_message_destroy", None, [POINTER(Message)]), ("rd_kafka_consumer_close", c_int, [c_void_p]),
    ("rd_kafka_topic_destroy", None, [c_void_p]),
]:
    function = getattr(lib, name)
    function.restype, function.argtypes = result, arguments
TRANSACTIONS = hasattr(lib, "rd_kafka_init_transactions")
if TRANSACTIONS:
    lib.rd_kafka_error_string.restype, lib.rd_kafka_error_string.argtypes = c_char_p, [c_void_p]
    for name, arguments in [("init_transactions", [c_void_p, c_int]), ("begin_transaction", [c_void_p]),
                            ("commit_transaction", [c_void_p, c_int]), ("abort_transaction", [c_void_p, c_int])]:
        function = getattr(lib, f"rd_kafka_{name}")
        function.restype, function.argtypes = c_void_p, arguments


def client(kind, **options):
    conf, why = lib.rd_kafka_conf_new(), create_string_buffer(512)
    for name, value in {"bootstrap.servers": BOOTSTRAP, "log_level": "2", **options}.items():
        assert lib.rd_kafka_conf_set(conf, name.replace("_", ".").replace("log.level", "log_level").encode(), value.encode(), why, 512) == 0, why.value
    reports = []
    report = REPORT(lambda _, message, __: reports.append((message[0].err, message[0].offset)))
    if kind == PRODUCER:
        lib.rd_kafka_conf_set_dr_msg_cb(conf, report)
    handle = lib.rd_kafka_new(kind, conf, why, 512)
    assert handle, why.value
    # The callback must live as long as the handle.
    return handle, reports, report


def send(handle, topic, values):
    to = lib.rd_kafka_topic_new(handle, topic.encode(), None)
    for value in values:
        assert lib.rd_kafka_produce(to, 0, COPY, value, len(value), None, 0, None) == 0, "a full queue"
    assert lib.rd_kafka_flush(handle, 20_000) == 0, "not all was reported"
    lib.rd_kafka_topic_destroy(to)


def read(topic, isolation="read_committed"):
    handle, *_ = client(CONSUMER, group_id=fresh("reader"), enable_auto_commit="false", enable_partition_eof="true", check_crcs="true",
                        **({"isolation.level": isolation} if TRANSACTIONS else {}))
    all_of_it = lib.rd_kafka_topic_partition_list_new(1)
    lib.rd_kafka_topic_partition_list_add(all_of_it, topic.encode(), 0)
    lib.rd_kafka_topic_partition_list_set_offset(all_of_it, topic.encode(), 0, 0)
    assert lib.rd_kafka_assign(handle, all_of_it) == 0
    found, until = [], time.monotonic() + 30
    while True:
        assert time.monotonic() < until, f"no end of {topic} after {len(found)} records"
        message = lib.rd_kafka_consumer_poll(handle, 200)
        if not message:
            continue
        error, record = message[0].err, (message[0].offset, ctypes.string_at(message[0].payload, message[0].len))
        lib.rd_kafka_message_destroy(message)
        if error == EOF:
            lib.rd_kafka_consumer_close(handle)
            return found
        assert error == 0, f"error {error}"
        found.append(record)


def create(topic):
    """Makes a topic, over a plain socket: the oldest librdkafka gives up a topic that isn't there yet, and Kafka takes a moment to make one."""
    host, port = BOOTSTRAP.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as connection, connection.makefile("rb") as answers:
        name = topic.encode()
        # CreateTopics, version 2: one partition, one replica.
        body = struct.pack(">hhih", 19, 2, 7, -1) + struct.pack(">ih", 1, len(name)) + name + struct.pack(">ihiii?", 1, 1, 0, 0, 20_000, False)
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = answers.read(struct.unpack(">i", answers.read(4))[0])
        error, = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(name))
        assert error == 0, f"{topic} can't be made: {error}"
    time.sleep(0.5 if os.environ.get("INTEROP_AGAINST") == "kafka" else 0)


def done(error):
    assert not error, lib.rd_kafka_error_string(error).decode()


for codec in sys.argv[2].split(","):
    topic, values = fresh(f"old-{codec}"), [b"value %06d " % i * 20 for i in range(300)]
    create(topic)
    p, reports, alive = client(PRODUCER, compression_codec=codec, enable_idempotence="true")
    send(p, topic, values)
    equal(reports, [(0, i) for i in range(300)], "reports")
    stored_as(codec, topic)
    equal(read(topic), list(enumerate(values)), f"records under {codec}")
if TRANSACTIONS:
    topic = fresh("old-transactions")
    p, reports, alive = client(PRODUCER, transactional_id=fresh("id"))
    done(lib.rd_kafka_init_transactions(p, 20_000))
    for value, end in [(b"first", lib.rd_kafka_commit_transaction), (b"aborted", lib.rd_kafka_abort_transaction), (b"second", lib.rd_kafka_commit_transaction)]:
        done(lib.rd_kafka_begin_transaction(p))
        send(p, topic, [value])
        done(end(p, 20_000))
    equal(read(topic), [(0, b"first"), (4, b"second")], "read_committed")
    equal(read(topic, "read_uncommitted"), [(0, b"first"), (2, b"aborted"), (4, b"second")], "read_uncommitted")
print(f"{lib.rd_kafka_version_str().decode()}: {sys.argv[2]}{', transactions' if TRANSACTIONS else ''}")
sys.stdout.flush()
# Threads of the library's are left as they are.
os._exit(0)
