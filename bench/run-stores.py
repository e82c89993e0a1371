#!/usr/bin/python3
"""Our store against LevelDB and RocksDB behind the same daemon, in turn, on one disk; and what moving the
same bytes costs a bare process: from a socket into files, and from files into a socket.

    bench/run-stores.py BUILD DIRECTORY [--rounds 3] [--seconds 2] [--values 1MiB,64KiB,4KiB,120B] [--json FILE]
    bench/run-stores.py BUILD DIRECTORY --before OTHER_BUILD ...

The daemon is pinstriped-compare, which a build has that was configured with -D PINSTRIPE_COMPARE_STORES=ON.
With --before it is not the stores that are compared, but ours in the daemon of another build (which may be a file
pinstriped) and in that of this one. DIRECTORY is on the disk to measure; everything is made in there and removed again.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

from common import Report, add_options, free_port, make_drives, size_of
from page import table

# Name here -> `store` in the daemon's configuration. The others are there for this comparison alone, and nothing else
# here knows of them.
OURS = "Pinstripe's store"
STORES = {OURS: "log", "LevelDB": "leveldb", "RocksDB": "rocksdb"}
# What is measured, in this order: the operations of one run, and the order of their keys.
RUNS = ((("put", "get", "missing", "next", "previous"), "seq"), (("put", "get"), "rand"))
RECORD_BYTES = 256 << 20  # of all values, where the limit below is not reached
MAX_RECORDS = 20000
COPY_BYTES = 1 << 30
CHUNK = 1 << 20


def measure_store(build, daemon, directory, store, value, seconds, depth):
    work = pathlib.Path(tempfile.mkdtemp(prefix="run-stores.", dir=directory))
    port = free_port()
    value_bytes = size_of(value)
    records = min(RECORD_BYTES // value_bytes, MAX_RECORDS)
    config = work / "pinstriped.toml"
    config.write_text('[daemon]\nlisten = "127.0.0.1"\n'
                      f'[[drive]]\npath = "{work}/drive"\nport = {port}\nstore = "{store}"\n')
    make_drives(str(daemon), str(work / "drive"))
    daemon = subprocess.Popen([daemon, "--config", config, "--log-level", "error"],
                              stdout=subprocess.PIPE, text=True)
    try:
        if daemon.stdout.readline() != "ready\n":
            sys.exit(f"run-stores: the daemon did not start with store \"{store}\"")
        results = {}
        for operations, order in RUNS:
            done = subprocess.run(
                [build / "tools/pinstripe", "bench", "drive", "--url", f"127.0.0.1:{port}",
                 "--op", ",".join(operations), "--value", value, "--keys", order,
                 "--records", str(records), "--depth", str(depth), "--seconds", str(seconds), "--json"],
                stdout=subprocess.PIPE, text=True, check=True)
            for result in json.loads(done.stdout):
                results[f"{result['op']} {order}"] = result
        return results
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(work)


def cpu_of(work):
    """CPU seconds per GB that a child process spends in `work`."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit("run-stores: the bare copy failed")
    return (usage.ru_utime + usage.ru_stime) / (COPY_BYTES / 1e9)


def measure_copy(directory):
    """CPU seconds per GB: socket into files, and back."""
    work = tempfile.mkdtemp(prefix="run-stores.", dir=directory)
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)

    def files(flags):
        for number in range(COPY_BYTES // (64 * CHUNK)):
            file = os.open(f"{work}/{number}", flags, 0o600)
            yield file
            os.close(file)

    def receive(connection):
        for file in files(os.O_WRONLY | os.O_CREAT):
            for _ in range(64):
                got = 0
                while got < CHUNK:
                    got += connection.recv_into(view[got:])
                os.write(file, buffer)

    def send(connection):
        for file in files(os.O_RDONLY):
            for _ in range(64):
                os.readv(file, [buffer])
                connection.sendall(buffer)

    def other_side(connection, sends):
        for _ in range(COPY_BYTES // CHUNK):
            if sends:
                connection.sendall(buffer)
                continue
            got = 0
            while got < CHUNK:
                got += connection.recv_into(view[got:])

    def run(this_side, peer_sends):
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
            peer = threading.Thread(target=other_side, args=(client, peer_sends))
            peer.start()
            cost = cpu_of(lambda: this_side(accepted))
            peer.join()
            client.close()
            accepted.close()
            return cost

    try:
        return {"put": run(receive, True), "get": run(send, False)}
    finally:
        shutil.rmtree(work)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--values", default="1MiB,64KiB,4KiB,120B")
    add_options(parser)
    arguments = parser.parse_args()

    build = arguments.build.resolve()
    now = build / ("daemon/pinstriped" if arguments.before else "daemon/pinstriped-compare")
    if not now.exists():
        sys.exit(f"run-stores: there is no {now}: configure the build with -D PINSTRIPE_COMPARE_STORES=ON, or compare two "
                 "builds with --before" if not arguments.before else f"run-stores: there is no {now}")
    sides = {name: (now, store) for name, store in STORES.items()}  # the daemon, and its store
    ratios = [(OURS, other) for other in STORES if other != OURS]
    if arguments.before:
        before = arguments.before.resolve()
        sides = {"before": (before if before.is_file() else before / "daemon/pinstriped", STORES[OURS]), "after": (now, STORES[OURS])}
        ratios = [("after", "before")]
    about = f"One connection, {arguments.depth} operations under way, write-back; {arguments.seconds} s for each operation."
    report = Report("drive", arguments.directory, about, ratios)
    for _ in report.rounds(arguments.rounds, arguments.minutes):
        for operation, cost in measure_copy(arguments.directory).items():
            report.add(f"CPU of moving the bytes of a {operation} of 1 MiB", "a bare process", "us", cost * CHUNK / 1e3, "less")
        for value in arguments.values.split(","):
            for side, (daemon, store) in sides.items():
                results = measure_store(build, daemon, arguments.directory, store, value, arguments.seconds, arguments.depth)
                for operation, result in results.items():
                    what = f"{operation}, {value}"
                    report.add(what, side, "1/s", result["operations"] / result["seconds"])
                    report.add(f"CPU of {what}", side, "us", result["daemon_cpu_seconds"] / result["operations"] * 1e6, "less")
                    if operation.startswith("put"):
                        report.add(f"written per byte by {what}", side, "bytes",
                                   result["daemon_written_bytes"] / max(1, result["bytes"]), "less")
    print(table(report.content()))
    report.write(arguments.json)


main()
