"""Many clients at once upload files of mixed sizes to a gateway, fetch them back, compare every byte, ask for
checksums and remove them, while drives are killed and started, one at a time. At the end: what was done, and how
the gateway's memory and threads went.

usage: soak.py PINSTRIPE CLUSTER-DIRECTORY root://HOST:PORT SECONDS CLIENTS
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
import zlib

SIZES = [0, 1, 4096, 4097, 65_537, 1 << 20, (4 << 20) + 1, 9_000_001, 30_000_000]
PAUSE = 15  # seconds a drive is away, and then is back


class Soak:
    def __init__(self, pinstripe, cluster, server):
        self.pinstripe, self.cluster, self.server = pinstripe, cluster, server
        self.end = threading.Event()
        self.lock = threading.Lock()
        self.complaints, self.files, self.bytes, self.kills = [], 0, 0, 0
        self.sources = []
        for size in SIZES:
            path = f"{cluster}/../soak-{size}"
            data = os.urandom(size)
            with open(path, "wb") as file:
                file.write(data)
            self.sources.append((path, hashlib.sha256(data).digest(), f"{zlib.adler32(data):08x}", size))

    def complain(self, text):
        with self.lock:
            self.complaints.append(text)
        print("  " + text, flush=True)

    def run(self, *command):
        done = subprocess.run(command, capture_output=True, timeout=300)
        if done.returncode != 0:
            self.complain(f"{' '.join(command)}: {done.stderr.decode(errors='replace').strip()[-300:]}")
        return done

    def client(self, number):
        dice = random.Random(number)
        host = self.server.removeprefix("root://")
        while not self.end.is_set():
            path, digest, adler, size = dice.choice(self.sources)
            name = f"/soak/{number}-{dice.randrange(3)}"
            self.run("xrdcp", "-s", "-f", path, f"{self.server}/{name}")
            back = self.run("xrdcp", "-s", f"{self.server}/{name}", "-")
            if back.returncode == 0 and hashlib.sha256(back.stdout).digest() != digest:
                self.complain(f"{name}: {len(back.stdout)} wrong bytes instead of {size}")
            told = self.run("xrdfs", host, "query", "checksum", name)
            if told.returncode == 0 and told.stdout.decode().split()[-1] != adler:
                self.complain(f"{name}: the checksum is said to be {told.stdout.decode().strip()}")
            if dice.random() < 0.2:
                self.run("xrdfs", host, "rm", name)
            with self.lock:
                self.files += 1
                self.bytes += 2 * size

    def weather(self):
        drive = 0
        while not self.end.wait(PAUSE):
            drive = drive % 8 + 1
            self.run(self.pinstripe, "dev", "kill", self.cluster, str(drive))
            self.kills += 1
            self.end.wait(PAUSE)
            self.run(self.pinstripe, "dev", "start", self.cluster, str(drive))

    def watch(self, pid, samples):
        while not self.end.wait(1):
            with open(f"/proc/{pid}/status") as file:
                status = dict(line.split(":", 1) for line in file)
            samples.append((int(status["VmRSS"].split()[0]) >> 10, int(status["Threads"])))


def main(pinstripe, cluster, server, seconds, clients):
    soak = Soak(pinstripe, cluster, server)
    state = json.loads(subprocess.run([pinstripe, "dev", "status", "--json", cluster], capture_output=True).stdout)
    samples = []
    threads = [threading.Thread(target=soak.client, args=(i,)) for i in range(int(clients))]
    threads += [threading.Thread(target=soak.weather), threading.Thread(target=soak.watch, args=(state["gateway"]["pid"], samples))]
    for thread in threads:
        thread.start()
    time.sleep(float(seconds))
    soak.end.set()
    for thread in threads:
        thread.join()
    quarter = len(samples) // 4
    early, late = (max(rss for rss, _ in part) for part in (samples[quarter:2 * quarter], samples[-quarter:]))
    most = max(count for _, count in samples)
    print(f"  {soak.files} files, {soak.bytes >> 20} MiB up and down, {soak.kills} kills of a drive, "
          f"{len(soak.complaints)} failures")
    tenths = [max(rss for rss, _ in samples[i * len(samples) // 10:(i + 1) * len(samples) // 10]) for i in range(10)]
    print(f"  the gateway's MiB, tenth by tenth: {tenths}")
    print(f"  the gateway had {early} MiB in the second quarter of the time, {late} MiB in the last, and at most {most} threads")
    if late > early * 1.15 + 32:
        soak.complain("the gateway's memory grows")
    if most > 4 * int(clients) + 100:
        soak.complain("the gateway's threads pile up")
    return 1 if soak.complaints else 0


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
