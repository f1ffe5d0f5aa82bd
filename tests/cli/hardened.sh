# trap 10: what is built is protected against exploits: addresses resolved before main and then read-only, no executable
# stack, programs at random addresses, stack canaries, checked copies, and landing pads for indirect calls on x86-64.
. tests/cli/transcript
if ! command -v readelf >/dev/null; then
    echo "skipped: there is no readelf (binutils) to look at the binaries with"
    report 0
    finish
    exit
fi

show() { readelf -W "$@" 2>/dev/null; }
for file in lazuli lazuli-synth liblazuli.so; do
    show -d -l -h "$build/$file" >"$work/parts"
    show --dyn-syms "$build/$file" >"$work/names"
    try_match 0 'BIND_NOW|FLAGS_1.* NOW' cat "$work/parts"
    try_match 0 'GNU_RELRO' cat "$work/parts"
    try_match 0 'GNU_STACK .* RW  ' cat "$work/parts"
    try_match 0 'Type: +DYN' cat "$work/parts"
    try_match 0 '__stack_chk_fail' cat "$work/names"
    try_match 0 '__(memcpy|snprintf|vsnprintf|printf|fprintf)_chk' cat "$work/names"
done
for file in lazuli lazuli-synth; do try_match 0 'FLAGS_1.* PIE' show -d "$build/$file"; done

# A linked file has the note only where the system's own startup files have it (those of Debian 12 have not), so each
# object is looked at. Those that do not have it are listed: none.
if readelf -h "$build/lazuli" | grep -q X86-64; then
    show -n "$build/liblazuli.a" | awk '
        /^File: / { if (file != "" && !noted) print file; file = $2; noted = 0 }
        /x86 feature:.*IBT.*SHSTK/ { noted = 1 }
        END { if (!noted) print file }' >"$work/without"
    try 0 cat "$work/without" </dev/null
    try_match 0 endbr64 sh -c "objdump -d --no-show-raw-insn $build/liblazuli.so | grep -A1 '<lz_open_with.*>:'"
fi
finish
