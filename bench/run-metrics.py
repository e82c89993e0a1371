#!/usr/bin/env python3
"""What metrics cost a drive: processor time of pinstriped for each request.

    bench/run-metrics.py BUILD [--before PROGRAM] [--seconds 1] [--rounds 3] [--json FILE]

Side by side: pinstriped that serves no metrics, and one whose metrics are fetched every second, which is fifteen times as
often as a Prometheus usually does. --before names a pinstriped of another build, for instance one from before a change.
Each serves a drive of its own all the time, and they take turns in each round. Drives are in $TMPDIR, and are removed again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request

from common import Report, add_options, free_port, make_drives, run
from page import table

OFF, ON, BEFORE = "without metrics", "with metrics", "before"
WORK = (("put", "4KiB"), ("get", "4KiB"), ("put", "256KiB"), ("get", "256KiB"))


class Daemon:
    def __init__(self, program, home, metrics=False):
        self.port, self.metrics = free_port(), free_port() if metrics else None
        os.makedirs(home)
        says = f'metrics = "127.0.0.1:{self.metrics}"\n' if metrics else ""
        with open(f"{home}/pinstriped.toml", "w") as file:
            file.write(f'[daemon]\nlisten = "127.0.0.1"\n{says}[[drive]]\npath = "drive"\nport = {self.port}\n')
        make_drives(program, f"{home}/drive")
        self.process = subprocess.Popen([program, "--config", f"{home}/pinstriped.toml"], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{program} does not start")

    def measure(self, build, operation, value, seconds):
        """Microseconds of the daemon's processor time for each operation."""
        enough = threading.Event()
        fetching = threading.Thread(target=self.fetch_until, args=(enough,))
        fetching.start()
        try:
            said = run(f"{build}/tools/pinstripe", "bench", "drive", "--url", f"127.0.0.1:{self.port}", "--op", operation,
                       "--value", value, "--records", "1000", "--seconds", str(seconds), "--json")
        finally:
            enough.set()
            fetching.join()
        row = [one for one in json.loads(said) if one["op"] == operation][0]
        return row["daemon_cpu_seconds"] / row["operations"] * 1e6

    def fetch_until(self, enough):
        while self.metrics and not enough.wait(1):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10) as page:
                page.read()

    def stop(self):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--before", help="a pinstriped to compare with")
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement")
    add_options(parser)
    options = parser.parse_args()
    build = os.path.realpath(options.build)
    work = tempfile.mkdtemp(prefix="pinstripe-bench.")
    daemons = {}
    try:
        daemons[OFF] = Daemon(f"{build}/daemon/pinstriped", f"{work}/off")
        daemons[ON] = Daemon(f"{build}/daemon/pinstriped", f"{work}/on", metrics=True)
        if options.before:
            daemons[BEFORE] = Daemon(os.path.realpath(options.before), f"{work}/before")
        ratios = [(ON, OFF)] + ([(ON, BEFORE)] if options.before else [])
        report = Report("metrics", work, "One drive; 16 requests under way.", ratios)
        for number in report.rounds(options.rounds, options.minutes):
            order = list(daemons)
            shift = number % len(order)
            for operation, value in WORK:
                for variant in order[shift:] + order[:shift]:
                    sample = daemons[variant].measure(build, operation, value, options.seconds)
                    report.add(f"{operation} {value}", variant, "us/request", sample, "less")
        print(table(report.content()))
        report.write(options.json)
    finally:
        for daemon in daemons.values():
            daemon.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
