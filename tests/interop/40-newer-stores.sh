#!/bin/bash
# Valkey, Redis, etcd and PostgreSQL of Debian 13, under the tests of the stores that Debian 12 has.
# They are unpacked below build/, use the libraries that came with them, and need nothing mounted.

. "$(dirname "$0")/lib.sh"

place=$project/build/newer-stores  # ~/.cache would not do: PostgreSQL runs as another user
root=$place/root

for one in {redis,drive_suite,etcd_engine,postgres_engine,linearizable_engines}_test; do
  found=$(find "$build/tests" -name "$one" -type f)
  [ -n "$found" ] || give_up "$one is not built"
  declare "$one=$found"
done

unpack() {
  mmdebstrap --quiet --variant=extract trixie "$root" \
    --include=valkey-server,redis-server,etcd-server,etcd-client,postgresql
}
# Their libraries are newer than those of this machine.
use_own_libraries() {
  local libraries loader
  loader=$(realpath "$root"/usr/lib*/ld-linux-*.so.?) || return
  libraries=$(dirname "$loader")
  find "$root"/usr/bin/{valkey,redis,etcd}* "$root"/usr/lib/postgresql/*/bin -type f -exec \
    patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" {} +
}
# Tests start them by their names, among all that this machine has.
name_them() {
  local bin=$root/usr/bin
  mkdir "$place"/{valkey,redis,etcd}
  ln -s "$bin/valkey-server" "$place/valkey/redis-server"
  ln -s "$bin/valkey-cli" "$place/valkey/redis-cli"
  ln -s "$bin"/redis-{server,cli} "$place/redis/"
  ln -s "$bin"/{etcd,etcdctl} "$place/etcd/"
}
if [ ! -e "$place/complete" ]; then
  for one in mmdebstrap patchelf; do
    command -v $one >/dev/null || skip "no $one; Debian's package of that name has it"
  done
  rm -rf "$place"
  mkdir -p "$place"
  unpack >"$work/unpack" 2>&1 || skip "they cannot be fetched: $(tail -n 1 "$work/unpack")"
  use_own_libraries && name_them || give_up "they cannot be made to run here"
  touch "$place/complete"
fi
POSTGRES_PROGRAMS=$(echo "$root"/usr/lib/postgresql/*/bin)
export POSTGRES_PROGRAMS

# With a test all that it started ends. What cannot run here is told.
lacking=
alone=()
[ "$(id -u)" != 0 ] || alone=(unshare --pid --fork --kill-child --mount-proc)
try() {  # WHAT DIRECTORY PROGRAM: with what is in the directory
  PATH=$place/$2:$PATH "${alone[@]}" timeout 900 "$3" >"$work/said" 2>&1 &
  processes+=($!)
  if ! wait $!; then
    tail -n 30 "$work/said" | sed 's/^/  /'
    flunk "$1"
  elif grep -q '^\[  SKIPPED' "$work/said"; then
    echo "SKIP $script: $1: $(grep -A 1 -m 1 ': Skipped' "$work/said" | sed 1d)"
    lacking=yes
  else
    pass "$1"
  fi
}
version() { "$@" | grep -o '[0-9]\+\.[0-9.]\+' | head -n 1; }

for one in valkey redis; do
  name="$one $(version "$place/$one/redis-server" --version)"
  try "$name is a drive" $one "$redis_test"
  try "and behaves as the others" $one "$drive_suite_test"
done
etcd="etcd $(version "$place/etcd/etcd" --version)"
try "$etcd keeps names" etcd "$etcd_engine_test"
postgres="PostgreSQL $(version "$POSTGRES_PROGRAMS/postgres" --version)"
try "so does $postgres" etcd "$postgres_engine_test"
try "both keep the order of changes while hosts are lost" etcd "$linearizable_engines_test"
if [ -n "$lacking" ] && [ $failures = 0 ]; then exit 77; fi
finish
