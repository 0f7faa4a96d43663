#!/usr/bin/env python3
"""The codec of each batch of a partition as it is stored: `stored.py TOPIC PARTITION` prints a line per batch: `OFFSET CODEC RECORDS`.

Clients stop compressing without a word when a broker's list of versions displeases them (KAFKA-18659), and what is read back looks the same.
So the bytes are asked for over a plain socket and nothing is taken apart but the batches' heads.
"""

import os
import socket
import struct
import sys

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def batches(bootstrap, topic, partition):
    """[(base offset, codec, records)] from the first offset on."""
    host, port = bootstrap.rsplit(":", 1)
    found, offset = [], 0
    with socket.create_connection((host, int(port)), timeout=20) as connection, connection.makefile("rb") as answers:
        while True:
            name = topic.encode()
            # Fetch, version 4: as every broker since 0.11 has it, Kafka 4 included.
            body = struct.pack(">hhih", 1, 4, 7, -1)
            body += struct.pack(">iiiib", -1, 0, 0, 1 << 24, 0)
            body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, partition, offset, 1 << 24)
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = answers.read(struct.unpack(">i", answers.read(4))[0])
            at = 4 + 4 + 4 + 2 + len(name) + 4
            _, error, end, _, aborted = struct.unpack_from(">ihqqi", answer, at)
            if error:
                sys.exit(f"{topic}/{partition}: error {error}")
            at += 26 + 16 * max(aborted, 0)
            size, = struct.unpack_from(">i", answer, at)
            records = answer[at + 4:at + 4 + size]
            before = offset
            while len(records) >= 61:
                base, length = struct.unpack_from(">qi", records)
                if len(records) < 12 + length:
                    break
                attributes, last = struct.unpack_from(">hi", records, 21)
                count, = struct.unpack_from(">i", records, 57)
                if base >= offset and not attributes & 0x20:
                    found.append((base, CODECS[attributes & 7], count))
                offset = base + last + 1
                records = records[12 + length:]
            if offset >= end or offset == before:
                return found


if __name__ == "__main__":
    for batch in batches(os.environ["INTEROP_BOOTSTRAP"], sys.argv[1], int(sys.argv[2])):
        print(*batch)
