#!/usr/bin/env python3
"""xrdcp up and down through a gateway of Pinstripe, and through the same xrootd on a plain directory of the same disk.

    bench/run-xrootd.py BUILD [--layouts 4+2/8,10+2/12] [--sizes 4K,...,1G] [--rounds 3] [--files 400] [--json FILE]

In each round, in turn: uploads, downloads, downloads of what the gateway has in its memory, downloads with two drives
dead. Then many small files, with eight copies at once. Everything is made in $TMPDIR and removed again. The tables have
medians, ratios, and CPU seconds per GB of the servers and of the drives; see README.md beside this file.
"""

import argparse
import concurrent.futures
import filecmp
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from common import MIB, Cluster, XrootdServer, cpu_seconds, run, set_memory, size_of

AT_ONCE = 8
QUICK = 16 * MIB  # files up to here are copied several times in each round
COPIES_OF_QUICK = 3
CPU_FROM = 16 * MIB  # what is shorter takes a few ticks of the clock that counts CPU
DEAD = ("1", "2")


def say(*words):
    print(f"{time.strftime('%H:%M:%S')} load {os.getloadavg()[0]:.1f}:", *words, file=sys.stderr, flush=True)


def copy(*arguments):
    run("xrdcp", "--nopbar", "--silent", "-f", *arguments)


def human(size):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


class Results:
    """Samples of (seconds, CPU of the server, CPU of the drives) by what was done."""

    def __init__(self):
        self.samples = {}

    def measure(self, key, server, drives, action):
        before, drives_before = cpu_seconds(server), cpu_seconds(*drives)
        begin = time.monotonic()
        action()
        seconds = time.monotonic() - begin
        self.samples.setdefault(key, []).append(
            (seconds, cpu_seconds(server) - before, cpu_seconds(*drives) - drives_before))

    def seconds(self, *key):
        return statistics.median(sample[0] for sample in self.samples[key])

    def cpu(self, column, *key):
        return statistics.mean(sample[column] for sample in self.samples[key])


class Bench:
    def __init__(self, build, work, layout, drives, arguments):
        self.work, self.layout, self.sizes, self.arguments = work, layout, arguments.sizes, arguments
        self.results = Results()
        self.cluster = Cluster(build, f"{work}/cluster", "--layout", layout, "--drives", str(drives))
        set_memory(self.cluster.config, arguments.memory)
        self.plain = XrootdServer(self.cluster, work, without=("ofs.osslib",), more=("oss.localroot PLACE/data",))
        copy(self.source(self.filler()), self.url("/filler"))

    def stop(self):
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

    def url(self, path, where="pinstripe"):
        self.look()
        return (self.gateway_url if where == "pinstripe" else self.plain.url.rstrip("/")) + "/" + path

    def restart_gateway(self):
        """With nothing in its memory of what is read next, and nothing of it untouched."""
        self.cluster.kill("gateway")
        self.cluster.start("gateway")
        copy(self.url("/filler"), "/dev/null")

    def measure(self, what, where, size, *arguments):
        self.look()
        server, drives = (self.gateway, self.drives) if where == "pinstripe" else (self.plain.pid, [])
        self.results.measure((what, where, size), server, drives, lambda: copy(*arguments))

    def names(self, size):
        return [f"/{size}-{i}" for i in range(COPIES_OF_QUICK if size <= QUICK else 1)]

    def in_turn(self, what, both=("plain", "pinstripe")):
        for size in self.sizes:
            for name in self.names(size):
                for where in both:
                    self.measure(what, where, size, self.url(name, where), "/dev/null")

    def round(self):
        for size in self.sizes:
            os.sync()  # nobody pays for what others have written before
            for name in self.names(size):
                for where in ("plain", "pinstripe"):
                    self.measure("upload", where, size, self.source(size), self.url(name, where))
        say("uploaded")
        os.sync()
        self.restart_gateway()
        self.in_turn("download")
        say("downloaded")
        self.restart_gateway()
        for size in self.sizes:  # twice each, one after the other
            for name in self.names(size):
                if size <= self.filler() // 2:
                    copy(self.url(name), "/dev/null")
                    self.measure("again", "pinstripe", size, self.url(name), "/dev/null")
        self.cluster.kill(*DEAD)
        self.restart_gateway()
        self.in_turn("dead", ("pinstripe",))
        size = max((size for size in self.sizes if size <= 64 * MIB), default=min(self.sizes))
        copy(self.url(self.names(size)[0]), f"{self.work}/back")
        assert filecmp.cmp(f"{self.work}/back", self.source(size), shallow=False), "wrong bytes came back"
        self.cluster.start(*DEAD)
        self.restart_gateway()
        say("downloaded with two drives dead")

    def small_files(self, size, number):
        count, source, back = self.arguments.files, f"{self.work}/small-{size}", f"{self.work}/back-small"
        os.makedirs(source, exist_ok=True)
        names = [f"f{i}" for i in range(count)]
        for name in names:
            with open(f"{source}/{name}", "wb") as file:
                file.write(os.urandom(size))
        several = names[:max(AT_ONCE, count // 4)]  # starting so many processes takes its time

        def each(pairs):
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda pair: copy(*pair), pairs))

        def measure(key, where, action):
            self.look()
            server, drives = (self.gateway, self.drives) if where == "pinstripe" else (self.plain.pid, [])
            self.results.measure(key, server, drives, action)

        for where in ("plain", "pinstripe"):
            root = self.url(f"/small-{size}-{number}", where)
            for kind in "ab":
                run("xrdfs", root.split("//")[1], "mkdir", f"/small-{size}-{number}-{kind}")
            parallel = ("--parallel", str(AT_ONCE))
            measure(("files up", where, size), where,
                    lambda: copy(*parallel, *[f"{source}/{name}" for name in names], f"{root}-a/"))
            measure(("processes up", where, size), where,
                    lambda: each([(f"{source}/{name}", f"{root}-b/{name}") for name in several]))
            shutil.rmtree(back, ignore_errors=True)
            os.mkdir(back)
            measure(("files down", where, size), where,
                    lambda: copy(*parallel, *[f"{root}-a/{name}" for name in names], back + "/"))
            assert len(os.listdir(back)) == count
            measure(("processes down", where, size), where,
                    lambda: each([(f"{root}-b/{name}", f"{back}/{name}") for name in several]))
        self.several = len(several)

    def run(self):
        self.look()
        for number in range(self.arguments.rounds):
            say(f"layout {self.layout}, round {number + 1} of {self.arguments.rounds}")
            self.round()
        for number in range(self.arguments.rounds if self.arguments.files else 0):
            for size in (4096, 100_000):
                self.small_files(size, number)
            say(f"small files, round {number + 1}")

    # ---- Tables

    def print_copies(self):
        print(f"\nLayout {self.layout}: MB/s, in brackets of plain; CPU s/GB of plain xrootd; gateway + drives.\n")
        print("| size | upload: plain, Pinstripe | download: plain, Pinstripe | from memory | 2 drives dead (of healthy) |"
              " CPU up | CPU down | CPU down, 2 dead |\n|---|---|---|---|---|---|---|---|")
        for size in self.sizes:
            cells = []
            speed = {key: size / 1e6 / self.results.seconds(*key) for key in self.results.samples if key[2] == size}

            def told(value):
                return f"{value:.0f}" if value >= 10 else f"{value:.2f}"

            for what in ("upload", "download"):
                plain, ours = speed[what, "plain", size], speed[what, "pinstripe", size]
                cells.append(f"{told(plain)}, {told(ours)} ({ours / plain:.2f})")
            again, dead = speed.get(("again", "pinstripe", size)), speed["dead", "pinstripe", size]
            cells.append(f"{told(again)} ({again / speed['download', 'plain', size]:.2f})" if again else "")
            cells.append(f"{told(dead)} ({dead / speed['download', 'pinstripe', size]:.2f})")
            for what in ("upload", "download", "dead"):
                def cost(column, where):
                    return self.results.cpu(column, what, where, size) / (size / 1e9)
                ours = f"{cost(1, 'pinstripe'):.2f} + {cost(2, 'pinstripe'):.2f}"
                plain = f"{cost(1, 'plain'):.2f}; " if what != "dead" else ""
                cells.append(plain + ours if size >= CPU_FROM else "")
            print(f"| {human(size)} | " + " | ".join(cells) + " |")

    def print_files(self):
        print(f"\nLayout {self.layout}: files/s with {AT_ONCE} copies at once; CPU in us per file.\n")
        print("| | size | upload: plain, Pinstripe | download: plain, Pinstripe | CPU up: plain; gateway + drives |"
              " CPU down |\n|---|---|---|---|---|---|")
        for kind, name, count in (("files", "one xrdcp", self.arguments.files),
                                  ("processes", "an xrdcp for each", self.several)):
            for size in (4096, 100_000):
                speeds, costs = [], []
                for way in ("up", "down"):
                    key = f"{kind} {way}"
                    plain, ours = (count / self.results.seconds(key, where, size) for where in ("plain", "pinstripe"))
                    speeds.append(f"{plain:.0f}, {ours:.0f} ({ours / plain:.2f})")
                    cost = [self.results.cpu(column, key, where, size) / count * 1e6
                            for column, where in ((1, "plain"), (1, "pinstripe"), (2, "pinstripe"))]
                    costs.append(f"{cost[0]:.0f}; {cost[1]:.0f} + {cost[2]:.0f}")
                print(f"| {name} | {size} | " + " | ".join(speeds + costs) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--layouts", default="4+2/8,10+2/12", help="with the number of drives")
    parser.add_argument("--sizes", default="4K,64K,1M,16M,64M,256M,1G")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=400, help="how many small files; 0: none")
    parser.add_argument("--memory", default="512 MiB", help="of the gateway (cluster.toml)")
    parser.add_argument("--json", help="a file for all samples")
    arguments = parser.parse_args()
    arguments.sizes = [size_of(size) for size in arguments.sizes.split(",")]
    os.environ["XRD_NETWORKSTACK"] = "IPv4"
    # Each xrdcp asks for the name of its host: a name server that is slow to answer is not what is measured.
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
    work = tempfile.mkdtemp(prefix="pinstripe-bench.")
    os.chmod(work, 0o755)
    needed = 5 * sum(arguments.sizes)
    if shutil.disk_usage(work).free < needed + (5 << 30):
        sys.exit(f"run-xrootd: {work} has no room for {needed >> 30} GiB; ask for smaller --sizes")
    loads, samples = [os.getloadavg()[0]], []
    try:
        for each in arguments.layouts.split(","):
            layout, drives = each.split("/")
            bench = Bench(os.path.realpath(arguments.build), work, layout, int(drives), arguments)
            try:
                bench.run()
            finally:
                bench.stop()
            loads.append(os.getloadavg()[0])
            bench.print_copies()
            if arguments.files:
                bench.print_files()
            sys.stdout.flush()
            samples += [{"layout": layout, "what": key[0], "server": key[1], "bytes": key[2],
                         "seconds, server's CPU, drives' CPU": values} for key, values in bench.results.samples.items()]
        print(f"\nMedians of {arguments.rounds} rounds, load {min(loads):.0f} to {max(loads):.0f}.")
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(samples, file, indent=1)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
