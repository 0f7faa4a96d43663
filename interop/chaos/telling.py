"""What a client in a round of chaos shares: values, the stage, and the recorder that it tells what it does (chaos/src/record.rs)."""

import socket
import sys
import threading

TOPIC, PARTITIONS = "chaos", 4


def arguments():
    """The broker's address, the recorder's, the seed, and the first of a hundred process numbers."""
    broker, recorder, seed, first = sys.argv[-4:]
    return broker, recorder, int(seed), int(first)


def stage():
    """An event that is set once nothing new is to be begun: when standard input ends."""
    over = threading.Event()

    def wait():
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    return over


def value(process, number, index):
    return process << 48 | number << 16 | index


class Recorder:
    """One connection to it; may be used by several threads."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines, self.lock, self.number = self.socket.makefile("r"), threading.Lock(), 0

    def start(self):
        """A call is about to be made: when this returns, it is known."""
        with self.lock:
            self.number += 1
            self.socket.sendall(b"S %d\n" % self.number)
            assert int(self.lines.readline()) == self.number
            return self.number

    def end(self, number, process, outcome, what):
        with self.lock:
            self.socket.sendall(f"E {number} {process} {outcome} {what}\n".encode())

    def trouble(self, what):
        """Something that must not happen."""
        with self.lock:
            self.socket.sendall(f"T 0 {what}\n".encode())
