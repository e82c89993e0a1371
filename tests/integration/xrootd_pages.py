#!/usr/bin/env python3
"""A page that does not arrive as it was sent (kXR_pgwrite), said to a real server byte by byte, as
no client of XRootD sends one on purpose:   xrootd_pages.py HOST PORT PATH

The server is to ask for it again. Where it comes again the upload is as if nothing had happened;
where it does not, closing fails, and what was there before stays."""

import functools
import os
import socket
import struct
import subprocess
import sys

CLOSE, PROTOCOL, LOGIN, OPEN, PGWRITE = 3003, 3006, 3007, 3010, 3026
OK, ERROR, STATUS = 0, 4003, 4007
DELETE, UPDATE, RETRY = 0x0002, 0x0020, 0x01
CHECKSUM_ERROR = 3019
PAGE = 4096


def table_of(polynomial):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (polynomial if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = table_of(0x82F63B78)


@functools.lru_cache(maxsize=None)
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Client:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=30)
        self.socket.sendall(struct.pack(">5i", 0, 0, 0, 4, 2012))
        assert self.answer()[0] == OK
        self.ask(PROTOCOL, struct.pack(">iBB10x", 0x520, 0, 0))
        status, _ = self.ask(LOGIN, struct.pack(">i8sBBBB", os.getpid(), b"pages", 0, 0, 5, 0))
        assert status == OK, status

    def receive(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            assert more, "the server has hung up"
            data += more
        return data

    def answer(self):
        _, status, size = struct.unpack(">HHI", self.receive(8))
        body = self.receive(size)
        if status == STATUS:  # says at its end how much follows
            body += self.receive(struct.unpack(">i", body[12:16])[0])
        return status, body

    def ask(self, request, parameters, body=b""):
        self.socket.sendall(struct.pack(">HH16si", 0, request, parameters, len(body)) + body)
        return self.answer()

    def open(self, path):
        status, body = self.ask(
            OPEN, struct.pack(">HHH10x", 0o644, DELETE | UPDATE, 0), path.encode()
        )
        assert status == OK, body
        return body[:4]

    def write(self, handle, offset, data, damaged=None, flags=0):
        """Where the pages begin that the server wants again. A bit of byte `damaged` turns over."""
        body = bytearray()
        for at in range(0, len(data), PAGE):
            page = bytearray(data[at : at + PAGE])
            body += struct.pack(">I", crc32c(bytes(page)))
            if damaged is not None and at <= damaged < at + PAGE:
                page[damaged - at] ^= 1
            body += page
        status, answer = self.ask(PGWRITE, struct.pack(">4sqBB2x", handle, offset, 0, flags), body)
        assert status == STATUS, answer
        wanted = answer[24 + 8 :]
        return list(struct.unpack(f">{len(wanted) // 8}q", wanted))

    def close(self, handle):
        """0, or the number of an error."""
        status, body = self.ask(CLOSE, struct.pack(">4s12x", handle))
        return 0 if status == OK else struct.unpack(">i", body[:4])[0]


def contents(host, port, path):
    copied = subprocess.run(
        ["xrdcp", "-s", f"root://{host}:{port}/{path}", "-"], stdout=subprocess.PIPE, check=True
    )
    return copied.stdout


def main():
    host, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    failures = 0

    def expect(what, is_so):
        nonlocal failures
        failures += not is_so
        if not is_so:
            print(f"{what}: no")

    client = Client(host, port)
    before = b"before"
    handle = client.open(path)
    expect("a good page is taken", client.write(handle, 0, before) == [])
    expect("and kept", client.close(handle) == 0 and contents(host, port, path) == before)

    # The block of the larger one is full before its page comes again.
    for size in (3 * PAGE + 100, 1100 * PAGE + 10):
        data = os.urandom(size)
        for damaged in (PAGE + 7, size - 1):
            page = damaged // PAGE * PAGE
            case = f"{size} bytes, damaged at {damaged}"
            handle = client.open(path)
            expect(f"{case}: the page is wanted again", client.write(handle, 0, data, damaged) == [page])
            expect(f"{case}: closing without it fails", client.close(handle) == CHECKSUM_ERROR)
            expect(f"{case}: what was there stays", contents(host, port, path) == before)

            handle = client.open(path)
            client.write(handle, 0, data, damaged)
            again = client.write(handle, page, data[page : page + PAGE], flags=RETRY)
            expect(f"{case}: it is good when it has come again", again == [])
            expect(f"{case}: closing succeeds", client.close(handle) == 0)
            expect(f"{case}: all of it is there", contents(host, port, path) == data)

            handle = client.open(path)
            client.write(handle, 0, before)
            expect(f"{case}: the next file", client.close(handle) == 0)
    sys.exit(1 if failures else 0)


main()
