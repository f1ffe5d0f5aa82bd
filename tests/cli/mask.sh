# Repainting a part of a picture: --mask, --extend, --crop-to-mask, --keep-outside and --feather.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
flux=$PWD/tests/data/flux2
absolute=$(realpath $lazuli)
cp $flux/ref2.png $flux/ref3.png tests/data/inpaint/*.png "$work"
B="-m $flux/B -S 3 -s 2"
fox="$absolute fox $B -i ref3.png --mask small.png" # 67 x 85; painted at 64 x 80
echo leak:wcsdup >"$work/lsan" # of libedit: see interactive.sh
export LSAN_OPTIONS="suppressions=$work/lsan:print_suppressions=0"
cd "$work"

same() { try 0 cmp "$1" "$2" </dev/null; }
holds() { try_match 0 "$2" env LC_ALL=C grep -a -o "$2" "$1"; }
differ() { try_match 1 differ cmp "$1" "$2"; }

# The picture has the size of the image (tests/test_inpaint.c looks at its pixels)
try_match 0 '^a.png  67 x 85, seed 3, 2 steps, ' $fox -o a.png
holds a.png small.png
holds a.png 67x85
try 0 $fox -q --crop-to-mask 8 -o crop.png </dev/null
differ a.png crop.png
try 0 $fox -q --feather 0 -o hard.png </dev/null
differ a.png hard.png
try 0 $fox -q --feather 4 --keep-outside on -o b.png </dev/null
try_match 0 '^off.png  64 x 80, ' $fox --keep-outside off -o off.png
try_match 0 '^sized.png  48 x 64, ' $fox -W 48 -H 64 -o sized.png
try_match 0 'the 67 x 85 of the image are stretched to 128 x 64, which is another shape' $fox -W 128 -H 64 -o l.png
try_match 0 'the 67 x 85 of the image are stretched to 128 x 80' $fox -W 128 -o l.png
try_match 0 'the 176 x 64 of the image with its new sides are stretched to 96 x 64' $absolute fox $B -i ref2.png --extend left=80 -W 96 -H 64 -o l.png
try 0 sh -c "{ $fox -W 64 -H 80 -o l.png; $fox -W 32 -H 32 --crop-to-mask 8 -o l.png; $fox -o l.png; } 2>&1 | grep -c stretched; true" <<'END'
0
END
try_match 0 ', 1 of 2 steps, ' $fox --strength 0.5 -o c.png
try_match 0 '^64 x 80 pixels, 2 steps' $absolute plan fox -m $flux/B -i ref3.png --mask small.png -s 2
try_match 0 'the mask is 134 x 170, and is stretched to the 67 x 85' $absolute fox $B -i ref3.png --mask large.png -o l.png
try_match 0 'the mask is white everywhere' $absolute fox $B -i ref3.png --mask white.png -o l.png
try_match 0 'the soft edge of 1000 pixels is wider than the mask, so hardly anything changes' $fox --feather 1000 -o l.png
try 0 sh -c "$fox --feather 4 -o l.png 2>&1 | grep -c 'soft edge'; true" <<'END'
0
END

# Added sides
try_match 0 'becomes 128 x 64, because extended sides are multiples of 16' $absolute fox $B -i ref2.png --extend left=20 -o e.png
try_match 0 '^e.png  128 x 96, ' $absolute fox $B -i ref2.png --extend 16 -o e.png
holds e.png 'extend'
try 0 $absolute fox $B -q -i ref2.png --no-metadata --extend left=16,right=16 -o plain.png </dev/null
try 0 $absolute fox $B -q -i ref2.png --no-metadata --extend 'left=16, right=16' -o blank.png </dev/null
same plain.png blank.png

# Pictures are repeated from what they record
mkdir away
for file in a.png crop.png hard.png off.png sized.png e.png; do
    try 0 sh -c "cd away && $absolute --from ../$file -m $flux/B -q -o $file" </dev/null
    same $file away/$file
done
try_match 0 'a.png names the mask .*small.png' $absolute --from a.png -m $flux/B -o x.png

# --from with a typed mask changes that picture
try 0 $absolute a fox $B -W 64 -H 80 -q -o first.png </dev/null
try 0 $absolute --from first.png -m $flux/B -S 9 --mask small.png -q -o x.png </dev/null
try 0 $absolute a fox -m $flux/B -s 2 -S 9 -i first.png --mask small.png -q -o y.png </dev/null
same x.png y.png

# Lines of a batch
cat >list.txt <<'END'
{"prompt": "fox", "image": "ref3.png", "mask": "small.png", "seed": 3, "output": "b1.png"}
{"prompt": "fox", "image": "ref2.png", "extend": "right=16", "seed": 3, "output": "b2.png"}
{"prompt": "fox", "mask": "small.png", "output": "b3.png"}
END
try_match 1 'line 3: --mask needs the picture to change; give it with --image' $absolute batch list.txt -m $flux/B -s 2
same b1.png a.png
try_match 0 '2 there already|^lazuli: 0 pictures made' sh -c "head -2 list.txt >two.txt; $absolute batch two.txt -m $flux/B -s 2"

# A mask is an input: no line may overwrite it, but a line may make it
cp small.png own.png
cat >over.txt <<'END'
{"prompt": "fox", "image": "ref3.png", "mask": "own.png", "seed": 3, "output": "b4.png"}
{"prompt": "fox", "width": 64, "height": 80, "seed": 3, "output": "own.png"}
END
try_match 1 'line 2: own.png is an input of line 1 and would be overwritten' $absolute batch over.txt -m $flux/B -s 1
sed -n 2p over.txt >turned.txt
sed -n 1p over.txt >>turned.txt
try_match 2 'own.png is an input, and an earlier line would overwrite it' $absolute batch turned.txt -m $flux/B -s 1
same small.png own.png
rm own.png b4.png
try_match 0 '2 pictures made' $absolute batch turned.txt -m $flux/B -s 1

# A picture of a grid may be larger than what is painted
try_match 0 '^g.png  158 x 112, 2 x 1 pictures' $absolute grid fox $B -i ref3.png --mask small.png --crop-to-mask 8 -W 32 -H 32 \
    --x steps=1,2 -o g.png

# What is refused
try_match 2 'mask needs the picture to change; give it with --image' $absolute fox $B --mask small.png
try_match 2 'extend needs the picture to change' $absolute fox $B --extend 16
try_match 2 'feather is about what is repainted, so it needs --mask or --extend' $absolute fox $B -i ref3.png --feather 3
try_match 2 'keep-outside takes on or off' $absolute fox $B --keep-outside maybe
for bad in left left=0 left=x left=1,left=2 side=3 left=1, 0 '' left=9999; do
    try_match 2 'extend takes pixels from 1 to 8192' $absolute fox $B -i ref2.png --extend "$bad"
done
try_match 1 'nowhere.png: cannot be opened' $absolute fox $B -i ref3.png --mask nowhere.png
try_match 1 'a mask must have the shape of its image' $absolute fox $B -i ref2.png --mask small.png
try_match 1 'the mask has no white' $absolute fox $B -i ref3.png --mask black.png
try_match 2 'small.png is an input of this picture' $fox -o small.png
try_match 1 'Qwen-Image 2.1 cannot repaint' $absolute fox -m $flux/../qwen21/B -i ref3.png --mask small.png -o x.png
cd - >/dev/null

# A session
root=$PWD
if ! command -v python3 >/dev/null || ! python3 -c 'import pty' 2>/dev/null || $lazuli --help all | grep -q 'no sessions'; then
    finish
    exit
fi
export TERM=dumb NO_COLOR=1 LC_ALL=C XDG_STATE_HOME="$work/state"
cd "$work"
cat >talk <<'END'
< lazuli> 
> /load ref3.png
< $1  67 x 85, ref3.png
< lazuli> 
> /mask nowhere.png
< nowhere.png: cannot be opened
< lazuli> 
> /mask small.png
< lazuli> 
> fox
< /mask needs the picture to change: name it, as in: $1 with a hat; /mask alone ends it
< lazuli> 
> $1 fox
< $2  67 x 85, seed 3, 2 steps
< lazuli> 
> /save session.png
< lazuli> 
> /mask off
< lazuli> 
> /extend left
< --extend takes pixels from 1 to 8192
< lazuli> 
> /extend right=16
< lazuli> 
> $1 fox
< $3  96 x 85, seed 3, 2 steps
< lazuli> 
> /extend off
< lazuli> 
> fox
< $4  
< lazuli> 
> /quit
END
try_match 0 session.png sh -c "python3 $root/tests/cli/terminal.py $absolute $B <talk"
same session.png a.png
try 0 "$absolute" --from session.png -m $flux/B -q -o again.png </dev/null
same session.png again.png
cat >talk <<'END'
< lazuli> 
> /load ref3.png
< lazuli> 
> $1 fox
< $2  67 x 85, seed 3, 2 steps
< lazuli> 
> /save cropped.png
< lazuli> 
> /quit
END
try_match 0 cropped.png sh -c "python3 $root/tests/cli/terminal.py $absolute $B --mask small.png --crop-to-mask 8 -W 32 -H 32 <talk"
try 0 "$absolute" --from cropped.png -m $flux/B -q -o again.png </dev/null
same cropped.png again.png
cd "$root"
finish
