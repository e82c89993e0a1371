#!/usr/bin/env python3
"""Reads of 1 MiB while one drive answers ten times slower: 4+2 on 8 drives, all on this machine.

    bench/run-slow-drive.py BUILD [--rounds 3] [--operations 1000] [--file-mib 1024] [--times 10]

Between the clients and drive 1 there is a proxy that can hold each answer back for a time. First it measures how
long the drive takes for the reads of 64 KiB that come one by one, then reads are measured with answers that come at once and
with answers held back for so many times as long, in turn. See bench/README.md.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import shutil
import statistics
import tempfile

from common import MIB, Cluster, free_port, run


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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--operations", type=int, default=1000)
    parser.add_argument("--file-mib", type=int, default=1024)
    parser.add_argument("--times", type=float, default=10)
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
        print(f"a read of 64 KiB takes {alone['latency_us']['p50']} us; answers of drive 1 are held back for {held * 1e6:.0f} us")
        rows = {"healthy": [], "slow": []}
        for _ in range(options.rounds):
            for name, seconds in (("healthy", 0.0), ("slow", held)):
                delay.value = seconds
                rows[name].append(measure(cluster, "read-1m", options))
                print(name, rows[name][-1]["latency_us"], flush=True)

        def median(name, value):
            return statistics.median(value(row) for row in rows[name])

        def fetched(row):
            return row["received_bytes"] / row["bytes"]
        for key in ("p50", "p99"):
            healthy, slow = (median(name, lambda row: row["latency_us"][key]) for name in ("healthy", "slow"))
            print(f"{key}: healthy {healthy:.0f} us, with a slow drive {slow:.0f} us: {slow / healthy:.2f} times")
        healthy, slow = median("healthy", fetched), median("slow", fetched)
        print(f"bytes from drives for each byte: healthy {healthy:.3f}, with a slow drive {slow:.3f}: {100 * (slow / healthy - 1):.1f} % more")
    finally:
        if proxy_process:
            proxy_process.terminate()
        cluster.down()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
