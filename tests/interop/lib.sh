# lib.sh: what the scripts here share beyond tests/integration/lib.sh. Each plays our client or daemon against a
# foreign one, fetched from a package registry into a cache, and ends with status 77 and a reason when that
# cannot be had.

. "$(dirname "${BASH_SOURCE[0]}")/../integration/lib.sh"

cache=${PINSTRIPE_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pinstripe-interop}
mkdir -p "$cache"
processes=()

skip() {
  echo "SKIP $script: $*"
  exit 77
}

stop_processes() {
  for pid in "${processes[@]}"; do kill -9 "$pid" 2>/dev/null; done
  wait "${processes[@]}" 2>/dev/null
  clean_up
}
trap stop_processes EXIT

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }  # PORT

# Ports that the simulator's command line takes (four digits), and nobody else has.
next_port=$((7000 + RANDOM % 1500))
free_port() {  # sets `port`
  next_port=$((next_port + 1))
  while answers $next_port; do next_port=$((next_port + 1)); done
  port=$next_port
}

# --- the Kinetic Java simulator and client ---

# Seagate's own implementations, in Java: sets `jars`, the directory of both and what they need.
need_simulator() {
  local version=0.8.0.4
  jars=$cache/kinetic-simulator-$version
  command -v java >/dev/null || skip "no java; openjdk-17-jre-headless has it"
  if [ ! -e "$jars/complete" ]; then
    command -v mvn >/dev/null || skip "no mvn to fetch the simulator with; Debian's package maven has it"
    cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.pinstripe</groupId><artifactId>interop</artifactId><version>1</version>
  <dependencies><dependency>
      <groupId>com.seagate.kinetic</groupId><artifactId>kinetic-simulator</artifactId><version>$version</version>
  </dependency></dependencies>
</project>
POM
    timeout 300 mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory="$jars" \
      >"$work/mvn.log" 2>&1 || skip "Maven cannot fetch the simulator: $(grep -m 1 ERROR "$work/mvn.log")"
    touch "$jars/complete"
  fi
}

# Its Netty is from 2014 and needs what Java has closed off since; without, it says nothing at all.
opens=(--add-opens java.base/java.nio=ALL-UNNAMED --add-opens java.base/sun.nio.ch=ALL-UNNAMED
  --add-opens java.base/jdk.internal.misc=ALL-UNNAMED)

# Starts one, which keeps its records in memory and on disk as it likes: sets `simulator` to its process.
start_simulator() {  # PORT
  mkdir -p "$work/simulator-$1"
  java "${opens[@]}" -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jars/*" \
    com.seagate.kinetic.simulator.internal.SimulatorRunner -port "$1" -tlsport $(($1 + 1500)) \
    -home "$work/simulator-$1" >"$work/simulator-$1.log" 2>&1 &
  simulator=$!
  processes+=("$simulator")
}
kill_simulator() {  # PROCESS...
  kill -9 "$@"
  wait "$@" 2>/dev/null
}
wait_for_simulator() {  # PORT
  wait_until 60 answers "$1" || give_up "the simulator does not listen: $(tail -n 3 "$work/simulator-$1.log")"
}
