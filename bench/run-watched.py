#!/usr/bin/env python3
"""What it costs to watch a cluster: processor time of a mount and its drives for the same work.

    bench/run-watched.py BUILD [--files 300] [--mib 256] [--rounds 3] [--json FILE]

Side by side: a cluster that nobody watches, and one whose drives and mount serve metrics that are fetched every second (which
is fifteen times as often as a Prometheus usually does), with a console that somebody looks at. Each has four drives (2+1)
in one process, and a mount. They take turns in each round. Wants root, or FUSE for this user. Clusters are in $TMPDIR, and are
removed again.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request

from common import MIB, Cluster, Report, add_options, cpu_seconds, free_port, run
from page import table

OFF, ON = "nobody watches", "metrics and console"


class Side:
    """A cluster with a mount, watched or not."""

    def __init__(self, build, home, is_watched):
        self.mount, self.pages, self.console, self.ends = f"{home}/mount", [], None, threading.Event()
        os.makedirs(self.mount)
        self.cluster = Cluster(build, f"{home}/cluster", "--drives", "4", "--layout", "2+1", "--one-process", "--no-gateway")
        options = "attr_timeout=0"
        if is_watched:
            self.serve_metrics(f"{home}/cluster")
            options += f",metrics=127.0.0.1:{self.port_for_metrics()}"
        self.fuse = subprocess.Popen([f"{build}/fuse/pinstripe-fuse", "-f", "-o", options, self.cluster.config, self.mount],
                                     stderr=subprocess.DEVNULL)
        while not os.path.ismount(self.mount):
            if self.fuse.poll() is not None:
                raise RuntimeError("the mount does not come up")
        self.daemons = [int(pid) for pid in run("pgrep", "-f", f"pinstriped.*{home}/cluster").split()]
        if is_watched:
            self.watch(build)

    def port_for_metrics(self):
        port = free_port()
        self.pages.append(f"http://127.0.0.1:{port}/metrics")
        return port

    def serve_metrics(self, directory):
        """By drives that were made without."""
        files = [one for one in os.listdir(directory) if re.fullmatch(r"pinstriped.*\.toml", one)]
        for name in files:
            with open(f"{directory}/{name}") as file:
                text = file.read()
            assert "[daemon]\n" in text, text
            with open(f"{directory}/{name}", "w") as file:
                file.write(text.replace("[daemon]\n", f'[daemon]\nmetrics = "127.0.0.1:{self.port_for_metrics()}"\n', 1))
        self.cluster.kill("1", "2", "3", "4")
        self.cluster.start("1", "2", "3", "4")

    def watch(self, build):
        self.console = subprocess.Popen([f"{build}/console/pinstripe-console", self.cluster.config, "--listen", "127.0.0.1:0",
                                         "--page", os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                                                "console/page")],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        url = self.console.stdout.readline().removeprefix("ready ").strip()
        threading.Thread(target=self.look, args=(f"{url}api/v1/live",), daemon=True).start()
        threading.Thread(target=self.fetch, daemon=True).start()

    def look(self, url):
        with urllib.request.urlopen(url) as live:
            while not self.ends.is_set() and live.readline():
                pass

    def fetch(self):
        while not self.ends.wait(1):
            for page in self.pages:
                with urllib.request.urlopen(page, timeout=10) as answer:
                    answer.read()

    def measure(self, work):
        """Seconds of processor time that work takes of the mount and the drives."""
        pids = [self.fuse.pid, *self.daemons]
        before = cpu_seconds(*pids)
        work(self.mount)
        return cpu_seconds(*pids) - before

    def stop(self):
        self.ends.set()
        subprocess.run(["fusermount3", "-u", "-z", self.mount], check=False)
        self.fuse.wait()
        if self.console:
            self.console.terminate()
            self.console.wait()
        self.cluster.down()


def write(mount, mib):
    block = os.urandom(MIB)
    with open(f"{mount}/large", "wb", buffering=0) as file:
        for _ in range(mib):
            file.write(block)
        os.fsync(file.fileno())


def read(mount, mib):
    """Past the kernel's cache."""
    descriptor = os.open(f"{mount}/large", os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.read(descriptor, MIB):
            pass
    finally:
        os.close(descriptor)


def make_files(mount, count):
    os.mkdir(f"{mount}/small")
    for number in range(count):
        with open(f"{mount}/small/{number}", "wb", buffering=0) as file:
            file.write(b"x" * 4096)


def remove_files(mount, count):
    for number in range(count):
        os.remove(f"{mount}/small/{number}")
    os.rmdir(f"{mount}/small")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--files", type=int, default=300, help="of 4 KiB")
    parser.add_argument("--mib", type=int, default=256, help="of the large file")
    add_options(parser)
    options = parser.parse_args()
    build = os.path.realpath(options.build)
    work = tempfile.mkdtemp(prefix="pinstripe-bench.")
    sides = {}
    steps = [(f"write {options.mib} MiB", lambda mount: write(mount, options.mib)),
             (f"read {options.mib} MiB", lambda mount: read(mount, options.mib)),
             (f"make {options.files} files of 4 KiB", lambda mount: make_files(mount, options.files)),
             (f"remove {options.files} files", lambda mount: remove_files(mount, options.files))]
    try:
        for name in (OFF, ON):
            sides[name] = Side(build, f"{work}/{len(sides)}", is_watched=name == ON)
        report = Report("watched", work, "2+1 on four drives of one process, one mount.", [(ON, OFF)])
        for number in report.rounds(options.rounds, options.minutes):
            order = list(sides)[::-1 if number % 2 else 1]
            for what, step in steps:
                for variant in order:
                    report.add(what, variant, "CPU s", sides[variant].measure(step), "less")
        print(table(report.content()))
        report.write(options.json)
    finally:
        for side in sides.values():
            side.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
