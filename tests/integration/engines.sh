# engines.sh: an etcd of three members, and a PostgreSQL with a standby that it waits for, as keepers of names. Sourced after
# lib.sh by scripts that use them; they end with the script.
#
#   etcd_up; set_engine "${etcd_settings[@]}"            # or postgres_up, postgres_settings
#   kill_member 0; start_member 0; leader
#   names_on etcd                                        # a cluster that was just made is made anew on it

postgres=${POSTGRES_PROGRAMS:-$(echo /usr/lib/postgresql/*/bin)}
for program in etcd etcdctl "$postgres/postgres"; do
  command -v "$program" >/dev/null || { echo "SKIP $script: $program is not installed"; exit 77; }
done

engine_killer=
stop_engines() {
  [ -z "$engine_killer" ] || kill -9 "$engine_killer" 2>/dev/null
  pkill -9 -f "^etcd --name m. --data-dir $work/"
  for one in "$work"/pg-*/data/postmaster.pid; do [ -e "$one" ] && kill -QUIT "$(head -1 "$one")" 2>/dev/null; done
  clean_up
}
trap stop_engines EXIT

# --- etcd

ports=($(free_ports 8))
etcd_pids=(0 0 0)
peers="m0=http://127.0.0.1:${ports[1]},m1=http://127.0.0.1:${ports[3]},m2=http://127.0.0.1:${ports[5]}"
endpoints="http://127.0.0.1:${ports[0]},http://127.0.0.1:${ports[2]},http://127.0.0.1:${ports[4]}"
start_member() {  # 0..2
  local client=http://127.0.0.1:${ports[2 * $1]} peer=http://127.0.0.1:${ports[2 * $1 + 1]}
  etcd --name "m$1" --data-dir "$work/etcd-$1" --listen-client-urls "$client" --advertise-client-urls "$client" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "$peers" \
    --initial-cluster-state new --auto-compaction-mode revision --auto-compaction-retention 10000 \
    --logger zap --log-level error >"$work/etcd-$1.log" 2>&1 &
  etcd_pids[$1]=$!
}
kill_member() { kill -9 "${etcd_pids[$1]}"; wait "${etcd_pids[$1]}" 2>/dev/null; }
ctl() { ETCDCTL_API=3 etcdctl --endpoints "$endpoints" "$@"; }
etcd_settings=('engine = "etcd"' "endpoints = [\"${endpoints//,/\", \"}\"]")
etcd_up() {
  local i
  for ((i = 0; i < 3; i++)); do start_member $i; done
  wait_until 60 etcd_serves
}
etcd_serves() { ctl endpoint health >/dev/null 2>&1; }
leader() {  # the number of the member that leads
  ETCDCTL_API=3 etcdctl --endpoints "$endpoints" endpoint status 2>/dev/null |
    awk -F', ' '$5 == "true" {print NR - 1}'
}

# --- PostgreSQL: a primary and a standby that it waits for

run_as=()
[ "$(id -u)" != 0 ] || run_as=(setpriv --reuid postgres --regid postgres --clear-groups)
pg_port() { echo "${ports[$((6 + $1))]}"; }
start_server() {  # 0 or 1
  "${run_as[@]}" "$postgres/pg_ctl" -D "$work/pg-$1/data" -l "$work/pg-$1/log" -w -t 60 start >/dev/null 2>&1
}
psql() { "${run_as[@]}" "$postgres/psql" -h 127.0.0.1 -p "$(pg_port "$1")" -U keeper -d postgres -Atq "${@:2}"; }
make_server() {  # 0 or 1
  mkdir -p "$work/pg-$1"
  [ "$(id -u)" != 0 ] || chown postgres "$work/pg-$1"
}
settings() {  # 0 or 1
  printf '%s\n' "port = $(pg_port "$1")" "listen_addresses = '127.0.0.1'" "unix_socket_directories = ''" \
    "cluster_name = 's$1'"
}
postgres_up() {
  make_server 0
  make_server 1
  "${run_as[@]}" "$postgres/initdb" -D "$work/pg-0/data" -U keeper --auth trust --no-sync --locale=C -E UTF8 >/dev/null || return 1
  { settings 0; } | "${run_as[@]}" tee -a "$work/pg-0/data/postgresql.conf" >/dev/null
  start_server 0 || return 1
  "${run_as[@]}" "$postgres/pg_basebackup" -h 127.0.0.1 -p "$(pg_port 0)" -U keeper -D "$work/pg-1/data" -R -c fast --no-sync || return 1
  { settings 1; } | "${run_as[@]}" tee -a "$work/pg-1/data/postgresql.conf" >/dev/null
  start_server 1 || return 1
  psql 0 -c "alter system set synchronous_standby_names = 's1'" -c "select pg_reload_conf()" >/dev/null
}
postgres_settings=('engine = "postgresql"'
  "connection = \"host=127.0.0.1,127.0.0.1 port=$(pg_port 0),$(pg_port 1) user=keeper dbname=postgres\"")

# --- what clusters say of them

set_engine() {  # LINES...: the table [metadata] says this
  sed -i '/^\[metadata\]/,$d' "$config"
  printf '%s\n' "" "[metadata]" "$@" >>"$config"
}
# For campaigns: the cluster is made anew with its names there, and members or the server are killed now and then.
names_on() {  # etcd|postgresql
  local settings=etcd_settings[@]
  if [ "$1" = etcd ]; then
    etcd_up || give_up "etcd does not serve"
  else
    settings=postgres_settings[@]
    postgres_up || give_up "PostgreSQL does not serve"
  fi
  set_engine "${!settings}"
  "$pinstripe" format --force "$config" >"$work/format.out" 2>&1 || give_up "$(cat "$work/format.out")"
  disturb "$1" >/dev/null 2>&1 &
  engine_killer=$!
}
disturb() {  # etcd|postgresql
  local member
  while sleep $((RANDOM % 10 + 3)); do
    if [ "$1" = etcd ]; then
      member=$((RANDOM % 3))
      pkill -9 -f "^etcd --name m$member --data-dir $work/"
      sleep $((RANDOM % 4))
      start_member $member
    else
      kill -9 "$(head -1 "$work/pg-0/data/postmaster.pid")"
      wait_until 60 start_server 0
    fi
  done
}
