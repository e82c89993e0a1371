#!/bin/bash
# A site is made from its description: three hosts with two disks each and a gateway, over TLS, on addresses of this
# machine. Each host has its files below a directory of its own. The keys change while a client works, and a host is
# added.
. "$(dirname "$0")/lib.sh"

user=xrootd
getent passwd $user >/dev/null || user=nobody
[ "$(id -u)" -eq 0 ] || user=$(id -un)
hosts="store1 store2 store3"
cluster=$work/gate  # where `serve` finds who the gateway runs as
mkdir -p "$cluster/gateway" "$cluster/admin" "$cluster/run"
[ "$(id -u)" -ne 0 ] || chown $user: "$cluster/gateway" "$cluster/admin" "$cluster/run"

# Two ports, one after the other, for the drives of each host, and two for the gateway.
read -r first root_port https_port < <(/usr/bin/python3 - $(free_ports 60) <<'END'
import socket, sys
ports = [int(port) for port in sys.argv[1:]]
for port in ports:
    other = socket.socket()
    try:
        other.bind(("", port + 1))
    except OSError:
        continue
    rest = [one for one in ports if one not in (port, port + 1)]
    print(port, rest[0], rest[1])
    break
END
)
describe() {  # NUMBER...: hosts with disks, at 127.0.0.1NUMBER; with $work/moved, store4 has one of store3
  printf '[site]\nname = "site"\nlayout = "4+2"\nfirst_port = %d\nroot_port = %d\nhttps_port = %d\n' "$first" "$root_port" "$https_port"
  local one
  for one in "$@"; do
    printf '[[host]]\nname = "store%d"\naddress = "127.0.0.1%d"\n' "$one" "$one"
    local disks="$work/disks/store$one/disk1 $work/disks/store$one/disk2"
    if [ -e "$work/moved" ]; then
      [ "$one" != 3 ] || disks=$work/disks/store3/disk1
      [ "$one" != 4 ] || disks="$disks $work/disks/store4/disk3"
    fi
    mkdir -p $disks
    printf 'disks = [%s]\n' "$(printf '"%s", ' $disks)"
  done
  printf '[[host]]\nname = "gate"\naddress = "127.0.0.1"\ngateway = ["root", "https"]\n'
}
# A host's files are below $work/root/NAME, where its disks are at the same place as here.
root_of() { echo "$work/root/$1"; }
make_root() {  # NAME
  mkdir -p "$(root_of "$1")/etc" "$(dirname "$(root_of "$1")$work")"
  ln -s "$work" "$(root_of "$1")$work"
  printf 'root:x:0:0::/:\nxrootd:x:%d:%d::/:\npinstripe:x:%d:%d::/:\n' "$(id -u $user)" "$(id -g $user)" "$(id -u)" "$(id -g)" \
    >"$(root_of "$1")/etc/passwd"
}
site=$work/site
join() {  # NAME [OPTION...]
  "$pinstripe" join "$site/$1.tar" --as "$1" --root "$(root_of "$1")" --shared-disks "${@:2}" >"$work/joined.$1" 2>&1
}
joins() { join "$@" || { cat "$work/joined.$1"; return 1; }; }
declare -A daemons
start_daemon() {  # NAME
  "$build/daemon/pinstriped" --config "$(root_of "$1")/etc/pinstripe/pinstriped.toml" >>"$work/$1.log" 2>&1 &
  daemons[$1]=$! servers[$1]=$!
  wait_until 30 grep -q '^ready' "$work/$1.log" || give_up "$1 does not start: $(tail -n 3 "$work/$1.log")"
}
# What systemd would do after a join.
reload() {  # NAME
  local before
  before=$(grep -c "identities reloaded" "$work/$1.log")
  kill -HUP "${daemons[$1]}"
  wait_until 30 eval '[ "$(grep -c "identities reloaded" "$work/'"$1"'.log")" -gt '"$before"' ]' || flunk "$1 does not read its keys again"
}

# --- From a description to a first file ---

describe 1 2 3 >"$work/site.toml"
check "a site is made" "$pinstripe" init "$work/site.toml" --directory "$site"
check "and not a second time" says 1 "is there already" init "$work/site.toml" --directory "$site"
for one in $hosts gate; do make_root "$one"; done
check "a bundle is for its host" says 1 "for the host store1, and this is store2" join "$site/store1.tar" --as store2 --root "$(root_of store1)"
head -c 3000 "$site/store1.tar" >"$work/cut.tar"
chmod 600 "$work/cut.tar"
check "and whole" says 1 "cut.tar cannot be used" join "$work/cut.tar" --as store1 --root "$(root_of store1)"
check "directories are no disks" says 1 "is not a mount point" join "$site/store1.tar" --as store1 --root "$(root_of store1)"
check "and nothing was done then" test ! -e "$(root_of store1)/etc/pinstripe"
for one in $hosts gate; do check "$one joins" joins "$one"; done
check "keys are for their owners alone" eval '[ -z "$(find "$work/root" \( -name "*credentials*" -o -name "*.key" \) ! -perm 600)" ]'
check "joining again is harmless" joins store1
check "and says so" grep -q "All files are as they should be" "$work/joined.store1"
for one in $hosts; do start_daemon "$one"; done
config=$site/cluster.toml
owner=$(id -u $user):$(id -g $user)
check "the cluster is formatted" says 0 "now is on 6 drives" format "$config" --owner "$owner"
check "and healthy" says 0 healthy status "$config"

etc=$(root_of gate)/etc
sed -e "s,libXrdOssPinstripe.so,$build/plugin/&,; s,/etc/,$etc/,g; s,/var/spool/xrootd,$cluster/admin,; s,/run/xrootd,$cluster/run,
  s,/usr/libexec/pinstripe,$project/etc," "$etc/xrootd/xrootd-pinstripe.cfg" >"$cluster/gate.cfg"
echo "xrd.network dnr norpipa" >>"$cluster/gate.cfg"
serve gate xrootd gate.cfg
url=root://127.0.0.1:$root_port/
make_file "$work/file" 5000001
sum=$(sum_of "$work/file")
check "a first file goes through the gateway" upload "$work/file" /first
check "and comes back" holds /first "$sum"
fetch() { curl --silent --show-error --fail --noproxy '*' --cacert "$site/ca.pem" "https://127.0.0.1:$https_port/first" -o "$work/fetched" && [ "$(sum_of "$work/fetched")" = "$sum" ]; }
check "also by HTTPS, with the site's authority" fetch
mkdir "$work/authorities"
cp "$site/ca.pem" "$work/authorities/"
openssl rehash "$work/authorities"
fetch_by_roots() { X509_CERT_DIR=$work/authorities timeout 60 xrdcp --nopbar -f "roots${url#root}/first" "$work/fetched" && [ "$(sum_of "$work/fetched")" = "$sum" ]; }
check "and by roots://" fetch_by_roots

# --- Doctor ---

check "the doctor names what is shared, and nothing worse than that" says 2 "same file system as" doctor "$(root_of store1)/etc/pinstripe/cluster.toml"
check "and where the drives are elsewhere, no error" eval '"$pinstripe" doctor "$config" --json >"$work/said" && true; [ $? -le 1 ] && ! grep -q "\"error\"" "$work/said"'
check "it has measured all drives" eval '[ "$(grep -c "stores 1 MiB durably in" "$work/said")" -eq 6 ]'
check "and left nothing there" says 0 "" check "$config"

# --- Files that somebody has edited ---

daemon_file=$(root_of store1)/etc/pinstripe/pinstriped.toml
echo "# mine" >>"$daemon_file"
"$pinstripe" init "$work/site.toml" --directory "$site" --renew-certificates >/dev/null || flunk "certificates are not renewed"
check "a file that was edited is not replaced" eval '! join store1 && grep -q "somebody has edited /etc/pinstripe/pinstriped.toml" "$work/joined.store1"'
check "nor any other then" eval '! cmp -s "$site/hosts/store1/tls.crt" "$(root_of store1)/etc/pinstripe/tls.crt"'
check "unless it is asked for" joins store1 --force
check "certificates are renewed" cmp "$site/hosts/store1/tls.crt" "$(root_of store1)/etc/pinstripe/tls.crt"

# --- Keys change while a client works ---

touch "$work/working"
work_on() {
  local done=0
  while [ -e "$work/working" ]; do
    xrdcp --nopbar -f "$work/file" "$url/busy" && xrdcp --nopbar -f "$url/busy" "$work/busy" && cmp "$work/file" "$work/busy" || touch "$work/failed"
    done=$((done + 1))
    echo $done >"$work/rounds"
  done >"$work/work.log" 2>&1
}
work_on &
worker=$!
goes_on() {
  local before
  before=$(cat "$work/rounds" 2>/dev/null || echo 0)
  wait_until 60 eval '[ "$(cat "$work/rounds" 2>/dev/null || echo 0)" -ge $(('"$before"' + 2)) ]' || flunk "the client does not go on"
}
gateway_reads() {
  local before
  before=$(grep -c "configuration read again" "$work/gate/xrootd.log")
  kill -USR1 "${servers[gate-xrootd]}"
  wait_until 30 eval '[ "$(grep -c "configuration read again" "$work/gate/xrootd.log")" -gt '"$before"' ]' || flunk "the gateway does not read its keys again"
}
cp -r "$site" "$work/old"
printf '[limits]\nopen_timeout = "1 s"\n' >>"$work/old/cluster.toml"
check "a new key comes" says 0 "drop-old-keys" init "$work/site.toml" --directory "$site" --rotate-keys
check "the old one stays while drives do not take the new one" says 1 "the old key stays" init "$work/site.toml" --directory "$site" --drop-old-keys
check "and the site works with it" says 0 healthy status "$config"
join gate
check "a gateway waits until the drives believe it" test $? -eq 3
check "and names those that do not" grep -q "drive 6 .* does not take the new key" "$work/joined.gate"
for one in $hosts; do
  join "$one"
  check "so does $one, whose drives were told by nobody" test $? -eq 3
  reload "$one"
done
goes_on
for one in $hosts gate; do check "$one takes the new key" joins "$one"; done
gateway_reads
goes_on
check "the old key goes" says 0 "join store1.tar" init "$work/site.toml" --directory "$site" --drop-old-keys
for one in $hosts; do
  check "$one forgets it" joins "$one"
  reload "$one"
done
goes_on
check "a bundle from before is refused" says 1 "older than what this host has" join "$work/old/gate.tar" --as gate --root "$(root_of gate)"
rm "$work/working"
wait $worker
check "not one of $(cat "$work/rounds") rounds failed" test ! -e "$work/failed"
check "whoever has the old key alone is refused" says 2 "unavailable" status "$work/old/cluster.toml"
check "the site has the new one" says 0 healthy status "$config"

# --- A host is added ---

describe 1 2 3 4 >"$work/site.toml"
check "a host is added" says 0 "pinstripe expand" init "$work/site.toml" --directory "$site" --update
check "and the console is not forgotten" grep -q "reload pinstripe-console" "$work/said"
make_root store4
for one in store4 $hosts gate; do joins "$one" || flunk "$one does not join"; done
start_daemon store4
check "its drives are those of the site" eval '"$pinstripe" doctor "$config" --quick --json >"$work/said"; [ "$(grep -c "serves, answers in" "$work/said")" -eq 8 ]'
gateway_reads
check "the first file is there" holds /first "$sum"
describe 1 2 4 >"$work/site.toml"
check "a host whose drives hold something stays" says 1 "drive 5 is not drained to its end: .pinstripe drain $site/cluster.toml 5. first" \
  init "$work/site.toml" --directory "$site" --update --without 5,6
check "and nothing was done" grep -q 127.0.0.13 "$site/cluster.toml"

# --- A drive moves to another host, as one does that keeps a part of the drive map when its host goes ---

touch "$work/moved"
there=store4:$work/disks/store4/disk3
describe 1 2 3 4 >"$work/site.toml"
check "a drive does not move to where nothing is" says 1 "no host store4 with the disk /nowhere" \
  init "$work/site.toml" --directory "$site" --update --move 6=store4:/nowhere
kill "${daemons[store1]}"
wait "${daemons[store1]}"
check "nor while the cluster cannot be without it" says 1 "cannot be without drives 6 now" \
  init "$work/site.toml" --directory "$site" --update --move "6=$there"
: >"$work/store1.log"
start_daemon store1
check "it moves to another host" says 0 "pinstripe rebuild $config 6" \
  init "$work/site.toml" --directory "$site" --update --move "6=$there"
check "with its number" eval 'grep -A1 "^id = 6$" "$site/cluster.toml" | grep -q "127.0.0.14:"'
for one in store3 store4; do
  kill "${daemons[$one]}"
  wait "${daemons[$one]}"
  : >"$work/$one.log"
done
for one in $hosts store4 gate; do joins "$one" || flunk "$one does not join"; done
for one in store3 store4; do start_daemon "$one"; done
gateway_reads
check "and is filled there" says 0 "everything is in order" rebuild "$config" 6
check "all is well" says 0 healthy status "$config"
check "the first file is there still" holds /first "$sum"
finish
