"""Sends a drive very many tiny requests over one connection, and reads none of the answers until it takes no more.

Speaks the Kinetic protocol by hand, as far as that needs (docs/protocol.md), so that nothing of ours is tried with itself.
"""

import hashlib
import hmac
import socket
import struct
import threading
import time

KEY, IDENTITY = b"asdfasdf", 1  # the factory's
GET, GETLOG, NOOP = 2, 24, 30
SUCCESS, NOT_FOUND = 1, 7


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def number_field(number, value):
    return varint(number << 3) + varint(value)


def bytes_field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


MOST = b"".join(number_field(1, kind) for kind in (3, 4, 5, 6))  # of a GETLOG: the longest answer to so short a question


def fields(data):
    """What a message of Protocol Buffers says, as far as it has numbers and bytes: the last of each number."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            found[tag >> 3] = number()
        else:
            size = {1: 8, 5: 4}[tag & 7] if tag & 7 != 2 else number()
            found[tag >> 3] = data[at:at + size]
            at += size
    return found


class Connection:
    def __init__(self, port):
        self.bytes = 0
        self.socket = socket.socket()
        for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # so that what waits waits at the drive
            self.socket.setsockopt(socket.SOL_SOCKET, buffer, 1 << 16)
        self.socket.settimeout(30)
        self.socket.connect(("127.0.0.1", port))
        self.received = bytearray()
        header = fields(self.answer()[1])
        self.version, self.id = header.get(1, 0), header[3]

    def request(self, sequence, kind, body=b""):
        header = (number_field(1, self.version) + number_field(3, self.id) + number_field(4, sequence) + number_field(7, kind))
        command = bytes_field(1, header) + (bytes_field(2, body) if body else b"")
        mac = hmac.digest(KEY, struct.pack(">I", len(command)) + command, hashlib.sha1)
        message = (number_field(4, 1) + bytes_field(5, number_field(1, IDENTITY) + bytes_field(2, mac)) + bytes_field(7, command))
        return b"F" + struct.pack(">II", len(message), 0) + message

    def tiny_request(self, sequence):
        if sequence % 2:
            return self.request(sequence, GETLOG, bytes_field(6, MOST))
        if sequence % 4:
            return self.request(sequence, GET, bytes_field(1, bytes_field(3, b"\x05chaos%d" % sequence)))
        return self.request(sequence, NOOP)

    def answer(self):
        """The fields of the command that came next."""
        while True:
            if len(self.received) >= 9:
                size, value = struct.unpack(">II", self.received[1:9])
                if len(self.received) >= 9 + size + value:
                    self.bytes += 9 + size + value
                    message = bytes(self.received[9:9 + size])
                    del self.received[:9 + size + value]
                    return fields(fields(message)[7])
            more = self.socket.recv(1 << 20)
            if not more:
                raise ConnectionError("the drive has ended the connection")
            self.received += more

    def close(self):
        self.socket.close()


class Flood:
    """`count` requests, whose answers are read when the drive takes no more of them; `unread` is called before that."""

    def __init__(self, port, count):
        self.connection, self.count = Connection(port), count
        self.sent = self.stopped_at = 0
        self.error = None
        self.requests = [b"".join(map(self.connection.tiny_request, range(begin, min(begin + 500, count))))
                         for begin in range(0, count, 500)]

    def send(self):
        try:
            self.connection.socket.settimeout(300)
            for piece in self.requests:
                self.connection.socket.sendall(piece)
                self.sent += 1
        except OSError as error:
            self.error = error

    def run(self, unread):
        sender = threading.Thread(target=self.send, daemon=True)
        sender.start()
        seen, since = -1, time.monotonic()
        while sender.is_alive() and time.monotonic() < since + 2:
            if self.sent != seen:
                seen, since = self.sent, time.monotonic()
            sender.join(0.05)
        self.stopped_at = min(self.sent * 500, self.count)
        unread()
        answered = set()
        while len(answered) < self.count:
            command = self.connection.answer()
            header, status = fields(command[1]), fields(command[3])
            if status.get(1) not in (SUCCESS, NOT_FOUND) or header[6] in answered:
                raise ConnectionError(f"request {header[6]} is answered with {status}, or twice")
            answered.add(header[6])
        sender.join()
        self.connection.close()
        if self.error:
            raise self.error
