#!/usr/bin/env python3
"""xrdcp up and down through a gateway of Pinstripe, and through the same xrootd on a plain directory of the same disk.

    bench/run-xrootd.py BUILD [--sizes 1M,...,1G] [--layout 4+2] [--drives 8] [--rounds 3] [--json FILE]
    bench/run-xrootd.py BUILD --small-files 400 ...

In each round, in turn: uploads, downloads, downloads of what the gateway has in its memory, downloads with two drives
dead. With --small-files it is many files of 4 KiB and of 100 000 bytes instead, with eight copies at once. Everything is
made in $TMPDIR and removed again. CPU is that of the server, and for Pinstripe of the drives as well.
"""

import argparse
import concurrent.futures
import filecmp
import os
import shutil
import sys
import tempfile
import time

from common import MIB, Cluster, Report, XrootdServer, add_options, cpu_seconds, human, run, set_memory, size_of
from page import table

AT_ONCE = 8
QUICK = 16 * MIB  # files up to here are copied several times in each round
COPIES_OF_QUICK = 3
CPU_FROM = 16 * MIB  # what is shorter takes a few ticks of the clock that counts CPU
DEAD = ("1", "2")
PLAIN, OURS, TWO_DEAD = "plain xrootd", "Pinstripe", "two drives dead"


def copy(*arguments):
    run("xrdcp", "--nopbar", "--silent", "-f", *arguments)


class Bench:
    def __init__(self, work, arguments):
        self.work, self.arguments, self.sizes = work, arguments, arguments.sizes
        build = os.path.realpath(arguments.build)
        self.cluster = Cluster(build, f"{work}/cluster", "--layout", arguments.layout, "--drives", str(arguments.drives))
        self.plain = None
        try:
            set_memory(self.cluster.config, arguments.memory)
            self.plain = XrootdServer(self.cluster, work, without=("ofs.osslib",), more=("oss.localroot PLACE/data",))
            copy(self.source(self.filler()), self.url("/filler"))
            about = f"Layout {arguments.layout} on {arguments.drives} drives; client, servers and drives share the cores."
            small = arguments.small_files
            self.report = Report("small-files" if small else "copy", work, about,
                                 [(OURS, PLAIN)] if small else [(OURS, PLAIN), (TWO_DEAD, OURS)])
        except BaseException:
            self.stop()
            raise

    def stop(self):
        if self.plain:
            self.plain.stop()
        self.cluster.down()

    def filler(self):
        """As large as the gateway's memory, which it fills: memory that was never touched costs page faults, once."""
        return size_of(self.arguments.memory.replace(" ", ""))

    def source(self, size):
        path = f"{self.work}/source-{size}"
        if not os.path.exists(path):
            with open("/dev/urandom", "rb") as chance, open(path, "wb") as file:
                for at in range(0, size, MIB):
                    file.write(chance.read(min(MIB, size - at)))
        return path

    def look(self):
        status = self.cluster.status()
        self.gateway = status["gateway"]["pid"]
        self.gateway_url = status["gateway"]["url"].rstrip("/")
        self.drives = [daemon["pid"] for daemon in status["daemons"] if daemon.get("running", True)]
        self.drives = [pid for pid in self.drives if pid and os.path.exists(f"/proc/{pid}/stat")]

    def url(self, path, variant=OURS):
        self.look()
        return (self.plain.url.rstrip("/") if variant == PLAIN else self.gateway_url) + "/" + path

    def restart_gateway(self):
        """With nothing in its memory of what is read next, and nothing of it untouched."""
        self.cluster.kill("gateway")
        self.cluster.start("gateway")
        copy(self.url("/filler"), "/dev/null")

    def timed(self, variant, action):
        """Seconds, and CPU seconds of those who serve."""
        self.look()
        pids = [self.plain.pid] if variant == PLAIN else [self.gateway, *self.drives]
        cpu, begin = cpu_seconds(*pids), time.monotonic()
        action()
        return time.monotonic() - begin, cpu_seconds(*pids) - cpu

    # ---- Files of a size

    def names(self, size):
        return [f"/{size}-{i}" for i in range(COPIES_OF_QUICK if size <= QUICK else 1)]

    def copies(self, what, size, variants, arguments):
        """A sample for each variant; `arguments(name, variant)` are those of xrdcp."""
        spent = {variant: (0, 0) for variant in variants}
        for name in self.names(size):
            for variant in variants:
                took = self.timed(variant, lambda v=variant, n=name: copy(*arguments(n, v)))
                spent[variant] = tuple(a + b for a, b in zip(spent[variant], took))
        amount = size * len(self.names(size))
        for variant, (seconds, cpu) in spent.items():
            self.report.add(f"{what}, {human(size)}", variant, "MB/s", amount / 1e6 / seconds)
            if size >= CPU_FROM and what != "download again":
                self.report.add(f"CPU of {what}, {human(size)}", variant, "s/GB", cpu / amount * 1e9, "less")

    def download(self, what, size, variants):
        self.copies(what, size, variants, lambda name, variant: (self.url(name, variant), "/dev/null"))

    def round(self, _):
        for size in self.sizes:
            os.sync()  # nobody pays for what others have written before
            self.copies("upload", size, (PLAIN, OURS), lambda name, variant: (self.source(size), self.url(name, variant)))
        os.sync()
        self.restart_gateway()
        for size in self.sizes:
            self.download("download", size, (PLAIN, OURS))
        self.restart_gateway()
        for size in self.sizes:
            if size * len(self.names(size)) <= self.filler() // 2:
                for name in self.names(size):
                    copy(self.url(name), "/dev/null")
                self.download("download again", size, (PLAIN, OURS))
        self.cluster.kill(*DEAD)
        self.restart_gateway()
        for size in self.sizes:
            self.download("download", size, (TWO_DEAD,))
        size = max((size for size in self.sizes if size <= 64 * MIB), default=min(self.sizes))
        copy(self.url(self.names(size)[0]), f"{self.work}/back")
        assert filecmp.cmp(f"{self.work}/back", self.source(size), shallow=False), "wrong bytes came back"
        self.cluster.start(*DEAD)
        self.restart_gateway()

    # ---- Many small files

    def small_round(self, number):
        for size in (4096, 100_000):
            self.small_files(size, number)

    def small_files(self, size, number):
        count, source, back = self.arguments.small_files, f"{self.work}/small-{size}", f"{self.work}/back-small"
        os.makedirs(source, exist_ok=True)
        names = [f"f{i}" for i in range(count)]
        for name in names:
            with open(f"{source}/{name}", "wb") as file:
                file.write(os.urandom(size))
        several = names[:max(AT_ONCE, count // 4)]  # starting so many processes takes its time

        def each(pairs):
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda pair: copy(*pair), pairs))

        def measure(what, variant, files, action):
            seconds, cpu = self.timed(variant, action)
            what = f"{what}, {size} bytes"
            self.report.add(what, variant, "files/s", files / seconds)
            self.report.add(f"CPU of {what}", variant, "us/file", cpu / files * 1e6, "less")

        parallel = ("--parallel", str(AT_ONCE))
        for variant in (PLAIN, OURS):
            root = self.url(f"/small-{size}-{number}", variant)
            for kind in "ab":
                run("xrdfs", root.split("//")[1], "mkdir", f"/small-{size}-{number}-{kind}")
            measure("upload by one xrdcp", variant, count,
                    lambda r=root: copy(*parallel, *[f"{source}/{name}" for name in names], f"{r}-a/"))
            measure("upload by an xrdcp for each", variant, len(several),
                    lambda r=root: each([(f"{source}/{name}", f"{r}-b/{name}") for name in several]))
            shutil.rmtree(back, ignore_errors=True)
            os.mkdir(back)
            measure("download by one xrdcp", variant, count,
                    lambda r=root: copy(*parallel, *[f"{r}-a/{name}" for name in names], back + "/"))
            assert len(os.listdir(back)) == count
            measure("download by an xrdcp for each", variant, len(several),
                    lambda r=root: each([(f"{r}-b/{name}", f"{back}/{name}") for name in several]))

    def run(self):
        one = self.small_round if self.arguments.small_files else self.round
        for number in self.report.rounds(self.arguments.rounds, self.arguments.minutes):
            one(number)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--layout", default="4+2")
    parser.add_argument("--drives", type=int, default=8)
    parser.add_argument("--sizes", default="1M,16M,64M,256M,1G")
    parser.add_argument("--small-files", type=int, default=0, metavar="COUNT")
    parser.add_argument("--memory", default="512 MiB", help="of the gateway (cluster.toml)")
    add_options(parser)
    arguments = parser.parse_args()
    arguments.sizes = [size_of(size) for size in arguments.sizes.split(",")]
    os.environ["XRD_NETWORKSTACK"] = "IPv4"
    # Each xrdcp asks for the name of its host: a name server that is slow to answer is not what is measured.
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
    work = tempfile.mkdtemp(prefix="pinstripe-bench.")
    os.chmod(work, 0o755)
    try:
        needed = 5 * sum(arguments.sizes)
        if shutil.disk_usage(work).free < needed + (5 << 30):
            sys.exit(f"run-xrootd: {work} has no room for {needed >> 30} GiB; ask for smaller --sizes")
        bench = Bench(work, arguments)
        try:
            bench.run()
        finally:
            bench.stop()
        print(table(bench.report.content()))
        bench.report.write(arguments.json)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
