# Sourced in the fresh Debian by the tests of packages, with the name of the test: checks, and waiting for conditions.
test=$1
export DEBIAN_FRONTEND=noninteractive XRD_CONNECTIONRETRY=2 XRD_CONNECTIONWINDOW=5 XRD_STREAMERRORWINDOW=5 XRD_REQUESTTIMEOUT=60 XRD_NETWORKSTACK=IPv4
units=/lib/systemd/system
failures=0

pass() { echo "PASS $test: $*"; }
flunk() { echo "FAIL $test: $*"; failures=$((failures + 1)); }
check() {  # WHAT COMMAND...
  local what=$1
  shift
  if "$@" >/tmp/said 2>&1; then pass "$what"; else
    flunk "$what"
    sed 's/^/  /' /tmp/said | tail -n 20
  fi
}
give_up() {
  flunk "$*"
  tail -n 15 /tmp/*.log /var/log/xrootd/pinstripe/xrootd.log 2>/dev/null
  exit 1
}
wait_until() {  # SECONDS COMMAND...
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.1
  done
}
command_of() { sed -n 's/^ExecStart=//p' "$units/$1"; }
finish() {
  [ $failures -eq 0 ] || { echo "$test: $failures of its checks failed"; exit 1; }
  echo "$test: all checks passed"
}
