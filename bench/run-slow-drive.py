#!/usr/bin/env python3
"""Reads of 1 MiB while one drive answers ten times slower: 4+2 on 8 drives, all on this machine.

    bench/run-slow-drive.py BUILD [--rounds 3] [--operations 1000] [--file-mib 1024] [--times 10] [--json FILE]

Between the clients and drive 1 there is a proxy that can hold each answer back for a time. First it measures how
long the drive takes for the reads of 64 KiB that come one by one, then reads are measured with answers that come at once and
with answers held back for so many times as long, in turn.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import shutil
import tempfile

from common import MIB, Cluster, Report, add_options, free_port, run
from page import table


async def pump(reader, writer, delay):
    """Passes on what comes, each piece `delay` seconds after it came."""
    loop = asyncio.get_running_loop()
    pieces = asyncio.Queue()

    async def send():
        while True:
            due, piece = await pieces.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            if not piece:
                writer.close()
                return
            writer.write(piece)
            await writer.drain()

    sender = asyncio.create_task(send())
    piece = b"-"
    while piece:
        try:
            piece = await reader.read(MIB)
        except ConnectionError:
            piece = b""
        pieces.put_nowait((loop.time() + delay.value, piece))
    await asyncio.gather(sender, return_exceptions=True)


def proxy(port, drive_port, delay):
    class AtOnce:
        value = 0.0

    async def serve(client_reader, client_writer):
        drive_reader, drive_writer = await asyncio.open_connection("127.0.0.1", drive_port)
        await asyncio.gather(pump(client_reader, drive_writer, AtOnce),
                             pump(drive_reader, client_writer, delay))

    async def listen():
        server = await asyncio.start_server(serve, "127.0.0.1", port)
        async with server:
            await server.serve_forever()

    asyncio.run(listen())


def measure(cluster, pattern, options):
    rows = json.loads(run(cluster.pinstripe, "bench", "data", cluster.config, "--json", "--pattern", pattern,
                          "--file-bytes", str(options.file_mib * MIB), "--operations", str(options.operations)))
    return next(row for row in rows if row["pattern"] == pattern)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--operations", type=int, default=1000)
    parser.add_argument("--file-mib", type=int, default=1024)
    parser.add_argument("--times", type=float, default=10)
    add_options(parser)
    options = parser.parse_args()
    work = tempfile.mkdtemp(prefix="pinstripe-slow.")
    os.chmod(work, 0o755)  # the gateway runs as somebody else
    cluster = Cluster(options.build, os.path.join(work, "cluster"), "--layout", "4+2", "--drives", "8")
    proxy_process = None
    try:
        with open(cluster.config) as config:
            text = config.read()
        port = free_port()
        drive_port = int(re.search(r'id = 1\naddress = "127.0.0.1:(\d+)"', text).group(1))
        with open(cluster.config, "w") as config:
            config.write(text.replace(f"127.0.0.1:{drive_port}", f"127.0.0.1:{port}"))
        delay = multiprocessing.Value("d", 0.0)
        proxy_process = multiprocessing.Process(target=proxy, args=(port, drive_port, delay), daemon=True)
        proxy_process.start()
        alone = measure(cluster, "read-64k", options)
        held = (options.times - 1) * alone["latency_us"]["p50"] / 1e6
        about = (f"Layout 4+2 on 8 drives. A read of 64 KiB takes {alone['latency_us']['p50']} us; answers of the slow drive "
                 f"come {held * 1e6:.0f} us later. {options.operations} reads of 1 MiB in each round.")
        report = Report("slow-drive", work, about, [("one drive slow", "all healthy")])
        for _ in report.rounds(options.rounds, options.minutes):
            for name, seconds in (("all healthy", 0.0), ("one drive slow", held)):
                delay.value = seconds
                row = measure(cluster, "read-1m", options)
                for key, what in (("p50", "half of the reads end within"), ("p99", "99 of 100 reads end within")):
                    report.add(what, name, "us", row["latency_us"][key], "less")
                report.add("drive bytes per byte", name, "bytes", row["received_bytes"] / row["bytes"], "less")
        print(table(report.content()))
        report.write(options.json)
    finally:
        if proxy_process:
            proxy_process.terminate()
        cluster.down()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
