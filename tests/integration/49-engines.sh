#!/bin/bash
# Names on real engines: an etcd of three members and a PostgreSQL with a synchronous standby. They are moved there and back
# while a mount and a gateway work, members and servers are killed, leaders change, and whoever moves them dies: whatever was
# acknowledged is there, and everything is in order.
. "$(dirname "$0")/lib.sh"
needs_fuse
. "$(dirname "$0")/engines.sh"

# --- a cluster that is used all the time

mount=$work/mount
mkdir -p "$mount"
cluster_up engines --layout 4+2 --drives 8 --mount "$mount"
check "etcd serves" etcd_up
check "PostgreSQL serves" postgres_up
put small 300
put beside 40000
put large 9000001
mkdir "$mount/tree"
for ((i = 0; i < 200; i++)); do echo "$i" >"$mount/tree/$i"; done || give_up "the mount takes no files"
names() { diff <(seq 0 199 | sort) <(cat "$mount"/tree/* | sort); }

: >"$work/made"
load() {
  local i
  for ((i = 0; ; i++)); do
    # One that failed may be there or not.
    # And echo does not tell of a close that failed.
    echo "$i" >"$mount/load-$i" 2>/dev/null && sync "$mount/load-$i" 2>/dev/null &&
      mv "$mount/load-$i" "$mount/made-$i" 2>/dev/null && echo "$i" >>"$work/made"
    sleep 0.02
  done
}
load &
loader=$!
made() { wc -l <"$work/made"; }
goes_on() {  # 20 files more
  local before
  before=$(made)
  wait_until 90 more_than $((before + 20))
}
more_than() { [ "$(made)" -ge "$1" ]; }
all_made() {  # each has its number
  local names
  mapfile -t names < <(sed "s|^|$mount/made-|" "$work/made")
  diff <(awk '{print FILENAME ":" $0}' "${names[@]}") <(printf '%s\n' "${names[@]}" | sed 's|.*/made-\(.*\)|&:\1|')
}
as_it_was() { names && all_hold && all_made; }
move() { timeout 300 "$pinstripe" metadata move "$config" --to "$1"; }

check "files are made" goes_on
check "a move without a table [metadata] is refused" says 1 "give it a table" metadata move "$config" --to etcd
set_engine "${etcd_settings[@]}"
check "names move to etcd while files are made" move etcd
check "the mount goes on" goes_on
check "status shows the members" says 0 "m1 http.*up" status "$config"
check "and where names are" says 0 "names on etcd" status "$config"
check "no file has changed" as_it_was
check "everything is in order" says 0 "everything is in order" check "$config"
check "a second move has nothing to do" says 0 "already" metadata move "$config" --to etcd

# --- members are killed

lead=$(leader)
kill_member "$lead"
check "with the leader killed files go on being made" goes_on
check "status says who is down" says 1 "m$lead .*down" status "$config"
start_member "$lead"
other=$(((lead + 1) % 3))
third=$(((lead + 2) % 3))
check "it comes back" wait_until 60 etcd_serves
kill_member $other
kill_member $third
fails() { ! timeout 60 touch "$mount/not" 2>/dev/null; }
check "without a majority nothing is made" fails
start_member $other
start_member $third
check "with one again it goes on" goes_on
check "no file has changed" as_it_was
stopped() { kill -STOP "${etcd_pids[$1]}"; }
lead=$(leader)
stopped "$lead"
check "a leader that hangs is left" goes_on
kill -CONT "${etcd_pids[$lead]}"

# --- whoever moves them dies, and they go back

for seconds in 0.2 0.6; do timeout -s KILL $seconds "$pinstripe" metadata move "$config" --to drives >/dev/null 2>&1; done
check "names move back to the drives" move drives
check "files go on being made" goes_on
check "no file has changed" as_it_was
check "etcd keeps none" test "$(ctl get --prefix --keys-only pinstripe/ | grep -c .)" -lt 20
check "everything is in order" says 0 "everything is in order" check "$config"

# --- PostgreSQL

set_engine "${postgres_settings[@]}"
check "names move to PostgreSQL" move postgresql
check "files go on being made" goes_on
check "status shows the servers" says 0 "engine  *PostgreSQL" status "$config"
check "no file has changed" as_it_was
kill -9 "$(head -1 "$work/pg-0/data/postmaster.pid")"
died() { ! psql 0 -c "select 1" >/dev/null 2>&1; }
check "the server is killed" wait_until 30 died
check "it starts again" wait_until 60 start_server 0
check "when it is back files go on being made" goes_on
check "no file has changed" as_it_was
kill -9 "$(head -1 "$work/pg-0/data/postmaster.pid")"
psql 1 -c "alter system set synchronous_standby_names = ''" >/dev/null
"${run_as[@]}" "$postgres/pg_ctl" -D "$work/pg-1/data" -w promote >/dev/null || flunk "the standby is not promoted"
check "with the standby in its place files go on being made" goes_on
check "no file has changed" as_it_was
check "everything is in order" says 0 "everything is in order" check "$config"

# --- a host that comes new, and one without the table

kill $loader 2>/dev/null
wait $loader 2>/dev/null
check "any two drives may be lost" any_two_may_die "1 2" "4 8"
sed '/^\[metadata\]/,$d' "$config" >"$cluster/without.toml"
check "a host without the table is told so" says 2 "names of this cluster are kept on postgresql" status "$cluster/without.toml"
finish
