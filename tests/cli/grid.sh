# `lazuli grid`: pictures over two settings on one sheet, with labels.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
export LAZULI_SETTINGS="$work/settings.toml"
: >"$work/settings.toml"
absolute=$(realpath $lazuli)
lora=$PWD/tests/data/lora
image=$PWD/tests/data/flux2/ref1.png
small="-m demo -W 64 -H 48 -s 1 --threads 1 -S 7"
tiny="-m demo -W 16 -H 16 -s 1 --threads 1 -S 7"
cd "$work"
same() { try 0 cmp "$1" "$2" </dev/null; }
sized() { # FILE WIDTHxHEIGHT
    try 0 sh -c "od -An -tu1 -j16 -N8 $1 | awk '{ print \$3 * 256 + \$4 \"x\" \$7 * 256 + \$8 }'" <<END
$2
END
}
refused() { # TEXT OPTIONS...
    text=$1
    shift
    try_match 2 "^lazuli: $text" "$absolute" grid fox $tiny -o never.png "$@"
    try 1 test -e never.png </dev/null
}

# Cells are the pictures that generate makes. Letters have 6 x 11 dots: "steps 1" is a line above, and "sampler euler" 13 letters at
# the left. There are 8 pixels between pictures and around them
try_match 0 '^g.png  [0-9]+ x [0-9]+, 3 x 2 pictures, seed 7, ' "$absolute" grid "a fox" $small --x steps=1..3 --y sampler=euler,heun \
    --keep-cells cells -o g.png
try 0 ls cells <<'END'
g-1-1.png
g-1-2.png
g-1-3.png
g-2-1.png
g-2-2.png
g-2-3.png
END
sized g.png $((8 + 13 * 6 + 8 + 3 * 72))x$((8 + 11 + 2 * 56))
for row in 1 2; do
    for column in 1 2 3; do
        [ $row = 1 ] && sampler=euler || sampler=heun
        try 0 "$absolute" "a fox" $small -s $column --sampler $sampler -q -o one.png </dev/null
        same one.png cells/g-$row-$column.png
    done
done
try 0 "$absolute" --from cells/g-2-3.png -q -o one.png </dev/null
same one.png cells/g-2-3.png
if command -v python3 >/dev/null && python3 -c 'import PIL' 2>/dev/null; then # the cells are on the sheet, and letters above
    cat >look.py <<'END'
from PIL import Image
sheet = Image.open("g.png").convert("RGB")
for row in (1, 2):
    for column in (1, 2, 3):
        left, top = 94 + 72 * (column - 1), 19 + 56 * (row - 1)
        assert sheet.crop((left, top, left + 64, top + 48)).tobytes() == Image.open(f"cells/g-{row}-{column}.png").tobytes()
assert sheet.crop((94, 0, 310, 19)).getcolors(9) and len(sheet.crop((94, 0, 310, 19)).getcolors(9)) == 2
assert len(sheet.crop((0, 19, 94, 131)).getcolors(9)) == 2
END
    try 0 python3 look.py </dev/null
fi

# The same command gives the same file; the sheet says how it was made, and its settings make it again
try 0 "$absolute" grid "a fox" $small --x steps=1..3 --y sampler=euler,heun -q -o again.png </dev/null
same g.png again.png
try_match 0 '^x +steps=1,2,3$' "$absolute" info g.png
try_match 0 '^y +sampler=euler,heun$' "$absolute" info g.png
grep -a -o '{"model": .*"y": .*}' g.png >sheet.json
try 0 "$absolute" grid --settings sheet.json -q -o again.png </dev/null
try_match 0 '4 x 2 pictures' "$absolute" grid --settings sheet.json --x steps=1..4 -o typed.png # what is typed comes first
same g.png again.png
try_match 1 'is a sheet of several pictures' "$absolute" --from g.png
try_match 0 '^ +"name": "steps",$' "$absolute" grid fox $tiny --x steps=1,2 --json -o j.png
try_match 0 '^ +"row": 1,$' "$absolute" grid fox $tiny --x steps=1,2 --json -o j.png

# One axis; ranges; texts with bars and choices; switches; LoRA weights; images; sizes; names chosen by Lazuli
try_match 0 '^one.png  [0-9]+ x 65, 3 x 1 pictures, [0-9]' "$absolute" grid fox $tiny --x seed=5..1:2 -o one.png
try_match 0 '^x +seed=5,3,1$' "$absolute" info one.png
try_match 0 '^one.png  [0-9]+ x [0-9]+, 1 x 2 pictures, seed 7' "$absolute" grid fox $tiny --y strength=0.5..1:0.5 -i "$image" -o one.png
try_match 0 '^y +strength=0.5,1.0$' "$absolute" info one.png
try 0 "$absolute" grid $tiny --x 'prompt=a {red|blue} car|a \| b, c|' --keep-cells cells -q -o p.png </dev/null
try_match 0 '^template +a \{red\|blue\} car$' "$absolute" info cells/p-1-1.png
try_match 0 '^prompt +a . b, c$' "$absolute" info cells/p-1-2.png
try_match 0 '^x +prompt=a .red.blue. car.a .. b, c.$' "$absolute" info p.png
try_match 0 "--x has one prompt; bars separate several, as in 'a fox.a dog'" "$absolute" grid $tiny --x 'prompt=a fox, a dog' -o p.png
try 0 "$absolute" grid $tiny --x 'prompt=a \{ b \| c|d' -q -o p.png </dev/null
grep -a -o '{"model": .*"x": .*}' p.png >sheet.json
try 0 "$absolute" grid --settings sheet.json -q -o again.png </dev/null
same p.png again.png
try_match 0 '^x.png  [0-9]+ x [0-9]+, 2 x 1 pictures' "$absolute" grid '{a|b}' $tiny --x no-templates=on,off -o x.png
try_match 0 '^x.png  150 x 110, 2 x 2 pictures' "$absolute" grid fox $tiny --x width=16,32 --y height=16,32 -o x.png
try_match 0 '^x.png  [0-9]+ x [0-9]+, 2 x 1 pictures' "$absolute" grid fox $tiny --x guidance-range=0..0.5,0..1 -o x.png
try_match 0 '^x +guidance-range=0..0.5,0..1$' "$absolute" info x.png
try_match 0 '^lazuli-grid.png ' "$absolute" grid fox $tiny --x steps=1,2
try_match 0 '^lazuli-grid-2.png ' "$absolute" grid fox $tiny --x steps=1,2
try 0 sh -c "$absolute grid fox $tiny --x steps=1,2 -q -o - >o.png && cmp o.png lazuli-grid.png" </dev/null
echo fox | "$absolute" grid - $tiny --x steps=1,2 -q -o o.png
same o.png lazuli-grid.png
try 0 "$absolute" fox $tiny -q -o from.png </dev/null
try 0 "$absolute" grid --from from.png --x steps=1,2 -q -o o.png </dev/null
same o.png lazuli-grid.png
klein="-m $lora/../flux2/B -W 32 -H 32 -s 1 -S 7"
try 0 "$absolute" grid fox $klein --lora "$lora/klein-peft.safetensors" --x lora=0..1:0.5 --keep-cells cells -q -o l.png </dev/null
try 0 "$absolute" fox $klein -q -o one.png </dev/null
try 0 "$absolute" compare -q one.png cells/l-1-1.png </dev/null # a weight of 0
try 1 "$absolute" compare -q one.png cells/l-1-3.png </dev/null
try_match 0 '^x +lora=klein-peft.safetensors=0.0,klein-peft.safetensors=0.5,klein-peft.safetensors=1.0$' "$absolute" info l.png
# What is wrong is told before the first picture
refused 'a grid needs an axis' 
refused '--x takes NAME=VALUES, such as steps=2,4,8, not' --x steps
refused "--x: 'sheet' cannot be an axis; an axis is one of model, prompt, " --x sheet=a.png
refused "--y: 'stepz' cannot be an axis; did you mean steps" --y stepz=1
refused '--steps takes a whole number from 1 to 1000, not' --x steps=1,2,many
refused "there is no sampler 'hoin'" --y sampler=euler,hoin
refused '--x: a value of steps is empty' --x steps=1,,2
refused "--x: '1..' is not a range" --x steps=1..
refused "--x: the range '0.1..0.5' needs steps" --x guidance=0.1..0.5
refused "--x: the range '1..5000' has more than 1000 values" --x seed=1..5000
refused 'a grid of 40 x 40 has more than 1000 pictures' --x seed=1..40 --y steps=1..40
refused 'both axes are steps' --x steps=1 --y steps=2
refused '--x is given twice; columns are --x, rows are --y' --x steps=1,2 --x sampler=euler,heun
refused 'a grid has one seed for all pictures' --x steps=1,2 -S 1,2
refused 'a picture of the grid has one seed, but a value of the axis has 2' --x 'seed=1,2|3'
refused '--no-templates is a switch' --x no-templates=yes
refused "--x: '0.5' is a weight, and names no LoRA" --x lora=0.5
refused 'grid does not take --count' --x steps=1 --count 2
refused 'the prompt has choices after a' --x 'prompt=a|{b|c'
try_match 2 'there is no setting "x"' "$absolute" fox $tiny --settings sheet.json
try_match 1 'cannot be opened' "$absolute" grid fox $tiny --x image="$image,none.png" -o never.png
try_match 1 'is not a model folder' "$absolute" grid fox --x model=demo,./none -W 16 -H 16 -s 1 -o never.png
try_match 2 'a prompt is needed' "$absolute" grid $tiny --x steps=1 -o never.png
try_match 2 'must end in .png' "$absolute" grid fox $tiny --x steps=1 -o never.txt
try_match 1 'cannot be created' "$absolute" grid fox $tiny --x steps=1 --keep-cells no/cells -o never.png
try_match 2 'is an input of this picture' "$absolute" grid fox $tiny --x image="$image,from.png" -o from.png
try_match 2 'would have more than 8192 pixels a side' "$absolute" grid fox $tiny --x seed=1..350 -o never.png
try 1 test -e never.png </dev/null

# Ctrl-C leaves no sheet, and no half-written cell
"$absolute" grid fox -m demo -W 64 -H 64 -s 4 --x seed=1..100 --keep-cells kept -o stopped.png >said 2>&1 &
pid=$!
n=0
until [ -e kept/stopped-1-1.png ] || [ $n -gt 3000 ]; do sleep 0.1 && n=$((n + 1)); done
kill -INT $pid
code=0
wait $pid || code=$?
try 0 test "$code" = 130 </dev/null
try 1 test -e stopped.png </dev/null
try 1 sh -c 'ls kept | grep -v "^stopped-1-[0-9]*.png$"' </dev/null
finish
