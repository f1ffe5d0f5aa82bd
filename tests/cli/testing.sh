# What `make test` prints, which is what tests/summarise makes of ctest's output. A ctest of our own stands in.
. tests/cli/transcript
mkdir "$work/bin" "$work/build"
summary() { PATH="$work/bin:$PATH" tests/summarise "$work/build" 3; }

# ctest BODY: a ctest that knows of three tests and prints what BODY prints
ctest() {
    cat >"$work/bin/ctest" <<END
#!/bin/sh
case "\$*" in *-N*) echo 'Total Tests: 3' && exit ;; esac
$1
END
    chmod +x "$work/bin/ctest"
}

# trap 14: a line is printed when its test ends: the second test does not end before the line of the first has been seen
ctest 'echo "1: checks: 12, failed: 0"
echo "1/3 Test #1: quick .......   Passed    0.25 sec"
n=0
until [ -e "'$work'/seen" ] || [ $n -gt 3000 ]; do sleep 0.1 && n=$((n + 1)); done
echo "2: checks: 30, failed: 0"
[ -e "'$work'/seen" ] && echo "2/3 Test #2: slow .......   Passed    9.50 sec"
echo "3: checks: 2, failed: 1"
echo "3: it differs"
echo "3/3 Test #3: wrong ......***Failed    1.00 sec"'
summary 2>&1 | while read -r line; do
    echo "$line"
    case $line in *quick*) : >"$work/seen" ;; esac
done >"$work/printed"
try 0 cat "$work/printed" <<END
3 test programs, 3 at a time; a line for each as it ends, all output in $work/build/tests.log
1/3  ok    quick                              12 checks     0.25 s
2/3  ok    slow                               30 checks     9.50 s
3/3  FAIL  wrong                               2 checks, 1 failed: failed
it differs
43 passed, 1 failed
END
try_match 0 '^3: it differs$' cat "$work/build/tests.log"
try_match 1 '^43 passed, 1 failed$' summary

# A test that hangs is ended and counted; so is one that never began
ctest 'echo "1: checks: 12, failed: 0"
echo "1/3 Test #1: quick .......   Passed    0.25 sec"
echo "2/3 Test #2: hung .......***Timeout 3600.01 sec"'
try_match 1 'hung +1 checks, 1 failed: ran out of time$' summary
try_match 1 '^1 of 3 programs did not run$' summary
try_match 1 '^12 passed, 2 failed$' summary

# trap 14: every test has a limit, and a loaded machine does not reach it
limits=$(sed -n 's/.*[ "(]TIMEOUT[ "]*\([0-9.]*\).*/\1/p' "$build/CTestTestfile.cmake" "$build/tests/cuda-sim/CTestTestfile.cmake")
try 0 sh -c "echo '$limits' | sort -u" <<'END'
3600
END
tests=$(cat "$build/CTestTestfile.cmake" "$build/tests/cuda-sim/CTestTestfile.cmake" | grep -c '^add_test')
try 0 test "$(echo "$limits" | wc -l)" = "$tests" </dev/null
finish
