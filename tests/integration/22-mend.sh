#!/bin/bash
# A gateway brings home what it stored on spares while drives were away, without being asked to.
. "$(dirname "$0")/lib.sh"

cluster_up mend --layout 4+2 --drives 8
nothing_to_repair() { says 0 "^0 blocks looked into" repair --dry-run "$config"; }

dev kill 1 2
put copies 50000
put large 30000001
check "shards lie on spares" says 2 "^[1-9][0-9]* blocks looked into" repair --dry-run "$config"
dev start 1 2
wait_until_healthy
check "the gateway brings them home" wait_until 60 nothing_to_repair
check "and says so" wait_until 20 grep -q "file is whole again" "$(gateway_log)"
check "any two drives may be lost" any_two_may_die "1 2" "3 8"
finish
