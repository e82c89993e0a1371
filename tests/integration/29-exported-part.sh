#!/bin/bash
# A gateway that shows a directory of the cluster as if it were all of it.
. "$(dirname "$0")/lib.sh"

cluster_up part --layout 4+2 --drives 8 --one-process
read -r port < <(free_ports 1)
make_file "$work/file" 5000001
sum=$(sum_of "$work/file")
whole=$url
xrdfs "$whole" mkdir /part || give_up "mkdir"
upload "$work/file" /outside || give_up "upload"

exports() { sample "$1" xrootd-pinstripe.cfg -e "s/1094/$port/; s,cluster.toml.*,&$2,"; }
refuses() {  # NAME DIRECTORY WORDS
  exports "$1" "$2"
  ! try_to_serve "$1" xrootd xrootd-pinstripe.cfg && grep -q "$3" "$work/$1/xrootd.log"
}
check "a directory that is not there keeps the server from starting" refuses no-place " /none" "directory to be exported"
check "so does a file" refuses no-directory " /outside" "is no directory"
check "and a path that is none" refuses relative " part" "begin with"
exports part " /part/"
serve part xrootd xrootd-pinstripe.cfg
url=root://localhost:$port/

ask() { timeout 60 xrdfs "$@" >"$work/said" 2>&1; }
check "an upload goes into the directory" upload "$work/file" /deep/file
check "and comes back" holds /deep/file "$sum"
lists_only() { ask "$url" ls / && [ "$(cat "$work/said")" = /deep ]; }
check "nothing else is seen" lists_only
is_not_reached() { ! ask "$url" stat /outside && ! ask "$url" stat /part && ! ask "$url" stat /../outside; }
check "nor reached" is_not_reached
has_sum() { ask "$url" query checksum /deep/file && grep -q "$(xrdadler32 "$work/file" | cut -d' ' -f1)" "$work/said"; }
check "its checksum is told" has_sum
check "attributes are set" ask "$url" xattr /deep/file set colour=red
check "it is renamed" ask "$url" mv /deep/file /new/file
url=$whole
check "in the whole cluster it is where it should be" holds /part/new/file "$sum"
has_attribute() { ask "$url" xattr /part/new/file get colour && grep -q red "$work/said"; }
check "with its attribute" has_attribute
url=root://localhost:$port/
check "it is removed" ask "$url" rm /new/file
check "with its directory" ask "$url" rmdir /new
finish
