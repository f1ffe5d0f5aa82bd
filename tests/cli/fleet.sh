# A fleet on one machine: Redis, two servers and three workers with the demo model; deaths of all of them.
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
try_match 0 'failed: 0' python3 tests/cli/fleet.py "$lazuli" "$work"
cat "$work/output"
finish
