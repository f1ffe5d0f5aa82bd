# `lazuli compare`: how much two pictures differ. The numbers are those of scikit-image (tools/oracle/seeing.py).
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
flux=tests/data/flux2
fox="-p fox -m models/demo --threads $threads -S 7 -W 32 -H 48 -q"
for steps in 1 2; do try 0 $lazuli $fox -s $steps -o "$work/$steps.png" </dev/null; done
try 0 $lazuli $fox -s 2 --no-metadata -o "$work/bare.png" </dev/null

# Exit codes as those of cmp: 0 equal, 1 different, 2 trouble
try 0 $lazuli compare "$work/1.png" "$work/1.png" <<'END'
equal      32 x 48 pixels
settings   the same
END
try 0 $lazuli compare "$work/2.png" "$work/bare.png" <<'END'
equal      32 x 48 pixels
END
try_match 1 '^settings   steps: 1 and 2$' $lazuli compare "$work/1.png" "$work/2.png"
try_match 1 '^PSNR       [0-9]+\.[0-9][0-9] dB$' $lazuli compare "$work/1.png" "$work/2.png"
try 1 sh -c "$lazuli compare $work/1.png $work/bare.png | grep settings" </dev/null # one of them has none
try 0 sh -c "$lazuli compare tests/data/zimage/start1.png tests/data/inpaint/thin.png | head -n 4" <<'END'
PSNR       4.63 dB
SSIM       0.096285
differing  3072 of 3072 pixels, 100 %
largest    248 of 255, at x 0, y 0
END
try 0 $lazuli compare -q "$work/1.png" "$work/1.png" </dev/null
try 1 $lazuli compare -q "$work/1.png" "$work/2.png" </dev/null
try 1 $lazuli compare "$work/1.png" $flux/ref1.png <<END
sizes      32 x 48 and $(od -An -tu1 -j18 -N2 $flux/ref1.png | awk '{ print $1 * 256 + $2 }') x $(od -An -tu1 -j22 -N2 $flux/ref1.png | awk '{ print $1 * 256 + $2 }'); only pictures of one size have pixels to compare
END
try_match 1 'never.png is not written, because the sizes differ$' $lazuli compare "$work/1.png" $flux/ref1.png -o "$work/never.png"
try 1 test -e "$work/never.png" </dev/null
for bad in "$work/none.png" "$work" tests/cli/compare.sh; do
    try_match 2 '^lazuli: ' $lazuli compare "$work/1.png" "$bad"
    try 1 sh -c "$lazuli compare $work/1.png $bad 2>&1 | grep -v ^lazuli:" </dev/null # one sentence
done
try 2 $lazuli compare "$work/1.png" <<'END'
lazuli: compare needs 2 words: A B
END

# The picture of the differences
try_match 1 "^$work/d.png  32 x 48, the differences times [0-9]+\$" $lazuli compare "$work/1.png" "$work/2.png" -o "$work/d.png"
try 0 $lazuli compare -q "$work/1.png" "$work/1.png" -o "$work/black.png" </dev/null
try_match 1 '^largest    2[0-9][0-9] of 255, at x ' $lazuli compare "$work/black.png" "$work/d.png" # as bright as it can be
try 0 sh -c "$lazuli compare $work/1.png $work/2.png -o - 2>$work/said >$work/o.png; cmp $work/o.png $work/d.png" </dev/null
try_match 0 '^- +32 x 48, the differences times' cat "$work/said"
try_match 2 'is an input of this picture' $lazuli compare "$work/1.png" "$work/2.png" -o "$work/2.png"
try_match 2 'must end in .png' $lazuli compare "$work/1.png" "$work/2.png" -o "$work/d.txt"
try_match 2 'create the folder first' $lazuli compare "$work/1.png" "$work/2.png" -o "$work/no/d.png"
[ ! -e /dev/full ] || try 2 sh -c "$lazuli compare $work/1.png $work/1.png >/dev/full" <<'END'
lazuli: cannot write the output: No space left on device
END

# JSON
json() { try_match "$1" "$2" $lazuli compare --json "$work/1.png" "$work/$3"; }
json 0 '^ "equal": true,$' 1.png
json 0 '^ "psnr": null,$' 1.png
json 1 '^ "equal": false,$' 2.png
json 1 '^ "psnr": [0-9]+\.[0-9]+,$' 2.png
json 1 '^  "steps": \[$' 2.png
json 2 '^ "error": ".*none.png' none.png
finish
