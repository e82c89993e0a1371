#!/usr/bin/python3
"""Two mounts of one cluster at work on the same files: what docs/semantics.md says under "Two writers".

usage: two_mounts.py MOUNT OTHER-MOUNT
"""

import multiprocessing
import os
import re
import struct
import sys


def opened(path, flags=os.O_RDWR):
    return os.open(path, flags | os.O_CREAT, 0o644)


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def put(path, data):
    with open(path, "wb") as file:
        file.write(data)


def expect(found, wanted, what):
    if found == wanted:
        return
    at = next((i for i, (f, w) in enumerate(zip(found, wanted)) if f != w), min(len(found), len(wanted)))
    raise AssertionError(f"{what}: {len(found)} bytes instead of {len(wanted)}, different from byte {at} on: "
                         f"{found[at:at + 20]!r} instead of {wanted[at:at + 20]!r}")


def appends_in_turn_follow_each_other(one, two):
    wanted = b""
    for i in range(40):
        line = f"line {i}\n".encode()
        file = opened((one, two)[i % 2] + "/log", os.O_WRONLY | os.O_APPEND)
        os.write(file, line)
        os.close(file)
        wanted += line
    for mount in (one, two):
        expect(contents(mount + "/log"), wanted, "the log")


def of_appends_at_once_the_later_commit_wins(one, two):
    put(one + "/both", b"begin;")
    first = opened(one + "/both", os.O_WRONLY | os.O_APPEND)
    second = opened(two + "/both", os.O_WRONLY | os.O_APPEND)
    os.write(first, b"first first first;")
    os.write(second, b"second;")
    os.close(first)
    os.close(second)
    for mount in (one, two):
        expect(contents(mount + "/both"), b"begin;second;" + b"first first first;"[7:], "what both appended")


def disjoint_bytes_of_one_block_are_both_there(one, two):
    put(one + "/block", bytes(100_000))
    first, second = opened(one + "/block"), opened(two + "/block")
    os.pwrite(first, b"a" * 1000, 500)
    os.pwrite(second, b"b" * 1000, 2000)
    os.pwrite(first, b"c" * 10, 99_990)
    os.close(second)
    os.close(first)
    wanted = bytes(500) + b"a" * 1000 + bytes(500) + b"b" * 1000 + bytes(96_990) + b"c" * 10
    for mount in (one, two):
        expect(contents(mount + "/block"), wanted, "the block")


SLOTS, ROUNDS, SLOT = 8, 25, 4096


def fill_slots(mount, parity):
    file = opened(mount + "/slots")
    for count in range(1, ROUNDS + 1):
        for slot in range(parity, SLOTS, 2):
            os.pwrite(file, struct.pack("<II", slot, count) * (SLOT // 8), slot * SLOT)
        os.fsync(file)
    os.close(file)


def two_processes_write_their_own_parts_of_one_file(one, two):
    put(one + "/slots", bytes(SLOTS * SLOT))
    workers = [multiprocessing.Process(target=fill_slots, args=(mount, parity))
               for parity, mount in enumerate((one, two))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.exitcode != 0:
            raise AssertionError("a writer failed")
    wanted = b"".join(struct.pack("<II", slot, ROUNDS) * (SLOT // 8) for slot in range(SLOTS))
    for mount in (one, two):
        expect(contents(mount + "/slots"), wanted, "the parts")


def a_write_after_a_truncation_elsewhere_keeps_its_own_bytes(one, two):
    put(one + "/cut", b"x" * 100_000)
    writer = opened(one + "/cut")
    os.pwrite(writer, b"A" * 10, 50_000)
    os.truncate(two + "/cut", 1000)
    os.close(writer)
    for mount in (one, two):
        expect(contents(mount + "/cut"), b"x" * 1000 + bytes(49_000) + b"A" * 10, "the cut file")


def a_truncation_after_a_write_elsewhere_cuts_it_off(one, two):
    put(one + "/cut", b"x" * 100_000)
    writer = opened(one + "/cut")
    os.pwrite(writer, b"A" * 10, 50_000)
    os.pwrite(writer, b"B" * 10, 10)
    os.close(writer)
    os.truncate(two + "/cut", 1000)
    for mount in (one, two):
        expect(contents(mount + "/cut"), b"x" * 10 + b"B" * 10 + b"x" * 980, "the cut file")


def what_one_has_open_can_be_read_after_the_other_removed_it(one, two):
    put(one + "/open", b"y" * 200_000)
    reader = opened(one + "/open", os.O_RDONLY)
    os.unlink(two + "/open")
    expect(os.pread(reader, 300_000, 0), b"y" * 200_000, "the removed file")
    os.close(reader)
    if os.path.exists(one + "/open"):
        raise AssertionError("the removed file is still there")


def who_opens_sees_what_the_other_has_closed(one, two):
    """However short a time ago the same was opened, looked at or listed, and however much larger it is now."""
    def look(_):
        pass

    def stat(name):
        os.stat(two + name)

    def list_all(_):
        for entry in os.scandir(two):
            entry.stat()

    for what, before in (("nothing", look), ("a stat", stat), ("a listing", list_all)):
        for i in range(150):
            name = f"/seen{i % 3}"
            wanted = f"{what} {i} ".encode() * (i % 7 + 1) * (500 if i % 10 == 0 else 1)
            put(one + name, wanted)
            expect(contents(two + name), wanted, f"what is opened after {what}, {i}")
            before(name)


def bytes_read(mount):
    """By its kernel, before it read this; and with it."""
    text = contents(mount + "/.pinstripe/stats")
    before = int(re.search(rb"read_bytes_total (\d+)", text).group(1))
    return before, before + len(text)


def what_was_read_is_kept_until_somebody_changes_it(one, two):
    data = bytearray(os.urandom(3_000_000))
    put(two + "/kept", data)
    old_reader = opened(one + "/kept", os.O_RDONLY)
    expect(contents(one + "/kept"), data, "first")

    def kept(when):
        _, before = bytes_read(one)
        expect(contents(one + "/kept"), data, when)
        more = bytes_read(one)[0] - before
        # The kernel may drop some when it likes.
        assert more < len(data) // 10, f"{when}: {more} bytes were read again"

    kept("read again")
    kept("and again")
    for at in (0, 2_500_000, 1_000_000):
        file = opened(two + "/kept", os.O_WRONLY)
        about = os.fstat(file)
        os.pwrite(file, b"changed", at)
        os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))  # which is nothing to go by
        os.close(file)
        data[at:at + 7] = b"changed"
        expect(contents(one + "/kept"), data, "changed elsewhere")
        os.pread(old_reader, 100, at)
        expect(contents(one + "/kept"), data, "beside an older reader")
        kept("after a change")
    file = opened(one + "/kept", os.O_RDWR)
    os.pwrite(file, b"changed here", 5000)
    data[5000:5012] = b"changed here"
    expect(contents(one + "/kept"), data, "changed here and open")
    os.close(file)
    expect(contents(one + "/kept"), data, "changed here")
    expect(contents(one + "/kept"), data, "changed here, again")
    kept("after a change here")
    os.truncate(one + "/kept", 2_000_000)
    del data[2_000_000:]
    expect(contents(one + "/kept"), data, "cut here")
    os.truncate(two + "/kept", 1_000_000)
    del data[1_000_000:]
    expect(contents(one + "/kept"), data, "cut elsewhere")
    expect(contents(one + "/kept"), data, "cut elsewhere, again")
    kept("after a cut")
    os.close(old_reader)


def make_names(mount, made):
    won = 0
    for i in range(100):
        try:
            os.close(os.open(f"{mount}/race/{i}", os.O_CREAT | os.O_EXCL))
            won += 1
        except FileExistsError:
            pass
    made.put(won)


def each_name_is_made_by_one_of_both(one, two):
    os.mkdir(one + "/race")
    made = multiprocessing.Queue()
    workers = [multiprocessing.Process(target=make_names, args=(mount, made)) for mount in (one, two)]
    for worker in workers:
        worker.start()
    total = made.get(timeout=100) + made.get(timeout=100)
    for worker in workers:
        worker.join()
    if total != 100 or len(os.listdir(two + "/race")) != 100:
        raise AssertionError(f"of 100 names {total} were made, {len(os.listdir(two + '/race'))} are there")


def open_names(mount, opened_inodes):
    inodes = []
    for i in range(100):
        file = os.open(f"{mount}/opened/n{i}", os.O_CREAT | os.O_RDWR, 0o644)
        inodes.append(os.fstat(file).st_ino)
        os.close(file)
    opened_inodes.put(inodes)


def who_comes_second_opens_what_the_first_has_made(one, two):
    os.mkdir(one + "/opened")
    found = multiprocessing.Queue()
    workers = [multiprocessing.Process(target=open_names, args=(mount, found)) for mount in (one, two)]
    for worker in workers:
        worker.start()
    first, second = found.get(timeout=100), found.get(timeout=100)
    for worker in workers:
        worker.join()
    if first != second:
        raise AssertionError(f"of 100 files that both made or opened {sum(f != s for f, s in zip(first, second))} are others")


def nobody_opens_what_he_may_not_because_it_was_just_made(one, two):
    """Who asks for a name to be made that another one makes meanwhile is let in only if he may."""
    if os.getuid() != 0:
        return
    os.mkdir(one + "/guarded")
    os.chmod(one + "/guarded", 0o777)
    found = multiprocessing.Queue()

    def stranger():
        directory = os.open(two + "/guarded", os.O_RDONLY)  # the way there may be closed to him
        os.setgid(65534)
        os.setuid(65534)
        got_in = []
        for i in range(200):
            try:
                file = os.open(f"n{i}", os.O_CREAT | os.O_RDWR, 0o644, dir_fd=directory)
                if os.fstat(file).st_uid != 65534:
                    got_in.append(i)
                os.close(file)
            except PermissionError:
                pass
        found.put(got_in)

    worker = multiprocessing.Process(target=stranger)
    worker.start()
    for i in range(200):
        try:
            os.close(os.open(f"{one}/guarded/n{i}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            pass
    got_in = found.get(timeout=100)
    worker.join()
    if got_in:
        raise AssertionError(f"a stranger opened {len(got_in)} files of others")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    failed = 0
    for case in (appends_in_turn_follow_each_other, of_appends_at_once_the_later_commit_wins,
                 disjoint_bytes_of_one_block_are_both_there, two_processes_write_their_own_parts_of_one_file,
                 what_was_read_is_kept_until_somebody_changes_it, who_opens_sees_what_the_other_has_closed,
                 a_write_after_a_truncation_elsewhere_keeps_its_own_bytes,
                 a_truncation_after_a_write_elsewhere_cuts_it_off,
                 what_one_has_open_can_be_read_after_the_other_removed_it, each_name_is_made_by_one_of_both,
                 who_comes_second_opens_what_the_first_has_made, nobody_opens_what_he_may_not_because_it_was_just_made):
        try:
            case(sys.argv[1], sys.argv[2])
            print(f"  ok: {case.__name__.replace('_', ' ')}")
        except (AssertionError, OSError) as error:
            failed += 1
            print(f"  FAILED: {case.__name__.replace('_', ' ')}: {error}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
