#!/usr/bin/env python3
"""How far Pinstripe goes: what 8 to 8 000 drives, many files and many clients cost.

    bench/run-scale.py BUILD [--drives 8,80,800,8000] [--files 30000] [--mib 1024] [--rounds 3] [--json FILE]
    bench/run-scale.py --write [--check]    the tables of docs/scale.md from results/scale.json, or whether they differ

BUILD/bench/scale_bench measures what runs in one process: the code of cluster/, fs/ and upkeep/ over drives in memory.
A real pinstriped measures connections and records. Everything is made in $TMPDIR and removed again. What is counted and
not timed is the same in each round, and is made once.
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

from common import SOURCE, Report, add_options, cpu_seconds, free_port, make_drives, run
from page import shown, table

CONNECTIONS, FEW_CONNECTIONS, TOO_MANY = 1000, 100, 1100
RECORDS = 200_000
MOST_DRIVES_OF_A_CLUSTER = 4096  # cluster.toml refuses more
PAGE = f"{SOURCE}/docs/scale.md"
RESULTS = f"{SOURCE}/bench/results/scale.json"


def spaced(number):
    return f"{int(number):,}".replace(",", " ")


def drives_of(count):
    return f"{spaced(count)} drives"


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
            self.report.add(prefix + what, variant, unit, value, "less")

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


def connections(bench, variant):
    """What idle connections cost both ends, by the difference between some and many; and how many a device takes."""
    for way, title in (("plain", "connection"), ("tls", "connection with TLS")):
        process, place, ports = bench.daemon()
        try:
            seen = {}
            for count in (FEW_CONNECTIONS, CONNECTIONS, TOO_MANY):
                if count == TOO_MANY and way == "tls":
                    continue
                began = cpu_seconds(process.pid)
                client = subprocess.Popen([f"{bench.build}/bench/scale_bench", "connect", str(ports[way]), str(count), way],
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                said = {what: value for what, _, value in (json.loads(client.stdout.readline()).values() for _ in range(4))}
                seen[count] = {"pinstriped": resident(process.pid), "client": said["resident bytes of the client"],
                               "descriptors": descriptors(process.pid), "up": said["connections that are up"],
                               "cpu": cpu_seconds(process.pid) - began,
                               "client cpu": said["CPU of the client to connect"]}
                client.stdin.close()
                client.wait()
                time.sleep(1)
            few, many = seen[FEW_CONNECTIONS], seen[CONNECTIONS]
            between = many["up"] - few["up"]
            bench.add(variant, [
                (f"{title}: resident memory of pinstriped", "KiB", (many["pinstriped"] - few["pinstriped"]) / between / 1024),
                (f"{title}: resident memory of the client", "KiB", many["client"] / 1024),
                (f"{title}: CPU of pinstriped to make it", "us", 1e6 * many["cpu"] / many["up"]),
                (f"{title}: CPU of the client to make it", "us", many["client cpu"])])
            if way == "plain":
                bench.add(variant, [
                    ("connection: descriptors of pinstriped", "", (many["descriptors"] - few["descriptors"]) / between),
                    (f"connection: that a device takes of {TOO_MANY}", "", seen[TOO_MANY]["up"])])
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
    """What each file more costs: the difference between a tenth of the files and all, so that what they cost together is
    left out."""
    few = files // 10
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
        ("rebuild a drive: bytes read for each written", "",
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


# ---- Tables of docs/scale.md

class Figures:
    """Medians of results, by what and how many drives."""

    def __init__(self, content):
        self.rows = {(row["what"], row["variant"]): sorted(row["samples"])[len(row["samples"]) // 2] for row in content["results"]}
        self.counts = [int(name.removesuffix(" drives").replace(" ", "")) for name in
                       dict.fromkeys(row["variant"] for row in content["results"])]

    def of(self, what, count=8):
        return self.rows.get((what, drives_of(count)))


def in_bytes(value):
    """With a unit that people read."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{shown(value / size)} {unit}"
    return f"{shown(value)} B"


def in_time(seconds):
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{shown(seconds / size)} {unit}"
    return f"{shown(seconds)} s" if seconds >= 0.1 else f"{shown(seconds * 1e3)} ms"


def rows_to_text(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


DRIVE_BYTES, FULL, DAYS = 18e12, 0.6, 14  # of each drive, by custom
FILES, CLIENTS, DRIVES_OF_HOST = (10**6, 10**7, 10**8, 10**9), (10, 100, 1000, 10_000), 36


def by_drives(figures, rows):
    """A table with a column for each number of drives. `rows`: title and a function from the number to a cell."""
    return rows_to_text(["", *(drives_of(count) for count in figures.counts)],
                        [[title, *(cell(count) for count in figures.counts)] for title, cell in rows])


def plain(figures, what, form=shown):
    def cell(count):
        value = figures.of(what, count)
        return "" if value is None else form(value)
    return cell


def tables(content):
    """name -> text."""
    f = Figures(content)
    kib = 1024
    client = f.of("connection: resident memory of the client") * kib
    client_tls = f.of("connection with TLS: resident memory of the client") * kib
    daemon = f.of("connection: resident memory of pinstriped") * kib
    daemon_tls = f.of("connection with TLS: resident memory of pinstriped") * kib
    kernel = (f.of("connection: kernel's memory at each end") or 0) * kib
    put, get = f.of("record: CPU of pinstriped to put it") * 1e-6, f.of("record: CPU of pinstriped to get it") * 1e-6
    index = f.of("record: bytes of the index on disk") * f.of("names: records on drives for each file")
    striped = "a file of a stripe, "
    scrub_cpu = f.of("scrub: CPU of the client for what it reads")
    rebuild_cpu = f.of("rebuild a drive: CPU of the client for what is written")
    read_for = f.of("rebuild a drive: bytes read for each written")
    per_second = DRIVE_BYTES * FULL / (DAYS * 86400)

    def names_per_second(what, each):
        return lambda count: spaced(float(f"{count / (f.of(what) * each):.2g}"))

    made = {}
    made["map"] = by_drives(f, [
        ("placement groups", plain(f, "map: groups", spaced)),
        ("an epoch of the map", plain(f, "map: bytes of an epoch", in_bytes)),
        ("to decode it", plain(f, "map: CPU to decode an epoch", lambda us: f"{shown(us)} us")),
        ("a history of 100 epochs", plain(f, "map: bytes of a history of 100 epochs", in_bytes)),
        ("epochs of 100 that it has room for", plain(f, "map: epochs that have room in it, of 100", spaced)),
        ("to decode the history", plain(f, "map: CPU to decode it", lambda ms: f"{shown(ms)} ms")),
        ("to balance the map at format", plain(f, "map: CPU to balance it when it is formatted",
                                               lambda s: in_time(s) if s > 1e-4 else "not done"))])
    made["placement"] = by_drives(f, [
        ("to place in a group for the first time", plain(f, "client: CPU to place in a group for the first time",
                                                         lambda us: f"{shown(us)} us")),
        ("the same after 100 epochs", plain(f, "client: CPU to place in a group for the first time, after 100 epochs",
                                            lambda us: f"{shown(us)} us")),
        ("to place again", plain(f, "client: CPU to place again", lambda us: f"{shown(us)} us")),
        ("all groups: memory", plain(f, "client: memory of the orders of all groups", lambda mib: in_bytes(mib * 2**20))),
        ("all groups: CPU", plain(f, "client: CPU for the orders of all groups", in_time)),
        ("all groups after 100 epochs: CPU (computed)", lambda count: in_time(
            2e-6 * f.of("map: groups", count) * f.of("client: CPU to place in a group for the first time, after 100 epochs",
                                                     count)))])
    made["fill"] = by_drives(f, [
        (title, plain(f, f"fill: fullest drive to the mean, {what}", lambda value: f"{value:.2f}")) for title, what in (
            ("data of very many files", "data of very many files"), ("data of 10^6 files of a block", "10^6 files of a block"),
            ("very many names", "very many names"), ("names of 10^6 files", "names of 10^6 files"),
            ("data, after 10 % more drives", "after 10 % more drives"),
            ("data, with the groups of a tenth of the drives", "with the groups of a tenth of the drives"))])
    made["change"] = by_drives(f, [
        ("a drive is added: moved / least", plain(f, "change: pieces that move to a new drive, to the least possible")),
        ("a drive is lost or drained: moved / least",
         plain(f, "change: pieces that a drained drive has others get, to the least possible")),
        ("10 % more drives: part of all that moves", plain(f, "change: part of all pieces that moves for 10 % more drives")),
        ("the same / least", plain(f, "change: the same, to the least possible")),
        ("CPU of an epoch that adds a drive", plain(f, "change: CPU to make the epoch that adds a drive", in_time))])
    made["open"] = by_drives(f, [
        ("CPU of the client, without its connections", plain(f, "open: CPU of the client", lambda ms: in_time(ms / 1e3))),
        ("requests to all drives", plain(f, "open: requests to all drives", spaced)),
        ("requests to the busiest drive", plain(f, "open: requests to the busiest drive", spaced)),
        ("connections: memory of the client (computed)", lambda count: in_bytes(count * (client + kernel))),
        ("the same with TLS (computed)", lambda count: in_bytes(count * (client_tls + kernel))),
        ("connections: CPU of the client with TLS (computed)",
         lambda count: in_time(1e-6 * count * f.of("connection with TLS: CPU of the client to make it")))])
    made["connection"] = rows_to_text(["each connection", "plain", "TLS"], [
        [title, *(f"{shown(f.of(f'{way}: {what}'))} {unit}" for way in ("connection", "connection with TLS"))]
        for title, what, unit in (("resident memory of `pinstriped`", "resident memory of pinstriped", "KiB"),
                                  ("resident memory of the client", "resident memory of the client", "KiB"),
                                  ("CPU of `pinstriped` to make it", "CPU of pinstriped to make it", "us"),
                                  ("CPU of the client to make it", "CPU of the client to make it", "us"))]
        + [["memory of the kernel, at each end", *[f"{shown(kernel / kib)} KiB"] * 2], ["descriptors, at each end", "1", "1"]])
    made["clients"] = rows_to_text(["clients", *(f"connections, {drives_of(count)}" for count in f.counts),
                                    f"memory of a host of {DRIVES_OF_HOST} drives", "the same with TLS", "served"], [
        [spaced(clients), *(spaced(clients * count) for count in f.counts),
         *(in_bytes(clients * DRIVES_OF_HOST * (each + kernel)) for each in (daemon, daemon_tls)),
         "yes" if clients <= f.of(f"connection: that a device takes of {TOO_MANY}") else "no"] for clients in CLIENTS])
    made["names"] = by_drives(f, [
        (f"names per second: {title} (computed)", names_per_second(f"names: {what}: requests to drives", each))
        for title, what, each in (("made", "make a file", put), ("looked up", "look a file up", get),
                                  ("removed", "remove a file", put))])
    made["index"] = rows_to_text(["files", *(f"index of a drive, {drives_of(count)}" for count in f.counts)], [
        [spaced(files), *(in_bytes(files * index / count) for count in f.counts)] for files in FILES])
    made["upkeep"] = rows_to_text(
        ["files", *(f"{what} {kind}" for what in ("check:", "collect:") for kind in ("memory", "CPU")), "scrub: CPU", "rebuild: CPU",
         "rebuild: memory"],
        [[spaced(files),
          *(cell for what in ("check", "collect") for cell in (
              in_bytes(files * f.of(f"{striped}{what}: memory at most")),
              in_time(1e-6 * files * f.of(f"{striped}{what}: CPU of the client")))),
          in_time(1e-6 * files * f.of(f"{striped}scrub: CPU of the client")),
          in_time(1e-6 * files * f.of(f"{striped}rebuild a drive: CPU of the client")),
          in_bytes(files * f.of(f"{striped}rebuild a drive: memory at most"))] for files in FILES])
    made["file"] = rows_to_text(["each file more", "small, in its inode", "of a stripe"], [
        [f"{work}: {title}", *(f"{shown(f.of(f'a file {kind}, {work}: {what}'))} {unit}".strip()
                               for kind in ("in its inode", "of a stripe"))]
        for work in ("check", "collect", "scrub", "rebuild a drive")
        for title, what, unit in (("memory", "memory at most", "B"), ("CPU", "CPU of the client", "us"),
                                  ("requests", "requests to drives", ""), ("bytes from drives", "bytes from drives", "B"))])
    made["empty"] = by_drives(f, [
        (title, plain(f, f"check without files: {what}", form)) for title, what, form in (
            ("requests", "requests to drives", spaced), ("CPU of the client", "CPU of the client", in_time),
            ("memory", "memory at most", lambda mib: in_bytes(mib * 2**20)))])
    made["traffic"] = by_drives(f, [
        ("on the drives (computed)", lambda count: in_bytes(count * DRIVE_BYTES * FULL)),
        ("read in a day (computed)", lambda count: in_bytes(count * per_second * 86400)),
        ("read in a second (computed)", lambda count: in_bytes(count * per_second)),
        ("cores of the scrub (computed)", lambda count: shown(count * per_second / 1e9 * scrub_cpu)),
        ("one process with a core: an interval of (computed)", lambda count: in_time(count * DRIVE_BYTES * FULL / 1e9 * scrub_cpu))])
    written = DRIVE_BYTES * FULL
    made["rebuild"] = by_drives(f, [
        ("written to the new drive (computed)", lambda _: in_bytes(written)),
        ("read from each of the others (computed)", lambda count: in_bytes(written * read_for / (count - 1))),
        ("one process with a core (computed)", lambda _: in_time(written / 1e9 * rebuild_cpu)),
        ("the new drive alone, at 150 MB/s (computed)", lambda _: in_time(written / 150e6))])
    made["answers"] = by_drives(f, [
        ("a cluster can be formatted and opened",
         lambda count: "yes" if f.of("open: CPU of the client", count) is not None else "no"),
        ("fullest drive / mean", plain(f, "fill: fullest drive to the mean, data of very many files", lambda value: f"{value:.2f}")),
        ("placement in a client, all groups: memory", plain(f, "client: memory of the orders of all groups",
                                                            lambda mib: in_bytes(mib * 2**20))),
        ("placement in a client, all groups: CPU", plain(f, "client: CPU for the orders of all groups", in_time)),
        ("connections with TLS of a client: memory (computed)", lambda count: in_bytes(count * (client_tls + kernel))),
        ("clients at a time, at most", lambda _: spaced(f.of(f"connection: that a device takes of {TOO_MANY}"))),
        ("files made per second, drives with a core each (computed)", names_per_second("names: make a file: requests to drives", put)),
        ("index of a drive with 10^8 files (computed)", lambda count: in_bytes(1e8 * index / count)),
        ("memory of a check of 10^8 files (computed)", lambda _: in_bytes(1e8 * f.of(f"{striped}check: memory at most"))),
        (f"cores that scrub all in {DAYS} days (computed)", lambda count: shown(count * per_second / 1e9 * scrub_cpu)),
        ("a lost drive of 10.8 TB, one process (computed)", lambda _: in_time(written / 1e9 * rebuild_cpu))])
    return made


def with_tables(text, made):
    """Each table stands below its mark, up to an empty line."""
    lines, out, skipping = text.splitlines(), [], False
    for line in lines:
        if skipping and line.startswith("|"):
            continue
        skipping = False
        out.append(line)
        if line.startswith("<!-- measured: "):
            out.append(made[line.removeprefix("<!-- measured: ").removesuffix(" -->")])
            skipping = True
    return "\n".join(out) + "\n"


def write_page(check):
    with open(RESULTS) as file:
        made = tables(json.load(file))
    old = pathlib.Path(PAGE).read_text()
    new = with_tables(old, made)
    if not check:
        pathlib.Path(PAGE).write_text(new)
    elif old != new:
        sys.exit("bench/run-scale.py: docs/scale.md is not what the results say. Run bench/run-scale.py --write")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?")
    parser.add_argument("--drives", default="8,80,800,8000", help="each ten times the one before it (default: %(default)s)")
    parser.add_argument("--files", type=int, default=30_000, help="that are checked; and a tenth of them")
    parser.add_argument("--mib", type=int, default=1024, help="of data that is scrubbed and rebuilt; and a quarter of that")
    parser.add_argument("--write", action="store_true", help="only write the tables")
    parser.add_argument("--check", action="store_true", help="with --write: only compare")
    add_options(parser)
    options = parser.parse_args()
    if options.write:
        write_page(options.check)
    elif options.build:
        measure(options)
    else:
        parser.error("name the directory of a build")


if __name__ == "__main__":
    main()
