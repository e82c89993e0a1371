#!/bin/sh
# What is loaded into other people's programs brings no drive of its own: neither the server of
# drives nor their store, nor a library that only these need. The daemon shows that this would be seen.
#   link-closure.sh DAEMON PROGRAM...
set -eu

# Prints what of the server of drives is in a program or library.
traces() {
  readelf --dynamic "$1" | grep -oE 'lib(rocksdb|leveldb)[^]]*' || true
  nm --demangle --defined-only "$1" | grep -m 1 -oE 'rocksdb::DB::Open' || true
  nm --demangle --defined-only "$1" |
    grep -oE 'pinstripe::(Engine|LogStore|MemoryStore|StoreDirectory)::' | sort -u || true
}

daemon=$1
shift
for expected in rocksdb::DB::Open pinstripe::Engine:: pinstripe::LogStore::; do
  traces "$daemon" | grep -q "$expected" || { echo "$expected is not seen in $daemon: this test looks wrongly"; exit 1; }
done
# Nor do the stores that ours is compared with get into the daemon that people run.
if readelf --dynamic "$daemon" | grep libleveldb || nm --demangle --defined-only "$daemon" | grep -m 1 pinstripe::DatabaseStore::; then
  echo "$daemon contains a store that is for comparison only"
  exit 1
fi
for program in "$@"; do
  nm --demangle --defined-only "$program" | grep -q 'pinstripe::Cluster::' || { echo "$program has no symbols to look at"; exit 1; }
  found=$(traces "$program")
  [ -z "$found" ] || { echo "$program contains:"; echo "$found"; exit 1; }
done
