#!/usr/bin/env python3
"""Measures what README.md beside this file answers, and makes it anew: `./dev bench` builds what this needs, then calls it.

    bench/run.py BUILD [--minutes 20] [--python PYTHON_WITH_ROOT] [QUESTION...]

The minutes are for all questions together; each gets its part of what is left when its turn comes, and chooses the size of
its data by that. Three rounds are made at least, so that a short time may be exceeded. A question whose script fails keeps
the results that it had, and the exit code is 1.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import page
import scale_page
from common import FEWEST_ROUNDS

HERE = os.path.dirname(os.path.abspath(__file__))


def choose(minutes, *steps):
    """The first of (least minutes, value) for which there is time, else the last value."""
    return next((value for least, value in steps if minutes >= least), steps[-1][1])


def copy(build, _, minutes):
    sizes, memory = choose(minutes, (3, ("1M,16M,64M,256M,1G", "512 MiB")), (1, ("1M,16M,64M,256M", "512 MiB")),
                           (0, ("1M,16M,64M", "128 MiB")))
    return ["run-xrootd.py", build, "--sizes", sizes, "--memory", memory]


def small_files(build, _, minutes):
    return ["run-xrootd.py", build, "--small-files", choose(minutes, (3, "400"), (1, "200"), (0, "60")), "--memory", "128 MiB"]


def root(build, python, minutes):
    return ["run-root.py", build, "--entries", choose(minutes, (3, "3000000"), (1, "1000000"), (0, "300000")),
            *(["--python", python] if python else [])]


def mount(build, _, minutes):
    mib, files, tree = choose(minutes, (10, ("2048", "10000", "/usr/include")), (2, ("512", "1000", "/usr/include/linux")),
                              (0, ("128", "200", "/usr/include/asm-generic")))
    return ["run-mount.py", build, tempfile.gettempdir(), "--mib", mib, "--files", files, "--tree", tree, "--systems",
            "directory;Pinstripe;bindfs"]


def rebuild(build, _, minutes):
    return ["run-rebuild.py", build, "--per-drive", choose(minutes, (1.5, "512MiB"), (0.5, "128MiB"), (0, "32MiB"))]


def drive(build, _, minutes):
    seconds = min(2, max(0.1, minutes * 60 / FEWEST_ROUNDS / 115))  # of each of 84 operations, and what is around them
    return ["run-stores.py", build, tempfile.gettempdir(), "--seconds", f"{seconds:.1f}"]


def resp(build, _, minutes):
    requests, memory = choose(minutes, (6, ("200000", "256MiB")), (3, ("100000", "128MiB")), (0, ("20000", "128MiB")))
    return ["run-resp.py", build, tempfile.gettempdir(), "--requests", requests, "--memory", memory]


def engines(build, _, minutes):
    return ["run-engines.py", build, tempfile.gettempdir(), "--files", choose(minutes, (4, "300"), (1, "100"), (0, "30"))]


def memory(build, _, minutes):
    drives, mib = choose(minutes, (2, ("36", "512")), (0, ("8", "128")))
    return ["run-memory.py", build, "--drives", drives, "--mib", mib]


def slow_drive(build, _, minutes):
    mib, operations = choose(minutes, (1, ("1024", "1000")), (0, ("128", "300")))
    return ["run-slow-drive.py", build, "--file-mib", mib, "--operations", operations]


def connections(build, _, minutes):
    clients, mib = choose(minutes, (1, ("20", "256")), (0, ("5", "64")))
    return ["run-connections.py", build, "--clients", clients, "--file-mib", mib]


def scale(build, _, minutes):
    files, mib = choose(minutes, (20, ("30000", "1024")), (10, ("10000", "512")), (0, ("3000", "256")))
    return ["run-scale.py", build, "--files", files, "--mib", mib]


# Question -> its part of the time, and what the words of its command are.
QUESTIONS = {
    "copy": (4, copy),
    "small-files": (2, small_files),
    "root": (3, root),
    "mount": (3, mount),
    "rebuild": (2, rebuild),
    "drive": (3.5, drive),
    "resp": (2.5, resp),
    "engines": (2, engines),
    "memory": (3.5, memory),
    "slow-drive": (1.5, slow_drive),
    "connections": (1.5, connections),
    "scale": (8, scale),
}
ROUNDS = "20"  # at most; time ends it before


def answer(question, words, minutes, results, limit=None):
    """Runs a script; its results replace those in the directory `results` only when it has succeeded. What went wrong, or None.
    `limit` is in seconds."""
    os.makedirs(results, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        made = f"{work}/{question}.json"
        command = [sys.executable, f"{HERE}/{words[0]}", *words[1:], "--rounds", ROUNDS, "--minutes", f"{minutes:.1f}", "--json", made]
        # One that is started in the background ignores SIGINT; a script must not, or nobody could end it in order.
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        try:
            # What hangs is ended; what is slow is not, as three rounds are made whatever they take.
            code = process.wait(minutes * 300 + 900 if limit is None else limit)
        except BaseException as error:
            process.send_signal(signal.SIGINT)  # it ends what it has started, and removes what it has made
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return f"{words[0]} took more than {error.timeout / 60:.0f} minutes"
            raise
        if code != 0:
            return f"{words[0]} ended with {code}"
        try:
            with open(made) as file:
                text = file.read()
            page.table(json.loads(text))
        except (OSError, ValueError, KeyError) as error:
            return f"{words[0]} wrote no results that can be read: {error!r}"
    with open(f"{results}/{question}.new", "w") as file:
        file.write(text)
    os.replace(f"{results}/{question}.new", f"{results}/{question}.json")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--list", action="store_true", help="name the questions that these arguments ask, on a line, and do no more")
    parser.add_argument("--python", help="one that has ROOT")
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=", ".join(QUESTIONS))
    arguments = parser.parse_intermixed_args()
    unknown = [question for question in arguments.questions if question not in QUESTIONS]
    if unknown:
        parser.error(f"no question {', '.join(unknown)}; there are {', '.join(QUESTIONS)}")
    if arguments.minutes <= 0:
        parser.error("--minutes takes a number above 0")
    wanted = [question for question in QUESTIONS if question in (arguments.questions or QUESTIONS)]
    if arguments.list:
        print(*wanted)
        return
    begin, failed = time.monotonic(), []
    for number, question in enumerate(wanted):
        left = max(0, arguments.minutes - (time.monotonic() - begin) / 60)
        minutes = left * QUESTIONS[question][0] / sum(QUESTIONS[other][0] for other in wanted[number:])
        print(f"bench: {question} ({number + 1} of {len(wanted)}), {minutes:.1f} of {left:.1f} minutes", file=sys.stderr, flush=True)
        wrong = answer(question, QUESTIONS[question][1](arguments.build, arguments.python, minutes), minutes, f"{HERE}/results")
        if wrong:
            failed.append(question)
            print(f"bench: {question} FAILED and keeps its old results: {wrong}", file=sys.stderr, flush=True)
        page.write(HERE)
        if question == "scale":
            scale_page.write()
    took = (time.monotonic() - begin) / 60
    print(f"bench: {len(wanted) - len(failed)} of {len(wanted)} questions answered in {took:.1f} minutes: bench/README.md",
          file=sys.stderr)
    if failed:
        sys.exit(f"bench: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
