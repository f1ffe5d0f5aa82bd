# The rules of a fleet: what two workers make of one job, dead letters, limits and turns over several servers, a rolling
# restart, consumers that are gone; and pictures of several jobs in the same passes.
. tests/cli/transcript
. tests/cli/need_fleet
try_match 0 'failed: 0' python3 tests/cli/fleet_rules.py "$lazuli" "$work"
cat "$work/output"
finish
