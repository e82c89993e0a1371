#!/bin/bash
# The mount behaves as programs expect of a directory, and shows the same files as the gateway.
. "$(dirname "$0")/lib.sh"

needs_fuse
mount=$work/mount
cluster_up mount --layout 4+2 --drives 8 --one-process --mount "$mount"

check "programs find what they expect" timeout 240 /usr/bin/python3 -B "$(dirname "$0")/posix_mount.py" "$mount"

make_file "$work/file" 9000001
both_see() {
  upload "$work/file" /from-gateway && cmp "$work/file" "$mount/from-gateway" &&
    cp "$work/file" "$mount/from-mount" && holds /from-mount "$(sum_of "$work/file")"
}
check "the mount and the gateway show each other's files" both_see
links_lead_the_gateway() {
  mkdir "$mount/real" && ln -s real "$mount/link" && ln -s /link/file "$mount/absolute" &&
    ln -s nowhere "$mount/nothing" && upload "$work/file" /link/file &&
    cmp "$work/file" "$mount/real/file" && holds /absolute "$(sum_of "$work/file")" &&
    xrdfs "$url" ls -l / >"$work/listing" && grep -q " /absolute$" "$work/listing" &&
    xrdfs "$url" rm /absolute && [ -f "$mount/real/file" ] && [ ! -L "$mount/absolute" ]
}
check "the gateway follows symbolic links, and removes them alone" links_lead_the_gateway

# All drives stand still for longer than a second, while both ask for something.
drives=$(/usr/bin/python3 -c "import json, sys; print(json.load(open(sys.argv[1]))['daemons'][0]['process']['pid'])" "$cluster/dev.json")
ask_in_vain() {
  kill -STOP "$drives"
  cp "$work/file" "$mount/slow-from-mount" &
  local copy=$!
  timeout 60 xrdfs "$url" stat /slow-from-gateway >"$work/said" 2>&1 &
  local stat=$!
  sleep 1.5
  kill -CONT "$drives"
  wait $copy && { wait $stat || grep -q "no such file" "$work/said"; }
}
check "both get through when the drives go on" ask_in_vain
tells_of_both() {
  "$pinstripe" slow --json "$config" >"$work/slow.json" && /usr/bin/python3 - "$work/slow.json" "$mount" <<'END'
import json, sys

with open(sys.argv[1], encoding="utf-8") as file:
    told = json.load(file)
assert told["silent_drives"] == [], told
for program, detail in ("pinstripe-fuse", sys.argv[2]), ("xrootd-pinstripe", None):
    found = [each for each in told["slow"] if each["operation"] and each["client"]["program"] == program]
    assert found, f"nothing of {program}"
    one = max(found, key=lambda each: each["seconds"])
    assert detail in (None, one["client"]["detail"]), one
    assert one["operation"]["drives_seconds"] >= 1, one
    assert one["requests"] and all(1 <= each["drive"] <= 8 and each["address"] for each in one["requests"]), one
    assert one["requests"][0]["drive_says"] == "unknown", one
END
}
check "what they waited for is told" wait_until 10 tells_of_both
check "for people, too" says 0 "drive [1-8] (.*: the drive noticed nothing" slow "$config"
dev kill 1
dev start 1
wait_until_healthy
wait_until_readable /from-mount
check "and still do when the drives were killed and came back" wait_until 30 cmp "$work/file" "$mount/from-mount"

unmounted() { ! grep -q " $mount " /proc/self/mountinfo; }
dev kill mount
check "a mount that was killed stays behind" grep -q " $mount " /proc/self/mountinfo
dev start mount
check "and answers as soon as it is started again" cmp "$work/file" "$mount/from-mount"
dev kill mount
check "dev up with the same --mount starts it, too" "$pinstripe" dev up "$cluster" --mount "$mount" >/dev/null
check "and then it answers" cmp "$work/file" "$mount/from-mount"
dev kill mount
"$pinstripe" dev down "$cluster" >/dev/null || flunk "dev down after the mount was killed"
check "dev down unmounts what a killed mount left behind" unmounted
"$pinstripe" dev up "$cluster" >/dev/null || flunk "dev up"
"$pinstripe" dev down "$cluster" >/dev/null || flunk "dev down"
check "dev down unmounts" unmounted
finish
