#!/bin/bash
# Somebody between a mount and all drives, who knows no key, answers puts with answers that he has heard before (tests/crash/attacker.py).
# Nothing that is confirmed then is missing afterwards; and when he has gone, the mount works as before. Then he exchanges values of what is
# read: files read as they were written, or not at all.
. "$(dirname "$0")/lib.sh"

needs_fuse
fuse=$build/fuse/pinstripe-fuse
cluster_up attacked --layout 4+2 --drives 6 --no-gateway
mount=$work/mount
mkdir "$mount"

mapfile -t ports < <(sed -n 's/^address = "127.0.0.1:\([0-9]*\)"$/\1/p' "$config")
[ ${#ports[@]} = 6 ] || give_up "no ports of drives in $config"
coproc attacker { exec "$(dirname "$0")/../crash/attacker.py" "${ports[@]}" 2>"$work/attacker.log"; }
attacker_pid=$!
servers[attacker]=$attacker_pid
read -r line <&"${attacker[0]}" || give_up "no attacker: $(cat "$work/attacker.log")"
mapfile -t between < <(/usr/bin/python3 -c 'import json, sys; print(*json.loads(sys.argv[1]), sep="\n")' "$line")
attacked=$cluster/attacked.toml
cp "$config" "$attacked"
for i in "${!ports[@]}"; do sed -i "s/127.0.0.1:${ports[$i]}\"/127.0.0.1:${between[$i]}\"/" "$attacked"; done

order() {
  echo "$1" >&"${attacker[1]}"
  read -r told <&"${attacker[0]}" || give_up "the attacker has died: $(cat "$work/attacker.log")"
}

# Each of COUNT files is written and its contents are made safe, many at once. Prints the names of those of which fsync said 0.
write_files() {  # NAME COUNT
  timeout 240 /usr/bin/python3 - "$mount" "$1" "$2" <<'END'
import concurrent.futures, os, sys
directory, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
def write(number):
    try:
        path = f"{directory}/{name}-{number}"
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        try:
            os.write(file, (f"{name} {number}\n" * 8000).encode())  # more than an inode has room for
            os.fsync(file)
        finally:
            os.close(file)
        return f"{name}-{number}"
    except OSError:
        return None
with concurrent.futures.ThreadPoolExecutor(20) as pool:
    for done in pool.map(write, range(count)):
        if done:
            print(done)
END
}

"$fuse" "$attacked" "$mount" || give_up "cannot mount"
write_files before 60 >"$work/before"
check "while he listens everything is made" test "$(wc -l <"$work/before")" = 60
for round in 1 2 3 4; do
  order listen
  write_files "round$round" 60 >>"$work/before"
done
order lie
check "he has heard answers to lie with" grep -q '"heard": [0-9][0-9]' <<<"$told"
write_files during 60 >"$work/during"
order pass
echo "  what he did: $told; $(wc -l <"$work/during") of 60 were confirmed meanwhile"
is_written() { echo "$1" | timeout 60 tee "$mount/$1" >"$work/tee" 2>&1; }
until_written() {
  for _ in $(seq 30); do
    is_written after && return 0
  done
  return 1
}
check "when he has gone files are written again" until_written
fusermount3 -u "$mount" || give_up "cannot unmount"

"$fuse" "$config" "$mount" || give_up "cannot mount without him"
read_files() {  # sets `right`, `wrong` and `unread`
  right=0 wrong=0 unread=0
  local name
  while read -r name; do
    if ! timeout 60 cat "$mount/$name" >"$work/read" 2>"$work/why"; then
      unread=$((unread + 1))
    elif cmp -s "$work/read" <(yes "${name%-*} ${name##*-}" | head -n 8000); then
      right=$((right + 1))
    else
      wrong=$((wrong + 1))
      echo "  $name is not what was written"
    fi
  done < <(cat "$work/before" "$work/during")
}
read_files
check "all that fsync confirmed is there" test "$wrong $unread" = "0 0"
fusermount3 -u "$mount" || flunk "unmounting"

"$fuse" "$attacked" "$mount" || give_up "cannot mount again"
order swap
read_files
order pass
echo "  what he did: $told; $right files were read, $unread were not"
check "he has exchanged values" grep -q '"swaps": [0-9][0-9]' <<<"$told"
check "nothing is read but what was written" test $wrong = 0
fusermount3 -u "$mount" || flunk "unmounting"
exec {attacker[1]}>&-
finish
