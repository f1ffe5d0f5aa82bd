# FLUX.3 [klein] on the command line: a folder with a modular index, a remark on short prompts, and a single reference
# image, which gives the picture its size.
. tests/cli/transcript
flux3=$PWD/tests/data/flux3
unset LAZULI_MODEL
caption='On a hill above the sea a lighthouse with a red roof stands in the evening light; gulls circle around it, waves break on the
rocks below, and a small boat returns to the harbour on the left side, painted in oil with thick strokes.'

try_match 0 '^lazuli: this model was trained on long captions' $lazuli -m "$flux3/D" "a red fox" -W 32 -H 32 -o "$work/short.png"
try_match 0 "^$work/long.png  48 x 32, seed 1, 16 steps" $lazuli -m "$flux3/D" "$caption" -W 48 -H 32 -S 1 -o "$work/long.png"
$lazuli -m "$flux3/D" "$caption" -W 32 -H 32 -S 1 -o "$work/quiet.png" >"$work/said" 2>&1
try 1 grep captions "$work/said" </dev/null
try_match 0 '^family +FLUX.3 \[klein\]' $lazuli info -m "$flux3/B"
try_match 0 '^defaults +1024 x 1024 pixels, 50 steps, guidance 3.5' $lazuli info -m "$flux3/B"
try_match 0 'LAZULI_MODEL .* complete ' env LAZULI_MODEL="$flux3/B" $lazuli models
try_match 0 '^lazuli: --guidance has no effect' $lazuli -m "$flux3/D" "$caption" -W 32 -H 32 -g 4 -o "$work/guided.png"

# A single image: its size, also when the picture is made again from its settings; with a size, that size
try_match 0 "^$work/one.png  75 x 30, seed 2, " $lazuli -m "$flux3/D" "$caption" -i "$flux3/ref1.png" -S 2 --full-paths -o "$work/one.png"
try_match 0 "^$work/again.png  75 x 30, seed 2, " $lazuli --from "$work/one.png" --full-paths -o "$work/again.png"
try 0 cmp "$work/one.png" "$work/again.png" </dev/null
try_match 0 "^$work/sized.png  48 x 64, " $lazuli -m "$flux3/D" "$caption" -i "$flux3/ref1.png" -W 48 -H 64 -o "$work/sized.png"
try_match 0 "^$work/two.png  64 x 48, " $lazuli -m "$flux3/D" "$caption" -i "$flux3/ref3.png" -i "$flux3/ref1.png" -o "$work/two.png"
try_match 0 ' a sheet of 2$' $lazuli -m "$flux3/D" "$caption" -i "$flux3/ref1.png" --count 2 --sheet "$work/sheet.png" -o "$work/many.png"
finish
