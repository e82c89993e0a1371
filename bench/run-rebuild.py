#!/usr/bin/env python3
"""One of twelve drives (10+2, all on this machine) is replaced by an empty one and rebuilt: how fast its shards are written
again, beside a plain writer of as much on the same disk.

    bench/run-rebuild.py BUILD [--per-drive 512MiB] [--rounds 3] [--json FILE]

Another drive in each round. Everything is made in $TMPDIR and removed again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from common import MIB, Cluster, Report, add_options, cpu_seconds, make_drives, run, size_of
from page import table

DATA, PARITY, FILES = 10, 2, 8
OURS, PLAIN = "rebuild", "plain writer"


def write_random(path, size):
    with open("/dev/urandom", "rb") as chance, open(path, "wb") as file:
        for at in range(0, size, MIB):
            file.write(chance.read(min(MIB, size - at)))


def write_plainly(source, path, size):
    """Bytes a second to the disk, synced."""
    os.sync()
    begin = time.monotonic()
    with open(source, "rb") as file, open(path, "wb", buffering=0) as out:
        for at in range(0, size, MIB):
            out.write(file.read(min(MIB, size - at)))
        os.fsync(out.fileno())
    seconds = time.monotonic() - begin
    os.remove(path)
    return size / seconds


def replace(cluster, drive):
    cluster.kill(drive)
    place = f"{cluster.directory}/drives/{drive}"
    for name in os.listdir(place):
        path = f"{place}/{name}"
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    make_drives(cluster.daemon, place)
    cluster.start(drive)


def rebuild(cluster, drive):
    """Its report, and the seconds and the CPU seconds of all drives since the new drive was in service."""
    pids = [daemon["pid"] for daemon in cluster.status()["daemons"]]
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen([cluster.pinstripe, "rebuild", "--json", cluster.config, drive],
                                   stdout=told, stderr=subprocess.PIPE, text=True)
        said, begin, cpu = [], None, 0
        for line in process.stderr:
            said.append(line)
            if begin is None and "is in service" in line:
                begin, cpu = time.monotonic(), cpu_seconds(*pids)
        if process.wait() != 0 or begin is None:
            sys.exit(f"run-rebuild: the rebuild failed: {''.join(said)[-500:]}")
        seconds, cpu = time.monotonic() - begin, cpu_seconds(*pids) - cpu
        told.seek(0)
        return json.load(told), seconds, cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--per-drive", default="512MiB")
    add_options(parser)
    options = parser.parse_args()
    per_drive = size_of(options.per_drive)
    work = tempfile.mkdtemp(prefix="pinstripe-bench.")
    os.chmod(work, 0o755)
    cluster = None
    try:
        cluster = Cluster(os.path.realpath(options.build), f"{work}/cluster", "--layout", f"{DATA}+{PARITY}", "--drives",
                          str(DATA + PARITY))
        url = cluster.status()["gateway"]["url"].rstrip("/")
        write_random(f"{work}/file", per_drive * DATA // FILES)
        for number in range(FILES):
            run("xrdcp", "--nopbar", f"{work}/file", f"{url}//file-{number}")
        report = Report("rebuild", work, f"Layout {DATA}+{PARITY} on {DATA + PARITY} drives, each with {per_drive // MIB} MiB. "
                        "The time is from the new drive's service to the end, checks included.", [(OURS, PLAIN)])
        for number in report.rounds(options.rounds, options.minutes):
            drive = str(number % (DATA + PARITY) + 1)
            replace(cluster, drive)
            report.add("bytes written in a second", PLAIN, "MB/s", write_plainly(f"{work}/file", f"{work}/plain", per_drive) / 1e6)
            result, seconds, cpu = rebuild(cluster, drive)
            written = result["bytes_written"]
            report.add("bytes written in a second", OURS, "MB/s", written / seconds / 1e6)
            report.add("shards written", OURS, "shards", result["missing_shards"])
            report.add("bytes read for each byte written", OURS, "bytes", result["bytes_read"] / written, "less")
            report.add("CPU of the drives", OURS, "s/GB", cpu / written * 1e9, "less")
        print(table(report.content()))
        report.write(options.json)
    finally:
        if cluster:
            cluster.down()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
