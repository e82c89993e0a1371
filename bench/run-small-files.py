#!/usr/bin/python3
"""What small files cost on a mount: microseconds from call to call, and of CPU in the processes given.

usage: run-small-files.py DIRECTORY PID[,PID...] [COUNT]

DIRECTORY is on the mount; the processes are the mount's and, if they run here, the drives'.
"""

import os
import sys
import tempfile
import time

from common import cpu_seconds


def create(directory, count, data):
    for i in range(count):
        file = os.open(f"{directory}/f{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        if data:
            os.write(file, data)
        os.close(file)


def read(directory, count):
    for i in range(count):
        with open(f"{directory}/f{i}", "rb", buffering=0) as file:
            file.read(5000)


def main():
    directory, pids = sys.argv[1], [int(pid) for pid in sys.argv[2].split(",")]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 1000

    def measure(name, function):
        before, start = [cpu_seconds(pid) for pid in pids], time.monotonic()
        function()
        took = (time.monotonic() - start) / count * 1e6
        cpu = [(cpu_seconds(pid) - old) / count * 1e6 for pid, old in zip(pids, before)]
        print(f"{name:20} {took:6.0f}   " + " ".join(f"{each:6.0f}" for each in cpu), flush=True)

    with tempfile.TemporaryDirectory(dir=directory) as work:
        for name in ("empty", "small", "medium"):
            os.mkdir(f"{work}/{name}")
        measure("create, empty", lambda: create(f"{work}/empty", count, b""))
        measure("create, 4 KiB", lambda: create(f"{work}/small", count, os.urandom(4096)))
        measure("create, 20 000 bytes", lambda: create(f"{work}/medium", count, os.urandom(20000)))
        measure("stat", lambda: [os.stat(f"{work}/small/f{i}") for i in range(count)])
        measure("read, 4 KiB", lambda: read(f"{work}/small", count))
        measure("unlink, 4 KiB", lambda: [os.unlink(f"{work}/small/f{i}") for i in range(count)])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main()
