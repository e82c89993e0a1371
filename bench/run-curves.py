#!/usr/bin/python3
"""The curves that Minglani et al. measured of Kinetic drives, of a `pinstriped`: puts and gets by the size of values and
the order of keys, write modes, throughput by the number of connections, the time that a key takes that is not there,
GETPREVIOUS against gets in reverse order, and pushes from drive to drive. Then what many drives in one process take.

    bench/run-curves.py BUILD DIRECTORY [--seconds 2] [--rounds 3] [--json FILE]

DIRECTORY is on the disk to measure; everything is made in there and removed again.
"""

import argparse
import hashlib
import hmac
import json
import os
import pathlib
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

from common import Report, add_options, make_drives, size_of
from page import table

SIZES = {value: size_of(value) for value in ("1MiB", "64KiB", "4KiB", "120B")}
CURVE = ("120B", "1KiB", "4KiB", "16KiB", "64KiB", "256KiB", "1MiB")
MODES = {"WRITEBACK": 2, "WRITETHROUGH": 1, "FLUSH": 3}
PUSH_BYTES = 256 << 20
MAX_PUSHED = 4000
OPERATIONS_PER_PUSH = 200
KEY = b"asdfasdf"
PUT, PUSH = 4, 28


# As much of protobuf as these requests need: fields of numbers and of bytes.
def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(data):
    at = 0

    def take():
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    while at < len(data):
        tag = take()
        if tag & 7 == 0:
            yield tag >> 3, take()
        elif tag & 7 == 2:
            size = take()
            yield tag >> 3, data[at:at + size]
            at += size
        else:
            sys.exit("run-curves: an answer that this script does not understand")


class Connection:
    """One connection, one request at a time."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sequence = 0
        self.receive()  # the greeting

    def read(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                sys.exit("run-curves: the drive hung up")
            data += part
        return data

    def receive(self):
        magic, message, value = struct.unpack(">cII", self.read(9))
        data = self.read(message)
        self.read(value)
        return dict(fields(dict(fields(data))[7]))

    def ask(self, message_type, body, value=b""):
        """The body of the answer, which must be SUCCESS."""
        self.sequence += 1
        command = field(1, field(4, self.sequence) + field(7, message_type)) + field(2, body)
        signature = hmac.new(KEY, struct.pack(">I", len(command)) + command, hashlib.sha1).digest()
        message = field(4, 1) + field(5, field(1, 1) + field(2, signature)) + field(7, command)
        self.socket.sendall(struct.pack(">cII", b"F", len(message), len(value)) + message + value)
        answer = self.receive()
        status = dict(fields(answer[3]))
        if status[1] != 1:
            sys.exit(f"run-curves: the drive answered {status}")
        return answer[2]


def measure_push(source, target, size):
    """Records and bytes a second from drive to drive, write-through."""
    connection = Connection(source)
    keys = [b"curves/%08d" % i for i in range(min(PUSH_BYTES // size, MAX_PUSHED))]
    value = os.urandom(size)
    for key in keys:
        connection.ask(PUT, field(1, field(3, key) + field(8, 1) + field(9, 2)), value)
    peer = field(1, field(1, b"127.0.0.1") + field(2, target))
    begin = time.monotonic()
    for first in range(0, len(keys), OPERATIONS_PER_PUSH):
        operations = b"".join(field(2, field(3, key) + field(6, 1)) for key in keys[first:first + OPERATIONS_PER_PUSH])
        answer = connection.ask(PUSH, field(4, peer + operations))
        if dict(fields(dict(fields(answer))[4])).get(3) != 1:
            sys.exit("run-curves: not every record was pushed")
    seconds = time.monotonic() - begin
    return len(keys) / seconds, len(keys) * size / seconds


def measure_modes(port, size, seconds):
    """Puts a second in each mode, one at a time."""
    connection = Connection(port)
    value = os.urandom(size)
    rates = []
    for number in MODES.values():
        count = 0
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            key = b"curves/mode/%d" % (count % 64)
            connection.ask(PUT, field(1, field(3, key) + field(8, 1) + field(9, number)), value)
            count += 1
        rates.append(count / (time.monotonic() - begin))
    return rates


class Daemon:
    """One process with some drives."""

    def __init__(self, build, directory, drives=2):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="run-curves.", dir=directory))
        probes = [socket.socket() for _ in range(drives)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        self.ports = [probe.getsockname()[1] for probe in probes]
        for probe in probes:
            probe.close()
        config = self.work / "pinstriped.toml"
        config.write_text('[daemon]\nlisten = "127.0.0.1"\n' + "".join(
            f'[[drive]]\npath = "{self.work}/{port}"\nport = {port}\n' for port in self.ports))
        make_drives(str(build / "daemon/pinstriped"), *(str(self.work / str(port)) for port in self.ports))
        self.process = subprocess.Popen([build / "daemon/pinstriped", "--config", config, "--log-level", "error"],
                                        stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            sys.exit("run-curves: the daemon did not start")

    def status(self, name):
        """A number of /proc/PID/status: of threads, or of KiB."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in text.splitlines() if line.startswith(name + ":")).split()[1])

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.work)


def time_of_puts(connections):
    """Milliseconds until a WRITETHROUGH put of 4 KiB on each of them, all at once, is answered; the median of 15."""
    times = []
    for number in range(15):
        begin = time.monotonic()
        puts = [threading.Thread(target=connection.ask, args=(
            PUT, field(1, field(3, b"curves/many/%d" % number) + field(8, 1) + field(9, 1)), bytes(4096)))
            for connection in connections]
        for put in puts:
            put.start()
        for put in puts:
            put.join()
        times.append(time.monotonic() - begin)
    return statistics.median(times) * 1e3


def measure_many(build, directory, drives, bench):
    """Threads, MiB without load and the most of it under load, and the milliseconds of one durable put and of one on each drive."""
    daemon = Daemon(build, directory, drives)
    try:
        idle = daemon.status("VmRSS")
        for port in daemon.ports:
            bench(port, "--op", "put,get,next", "--value", "1KiB", "--keys", "rand", "--depth", "32", "--records",
                  "20000", "--seconds", "0.5")
        one = time_of_puts([Connection(daemon.ports[0])])
        every = time_of_puts([Connection(port) for port in daemon.ports])
        return daemon.status("Threads"), idle / 1024, daemon.status("VmHWM") / 1024, one, every
    finally:
        daemon.close()


def measure_once(build, arguments, report):
    daemon = Daemon(build, arguments.directory)

    def bench_port(port, *options):
        done = subprocess.run(
            [build / "tools/pinstripe", "bench", "drive", "--url", f"127.0.0.1:{port}", "--json", *options],
            stdout=subprocess.PIPE, text=True, check=True)
        return [(result["operations"] / result["seconds"], result["latency_us"]["p50"], result["latency_us"]["p99"])
                for result in json.loads(done.stdout)]

    def bench(*options):
        return bench_port(daemon.ports[0], "--seconds", str(arguments.seconds), *options)

    def add_latencies(what, variant, result):
        for name, value in zip(("median", "99 of 100"), result[1:]):
            report.add(f"{what}: {name}", variant, "us", value, "less")

    try:
        for value in CURVE:
            for order in ("seq", "rand"):
                results = bench("--op", "put,get", "--value", value, "--keys", order, "--depth", "8",
                                "--records", str(min(10000, PUSH_BYTES // size_of(value))))
                for operation, result in zip(("put", "get"), results):
                    report.add(f"{operation} {order}, 8 under way", value, "1/s", result[0])
                    add_latencies(f"{operation} {order}, 8 under way", value, result)
        for value, size in SIZES.items():
            for mode, rate in zip(MODES, measure_modes(daemon.ports[0], size, arguments.seconds)):
                report.add(f"put {mode}, one at a time", value, "1/s", rate)
        for value, records in (("1MiB", 256), ("4KiB", 10000)):
            for connections in (1, 2, 4, 8):
                results = bench("--op", "put,get", "--value", value, "--keys", "rand", "--depth", "8",
                                "--records", str(records), "--connections", str(connections))
                for operation, result in zip(("put", "get"), results):
                    report.add(f"{operation} rand, {connections} connections", value, "1/s", result[0])
        for value, size in SIZES.items():
            missing, previous, get = bench("--op", "missing,previous,get", "--value", value, "--keys", "reverse",
                                           "--depth", "1", "--records", str(min(10000, PUSH_BYTES // size)))
            add_latencies("no such key", value, missing)
            report.add("previous, one at a time", value, "1/s", previous[0])
            report.add("get in reverse order, one at a time", value, "1/s", get[0])
        for value, size in SIZES.items():
            report.add("pushed to another drive", value, "1/s", measure_push(*daemon.ports, size)[0])
    finally:
        daemon.close()
    for drives in (1, 36):
        names = (("threads", "threads"), ("memory, idle", "MiB"), ("memory at most", "MiB"), ("a durable put", "ms"),
                 ("a durable put on each drive", "ms"))
        for (what, unit), value in zip(names, measure_many(build, arguments.directory, drives, bench_port)):
            report.add(what, f"{drives} drive{'s' if drives > 1 else ''}", unit, value, "less")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=2)
    add_options(parser)
    arguments = parser.parse_args()
    report = Report("curves", arguments.directory, "A `pinstriped` with two drives; write-back where no mode is named.",
                    [("36 drives", "1 drive")])
    for _ in report.rounds(arguments.rounds, arguments.minutes):
        measure_once(arguments.build.resolve(), arguments, report)
    print(table(report.content()))
    report.write(arguments.json)


main()
