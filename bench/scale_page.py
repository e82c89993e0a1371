#!/usr/bin/env python3
"""The tables of docs/scale.md, from results/scale.json: what was measured, and what follows from it by the laws that the
page states.

    bench/scale_page.py            write them
    bench/scale_page.py --check    exit with 1 if they are not what the results say

A table stands below its mark `<!-- measured: NAME -->`, and what is around it stays. Nothing is measured here.
"""

import argparse
import json
import os
import statistics
import sys

from page import shown

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = f"{SOURCE}/docs/scale.md"
RESULTS = f"{SOURCE}/bench/results/scale.json"
TRIED_CONNECTIONS = 1100  # to one device
DRIVE_BYTES, FULL, DAYS = 18e12, 0.6, 14  # of each drive, by custom
DISK_BYTES_PER_SECOND, LINE_BYTES_PER_SECOND = 150e6, 1.25e9
FILES, CLIENTS, DRIVES_OF_HOST = (10**6, 10**7, 10**8, 10**9), (10, 100, 1000, 10_000), 36
SHARDS, KIB, MIB = 6, 1 << 10, 1 << 20


def spaced(number):
    return f"{int(number):,}".replace(",", " ")


def drives_of(count):
    return f"{spaced(count)} drives"


class Figures:
    """Medians of results, by what and how many drives."""

    def __init__(self, content):
        self.rows = {(row["what"], row["variant"]): statistics.median(row["samples"]) for row in content["results"]}
        self.counts = [int(name.removesuffix(" drives").replace(" ", "")) for name in
                       dict.fromkeys(row["variant"] for row in content["results"])]

    def of(self, what, count=8):
        return self.rows.get((what, drives_of(count)))


def in_bytes(value):
    """With a unit that people read."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
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
    client = f.of("connection: resident memory of the client") * KIB
    client_tls = f.of("connection with TLS: resident memory of the client") * KIB
    daemon = f.of("connection: resident memory of pinstriped") * KIB
    daemon_tls = f.of("connection with TLS: resident memory of pinstriped") * KIB
    kernel = (f.of("connection: kernel's memory at each end") or 0) * KIB
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
        ("groups for a deviation of 2.5 % (computed)", lambda count: spaced((count / SHARDS - 1) / 0.025**2)),
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
        ("all groups: memory", plain(f, "client: memory of the orders of all groups", lambda mib: in_bytes(mib * MIB))),
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
        + [["memory of the kernel, at each end", *[f"{shown(kernel / KIB)} KiB"] * 2], ["descriptors, at each end", "1", "1"]])
    made["clients"] = rows_to_text(["clients", *(f"connections, {drives_of(count)}" for count in f.counts),
                                    f"memory of a host of {DRIVES_OF_HOST} drives", "the same with TLS", "served"], [
        [spaced(clients), *(spaced(clients * count) for count in f.counts),
         *(in_bytes(clients * DRIVES_OF_HOST * (each + kernel)) for each in (daemon, daemon_tls)),
         "yes" if clients <= f.of(f"connection: that a device takes of {TRIED_CONNECTIONS}") else "no"] for clients in CLIENTS])
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
            ("memory", "memory at most", lambda mib: in_bytes(mib * MIB)))])
    made["traffic"] = by_drives(f, [
        ("on the drives (computed)", lambda count: in_bytes(count * DRIVE_BYTES * FULL)),
        ("read in a day (computed)", lambda count: in_bytes(count * per_second * 86400)),
        ("read in a second (computed)", lambda count: in_bytes(count * per_second)),
        ("lines of 10 Gbit/s (computed)", lambda count: shown(count * per_second / LINE_BYTES_PER_SECOND)),
        ("cores of the scrub (computed)", lambda count: shown(count * per_second / 1e9 * scrub_cpu)),
        ("one line and a core: an interval of (computed)", lambda count: in_time(
            count * DRIVE_BYTES * FULL * max(scrub_cpu / 1e9, 1 / LINE_BYTES_PER_SECOND)))])
    written = DRIVE_BYTES * FULL
    made["rebuild"] = by_drives(f, [
        ("written to the new drive (computed)", lambda _: in_bytes(written)),
        ("read from each of the others (computed)", lambda count: in_bytes(written * read_for / (count - 1))),
        ("CPU of one core (computed)", lambda _: in_time(written / 1e9 * rebuild_cpu)),
        (f"time of the new drive, at {DISK_BYTES_PER_SECOND / 1e6:.0f} MB/s (computed)", lambda _: in_time(written / DISK_BYTES_PER_SECOND))])
    made["answers"] = by_drives(f, [
        ("a cluster can be formatted and opened",
         lambda count: "yes" if f.of("open: CPU of the client", count) is not None else "no"),
        ("fullest drive / mean", plain(f, "fill: fullest drive to the mean, data of very many files", lambda value: f"{value:.2f}")),
        ("placement in a client, all groups: memory", plain(f, "client: memory of the orders of all groups",
                                                            lambda mib: in_bytes(mib * MIB))),
        ("placement in a client, all groups: CPU", plain(f, "client: CPU for the orders of all groups", in_time)),
        ("connections with TLS of a client: memory (computed)", lambda count: in_bytes(count * (client_tls + kernel))),
        ("clients at a time, at most", lambda _: spaced(f.of(f"connection: that a device takes of {TRIED_CONNECTIONS}"))),
        ("files made per second, drives with a core each (computed)", names_per_second("names: make a file: requests to drives", put)),
        ("index of a drive with 10^8 files (computed)", lambda count: in_bytes(1e8 * index / count)),
        ("memory of a check of 10^8 files (computed)", lambda _: in_bytes(1e8 * f.of(f"{striped}check: memory at most"))),
        (f"a scrub in {DAYS} days: lines of 10 Gbit/s (computed)", lambda count: shown(count * per_second / LINE_BYTES_PER_SECOND)),
        (f"a lost drive of {in_bytes(written)} is written again (computed)", lambda _: in_time(
            max(written / 1e9 * rebuild_cpu, written / DISK_BYTES_PER_SECOND)))])
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


def made_of(page, results):
    """What the page should be, from what it is."""
    return with_tables(page, tables(results))


def differs():
    with open(PAGE) as page, open(RESULTS) as results:
        text = page.read()
        return made_of(text, json.load(results)) != text


def write():
    """Nothing, as long as nobody has measured."""
    if not os.path.exists(RESULTS):
        return
    with open(PAGE) as page, open(RESULTS) as results:
        text = made_of(page.read(), json.load(results))
    with open(f"{PAGE}.new", "w") as page:
        page.write(text)
    os.replace(f"{PAGE}.new", PAGE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        write()
    elif differs():
        sys.exit("bench/scale_page.py: docs/scale.md is not what the results say. Run bench/scale_page.py")


if __name__ == "__main__":
    main()
