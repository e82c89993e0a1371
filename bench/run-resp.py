#!/usr/bin/env python3
"""How a drive serves clients of the Redis protocol, beside redis-server on the same disk, as redis-benchmark sees it.

    bench/run-resp.py BUILD DIRECTORY [--requests 200000] [--keys 1000000] [--memory 256MiB] [--rounds 3] [--json FILE]

50 connections SET and GET values of 1 KiB under random keys, one command at a time and 16 at a time. What is compared is
equally safe: a drive as it is beside `appendfsync everysec`, and with `resp_sync = "write-through"` beside `appendfsync
always`. A server that keeps nothing is shown as well. Then both get four times as much data as they may have memory, where
this may make cgroups. Everything is made below DIRECTORY and removed again.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from common import MIB, Report, add_options, cpu_seconds, free_port, human, make_drives, size_of
from page import table

OURS, REDIS = "a drive", "redis, everysec"
OURS_SAFE, REDIS_SAFE = "a drive, write-through", "redis, always"
REDIS_NOTHING = "redis, no file"
KEY = "1:benchmark"
CONNECTIONS, VALUE = 50, 1024
CGROUPS = "/sys/fs/cgroup/memory"


class Group:
    """A memory cgroup (version 1) of so many bytes. None can be made: `usable` is false."""

    def __init__(self, limit):
        self.place, self.usable = f"{CGROUPS}/pinstripe-bench-{os.getpid()}", False
        try:
            os.mkdir(self.place)
            with open(f"{self.place}/memory.limit_in_bytes", "w") as file:
                file.write(str(limit))
            self.usable = True
        except OSError:
            pass

    def enter(self):
        with open(f"{self.place}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))

    def remove(self):
        if os.path.isdir(self.place):
            os.rmdir(self.place)


class Server:
    def __init__(self, build, directory, variant, group=None):
        self.variant, self.port = variant, free_port()
        self.place = tempfile.mkdtemp(dir=directory)
        ours = variant in (OURS, OURS_SAFE)
        command = self.drive(build) if ours else self.redis()
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.place,
                                        preexec_fn=group.enter if group else None)
        while self.cli("ping").strip() != "PONG":
            if self.process.poll() is not None:
                sys.exit(f"run-resp: {variant} does not start: {' '.join(command)}")
            time.sleep(0.05)

    def drive(self, build):
        with open(f"{self.place}/credentials.toml", "w") as file:
            os.chmod(file.name, 0o600)
            file.write('[[identity]]\nid = 1\nkey = "benchmark"\n')
        sync = "write-through" if self.variant == OURS_SAFE else "write-back"
        with open(f"{self.place}/pinstriped.toml", "w") as file:
            file.write('[daemon]\nlisten = "127.0.0.1"\ncredentials = "credentials.toml"\n'
                       f'[[drive]]\npath = "drive"\nport = 0\nresp_port = {self.port}\nresp_sync = "{sync}"\n')
        make_drives(f"{build}/daemon/pinstriped", f"{self.place}/drive")
        return [f"{build}/daemon/pinstriped", "--config", f"{self.place}/pinstriped.toml", "--log-level", "error"]

    def redis(self):
        keeps = {REDIS: ("yes", "everysec"), REDIS_SAFE: ("yes", "always"), REDIS_NOTHING: ("no", "no")}[self.variant]
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", keeps[0],
                "--appendfsync", keeps[1], "--requirepass", KEY, "--dir", self.place]

    def cli(self, *words):
        return subprocess.run(["redis-cli", "--no-auth-warning", "-p", str(self.port), "-a", KEY, *words],
                              capture_output=True, text=True).stdout

    def measure(self, operation, requests, keys, depth):
        """Requests per second, seconds of CPU for each, and the milliseconds that 99.9 of 100 take at most."""
        before = cpu_seconds(self.process.pid)
        said = subprocess.run(["redis-benchmark", "-p", str(self.port), "-a", KEY, "-c", str(CONNECTIONS), "-d", str(VALUE),
                               "-r", str(keys), "-n", str(requests), "-P", str(depth), "-t", operation],
                              capture_output=True, text=True)
        rate = re.search(r"throughput summary: ([\d.]+) requests per second", said.stdout)
        if said.returncode != 0 or not rate:
            return None
        tail = next(float(time) for part, time in re.findall(r"^([\d.]+)% <= ([\d.]+) milliseconds", said.stdout, re.MULTILINE)
                    if float(part) >= 99.9)
        return float(rate.group(1)), (cpu_seconds(self.process.pid) - before) / requests, tail

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.place)


def compare(build, work, report, options):
    for depth in (1, 16):
        at_once = "one at a time" if depth == 1 else f"{depth} at a time"
        for variant in (OURS, REDIS, OURS_SAFE, REDIS_SAFE, REDIS_NOTHING):
            safe = variant in (OURS_SAFE, REDIS_SAFE)
            requests = options.requests // 4 if safe else options.requests * (4 if depth > 1 else 1)
            server = Server(build, work, variant)
            try:
                for operation in ("set", "get"):
                    if operation == "get" and safe:
                        continue
                    measured = server.measure(operation, requests, options.keys, depth)
                    if measured is None:
                        sys.exit(f"run-resp: redis-benchmark failed on {variant}")
                    what = f"{operation.upper()}, {at_once}"
                    report.add(what, variant, "1/s", measured[0])
                    report.add(f"{what}: CPU of the server", variant, "us", measured[1] * 1e6, "less")
                    report.add(f"{what}: 99.9 of 100 take at most", variant, "ms", measured[2], "less")
            finally:
                server.stop()


def more_than_memory(build, work, report, options):
    limit = size_of(options.memory)
    keys = 4 * limit // VALUE
    for variant in (OURS, REDIS_NOTHING):
        group = Group(limit)
        server = None
        try:
            if not group.usable:
                print("run-resp: no cgroup can be made here", file=sys.stderr)
                return
            server = Server(build, work, variant, group)
            # Each key once, in order, as fast as it takes them.
            load = subprocess.Popen(["redis-cli", "--no-auth-warning", "-p", str(server.port), "-a", KEY, "--pipe"],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            value, kept = b"x" * VALUE, 0
            try:
                for first in range(0, keys, 1000):
                    load.stdin.write(b"".join(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$%d\r\n%s\r\n" % (i, VALUE, value)
                                              for i in range(first, min(first + 1000, keys))))
                    if server.process.poll() is not None:
                        break
                load.stdin.close()
            except BrokenPipeError:
                pass
            load.wait()
            if server.process.poll() is None:
                kept = int(server.cli("dbsize") or 0)
            report.add(f"{human(4 * limit)} in {human(limit)} of memory: kept", variant, "MiB", kept * VALUE / MIB)
            measured = server.measure("get", options.requests // 4, keys, 1) if kept else None
            if measured:
                report.add(f"{human(4 * limit)} in {human(limit)} of memory: GET, one at a time", variant, "1/s", measured[0])
                report.add(f"{human(4 * limit)} in {human(limit)} of memory: 99.9 of 100 take at most", variant, "ms", measured[2],
                           "less")
        finally:
            if server:
                server.stop()
            group.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("directory")
    parser.add_argument("--requests", type=int, default=200000)
    parser.add_argument("--keys", type=int, default=1000000)
    parser.add_argument("--memory", default="256MiB")
    add_options(parser)
    options = parser.parse_args()
    build = os.path.realpath(options.build)
    work = tempfile.mkdtemp(prefix="pinstripe-bench.", dir=options.directory)
    try:
        report = Report("resp", work, f"{CONNECTIONS} connections of one redis-benchmark, values of {VALUE} bytes, {options.keys} "
                        "random keys.", [(OURS, REDIS), (OURS_SAFE, REDIS_SAFE), (OURS, REDIS_NOTHING)])
        for _ in report.rounds(options.rounds, options.minutes):
            compare(build, work, report, options)
            more_than_memory(build, work, report, options)
        print(table(report.content()))
        report.write(options.json)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
