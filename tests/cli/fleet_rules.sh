# The rules of a fleet: what two workers make of one job, dead letters, limits and turns over several servers, a rolling
# restart, consumers that are gone; and pictures of several jobs in the same passes.
. tests/cli/transcript
unset LAZULI_MODEL
if ! command -v python3 >/dev/null || ! command -v redis-server >/dev/null; then
    echo "skipped: python3 or redis-server is missing"
    exit 0
fi
if $lazuli worker --store redis://127.0.0.1:x --pictures "$work/probe" 2>&1 | grep -q 'built without'; then
    echo "skipped: this lazuli was built without the server or without hiredis"
    exit 0
fi
try_match 0 'failed: 0' python3 tests/cli/fleet_rules.py "$lazuli" "$work"
cat "$work/output"
finish
