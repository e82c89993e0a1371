#!/usr/bin/python3
"""Random operations on files behind an XRootD server, compared with the same on plain bytes.

usage: xrootd_random.py root://HOST:PORT//DIRECTORY [SEED [OPERATIONS]]

Every answer is compared at once, and every file wholly each time it is opened again. What failed is
printed with the seed and the last operations, so that it can be repeated.
"""

import random
import sys
import time
from collections import deque

from XRootD import client
from XRootD.client.flags import MkDirFlags, OpenFlags

FILES = 4
MOST_BYTES = 24 << 20  # several blocks, and a last one that is short
MOST_AT_ONCE = 3 << 20
# Where things go wrong: around the limits of inline files, cells, shards and blocks.
EDGES = [0, 1, 64, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 4 << 20, (4 << 20) + 1,
         8 << 20]


class Difference(Exception):
    pass


def check(status, what):
    if not status.ok:
        raise Difference(f"{what}: {status.message.strip()}")


def compare(got, expected, what):
    if got == expected:
        return
    if len(got) != len(expected):
        raise Difference(f"{what}: {len(got)} bytes instead of {len(expected)}")
    first = next(i for i, (a, b) in enumerate(zip(got, expected)) if a != b)
    raise Difference(f"{what}: byte {first} is {got[first]:#x} instead of {expected[first]:#x}")


class Model:
    """One file: what it should contain, and the handle through which it is being changed."""

    def __init__(self, server, path, dice):
        self.server, self.path, self.dice = server, path, dice
        self.name = path.rsplit("/", 1)[1]
        self.data = bytearray()
        self.exists = False
        self.handle = None

    # --- chance ---

    def offset(self):
        size = len(self.data)
        kind = self.dice.randrange(4)
        if kind == 0:
            return min(self.dice.choice(EDGES), MOST_BYTES)
        if kind == 1:
            return size
        return self.dice.randrange(min(size + size // 4 + 4096, MOST_BYTES))

    def length(self):
        kind = self.dice.randrange(4)
        if kind == 0:
            return self.dice.choice([edge for edge in EDGES if edge <= MOST_AT_ONCE])
        if kind == 1:
            return self.dice.randrange(MOST_AT_ONCE)
        return self.dice.randrange(70000)

    # --- operations ---

    def open(self):
        self.handle = client.File()
        url = f"{self.server}/{self.path}"
        if not self.exists or self.dice.random() < 0.1:
            status, _ = self.handle.open(url, OpenFlags.DELETE, 0o644)
            check(status, "open for overwriting")
            self.data, self.exists = bytearray(), True
            return "create"
        status, _ = self.handle.open(url, OpenFlags.UPDATE)
        check(status, "open for update")
        self.compare_all(self.handle, "after opening")
        return "update"

    def close(self):
        status, _ = self.handle.close()
        self.handle = None
        check(status, "close")
        return "close"

    def write(self):
        offset, length = self.offset(), self.length()
        length = min(length, MOST_BYTES - offset)
        if length <= 0:
            return "write nothing"
        piece = self.dice.randbytes(length)
        status, _ = self.handle.write(piece, offset, length)
        check(status, f"write {length} at {offset}")
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:offset + length] = piece
        return f"write {length} at {offset}"

    def append(self):
        if len(self.data) + MOST_AT_ONCE > MOST_BYTES:
            return "append nothing"
        piece = self.dice.randbytes(self.length())
        if not piece:
            return "append nothing"
        status, _ = self.handle.write(piece, len(self.data), len(piece))
        check(status, f"append {len(piece)}")
        self.data.extend(piece)
        return f"append {len(piece)}"

    def read(self):
        offset, length = self.offset(), max(1, self.length())
        what = f"read {length} at {offset} of {len(self.data)}"
        status, got = self.handle.read(offset, length)
        check(status, what)
        compare(got, bytes(self.data[offset:offset + length]), what)
        return what

    def vector_read(self):
        size = len(self.data)
        if size == 0:
            return "vector read nothing"
        # Each place once: the client does not understand answers with the same piece twice.
        places = {self.dice.randrange(size) for _ in range(self.dice.randrange(1, 30))}
        chunks = [(offset, self.dice.randrange(1, min(size - offset, 60000) + 1))
                  for offset in sorted(places)]
        self.dice.shuffle(chunks)
        status, answer = self.handle.vector_read(chunks)
        check(status, f"vector read {chunks}")
        for chunk in answer.chunks:
            compare(bytes(chunk.buffer), bytes(self.data[chunk.offset:chunk.offset + chunk.length]),
                    f"vector read {chunk.length} at {chunk.offset}")
        return f"vector read {len(chunks)} pieces"

    def truncate(self):
        size = min(self.offset(), MOST_BYTES)
        status, _ = self.handle.truncate(size)
        check(status, f"truncate to {size}")
        self.resize(size)
        return f"truncate to {size}"

    def sync(self):
        status, _ = self.handle.sync()
        check(status, "sync")
        return "sync"

    def stat(self):
        status, info = self.handle.stat(True)
        check(status, "stat of the handle")
        if info.size != len(self.data):
            raise Difference(f"stat: size {info.size} instead of {len(self.data)}")
        return "stat"

    # --- of closed files ---

    def read_again(self):
        handle = client.File()
        status, _ = handle.open(f"{self.server}/{self.path}", OpenFlags.READ)
        check(status, "open for reading")
        self.compare_all(handle, "read again")
        check(handle.close()[0], "close after reading")
        return "read all"

    def truncate_path(self, files):
        size = min(self.offset(), MOST_BYTES)
        check(files.truncate(self.path, size)[0], f"truncate the path to {size}")
        self.resize(size)
        return f"truncate the path to {size}"

    def stat_path(self, files):
        status, info = files.stat(self.path)
        check(status, "stat of the path")
        if info.size != len(self.data):
            raise Difference(f"stat of the path: size {info.size} instead of {len(self.data)}")
        return "stat of the path"

    def rename(self, files):
        path = self.path + "r" if not self.path.endswith("r") else self.path[:-1]
        check(files.mv(self.path, path)[0], f"rename to {path}")
        self.path = path
        return f"rename to {path}"

    def remove(self, files):
        check(files.rm(self.path)[0], "remove")
        status, _ = files.stat(self.path)
        if status.ok or status.errno != 3011:
            raise Difference(f"after its removal, stat says: {status.message}")
        self.data, self.exists = bytearray(), False
        return "remove"

    def resize(self, size):
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))

    def compare_all(self, handle, what):
        status, info = handle.stat(True)
        check(status, "stat of the handle")
        if info.size != len(self.data):
            raise Difference(f"{what}: size {info.size} instead of {len(self.data)}")
        for offset in range(0, len(self.data), 8 << 20):
            status, got = handle.read(offset, 8 << 20)
            check(status, f"{what}: read at {offset}")
            compare(got, bytes(self.data[offset:offset + (8 << 20)]), f"{what}, from {offset}")

    # --- one step ---

    def step(self, files):
        if self.handle is not None:
            operation = self.dice.choices(
                [self.write, self.append, self.read, self.vector_read, self.truncate, self.stat,
                 self.sync, self.close], [30, 15, 30, 6, 6, 5, 2, 6])[0]
            return operation()
        if self.exists and self.dice.random() < 0.5:
            operation = self.dice.choices(
                [lambda _: self.read_again(), self.truncate_path, self.stat_path, self.rename,
                 self.remove], [4, 2, 4, 3, 1])[0]
            return operation(files)
        return self.open()


def run(url, seed, operations):
    server, directory = url.split("//", 2)[1], "/" + url.split("//", 2)[2].strip("/")
    server = "root://" + server
    dice = random.Random(seed)
    files = client.FileSystem(server)
    check(files.mkdir(directory, MkDirFlags.MAKEPATH)[0], f"mkdir {directory}")
    models = [Model(server, f"{directory}/random{i}", dice) for i in range(FILES)]
    last = deque(maxlen=12)
    start = time.monotonic()
    for number in range(operations):
        model = dice.choice(models)
        try:
            last.append(f"{number} {model.name}: {model.step(files)}")
        except Difference as difference:
            print("\n".join(last))
            print(f"{number} {model.name} ({model.path}): {difference}")
            print(f"FAILED; repeat with: {sys.argv[0]} {url} {seed} {operations}")
            return 1
    for model in models:
        if model.handle is not None:
            model.close()
        if model.exists:
            model.read_again()
            model.remove(files)
    print(f"{operations} random operations as expected, seed {seed}, "
          f"{time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    sys.exit(run(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1,
                 int(sys.argv[3]) if len(sys.argv) > 3 else 3000))
