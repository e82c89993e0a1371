"""What the scripts of this directory share: results and their form, processes and their CPU, clusters of development,
servers of XRootD.

A script makes one Report and writes it to the file that --json names. The file has this form:

    {"question": "copy", "command": "bench/run-xrootd.py ...", "date": "2026-11-25T12:00:00Z", "rounds": 3,
     "load": [0.5, 2.1], "machine": {"cores": 2, ...}, "about": "4+2 on 8 drives, ...",
     "ratios": [["Pinstripe", "plain xrootd"]],
     "results": [{"what": "upload, 64 MiB", "variant": "Pinstripe", "unit": "MB/s", "better": "more",
                  "samples": [301.5, 298.0, 310.2]}, ...]}

There is one sample for each round. `ratios` names the variants that are compared: the first divided by the second, round
by round. `load` is the lowest and the highest load of the machine that the script saw, its own included.
"""

import datetime
import json
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
FEWEST_ROUNDS = 3
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:8])}: {done.stderr.strip()[-500:]}")
    return done.stdout


def first_line_of(*command):
    """What a program says of itself, or nothing where it is not installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else ""


def version_of_source():
    """The commit; "with changes" if files differ from it, but for those that measuring writes."""
    commit = first_line_of("git", "-C", SOURCE, "rev-parse", "--short", "HEAD")
    differs = first_line_of("git", "-C", SOURCE, "status", "--porcelain", "--untracked-files=no", "--", ".",
                            *(f":!bench/{name}" for name in ("README.md", "results", "plots")))
    return commit + (" with changes" if commit and differs else "")


def describe_machine(directory):
    """Cores, memory, kernel, the disk below `directory`, and versions."""
    def found(path, pattern):
        with open(path) as file:
            match = re.search(pattern, file.read(), re.MULTILINE)
        return match.group(1) if match else "unknown"

    disk = run("df", "--output=source,fstype,size", "-BG", directory).splitlines()[-1].split()
    versions = {
        "pinstripe": version_of_source(),
        "xrootd": first_line_of("xrootd", "-v"),
        "gcc": first_line_of("gcc", "-dumpfullversion"),
        "python": platform.python_version(),
    }
    return {
        "cores": os.cpu_count(),
        "processor": found("/proc/cpuinfo", r"^model name\s*: (.*)$"),
        "memory_gib": round(int(found("/proc/meminfo", r"^MemTotal:\s*(\d+)")) / (1 << 20), 1),
        "kernel": platform.release(),
        "disk": f"{disk[1]} on {disk[0]}, {disk[2].rstrip('G')} GiB",
        "versions": {name: version for name, version in versions.items() if version},
    }


def add_options(parser, rounds=FEWEST_ROUNDS):
    """The options that every script has."""
    parser.add_argument("--rounds", type=int, default=rounds, help="at most so many (default: %(default)s)")
    parser.add_argument("--minutes", type=float, help=f"begin no round, but the first {FEWEST_ROUNDS}, that would end later")
    parser.add_argument("--json", help="a file for the results")


def command_line():
    """How this script was called, without where its results go."""
    words = ["bench/" + os.path.basename(sys.argv[0]), *sys.argv[1:]]
    if "--json" in words:
        at = words.index("--json")
        del words[at:at + 2]
    return shlex.join(words).replace(os.path.expanduser("~/"), "~/")


class Report:
    """What a script measured, and how: samples by what was done and by whom. Not for several threads."""

    def __init__(self, question, directory, about, ratios):
        self.question, self.about, self.ratios = question, about, ratios
        self.machine = describe_machine(directory)
        self.begin = datetime.datetime.now(datetime.timezone.utc)
        self.loads, self.number, self.rows = [os.getloadavg()[0]], 0, {}

    def rounds(self, most, minutes=None):
        """Yields the number of each round: FEWEST_ROUNDS at least (or `most`, when one asks for fewer), then as many as end in time."""
        begin = time.monotonic()
        for number in range(most):
            spent = time.monotonic() - begin
            if minutes is not None and number >= FEWEST_ROUNDS and spent + spent / number > minutes * 60:
                break
            print(f"{time.strftime('%H:%M:%S')} {self.question}: round {number + 1}, load {os.getloadavg()[0]:.1f}",
                  file=sys.stderr, flush=True)
            yield number
            self.number = number + 1
            self.loads.append(os.getloadavg()[0])

    def add(self, what, variant, unit, sample, better="more"):
        row = self.rows.setdefault((what, variant), {"what": what, "variant": variant, "unit": unit, "better": better, "samples": []})
        row["samples"].append(float(f"{sample:.5g}"))

    def content(self):
        return {
            "question": self.question,
            "command": command_line(),
            "date": self.begin.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "rounds": self.number,
            "load": [round(min(self.loads), 1), round(max(self.loads), 1)],
            "machine": self.machine,
            "about": self.about,
            "ratios": [list(pair) for pair in self.ratios],
            "results": list(self.rows.values()),
        }

    def write(self, path):
        """All of it or nothing: whoever is interrupted leaves the old file."""
        if not path:
            return
        with open(path + ".new", "w") as file:
            file.write(to_text(self.content()))
        os.replace(path + ".new", path)


def to_text(content):
    """JSON with a line for each result, so that a difference between two runs can be read."""
    results = ",\n".join("  " + json.dumps(row) for row in content["results"])
    head = json.dumps({name: value for name, value in content.items() if name != "results"}, indent=1)
    return head.removesuffix("\n}") + ',\n "results": [\n' + results + "\n ]\n}\n"


def mean(values):
    return sum(values) / len(values)


def cpu_seconds(*pids):
    """User and system time of these processes, together."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def received(pid, ports):
    """Bytes that came to a process from these ports, by the counts of TCP."""
    total, wanted = 0, False
    for line in run("ss", "-tinpH").splitlines():
        if not line.startswith((" ", "\t")):
            peer = line.split()[4]
            wanted = f"pid={pid}," in line and int(peer.rsplit(":", 1)[1]) in ports
        elif wanted:
            found = re.search(r"bytes_received:(\d+)", line)
            total += int(found.group(1)) if found else 0
    return total


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def size_of(text):
    """Bytes of a size such as 64MiB; without "i" they count as well, the sizes are powers of two."""
    number, unit = re.fullmatch(r"(\d+)\s*([KMG]?)i?B?", text).groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def human(size):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def set_memory(config, memory):
    """`memory` in [limits] of a cluster.toml."""
    with open(config) as text:
        lines = [line for line in text if not line.startswith("memory")]
    new = f'memory = "{memory}"\n'
    if "[limits]\n" in lines:
        lines.insert(lines.index("[limits]\n") + 1, new)
    else:
        lines += ["\n[limits]\n", new]
    with open(config, "w") as text:
        text.writelines(lines)


def make_drives(daemon, *places):
    """Empty drives in directories, which are made where they are not there."""
    for place in places:
        os.makedirs(place, exist_ok=True)
    # One to compare with may be of a version that makes drives by itself.
    if "--init" in run(daemon, "--help"):
        run(daemon, "--init", *places)


class Cluster:
    """One of `pinstripe dev up`, with a gateway."""

    def __init__(self, build, directory, *options):
        self.pinstripe, self.directory = f"{build}/tools/pinstripe", directory
        self.daemon = f"{build}/daemon/pinstriped"
        self.config = f"{directory}/cluster.toml"
        run(self.pinstripe, "dev", "up", directory, *options)
        self.user = self.status().get("gateway", {}).get("user")

    def status(self):  # which exits with 1 when a drive is dead
        said = subprocess.run([self.pinstripe, "dev", "status", "--json", self.directory],
                              capture_output=True, text=True)
        return json.loads(said.stdout)

    def drive_ports(self):
        with open(self.config) as text:
            return {int(port) for port in re.findall(r'address = ".*:(\d+)"', text.read())}

    def kill(self, *names):
        run(self.pinstripe, "dev", "kill", self.directory, *names)

    def start(self, *names):
        run(self.pinstripe, "dev", "start", self.directory, *names)

    def down(self):
        subprocess.run([self.pinstripe, "dev", "down", "--delete", self.directory], capture_output=True)


class XrootdServer:
    """A cluster's gateway over again on a port of its own: with other lines instead of some of its configuration."""

    def __init__(self, cluster, work, without=(), more=(), change=lambda line: line):
        self.place = tempfile.mkdtemp(dir=work)
        self.port = free_port()
        with open(f"{cluster.directory}/gateway/xrootd.cfg") as config:
            lines = config.read().splitlines()
        gone = ("xrd.port", "all.adminpath", "all.pidpath", *without)
        lines = [change(line) for line in lines if not line.startswith(gone)]
        lines += [f"xrd.port {self.port}", f"all.adminpath {self.place}", f"all.pidpath {self.place}"]
        lines += [line.replace("PLACE", self.place) for line in more]
        with open(f"{self.place}/cfg", "w") as config:
            config.write("\n".join(lines) + "\n")
        os.mkdir(f"{self.place}/data")
        as_user = []
        if os.getuid() == 0:
            run("chown", "-R", f"{cluster.user}:", self.place)
            group = run("id", "-g", cluster.user).strip()
            as_user = ["setpriv", f"--reuid={cluster.user}", f"--regid={group}", "--clear-groups"]
        with open(f"{self.place}/log", "w") as log:
            self.process = subprocess.Popen([*as_user, "xrootd", "-c", f"{self.place}/cfg", "-I", "v4"],
                                            cwd=self.place, stdout=log, stderr=log)
        while "initialization completed" not in self.log():
            time.sleep(0.05)
            assert self.process.poll() is None, self.log()
        self.pid = self.process.pid
        self.url = f"root://127.0.0.1:{self.port}/"

    def log(self):
        with open(f"{self.place}/log") as log:
            return log.read()

    def stop(self):
        self.process.terminate()
        self.process.wait()
