# `lazuli serve` with the demo model: OpenAI's Images API, /api/v1, security rules, queue, deaths of processes, drain.
. tests/cli/transcript
unset LAZULI_MODEL
if ! command -v python3 >/dev/null || $lazuli serve --state "$work/none" --listen nowhere 2>&1 | grep -q 'built without'; then
    echo "skipped: python3 or the server is missing"
    exit 0
fi
try_match 0 'failed: 0' python3 tests/cli/serve.py "$lazuli" "$work"
cat "$work/output"
try_match 0 'failed: 0' python3 tests/serve/faults.py "$lazuli" --jobs 20 --worker-kills 3 --front-kills 1 --fill-disk 1 --overload 1 --kinds 2 --batch 4
cat "$work/output"
finish
