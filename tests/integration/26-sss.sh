#!/bin/bash
# Who has no key is refused, who has one may do what the file of rights says, with etc/xrootd-pinstripe-sss.cfg
# and etc/xrootd-authdb: Alice has /alice and reads /common, which the curators keep.
. "$(dirname "$0")/lib.sh"

cluster_up sss --layout 4+2 --drives 8 --one-process
read -r port < <(free_ports 1)
sample door xrootd-pinstripe.cfg -e "s/1094/$port/"
sample door xrootd-authdb
sample door xrootd-pinstripe-sss.cfg
key() { xrdsssadmin -k "$1" -u "$1" -g "$2" add "$work/door/sss.keytab" <<<y >/dev/null 2>&1 || give_up "no key for $1"; }
key alice physics
key carol curators
for one in alice carol; do
  grep "u:$one " "$work/door/sss.keytab" >"$work/$one.keytab"
  chmod 600 "$work/$one.keytab"
done
give_to_gateway "$work/door/sss.keytab"
echo y | xrdsssadmin -k alice -u alice -g physics add "$work/forged.keytab" >/dev/null 2>&1
serve door xrootd xrootd-pinstripe-sss.cfg
door=root://localhost:$port
make_file "$work/file" 3000000
make_file "$work/other" 1000

# The place is made by somebody who may do everything: the cluster's own gateway, which asks nobody.
for one in /alice /common /welcome /private; do xrdfs "$url" mkdir "$one" || give_up "mkdir $one"; done
upload "$work/file" /private/file || give_up "upload"

as() { XrdSecPROTOCOL=sss XrdSecSSSKT=$work/$1.keytab timeout 60 "${@:2}" >"$work/said" 2>&1; }
may() { as "$@" || { sed 's/^/  /' "$work/said"; return 1; }; }
may_not() {  # REFUSAL WHO COMMAND...
  if as "${@:2}"; then echo "  it was done"; return 1; fi
  grep -qi "$1" "$work/said" || { sed 's/^/  /' "$work/said"; return 1; }
}
xrdcp_s=(xrdcp --nopbar -s -f)
denied="permission denied\|not authorized"

check "with a key: an upload to one's own directory" may alice "${xrdcp_s[@]}" "$work/file" "$door//alice/file"
check "which reads back" may alice "${xrdcp_s[@]}" "$door//alice/file" "$work/back"
check "as it was" cmp "$work/back" "$work/file"
check "and can be renamed" may alice xrdfs "$door" mv /alice/file /alice/new
check "and removed" may alice xrdfs "$door" rm /alice/new
check "without a key: refused" may_not "auth" nobody "${xrdcp_s[@]}" "$work/file" "$door//alice/file"
check "with a key that the server does not have: refused" may_not "auth" forged "${xrdcp_s[@]}" "$work/file" "$door//alice/file"
check "somebody else's directory cannot be written" may_not "$denied" carol "${xrdcp_s[@]}" "$work/file" "$door//alice/file"
check "nor read" may_not "$denied" alice "${xrdcp_s[@]}" "$door//private/file" "$work/none"
check "nor listed" may_not "$denied" carol xrdfs "$door" ls /private
check "the group may write where it has the right" may carol "${xrdcp_s[@]}" "$work/other" "$door//common/notice"
check "others may read there" may alice "${xrdcp_s[@]}" "$door//common/notice" "$work/back"
check "what was written" cmp "$work/back" "$work/other"
check "but not write" may_not "$denied" alice "${xrdcp_s[@]}" "$work/file" "$door//common/notice"
check "nor remove" may_not "$denied" alice xrdfs "$door" rm /common/notice
check "nor rename out of it" may_not "$denied" alice xrdfs "$door" mv /common/notice /alice/notice
check "nor change attributes" may_not "$denied" alice xrdfs "$door" xattr /common/notice set colour=red
check "everybody with a key may list what all may" may alice xrdfs "$door" ls /welcome
check "after all that the file is there" holds /common/notice "$(sum_of "$work/other")"
finish
