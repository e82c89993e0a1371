#!/bin/bash
# HTTP, WebDAV and TLS through XrdHttp, and third-party copies in both protocols and both directions, with
# etc/xrootd-pinstripe-http.cfg.
. "$(dirname "$0")/lib.sh"

cluster_up http --layout 4+2 --drives 8 --one-process
make_certificates
read -r port http_port plain_port plain_http < <(free_ports 4)
to_ports=(-e "s/:1094$/:$port/; s/1094/$port/; s/XrdHttp:8080/XrdHttp:$http_port/")
sample door xrootd-pinstripe.cfg "${to_ports[@]}"
# XRootD 6 fetches nothing from its own machine unless it is told to.
local_copies=(-e "s/^http.exthandler/tpc.allow local\n&/")
sample door xrootd-pinstripe-http.cfg "${to_ports[@]}" "${local_copies[@]}"
serve door xrootd xrootd-pinstripe-http.cfg
door=root://localhost:$port
http=http://127.0.0.1:$http_port
https=https://127.0.0.1:$http_port

# The other end of copies: the same server on a directory.
to_plain=(-e "s/1094/$plain_port/; s/XrdHttp:8080/XrdHttp:$plain_http/; s,pgm .*,pgm /usr/bin/xrdcp --server,")
sample plain xrootd-pinstripe.cfg "${to_plain[@]}" -e "s,^ofs.osslib.*,oss.localroot $work/plain/files,"
sample plain xrootd-pinstripe-http.cfg "${to_plain[@]}" "${local_copies[@]}"
mkdir "$work/plain/files"
give_to_gateway "$work/plain/files"
serve plain xrootd xrootd-pinstripe-http.cfg
plain=root://localhost:$plain_port
plain_https=https://127.0.0.1:$plain_http

make_file "$work/file" 9000001
make_file "$work/other" 5000000
make_file "$work/empty" 0
ask() { curl -sS -m 60 --cacert "$work/ca.pem" "$@"; }
# The latter since XRootD 6.
stored="200|201"
# What the server answers is in $work/answer, with its headers.
answers() {  # CODE[|CODE] CURL-ARGUMENT...
  local code
  code=$(ask -D "$work/headers" -o "$work/answer" -w '%{http_code}' "${@:2}" 2>"$work/curl.err")
  cat "$work/headers" >>"$work/answer"
  [[ $code =~ ^($1)$ ]] && return 0
  echo "  ${*:2}: $code instead of $1: $(cat "$work/curl.err")"
  return 1
}
comes_back() {  # URL FILE
  ask -o "$work/back" "$1" && cmp "$work/back" "$2"
}
goes_and_comes() { answers "$stored" -T "$work/$2" "$1" && comes_back "$1" "$work/$2"; }
range_is() {  # FIRST LAST
  ask -r "$1-$2" -o "$work/back" "$http/new/file" &&
    cmp "$work/back" <(tail -c +$(($1 + 1)) "$work/file" | head -c $(($2 - $1 + 1)))
}
says_of() { tr -d '\r' <"$work/answer" | grep -q -- "$1" || { echo "  no \"$1\" in: $(head -c 2000 "$work/answer")"; return 1; }; }

# --- WebDAV ---

check "PUT makes a file, and the directories above it" goes_and_comes "$http/new/file" file
check "PUT replaces it" goes_and_comes "$http/new/file" other
check "and an empty one" goes_and_comes "$http/new/file" empty
check "over TLS, too" goes_and_comes "$https/new/file" file
check "a range" range_is 4000000 4100000
several_ranges() {
  answers 206 -r 0-9,8999000-8999009,100-109 "$http/new/file" || return 1
  for begin in 0 8999000 100; do
    says_of "Content-range: bytes $begin-$((begin + 9))/9000001" || return 1
    /usr/bin/python3 -c "
import sys
whole, answer = (open(name, 'rb').read() for name in sys.argv[1:3])
sys.exit(whole[$begin:$begin + 10] not in answer)" "$work/file" "$work/answer" || return 1
  done
}
check "several ranges in one request" several_ranges
digest_is() { answers 200 -I -H "Want-Digest: $1" "$http/new/file" && says_of "^Digest: $1=$2"; }
check "Want-Digest: adler32" digest_is adler32 "$(xrdadler32 "$work/file" | cut -d' ' -f1)"
check "Want-Digest: md5" digest_is md5 "$(openssl md5 -binary "$work/file" | base64)"
check "MKCOL makes a directory" answers 201 -X MKCOL "$http/new/directory"
lists() {
  answers 207 -X PROPFIND -H "Depth: 1" "$http/new" && says_of "<D:href>/new/file</D:href>" &&
    says_of "<lp1:getcontentlength>9000001</lp1:getcontentlength>" && says_of "<D:href>/new/directory</D:href>" &&
    answers 207 -X PROPFIND -H "Depth: 0" "$http/new/file" && ! says_of directory >/dev/null
}
check "PROPFIND lists a directory" lists
check "MOVE renames" answers 201 -X MOVE -H "Destination: $http/new/directory/moved" "$http/new/file"
check "the old name is gone" answers 404 -I "$http/new/file"
check "the new one is there" comes_back "$https/new/directory/moved" "$work/file"
check "DELETE refuses a directory with something in it" answers "500|409" -X DELETE "$http/new/directory"
check "DELETE removes a file" answers 200 -X DELETE "$http/new/directory/moved"
check "and an empty directory" answers 200 -X DELETE "$http/new/directory"
check "which are gone" answers 404 "$http/new/directory"

with_davix() {
  local to=$https/davix one=(--capath "$work/certificates")
  davix-mkdir "${one[@]}" "$to" && davix-put "${one[@]}" "$work/file" "$to/file" || return 1
  davix-mv "${one[@]}" "$to/file" "$to/moved"  # davix 0.8.4 ends with 255 when it was done, too
    davix-ls -l "${one[@]}" "$to" | grep -q ' 9000001 .* moved' && davix-get "${one[@]}" "$to/moved" "$work/back" &&
    cmp "$work/back" "$work/file" && davix-rm "${one[@]}" "$to/moved" && davix-rm "${one[@]}" "$to"
}
check "davix puts, lists, moves, gets and removes" with_davix

# --- uploads that are cut off ---

cut_off() {  # URL CURL-ARGUMENT...: more bytes are promised than ever come
  local before size=3000000
  before=$(grep -c 'went away before' "$work/door/xrootd.log")
  # The pipe stays open, with nothing more in it, until the client is gone, or this script.
  (head -c $size "$work/other"; exec tail --pid=$$ -f /dev/null) >"$work/pipe" &
  local feeder=$!
  curl -sS --cacert "$work/ca.pem" -T - -H "Transfer-Encoding:" -H "Content-Length: 9000001" "$@" <"$work/pipe" &
  local client=$!
  wait_until 30 has_read $client $size || { echo "  the upload does not begin"; return 1; }
  kill -9 $client $feeder
  wait $client $feeder 2>/dev/null
  was_dropped() { [ "$(grep -c 'went away before' "$work/door/xrootd.log")" -gt "$before" ]; }
  wait_until 30 was_dropped || { echo "  the log does not tell of it"; return 1; }
}
mkfifo "$work/pipe"
answers "$stored" -T "$work/other" "$http/cut" || flunk "upload"
check "an upload over HTTP whose client vanishes" cut_off "$http/cut"
check "leaves the old contents" comes_back "$http/cut" "$work/other"
check "and over HTTPS" cut_off "$https/cut-new"
check "no file where there was none" answers 404 -I "$http/cut-new"
check "whose name can be used" goes_and_comes "$http/cut-new" file

# --- TLS of XRootD's own protocol ---

over_tls() {  # SCHEME
  timeout 60 xrdcp --nopbar -s -f "$work/file" "${1}://localhost:$port//tls" && timeout 60 xrdcp --nopbar -s -f "$1://localhost:$port//tls" "$work/back" &&
    cmp "$work/back" "$work/file"
}
check "roots:// there and back" over_tls roots
without_authority() { ! X509_CERT_DIR=/nonexistent timeout 60 xrdcp --nopbar -s -f "roots://localhost:$port//tls" "$work/back" 2>/dev/null; }
check "but not for who does not believe the certificate" without_authority

# --- third-party copies ---

copy_is() { cmp "$work/plain/files/$1" "$work/$2"; }
answers "$stored" -T "$work/file" "$http/source" || flunk "upload"
answers "$stored" -T "$work/file" "$plain_https/source" || flunk "upload"
http_copy() {  # CURL-ARGUMENT...
  answers "201|202" -X COPY "$@" && says_of "^success: Created"
}
check "HTTP: pulled by the gateway" http_copy -H "Source: $plain_https/source" "$https/pulled"
check "and it is the file" comes_back "$http/pulled" "$work/file"
check "with several streams" http_copy -H "X-Number-Of-Streams: 3" -H "Source: $plain_https/source" "$https/pulled-3"
check "the same" comes_back "$http/pulled-3" "$work/file"
check "HTTP: pushed by the gateway" http_copy -H "Destination: $plain_https/pushed" "$https/source"
check "and it is the file there" copy_is pushed file
answers "$stored" -T "$work/empty" "$plain_https/empty" || flunk "upload"
check "HTTP: an empty file is pulled" http_copy -H "Source: $plain_https/empty" "$https/pulled"
check "and it is empty" comes_back "$http/pulled" "$work/empty"
failed_pull() {
  answers "$stored" -T "$work/other" "$http/kept" && answers "201|404" -X COPY -H "Source: $plain_https/nothing" "$https/kept" &&
    says_of "^failure" && comes_back "$http/kept" "$work/other"
}
check "a pull that fails leaves what was there" failed_pull
# What a client may do goes by the beginning of the path.
leads_up() {  # /new/../outside is not taken for a path below /new
  ask --path-as-is -o "$work/answer" -X COPY -H "Source: $plain_https/source" "$https/new/../outside"
  ! grep -q '^success' "$work/answer" && answers 404 -I "$http/outside"
}
check "COPY to a path with .. is refused" leads_up
answers "$stored" -T "$work/file" "$http/outside" || flunk "upload"
leaks() { ask --path-as-is -o "$work/answer" -X COPY -H "Destination: $plain_https/leaked" "$https/new/../outside" && ! [ -s "$work/plain/files/leaked" ]; }
check "and from one" leaks
# The xrdcp that a server runs crashes at its end now and then, in a thread of its own library (XRootD 5.5). The server
# calls that code 32, and a client tries again.
third_party() {
  timeout 120 xrdcp --nopbar -s -f --tpc only "$@" 2>"$work/xrdcp.err" ||
    { grep -q "return code 32$" "$work/xrdcp.err" && timeout 120 xrdcp --nopbar -s -f --tpc only "$@" 2>"$work/xrdcp.err"; } ||
    { cat "$work/xrdcp.err"; return 1; }
}
check "xrdcp --tpc only from the gateway" third_party "$door//source" "$plain//from-gateway"
check "and it is the file there" copy_is from-gateway file
check "xrdcp --tpc only to the gateway, over a file that is there" third_party "$plain//source" "$door//cut"
check "and it is the new one" comes_back "$http/cut" "$work/file"
check "xrdcp --tpc only to a new name of the gateway" third_party "$plain//empty" "$door//fetched"
check "which is there" comes_back "$http/fetched" "$work/empty"
# As XRootD's own test ThirdPartyCopy.
fetched_and_removed() {  # XRDCP-OPTION...
  third_party "$@" "$plain//source" "$door//removed" && comes_back "$http/removed" "$work/file" && xrdfs "$door" rm /removed >/dev/null &&
    ! xrdfs "$door" stat /removed >/dev/null 2>&1
}
check "with its checksum, and it can be removed" fetched_and_removed --cksum crc32c
check "with whichever checksum there is" fetched_and_removed --cksum auto
fetches_nothing() {  # TARGET
  ! timeout 120 xrdcp --nopbar -s -f --tpc only "root://localhost:1//nothing" "$1" 2>/dev/null
}
check "from a server that does not answer it fails" fetches_nothing "$door//nothing"
check "and makes no file" answers 404 -I "$http/nothing"
check "nor does it replace one" fetches_nothing "$door//cut"
check "that is there" comes_back "$http/cut" "$work/file"
finish
