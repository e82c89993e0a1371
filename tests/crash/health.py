"""Whether the drives of a cluster are back, for tests that kill them."""

import json
import subprocess


def drives_are_well(pinstripe, config):
    """As far as the drives go: what is on them `pinstripe status` knows from those who looked last, which may be long ago."""
    said = subprocess.run([pinstripe, "status", "--json", config], capture_output=True, text=True, check=False).stdout
    health = json.loads(said)["health"] if said else {"drives_down": None}
    return health["drives_down"] == 0 and health["state"] != "unavailable" and '"no_say"' not in said
