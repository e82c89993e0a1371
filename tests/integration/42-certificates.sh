#!/bin/bash
# A site changes its authority and its keys while it works. The new authority is appended to the file that `ca`
# names, the processes are told, and the drives get new certificates one after the other. A new key comes beside the
# old one, which goes when everybody has the new one. Nobody loses a drive.
. "$(dirname "$0")/lib.sh"

needs_fuse
drives=6
cluster_up certificates --layout 4+2 --drives $drives
make_file "$work/file" 20000003
sum=$(sum_of "$work/file")
for name in before during after; do upload "$work/file" /$name || give_up "upload"; done

# New authorities, and certificates of theirs for the drives.
authority() {  # the files of make_certificates, moved to $work/drives
  rm -rf "$work/certificates"
  make_certificates
  mv "$work/hostcert.pem" "$work/hostkey.pem" "$work/drives/"
  chmod 600 "$work/drives/hostkey.pem"
}
mkdir "$work/drives"
authority
cp "$work/ca.pem" "$cluster/ca.pem"
read -r -a ports < <(free_ports $drives)
tls=$cluster/tls.toml
sed 's/^\[cluster\]/&\ntls = true\nca = "ca.pem"/' "$config" >"$tls"
for ((drive = 1; drive <= drives; ++drive)); do
  file=$cluster/pinstriped-$drive.toml
  sed -i "s/:$(sed -n 's/^port = //p' "$file")\"/:${ports[drive - 1]}\"/" "$tls"
  sed -i "s,^\[daemon\],&\ntls_certificate = \"$work/drives/hostcert.pem\"\ntls_key = \"$work/drives/hostkey.pem\"\ncredentials = \"$work/drives/identities.toml\",
    s/^port = .*/&\ntls_port = ${ports[drive - 1]}/" "$file"
done
identity() { printf '[[identity]]\nid = %s\nkey = "%s"\n' "$@"; }  # ID KEY
identity 1 asdfasdf >"$work/drives/identities.toml"
chmod 600 "$work/drives/identities.toml"
restart() { dev kill "$@"; dev start "$@"; }
restart 1 2 3 4 5 6

mount=$work/mount
mkdir "$mount"
"$build/fuse/pinstripe-fuse" -f "$tls" "$mount" >"$work/mount.log" 2>&1 &
wait_until 30 mountpoint -q "$mount" || give_up "cannot mount: $(cat "$work/mount.log")"
holds_here() { [ "$(sum_of "$mount/$1")" = "$sum" ]; }
have_come() {  # COUNT: connections to drives, since the mount began
  [ "$(grep -c 'drive is up' "$work/mount.log")" -ge "$1" ]
}
check "a mount reads over TLS" holds_here before
check "from drives that it has verified" have_come $drives

authority
cat "$work/ca.pem" >>"$cluster/ca.pem"
pkill -USR1 -P $$ -x pinstripe-fuse || give_up "the mount has ended"
check "the mount hears of the new authority" wait_until 30 grep -q "configuration read again" "$work/mount.log"
wait_until 30 have_come $((2 * drives)) || give_up "it does not connect anew"
for ((drive = 1; drive <= drives; ++drive)); do
  restart $drive
  wait_until 30 have_come $((2 * drives + drive)) || flunk "drive $drive is not believed: $(tail -n 3 "$work/mount.log")"
  [ $drive -ne 3 ] || check "and reads while old and new certificates are shown" holds_here during
done
check "and when all are new" holds_here after
check "nothing was refused" eval '! grep -q "not believed" "$work/mount.log"'
check "a certificate that ends within a month is told of" grep -q "needs another certificate.*ends in 29 days" "$work/mount.log"

# Keys.
have_reloaded() {  # TIMES: all drives
  local log
  for log in "$cluster"/pinstriped-*.log; do [ "$(grep -c "identities reloaded" "$log")" -ge "$1" ] || return 1; done
}
gateway=$(gateway_pid)
identity 2 "a new key" >>"$work/drives/identities.toml"
pkill -HUP -f "pinstriped --config $cluster/"
check "the drives know a new key beside the old one" wait_until 30 have_reloaded 1
cp "$config" "$work/old.toml"
cp "$cluster/credentials.toml" "$work/credentials.toml"
printf '[default]\nidentity = 2\nkey = "a new key"\n' >"$cluster/credentials.toml"
kill -USR1 "$gateway"
pkill -USR1 -P $$ -x pinstripe-fuse
have_read() { grep -q "configuration read again" "$(gateway_log)" && [ "$(grep -c "configuration read again" "$work/mount.log")" -ge 2 ]; }
check "gateway and mount take it" wait_until 30 have_read
identity 2 "a new key" >"$work/drives/identities.toml"
pkill -HUP -f "pinstriped --config $cluster/"
check "the old one goes" wait_until 30 have_reloaded 2
check "the mount goes on" holds_here before
check "and writes" cp "$work/file" "$mount/written"
check "the gateway has it" holds /written "$sum"
check "whoever has the old key alone is refused" says 2 "unavailable" status "$work/old.toml"

echo "no identity" >"$work/drives/identities.toml"
pkill -HUP -f "pinstriped --config $cluster/"
check "identities that cannot be read are told in the log" \
  wait_until 30 grep -q "identities not reloaded.*identities.toml" "$cluster/pinstriped-6.log"
check "and those from before are used on" holds_here written

# What is no certificate is found before a process is told to use it.
echo "no certificate" >"$cluster/ca.pem"
check "a file without certificates is refused by its name" says 1 "ca.pem: there is no certificate in it" config "$tls"
pkill -USR1 -P $$ -x pinstripe-fuse
check "and a process that runs goes on as it was" wait_until 30 grep -q "there is no certificate in it" "$work/mount.log"
check "with all its drives" holds_here before
finish
