#!/usr/bin/python3
"""Two mounts of one cluster at work on the same files: what docs/semantics.md says under "Two writers"
and, if the first one has dirops=async, under "New files on a mount with dirops=async".

usage: two_mounts.py MOUNT OTHER-MOUNT [async]
"""

import errno
import multiprocessing
import os
import re
import struct
import subprocess
import sys
import time


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


def fails_with(code, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        expect(errno.errorcode[error.errno], errno.errorcode[code], "the failure")
        return
    raise AssertionError(f"nothing failed with {errno.errorcode[code]}")


def a_new_file_appears_when_it_is_closed(one, two):
    file = opened(one + "/new")
    os.write(file, b"contents")
    expect(os.listdir(one), ["new"], "what its own host lists")
    expect(contents(one + "/new"), b"contents", "what its own host reads")
    expect(os.listdir(two), [], "what the other one lists")
    fails_with(errno.ENOENT, os.stat, two + "/new")
    os.close(file)
    expect(contents(two + "/new"), b"contents", "what is there after the close")


def or_is_synced_or_its_directory_or_renamed_or_linked(one, two):
    os.mkdir(one + "/ways")
    def sync_directory(_, directory):
        at = os.open(directory, os.O_RDONLY)
        os.fsync(at)
        os.close(at)
    for way, call in enumerate((lambda file, _: os.fsync(file), sync_directory,
                                lambda _, directory: os.rename(directory + "/2", directory + "/x"),
                                lambda _, directory: os.link(directory + "/3", directory + "/y"))):
        file = opened(f"{one}/ways/{way}")
        os.write(file, b"x")
        fails_with(errno.ENOENT, os.stat, f"{two}/ways/{way}")
        call(file, one + "/ways")
        name = "x" if way == 2 else way
        expect(contents(f"{two}/ways/{name}"), b"x", f"way {way}")
        os.close(file)
    expect(sorted(os.listdir(two + "/ways")), ["0", "1", "3", "x", "y"], "all names")


def or_about_a_second_after_it_was_created(one, two):
    file = opened(one + "/second")
    os.write(file, b"contents")
    begun = time.monotonic()
    while not os.path.exists(two + "/second"):
        assert time.monotonic() < begun + 10, "it does not appear"
        time.sleep(0.02)
    expect(contents(two + "/second"), b"contents", "what was written by then")
    os.write(file, b" and more")
    os.close(file)
    expect(contents(two + "/second"), b"contents and more", "what was written afterwards")


def a_file_that_is_removed_before_never_appears(one, two):
    os.mkdir(one + "/short")
    file = opened(one + "/short/file")
    os.write(file, b"contents")
    fails_with(errno.ENOTEMPTY, os.rmdir, one + "/short")
    again = opened(one + "/short/again")
    os.unlink(one + "/short/file")
    os.unlink(one + "/short/again")
    os.rmdir(one + "/short")
    os.close(file)
    os.close(again)
    fails_with(errno.ENOENT, os.stat, two + "/short")


def what_another_host_has_made_meanwhile_stays(one, two):
    file = opened(one + "/clash")
    os.write(file, b"ours")
    put(two + "/clash", b"theirs")
    fails_with(errno.EEXIST, os.close, file)
    for mount in (one, two):
        expect(contents(mount + "/clash"), b"theirs", "the name that both made")


def an_archive_is_unpacked(one, two):
    os.mkdir(one + "/source")
    for i in range(300):
        put(f"{one}/source/{i}", os.urandom(i * 40))
        os.utime(f"{one}/source/{i}", (i, i))
    subprocess.check_call(["tar", "-C", one, "-cf", one + "/all.tar", "source"])
    os.mkdir(one + "/unpacked")
    subprocess.check_call(["tar", "-C", one + "/unpacked", "-xpf", one + "/all.tar"])
    for mount in (one, two):
        subprocess.check_call(["tar", "-C", mount + "/unpacked", "-df", mount + "/all.tar"])


USUAL = (appends_in_turn_follow_each_other, of_appends_at_once_the_later_commit_wins,
         disjoint_bytes_of_one_block_are_both_there, two_processes_write_their_own_parts_of_one_file,
         what_was_read_is_kept_until_somebody_changes_it, who_opens_sees_what_the_other_has_closed,
         a_write_after_a_truncation_elsewhere_keeps_its_own_bytes, a_truncation_after_a_write_elsewhere_cuts_it_off,
         what_one_has_open_can_be_read_after_the_other_removed_it, each_name_is_made_by_one_of_both,
         who_comes_second_opens_what_the_first_has_made, nobody_opens_what_he_may_not_because_it_was_just_made)
ASYNC = (a_new_file_appears_when_it_is_closed, or_is_synced_or_its_directory_or_renamed_or_linked,
         or_about_a_second_after_it_was_created, a_file_that_is_removed_before_never_appears,
         what_another_host_has_made_meanwhile_stays, an_archive_is_unpacked, each_name_is_made_by_one_of_both)


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["async"]):
        sys.exit(__doc__)
    failed = 0
    for case in ASYNC if sys.argv[3:] else USUAL:
        try:
            case(sys.argv[1], sys.argv[2])
            print(f"  ok: {case.__name__.replace('_', ' ')}")
        except (AssertionError, OSError) as error:
            failed += 1
            print(f"  FAILED: {case.__name__.replace('_', ' ')}: {error}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
