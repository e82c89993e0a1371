#!/usr/bin/python3
"""Stands between clients and servers, and does to their connections what networks do.

It reads a line of JSON for each order from its standard input, answers each with a line, and ends with the input:

    {"link": "1", "to": 8123}            a port that leads to that one; answer: {"port": 40001}
    {"link": "1", "mode": "stall"}       from now on, see MODES
    {"link": "1", "mode": "delay", "seconds": 0.05}
    {"link": "1", "cut": true}           connections that exist end, in the middle of whatever they carry
    {"link": "1", "record": "FILE"}      what clients send in each connection from now on, up to 1 MB, is kept in FILE.N

Bytes are never changed, repeated or left out: that TCP does not do.
"""

import asyncio
import json
import random
import socket
import struct
import sys
import threading

MODES = {
    "pass": "as it comes",
    "delay": "each piece comes `seconds` later, in its order",
    "jitter": "some pieces come up to `seconds` later, and hold back what is behind them, as lost packets do",
    "stall": "nothing comes, and nobody is told",
    "trickle": "a byte at a time, a thousand in a second",
    "cutting": "connections end after some bytes, by a reset or in order, in the middle of frames",
    "half-close": "what the client says ends after some bytes, and the server's answers still come",
    "refuse": "connections are accepted and closed",
}
PIECE = 1 << 18
RECORDED = 1 << 20


class Link:
    def __init__(self, target):
        self.target = target
        self.mode, self.seconds = "pass", 0.05
        self.changed = asyncio.Event()
        self.connections = set()
        self.record, self.recorded = None, 0
        self.passed = self.cuts = 0

    def set_mode(self, mode, seconds):
        self.mode, self.seconds = mode, seconds
        self.changed.set()  # who waits looks again
        self.changed = asyncio.Event()

    def cut(self):
        for writer in list(self.connections):
            reset(writer)

    async def accept(self, reader, writer):
        record = None
        if self.record:
            self.recorded += 1
            record = open(f"{self.record}.{self.recorded}", "wb", buffering=0)
        there = None
        try:
            if self.mode == "refuse":
                return
            from_there, there = await asyncio.open_connection("127.0.0.1", self.target, limit=PIECE)
            for one in (writer, there):
                one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections.add(one)
            await asyncio.gather(self.carry(reader, there, True, record), self.carry(from_there, writer, False, None))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for one in (writer, there):
                if one is not None:
                    self.connections.discard(one)
                    one.close()
            if record:
                record.close()

    async def carry(self, reader, writer, is_request, record):
        left = None  # bytes until this connection is cut
        recorded = 0
        while True:
            piece = await reader.read(PIECE)
            if record and recorded < RECORDED:
                record.write(piece)
                recorded += len(piece)
            while self.mode == "stall":
                await self.changed.wait()
            if not piece:
                # Servers and clients of ours end connections as a whole.
                if writer.can_write_eof():
                    writer.write_eof()
                return
            if self.mode in ("cutting", "half-close"):
                left = random.randrange(1 << random.randrange(6, 22)) if left is None else left
                if len(piece) >= left and (self.mode == "cutting" or is_request):
                    writer.write(piece[:left])
                    await writer.drain()
                    self.cuts += 1
                    if self.mode == "half-close":
                        writer.write_eof()
                        await reader.read()  # the rest goes nowhere
                        return
                    if random.random() < 0.5:
                        reset(writer)
                    raise ConnectionResetError("cut")
                left -= len(piece)
            if self.mode == "trickle":
                await self.trickle(writer, piece)
                continue
            if self.mode == "delay":
                await asyncio.sleep(self.seconds)
            elif self.mode == "jitter" and random.random() < 0.3:
                await asyncio.sleep(self.seconds * random.random())
            self.passed += len(piece)
            writer.write(piece)
            await writer.drain()

    async def trickle(self, writer, piece):
        for at in range(len(piece)):
            if writer.is_closing():
                raise ConnectionResetError("nobody is there any more")
            if self.mode != "trickle":
                writer.write(piece[at:])
                break
            writer.write(piece[at:at + 1])
            await asyncio.sleep(0.001)
        await writer.drain()


def reset(writer):
    """The other end is told of a reset, and nothing that is still on its way arrives."""
    one = writer.get_extra_info("socket")
    if one is not None and one.fileno() >= 0:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Proxy:
    def __init__(self):
        self.links = {}
        self.servers = []

    async def obey(self, order):
        if "to" in order and order["link"] not in self.links:
            link = self.links[order["link"]] = Link(order["to"])
            server = await asyncio.start_server(link.accept, "127.0.0.1", 0, limit=PIECE)
            self.servers.append(server)
            return {"port": server.sockets[0].getsockname()[1]}
        link = self.links[order["link"]]
        link.target = order.get("to", link.target)
        link.record = order.get("record", link.record)
        if "mode" in order:
            if order["mode"] not in MODES:
                raise ValueError(f"no mode {order['mode']}")
            link.set_mode(order["mode"], order.get("seconds", 0.05))
        if order.get("cut"):
            link.cut()
        return {"passed": link.passed, "cuts": link.cuts, "recorded": link.recorded}

    async def run(self):
        loop = asyncio.get_running_loop()
        orders = asyncio.StreamReader(loop=loop)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        while line := await orders.readline():
            print(json.dumps(await self.obey(json.loads(line))), flush=True)


class Handle:
    """A proxy in a process of its own, for tests; any thread may use it."""

    def __init__(self, process):
        self.process, self.turn = process, threading.Lock()

    def __call__(self, link, **order):
        with self.turn:
            self.process.stdin.write(json.dumps({"link": str(link), **order}) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


if __name__ == "__main__":
    random.seed(sys.argv[1] if len(sys.argv) > 1 else None)
    asyncio.run(Proxy().run())
