#!/usr/bin/env python3
"""Record batches as a client made them that shares no code with Cutwater: the fixtures of
partition-log/tests/codec_known_answers.rs.

    python3 -m venv venv && venv/bin/pip install kafka-python==3.0.12 lz4==4.4.5 zstandard==0.25.0 python-snappy==0.7.3
    venv/bin/python interop/batches/generate.py partition-log/tests/fixtures

Every file is one batch with the same 400 records, which the test makes again by the rule of `records()`.
"""

import pathlib
import struct
import sys

import snappy
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TIME = 1_700_000_000_000
HEADER = 61


def records():
    for n in range(400):
        key = None if n % 3 == 0 else b"key-%d" % (n % 17)
        value = None if n % 50 == 7 else b"flight %d of carrier %d, delayed by %d minutes; " % (n, n % 16, n * n % 181) * 2
        headers = [("via", b"ORD"), ("via", None)] if n % 10 == 0 else []
        yield TIME + n * 3 - n % 5, key, value, headers


def batch(codec):
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=False,
        producer_id=4711, producer_epoch=3, base_sequence=100, batch_size=1 << 20)
    for offset, (timestamp, key, value, headers) in enumerate(records()):
        assert builder.append(offset, timestamp, key, value, headers) is not None
    return bytes(builder.build())


def bare_snappy(plain):
    """As librdkafka writes it: one snappy block without any framing."""
    block = snappy.compress(plain[HEADER:])
    out = bytearray(plain[:HEADER] + block)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">h", out, 21, CODECS["snappy"])
    struct.pack_into(">I", out, 17, calc_crc32c(bytes(out[21:])))
    return bytes(out)


def main():
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for name, codec in CODECS.items():
        (target / f"{name}.batch").write_bytes(batch(codec))
    (target / "snappy-bare.batch").write_bytes(bare_snappy(batch(CODECS["none"])))


if __name__ == "__main__":
    main()
