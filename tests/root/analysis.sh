#!/bin/bash
# ROOT and uproot read TTrees and RNTuples through a gateway, all entries and half of them, with all drives up and
# with m of them dead: what they compute is, to the last bit, what they compute from the local files.
#
#   PYTHON=.../bin/python3 PINSTRIPE_BUILD=build/release tests/root/analysis.sh
#
# PYTHON has the packages root, uproot and fsspec-xrootd; `./dev root` sees to it.
. "$(dirname "$0")/../integration/lib.sh"
python=${PYTHON:-python3}
analysis=$(dirname "$0")/analysis.py

lacks=$("$python" -c "import ROOT, uproot, fsspec_xrootd" 2>&1) || {
  echo "SKIP $script: $(tail -n 1 <<<"$lacks")"
  exit 77
}

cluster_up analysis --layout 4+2 --drives 8
mkdir "$work/local"
timeout 300 "$python" "$analysis" make "$work/local" >"$work/made" 2>&1 || give_up "files: $(tail -n 3 "$work/made")"
for name in tree ntuple; do
  upload "$work/local/$name.root" "/$name.root" || give_up "upload: $(tail -n 1 "$work/xrdcp.err")"
done
ls -l "$work/local" | awk 'NF > 8 { print "  " $9 ": " $5 " bytes" }'
results() {  # PLACE
  local reader
  for reader in root uproot; do
    timeout 300 "$python" "$analysis" $reader "$1" 2>"$work/err" || { tail -n 3 "$work/err" >&2; return 1; }
  done
}
results "$work/local" >"$work/expected" ||
  give_up "reading the local files: $(tail -n 3 "$work/err")"
check "8 ways to read were tried" [ "$(wc -l <"$work/expected")" -eq 8 ]

results_are_those_of_local_files() {
  empty_gateway
  local begin=$EPOCHREALTIME
  results "${url%/}/" >"$work/got" || return 1
  echo "  $(awk "BEGIN { print $EPOCHREALTIME - $begin }") s"
  diff "$work/expected" "$work/got"
}
check "through the gateway all results are those of the local files" results_are_those_of_local_files
dev kill 2 5
check "and with two drives dead" results_are_those_of_local_files
finish
