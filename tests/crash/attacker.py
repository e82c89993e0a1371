#!/usr/bin/python3
"""Stands between clients and drives, knows no key, and answers puts with answers that it has heard before, or exchanges values.

    attacker.py PORT...

leads to each of these ports from one of its own, and says which in a line of JSON. Then it reads orders, a word a line, and
answers each with what it has done so far:

    listen    cut all connections; pass everything on, and keep what drives answer to puts (as at first)
    lie       cut all connections; puts are answered with what was heard, where that has the right number, and drives never
              hear of them; the rest is passed on
    swap      every third value of an answer is exchanged for the one of its length before it, of whatever drive
    pass      cut all connections; pass everything on

Drives and connections are one to it: an answer of any is good for all.

Knows frames and nothing of ours (docs/protocol.md).
"""

import asyncio
import json
import struct
import sys

from flood import fields

GET, PUT, GETKEYRANGE = 2, 4, 12


def header_of(message):
    return fields(fields(fields(message).get(7, b"")).get(1, b""))


class Attacker:
    def __init__(self):
        self.mode = "listen"
        self.heard = {}  # answers to puts, by the number that they acknowledge
        self.writers = set()
        self.lies = self.passed = self.swaps = 0
        self.values, self.seen = {}, 0  # the last one of each length

    async def accept(self, target, reader, writer):
        there = None
        try:
            from_there, there = await asyncio.open_connection("127.0.0.1", target)
            self.writers |= {writer, there}
            carried = [asyncio.ensure_future(self.carry(reader, there, writer)),
                       asyncio.ensure_future(self.carry(from_there, writer, None))]
            await asyncio.wait(carried, return_when=asyncio.FIRST_COMPLETED)
            for one in carried:
                one.cancel()
            await asyncio.gather(*carried, return_exceptions=True)
        except OSError:
            pass
        finally:
            for one in (writer, there):
                if one is not None:
                    self.writers.discard(one)
                    one.close()

    async def carry(self, reader, writer, client):
        """`client`: where answers to these requests go; none: these are answers."""
        while True:
            head = await reader.readexactly(9)
            size, value = struct.unpack(">II", head[1:])
            message = await reader.readexactly(size)
            content = await reader.readexactly(value)
            header = header_of(message)
            kind = header.get(7)
            if client is None and self.mode == "listen" and kind == PUT - 1:
                self.heard[header[6]] = head + message
            if client is None and self.mode == "swap" and value and kind in (GET - 1, GETKEYRANGE - 1):
                before, self.values[value] = self.values.get(value), content
                self.seen += 1
                if before not in (None, content) and self.seen % 3 == 0:
                    content = before
                    self.swaps += 1
            if client is not None and self.mode == "lie" and kind == PUT:
                answer = self.heard.get(header.get(4))
                if answer is None and not self.lies:
                    answer = next(iter(self.heard.values()))  # who begins anywhere is lied to all the same
                if answer is not None:
                    self.lies += 1
                    client.write(answer)
                    await client.drain()
                    continue
                self.passed += 1
            writer.write(head + message + content)
            await writer.drain()

    async def run(self, targets):
        ports = []
        for target in targets:
            server = await asyncio.start_server(lambda r, w, t=target: self.accept(t, r, w), "127.0.0.1", 0, limit=1 << 22)
            ports.append(server.sockets[0].getsockname()[1])
        print(json.dumps(ports), flush=True)
        orders = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        while line := (await orders.readline()).decode().strip():
            if line not in ("listen", "lie", "swap", "pass"):
                raise ValueError(f"no order {line}")
            self.mode = line
            if line != "swap":
                for writer in list(self.writers):
                    writer.transport.abort()
            print(json.dumps({"heard": len(self.heard), "lies": self.lies, "passed": self.passed, "swaps": self.swaps}), flush=True)


if __name__ == "__main__":
    asyncio.run(Attacker().run([int(port) for port in sys.argv[1:]]))
