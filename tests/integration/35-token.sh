#!/bin/bash
# A client's token says what it may do, with etc/xrootd-pinstripe-token.cfg and etc/xrootd-scitokens.cfg: over
# XRootD's protocol and HTTPS, and nobody does anything without one that is good.
. "$(dirname "$0")/lib.sh"

cluster_up token --layout 4+2 --drives 8 --one-process
make_certificates
read -r port http_port < <(free_ports 2)
to_ports=(-e "s/:1094$/:$port/; s/1094/$port/; s/XrdHttp:8080/XrdHttp:$http_port/")
for one in xrootd-pinstripe.cfg xrootd-pinstripe-token.cfg xrootd-scitokens.cfg; do sample door "$one" "${to_ports[@]}"; done
door=root://localhost:$port
https=https://localhost:$http_port

# The issuer has no web server: its key is put where the gateway keeps those that it has fetched.
issuer=https://issuer.example
for one in issuer forger; do
  openssl ecparam -name prime256v1 -genkey -noout 2>/dev/null | openssl pkcs8 -topk8 -nocrypt -out "$work/$one.key" &&
    openssl pkey -in "$work/$one.key" -pubout -out "$work/$one.pem" || give_up "no key for the $one"
done
token() {  # ISSUER-KEY CLAIM=VALUE...: instead of those that are usual
  local key=$1 claims=() one
  shift
  for one in "sub=alice" "aud=https://wlcg.cern.ch/jwt/v1/any" "$@"; do claims+=(--claim "$one"); done
  scitokens-create --cred "$work/$key.pem" --key "$work/$key.key" --keyid first --issuer "${with_issuer:-$issuer}" \
    --profile wlcg "${claims[@]}"
}
all_of_alice="scope=storage.read:/alice storage.modify:/alice"
good=$(token issuer "$all_of_alice") || give_up "no token"
export XDG_CACHE_HOME=$work/cache
mkdir "$XDG_CACHE_HOME"
scitokens-verify --cred "$work/issuer.pem" --issuer "$issuer" --keyid first --profile wlcg "$good" >"$work/said" 2>&1 ||
  give_up "the issuer's key cannot be kept: $(cat "$work/said")"
give_to_gateway -R "$XDG_CACHE_HOME"
serve door xrootd xrootd-pinstripe-token.cfg

make_file "$work/file" 3000000
xrdfs "$url" mkdir /alice && xrdfs "$url" mkdir /bob || give_up "mkdir"
upload "$work/file" /bob/file || give_up "upload"

with() { BEARER_TOKEN=$1 timeout 60 "${@:2}" >"$work/said" 2>&1; }
may() { with "$@" || { sed 's/^/  /' "$work/said"; return 1; }; }
may_not() {  # TOKEN COMMAND...
  if with "$@"; then echo "  it was done"; return 1; fi
  grep -qi "permission denied\|not authorized\|auth failed\|authentication" "$work/said" || { sed 's/^/  /' "$work/said"; return 1; }
}
xrdcp_s=(xrdcp --nopbar -s -f)

check "with a token: an upload to where it is for" may "$good" "${xrdcp_s[@]}" "$work/file" "$door//alice/file"
check "which reads back" may "$good" "${xrdcp_s[@]}" "$door//alice/file" "$work/back"
check "as it was" cmp "$work/back" "$work/file"
check "and can be removed" may "$good" xrdfs "$door" rm /alice/file
check "elsewhere nothing is written" may_not "$good" "${xrdcp_s[@]}" "$work/file" "$door//bob/new"
check "nor read" may_not "$good" "${xrdcp_s[@]}" "$door//bob/file" "$work/back"
check "nor removed" may_not "$good" xrdfs "$door" rm /bob/file
check "without a token: refused" may_not "" "${xrdcp_s[@]}" "$door//bob/file" "$work/back"
check "what is no token: refused" may_not "nonsense" "${xrdcp_s[@]}" "$work/file" "$door//alice/file"
check "signed by another: refused" may_not "$(token forger "$all_of_alice")" "${xrdcp_s[@]}" "$work/file" "$door//alice/file"
check "for another service: refused" may_not "$(token issuer "$all_of_alice" aud=https://elsewhere.example)" \
  "${xrdcp_s[@]}" "$work/file" "$door//alice/file"
check "of an issuer that is not listed: refused" may_not "$(with_issuer=https://other.example token issuer "$all_of_alice")" \
  "${xrdcp_s[@]}" "$work/file" "$door//alice/file"
# Handshake and login, from a client that says nothing of TLS; its own would insist on it. 4003 is an error.
without_tls() {
  /usr/bin/python3 - "$port" >"$work/said" <<'END'
import socket, struct, sys
with socket.create_connection(("localhost", int(sys.argv[1])), timeout=60) as server:
    server.sendall(struct.pack(">5i", 0, 0, 0, 4, 2012) + struct.pack(">2sHi8s4Bi", b"ab", 3007, 1, b"alice", 0, 0, 5, 0, 0))
    answer = server.makefile("rb")
    answer.read(16)
    _, status, length = struct.unpack(">2sHi", answer.read(8))
    print(status, answer.read(length))
END
  grep -qi "^4003 .*TLS" "$work/said" || { sed 's/^/  /' "$work/said"; return 1; }
}
check "without TLS: refused" without_tls

# Over HTTPS: what the answer's code is.
answers() {  # CODE TOKEN CURL-ARGUMENT...
  local code header=()
  [ -z "$2" ] || header=(-H "Authorization: Bearer $2")
  code=$(curl -sS -m 60 --cacert "$work/ca.pem" "${header[@]}" -o "$work/back" -w '%{http_code}' "${@:3}" 2>"$work/said")
  [ "$code" = "$1" ] && return 0
  echo "  ${*:3}: $code instead of $1: $(cat "$work/said")"
  return 1
}
check "over HTTPS: PUT where the token is for" answers 200 "$good" -T "$work/file" "$https/alice/file"
check "and GET" answers 200 "$good" "$https/alice/file"
check "which reads back" cmp "$work/back" "$work/file"
reads_only=$(token issuer "scope=storage.read:/alice")
check "with one that is for reading: GET" answers 200 "$reads_only" "$https/alice/file"
check "but not PUT" answers 403 "$reads_only" -T "$work/file" "$https/alice/file"
check "nor DELETE" answers 403 "$reads_only" -X DELETE "$https/alice/file"
check "elsewhere: no GET" answers 403 "$good" "$https/bob/file"
check "without a token: no GET" answers 403 "" "$https/alice/file"
check "after all that the files are there" holds /bob/file "$(sum_of "$work/file")"
check "both" holds /alice/file "$(sum_of "$work/file")"
finish
