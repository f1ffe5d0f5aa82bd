# Pictures with transparency: files, --background, sheets, compare, and images that have it.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
qwen=tests/data/qwen21
fox="$lazuli fox -m $qwen/B --threads $threads -W 64 -H 32 -s 1 -S 1"
colour() { od -An -tu1 -j25 -N1 "$1" | tr -d ' '; } # of a PNG: 2 is RGB, 6 has opacity

try_match 0 '^.*a.png  64 x 32, ' $fox -o "$work/a.png"
try 0 test "$(colour "$work/a.png")" = 6 </dev/null
try 0 $fox -q -o "$work/a.webp" </dev/null
try 0 test "$(od -An -tx1 -j20 -N1 "$work/a.webp" | tr -d ' ')" = 14 </dev/null # opacity, and text
try_match 0 'a.jpg: a JPEG has no transparency, so the picture is on white; .png and .webp keep it$' $fox -o "$work/a.jpg"
try 0 $fox -q --background opaque -o "$work/white.png" </dev/null
try 0 test "$(colour "$work/white.png")" = 2 </dev/null
try 1 sh -c "$fox --background opaque -o $work/white.jpg 2>&1 | grep JPEG" </dev/null
try 0 $fox -q --background transparent -o "$work/t.png" </dev/null
try_match 0 '^equal      64 x 32 pixels, with their opacity$' $lazuli compare "$work/a.png" "$work/t.png"
try_match 1 '^settings   background: none and opaque$' $lazuli compare "$work/a.png" "$work/white.png"
try_match 0 '"equal": true' $lazuli compare "$work/a.png" "$work/a.png" --json

# Settings repeat it
try 0 $lazuli --from "$work/white.png" -q -m $qwen/B -o "$work/again.png" </dev/null
try 0 cmp "$work/white.png" "$work/again.png" </dev/null
try 0 $lazuli --from "$work/a.png" -q -m $qwen/B -o "$work/again.png" </dev/null
try 0 cmp "$work/a.png" "$work/again.png" </dev/null
printf '{"prompt": "a fox", "seed": 1}\n{"prompt": "a fox", "seed": 2, "background": "opaque"}\n' >"$work/list.jsonl"
try 0 $lazuli batch "$work/list.jsonl" -m $qwen/B -W 64 -H 32 -s 1 -q -o "$work/b{line}.png" </dev/null
try 0 test "$(colour "$work/b1.png") $(colour "$work/b2.png")" = "6 2" </dev/null

# Sheets and grids are on white
try 0 $fox -q --count 2 --sheet "$work/sheet.png" -o "$work/s.png" </dev/null
try 0 test "$(colour "$work/sheet.png")" = 2 </dev/null
try 0 $lazuli grid fox -m $qwen/B -W 64 -H 32 -s 1 -S 1 --x background=auto,opaque -q -o "$work/grid.png" </dev/null

# An image with transparency; the difference is drawn
try 0 $fox -q -i $qwen/clear.png -o "$work/i.png" </dev/null
try 0 $lazuli encode $qwen/clear.png -m $qwen/B -q -o "$work/l.safetensors" </dev/null
try 0 $lazuli decode "$work/l.safetensors" -m $qwen/B -q -o "$work/l.png" </dev/null
try 0 test "$(colour "$work/l.png")" = 6 </dev/null
try_match 1 '^PSNR ' $lazuli compare "$work/a.png" "$work/white.png" -o "$work/d.png"
try 0 test "$(colour "$work/d.png")" = 2 </dev/null

# What cannot be
try_match 2 'takes auto, opaque or transparent, not' $fox --background green -o "$work/x.png"
try_match 2 'a JPEG has no transparency, so --background transparent needs .png or .webp$' $fox --background transparent -o "$work/x.jpg"
try_match 1 'makes no transparent pictures; Qwen-Image 2.1 does$' $lazuli fox -m models/demo --background transparent -W 16 -H 16 -s 1 -o "$work/x.png"
try 1 test -e "$work/x.png" </dev/null
finish
