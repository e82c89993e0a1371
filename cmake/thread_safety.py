#!/usr/bin/env python3
"""Has Clang check the annotations of base/mutex.h, as errors, in each file of the product that has
locks or whose header has them:   thread_safety.py BUILD_DIRECTORY JOBS [FILE...]"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOCKS = re.compile(r'#include "(base/mutex|fs/turn|store/gate)\.h"')
# What GCC knows and Clang does not, and what no other compilation warns of.
FLAGS = ["-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror", "-Wno-error=#warnings"]


def has_locks(source):
    files = [source, source.with_suffix(".h")]
    return any(file.exists() and LOCKS.search(file.read_text()) for file in files)


def settings(entry):
    """What of its command counts for Clang."""
    words = shlex.split(entry["command"])
    if "ccache" in words[0]:
        words = words[1:]
    kept = []
    skip = False
    for word in words[1:]:
        if skip or word in ("-c", entry["file"]):
            skip = False
        elif word in ("-o", "-include"):  # what GCC has precompiled is included by the files, too
            skip = True
        elif not word.startswith(("-W", "-f", "-g", "-O")):
            kept.append(word)
    return tuple(kept)


def precompile(words, directory):
    """The standard's and fmt's headers as Clang precompiles them: that takes half of the time away."""
    listed = (ROOT / "cmake/PinstripePrecompile.cmake").read_text()
    headers = re.search(r"set\(precompiled_headers(.*?)\)", listed, re.DOTALL).group(1).split()
    source = pathlib.Path(directory, "precompiled.hxx")
    source.write_text("".join(f"#include {header}\n" for header in headers))
    subprocess.run(["clang++-14", *words, *FLAGS[1:], "-x", "c++-header", source, "-o", f"{source}.pch"],
                   check=True)
    return f"{source}.pch"


def each_alone(entry):
    """The entries of the files that one which CMake wrote includes, to compile them as one; or the entry itself."""
    if not re.search(r"/Unity/unity_\d+_cxx\.cxx$", entry["file"]):
        return [entry]
    together = pathlib.Path(entry["directory"], entry["file"]).read_text()
    return [entry | {"file": file, "command": entry["command"].replace(entry["file"], file)}
            for file in re.findall(r'^#include "(.*)"$', together, re.MULTILINE)]


def check(entry, precompiled):
    words = settings(entry)
    headers = ["-include-pch", precompiled[words]] if words in precompiled else []
    done = subprocess.run(["clang++-14", *words, *headers, *FLAGS, "-x", "c++", entry["file"]],
                          cwd=entry["directory"], capture_output=True, text=True)
    return done.returncode == 0, done.stderr


def main():
    build, jobs, only = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    entries = []
    listed = json.loads((build / "compile_commands.json").read_text())
    for entry in (alone for entry in listed for alone in each_alone(entry)):
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if not source.is_relative_to(ROOT) or source.is_relative_to(build.resolve()):
            continue
        path = str(source.relative_to(ROOT))
        if path.startswith("tests/") or not has_locks(source) or (only and path not in only):
            continue
        entries.append(entry)
    failed = 0
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(jobs) as pool:
        usual = Counter(map(settings, entries)).most_common(1)
        precompiled = {words: precompile(words, directory) for words, count in usual if count > 4}
        for good, text in pool.map(lambda entry: check(entry, precompiled), entries):
            sys.stderr.write(text)
            failed += not good
    print(f"{len(entries)} files with locks, {failed} of them with complaints")
    if not entries or failed:
        sys.exit(1)


main()
