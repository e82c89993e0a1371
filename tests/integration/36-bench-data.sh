#!/bin/bash
# `pinstripe bench data` tells what is moved for each byte, and leaves nothing behind. What it tells is held against
# what must be: no fewer bytes than were asked for or have to be stored, and not much more than the cells that were touched.
. "$(dirname "$0")/lib.sh"

cluster_up bench --layout 4+2 --drives 8 --no-gateway
"$pinstripe" bench data "$config" --file-bytes 33554432 --operations 40 --json >"$work/rows" ||
  give_up "it cannot be run"

holds() {  # CONDITION on `rows`, by pattern
  /usr/bin/python3 - "$work/rows" "$1" <<'END'
import json, sys
rows = {row["pattern"]: row for row in json.load(open(sys.argv[1]))}
def received(pattern, by): return rows[pattern]["received_bytes"] / rows[pattern][by]
def sent(pattern): return rows[pattern]["sent_bytes"] / rows[pattern]["bytes"]
if not eval('(' + sys.argv[2] + ')'):
    print(rows)
    sys.exit(1)
END
}
check "all patterns are measured" holds 'list(rows) == ["upload", "read", "read-1m", "read-64k", "read-4k",
  "vector", "overwrite-4k", "small-4k"]'
check "an upload sends data and parity" holds '1.5 <= sent("upload") < 1.6'
check "a reading from end to end fetches each byte once" holds '1 <= received("read", "bytes") < 1.1'
# The first few are taken for the beginning of something, and fetch cells. After that it is a page or two for each, with
# what goes with an answer. Where an answer is late others are asked as well.
check "4 KiB here and there fetch pages" holds '1 <= received("read-4k", "bytes") < 3.5 + 1.5 * rows["read-4k"]["degraded_reads"] and rows["read-4k"]["cell_bytes"] == 40 * 65536'
check "vectors fetch the cells that they touch" holds '1 <= received("vector", "cell_bytes") < 1.1'
check "an overwrite is stored three times" holds '3 <= sent("overwrite-4k") < 16'
# In pieces of three fifths, two of them parity, with its inode and its name.
check "a small file takes less than a copy on each drive" holds '5 / 3 <= sent("small-4k") < 4'
check "an unknown pattern is refused" says 1 "no pattern 'sideways'" bench data "$config" \
  --file-bytes 16777216 --pattern sideways
check "before anything is made" eval '! grep -q "what was made stays" "$work/said"'
check "a file that is too small is refused" says 1 "too small" bench data "$config" --file-bytes 4096
finish
