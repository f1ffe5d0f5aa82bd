# The page of `lazuli serve` in a real browser: the fifteen things that it must do, by mouse, by keyboard alone, on a phone.
. tests/cli/transcript
unset LAZULI_MODEL
if ! command -v python3 >/dev/null || $lazuli serve --state "$work/none" --listen nowhere 2>&1 | grep -q 'built without'; then
    echo "skipped: the page is not tested: python3 or the server is missing"
    echo "checks: 1, failed: 0"
    exit 0
fi
if ! (cd tests/page && python3 -c 'import browser, sys; sys.exit(not browser.find())'); then
    echo "skipped: the page is not tested: there is no chromium; tools/install-packages page installs it"
    echo "checks: 1, failed: 0"
    exit 0
fi
try_match 0 'failed: 0' python3 tests/page/page.py "$lazuli" "$work"
cat "$work/output"
finish
