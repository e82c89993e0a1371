#!/bin/bash
# Two gateways over one cluster behind a manager, and a cache in front of that manager, with
# etc/xrootd-redirector.cfg, etc/xrootd-pinstripe-member.cfg and etc/xrootd-xcache.cfg.
. "$(dirname "$0")/lib.sh"

cluster_up gateways --layout 4+2 --drives 8 --one-process
read -r manager cmsd one two cache < <(free_ports 5)
# Waiting is for machines that start at different times.
manager_of=(-e "s/manager.example.org:1213/localhost:$cmsd/; s/xrd.port 1213/xrd.port $cmsd/; s/xrd.port 1094/xrd.port $manager/
  s/startup 10/startup 1/; s/cms.space .*/cms.space min 1m 2m/")
sample manager xrootd-redirector.cfg "${manager_of[@]}"
serve manager cmsd xrootd-redirector.cfg
serve manager xrootd xrootd-redirector.cfg
declare -A ports=([one]=$one [two]=$two)
for name in one two; do
  sample $name xrootd-pinstripe.cfg -e "s/1094/${ports[$name]}/"
  sample $name xrootd-pinstripe-member.cfg "${manager_of[@]}"
  serve $name cmsd xrootd-pinstripe-member.cfg  # first: xrootd looks for it once in ten seconds
  serve $name xrootd xrootd-pinstripe-member.cfg
done
door=root://localhost:$manager

make_file "$work/file" 9000001
sum=$(sum_of "$work/file")
ask() { timeout 60 xrdfs "$door" "$@" 2>"$work/xrdfs.err"; }
copy() { timeout 60 xrdcp --nopbar -s -f "$@" 2>"$work/xrdcp.err"; }
both_serve() { [ "$(ask locate -r "$1" | grep -c 'Server\|ServerPending')" -eq 2 ]; }
comes_back() {  # URL
  copy "$1" "$work/back" && [ "$(sum_of "$work/back")" = "$sum" ]
}

check "an upload through the manager" wait_until 60 copy "$work/file" "$door//deep/file"
check "is a file of both gateways" wait_until 60 both_serve /deep/file
check "and comes back through the manager" comes_back "$door//deep/file"
for name in one two; do
  check "and from gateway $name" comes_back "root://localhost:${ports[$name]}//deep/file"
done
missing_is_told() { ! ask stat /nothing && grep -q 3011 "$work/xrdfs.err"; }
check "what is nowhere is not found, soon" missing_is_told
made_and_listed() { ask mkdir /made && ask ls / | grep -qx /made; }
check "a directory is made and listed" made_and_listed
check "a file is renamed" ask mv /deep/file /made/file
check "and has its new name on both" comes_back "root://localhost:$two//made/file"
space_is_counted_once() {  # by the manager: not once for each gateway
  local of_one all
  of_one=$(timeout 60 xrdfs "root://localhost:$one" spaceinfo / | sed -n 's/^Total: *//p')
  all=$(ask spaceinfo / | sed -n 's/^Total: *//p')
  [ "$of_one" = "$all" ] || { echo "  $all instead of $of_one"; return 1; }
}
check "space is not counted twice" space_is_counted_once

# --- one gateway goes ---

stop one cmsd
stop one xrootd
check "with one gateway stopped files are read" wait_until 60 comes_back "$door//made/file"
make_file "$work/later" 5000000
check "and written" wait_until 60 copy "$work/later" "$door//made/later"
serve one xrootd xrootd-pinstripe-member.cfg
came_meanwhile() { copy "root://localhost:$one//made/later" "$work/back" && cmp "$work/back" "$work/later"; }
check "when it is back it has what came meanwhile" came_meanwhile

# --- a cache ---

sample cache xrootd-xcache.cfg -e "s/xrd.port 1094/xrd.port $cache/; s/gateway.example.org:1094/localhost:$manager/
  s,/var/cache/xrootd,$work/cache/data,"
mkdir "$work/cache/data"
give_to_gateway "$work/cache/data"
serve cache xrootd xrootd-xcache.cfg
check "a file is read through the cache" comes_back "root://localhost:$cache//made/file"
is_kept() { [ "$(stat -c %s "$work/cache/data/made/file")" = 9000001 ]; }
check "which keeps it" wait_until 30 is_kept
cache_refuses_writes() { ! copy "$work/later" "root://localhost:$cache//made/new"; }
check "and takes no uploads" cache_refuses_writes
stop one xrootd
stop two cmsd
stop two xrootd
check "with all gateways gone the cache has the file" comes_back "root://localhost:$cache//made/file"
finish
