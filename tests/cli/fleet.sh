# A fleet on one machine: Redis, two servers and three workers with the demo model; deaths of all of them.
. tests/cli/transcript
. tests/cli/need_fleet
try_match 0 'failed: 0' python3 tests/cli/fleet.py "$lazuli" "$work"
cat "$work/output"
finish
