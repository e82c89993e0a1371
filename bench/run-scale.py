#!/usr/bin/env python3
"""How far Pinstripe goes: what 8 to 8 000 drives, many files and many clients cost.

    bench/run-scale.py BUILD [--drives 8,80,800,8000] [--files 60000] [--mib 1024] [--rounds 3] [--json FILE]

BUILD/bench/scale_bench measures what runs in one process: the code of cluster/, fs/ and upkeep/ over drives in memory.
A real pinstriped measures connections and records. Everything is made in $TMPDIR and removed again. What is counted and
not timed is the same in each round, and is made once. scale_page.py makes docs/scale.md of what this finds.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from common import Report, add_options, cpu_seconds, free_port, make_drives, run
from page import table
from scale_page import TRIED_CONNECTIONS, drives_of

CONNECTIONS, FEW_CONNECTIONS, TOO_MANY = 1000, 100, TRIED_CONNECTIONS
SOFT_LIMIT = 512  # of descriptors; shells and units have 1024, which is more than one device takes
RECORDS = 200_000
MOST_DRIVES_OF_A_CLUSTER = 4096  # cluster.toml refuses more
BETTER_MORE = ("map: epochs that have room in it, of 100", f"connection: that a device takes of {TOO_MANY}",
               f"connection: that a client makes with a soft limit of {SOFT_LIMIT} descriptors")

# ---- Measuring

class Bench:
    """Calls scale_bench, and keeps what it says."""

    def __init__(self, build, report, work):
        self.build, self.report, self.work, self.once = build, report, work, {}

    def figures(self, *words):
        """(what, unit, value) of each line."""
        said = run("nice", "-n", "5", f"{self.build}/bench/scale_bench", *(str(word) for word in words))
        return [tuple(json.loads(line).values()) for line in said.splitlines()]

    def add(self, variant, figures, prefix=""):
        for what, unit, value in figures:
            self.report.add(prefix + what, variant, unit or "in number", value, "more" if what in BETTER_MORE else "less")

    def made_once(self, *words):
        if words not in self.once:
            self.once[words] = self.figures(*words)
        return self.once[words]

    # One daemon with one drive.
    def daemon(self):
        place, port, tls_port = tempfile.mkdtemp(dir=self.work), free_port(), free_port()
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-keyout", f"{place}/tls.key", "-out", f"{place}/tls.crt")
        os.chmod(f"{place}/tls.key", 0o600)
        with open(f"{place}/pinstriped.toml", "w") as config:
            config.write('[daemon]\nlisten = "127.0.0.1"\nstrangers = 10000\nstrangers_per_address = 10000\n'
                         f'connections_per_address = 10000\ntls_certificate = "tls.crt"\ntls_key = "tls.key"\n'
                         f'[[drive]]\npath = "{place}/drive"\nport = {port}\ntls_port = {tls_port}\n')
        make_drives(f"{self.build}/daemon/pinstriped", f"{place}/drive")
        process = subprocess.Popen([f"{self.build}/daemon/pinstriped", "--config", f"{place}/pinstriped.toml", "--log-level",
                                    "error"], stdout=subprocess.PIPE, text=True)
        if process.stdout.readline() != "ready\n":
            sys.exit("run-scale: the daemon did not start")
        return process, place, {"plain": port, "tls": tls_port}


def resident(pid):
    return next(int(line.split()[1]) * 1024 for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                if line.startswith("VmRSS:"))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def kernel_bytes():
    """Of one end of a connection: its socket, file and place in an epoll. None: the kernel does not tell."""
    names = ("TCP", "sock_inode_cache", "filp", "dentry", "eventpoll_epi")
    try:
        lines = pathlib.Path("/proc/slabinfo").read_text().splitlines()
    except OSError:
        return None
    sizes = {line.split()[0]: int(line.split()[3]) for line in lines[2:]}
    return sum(sizes[name] for name in names) if all(name in sizes for name in names) else None


def connect(bench, process, port, count, way, limit=None):
    """A client with so many idle connections: what both ends take of it. `limit`: its soft limit of descriptors."""
    began = cpu_seconds(process.pid)
    client = subprocess.Popen([f"{bench.build}/bench/scale_bench", "connect", str(port), str(count), way],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 1 << 14))))
    said = {what: value for what, _, value in (json.loads(client.stdout.readline()).values() for _ in range(4))}
    seen = {"pinstriped": resident(process.pid), "client": said["resident bytes of the client"],
            "descriptors": descriptors(process.pid), "up": said["connections that are up"],
            "cpu": cpu_seconds(process.pid) - began, "client cpu": said["CPU of the client to connect"]}
    client.stdin.close()
    client.wait()
    time.sleep(1)
    return seen


def connections(bench, variant):
    """What idle connections cost both ends, by the difference between some and many; and how many there can be."""
    for way, title in (("plain", "connection"), ("tls", "connection with TLS")):
        process, place, ports = bench.daemon()
        try:
            few, many = (connect(bench, process, ports[way], count, way) for count in (FEW_CONNECTIONS, CONNECTIONS))
            between = many["up"] - few["up"]
            bench.add(variant, [
                (f"{title}: resident memory of pinstriped", "KiB", (many["pinstriped"] - few["pinstriped"]) / between / 1024),
                (f"{title}: resident memory of the client", "KiB", many["client"] / 1024),
                (f"{title}: CPU of pinstriped to make it", "us", 1e6 * many["cpu"] / many["up"]),
                (f"{title}: CPU of the client to make it", "us", many["client cpu"])])
            if way == "tls":
                continue
            too_many = connect(bench, process, ports[way], TOO_MANY, way)
            limited = connect(bench, process, ports[way], CONNECTIONS, way, SOFT_LIMIT)
            bench.add(variant, [
                ("connection: descriptors of pinstriped", "", (many["descriptors"] - few["descriptors"]) / between),
                (f"connection: that a device takes of {TOO_MANY}", "", too_many["up"]),
                (f"connection: that a client makes with a soft limit of {SOFT_LIMIT} descriptors", "", limited["up"])])
            if kernel_bytes():
                bench.add(variant, [("connection: kernel's memory at each end", "KiB", kernel_bytes() / 1024)])
        finally:
            process.terminate()
            process.wait()
            shutil.rmtree(place, ignore_errors=True)


def disk_bytes(directory):
    return sum(path.stat().st_blocks * 512 for path in pathlib.Path(directory).rglob("*") if path.is_file())


def records(bench, variant):
    """What a record of a name costs a real drive."""
    process, place, ports = bench.daemon()
    try:
        empty = disk_bytes(f"{place}/drive/index")
        client = subprocess.Popen([f"{bench.build}/bench/scale_bench", "records", str(ports["plain"]), str(RECORDS)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cpu = [cpu_seconds(process.pid)]
        for _ in ("puts", "gets"):
            client.stdout.readline()
            cpu.append(cpu_seconds(process.pid))
            client.stdin.write("\n")
            client.stdin.flush()
        client.wait()
        process.terminate()
        process.wait()  # so that what is in memory is on disk
        bench.add(variant, [
            ("record: CPU of pinstriped to put it", "us", 1e6 * (cpu[1] - cpu[0]) / RECORDS),
            ("record: CPU of pinstriped to get it", "us", 1e6 * (cpu[2] - cpu[1]) / RECORDS),
            ("record: bytes of the index on disk", "bytes", (disk_bytes(f"{place}/drive/index") - empty) / RECORDS)])
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(place, ignore_errors=True)


def upkeep(bench, variant, drives, files):
    """What each file more costs: the difference between a third of the files and all, so that what they cost together is
    left out."""
    few = files // 3
    for kind, title in (("inline", "in its inode"), ("striped", "of a stripe")):
        for (what, unit, some), (_, _, all_) in zip(bench.figures("upkeep", drives, few, kind),
                                                    bench.figures("upkeep", drives, files, kind)):
            bench.add(variant, [(f"a file {title}, {what}", unit, (all_ * files - some * few) / (files - few))])


def large_files(bench, variant, drives, mib):
    """What each byte more costs."""
    some, all_ = ({what: value for what, _, value in bench.figures("bytes", drives, size)} for size in (mib // 4, mib))
    more = {what: all_[what] - some[what] for what in all_}
    bench.add(variant, [
        ("scrub: CPU of the client for what it reads", "s/GB", more["scrub: CPU of the client"] / more["scrub: bytes read"] * 1e9),
        ("rebuild a drive: bytes read for each written", "ratio",
         more["rebuild a drive: bytes read"] / more["rebuild a drive: bytes written"]),
        ("rebuild a drive: CPU of the client for what is written", "s/GB",
         more["rebuild a drive: CPU of the client"] / more["rebuild a drive: bytes written"] * 1e9)])


def measure(options):
    build = os.path.realpath(options.build)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    counts = [int(count) for count in options.drives.split(",")]
    names = [drives_of(count) for count in counts]
    work = tempfile.mkdtemp(prefix="pinstripe-bench.")
    try:
        report = Report("scale", work, "Layout 4+2 with 5 replicas of names, 10 drives in a host. A ratio of 10 is in proportion "
                        "to the drives.", list(zip(names[1:], names)))
        bench = Bench(build, report, work)
        for _ in report.rounds(options.rounds, options.minutes):
            for count, name in zip(counts, names):
                bench.add(name, bench.figures("map", count))
            for count, name in zip(counts, names):
                bench.add(name, bench.made_once("fill", count))
            for count, name in zip(counts, names):
                if count <= MOST_DRIVES_OF_A_CLUSTER:
                    bench.add(name, bench.figures("open", count))
            for count, name in list(zip(counts, names))[:2]:
                bench.add(name, bench.figures("names", count, 3000))
            records(bench, names[0])
            connections(bench, names[0])
            for count, name in list(zip(counts, names))[:2]:
                bench.add(name, bench.figures("empty", count))
            upkeep(bench, names[0], counts[0], options.files)
            large_files(bench, names[0], counts[0], options.mib)
        print(table(report.content()))
        report.write(options.json)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--drives", default="8,80,800,8000", help="each ten times the one before it (default: %(default)s)")
    parser.add_argument("--files", type=int, default=60_000, help="that are checked; and a third of them")
    parser.add_argument("--mib", type=int, default=1024, help="of data that is scrubbed and rebuilt; and a quarter of that")
    add_options(parser)
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
