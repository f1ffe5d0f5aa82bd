# Layers of an image: --layers, --resolution, the files and their metadata. The model has random weights.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
layered=tests/data/layered
apart="$lazuli fox -m $layered/Y -i $layered/tall.png --threads $threads -s 1 -S 1"
colour() { od -An -tu1 -j25 -N1 "$1" | tr -d ' '; } # of a PNG: 2 is RGB, 6 has opacity

try_match 0 '^.*a-2.png  32 x 96, layer 2 of 2$' $apart --layers 2 -o "$work/a.png"
for i in 1 2; do try 0 test "$(colour "$work/a-$i.png")" = 6 </dev/null; done
try 0 test -s "$work/a.png" </dev/null
try 1 test -e "$work/a-3.png" </dev/null
try_match 0 '^layers +2$' $lazuli info "$work/a-1.png"
try_match 1 '^PSNR ' $lazuli compare "$work/a-1.png" "$work/a-2.png"
try 0 $apart -q -o "$work/four.png" </dev/null # the default
try 0 test "$(ls "$work" | grep -c '^four-[1-4].png$')" = 4 </dev/null
try_match 0 'j-2.webp"$' $apart --layers 2 --json -o "$work/j.webp"
try 0 $apart -q --count 2 --layers 1 -o "$work/c.png" </dev/null
try 0 test -s "$work/c-1-1.png" -a -s "$work/c-2-1.png" </dev/null

# A layer has the settings of the picture, from which all are made again
try 0 $lazuli --from "$work/a-2.png" -m $layered/Y -i $layered/tall.png -q -o "$work/again.png" </dev/null
for i in -1 -2 ''; do try 0 cmp "$work/a$i.png" "$work/again$i.png" </dev/null; done

# A batch; a plan; a grid; on white
printf '{"prompt": "a fox", "seed": 1, "image": "%s/tall.png", "layers": 1}\n' "$layered" >"$work/list.jsonl"
try 0 $lazuli batch "$work/list.jsonl" -m $layered/Y -s 1 -q -o "$work/b{line}.png" </dev/null
try 0 test -s "$work/b1.png" -a -s "$work/b1-1.png" </dev/null
try_match 0 '^denoise ' $lazuli plan -m $layered/Y --layers 2
try_match 0 '4 layers of an image' $lazuli info -m $layered/Y
try 0 $lazuli grid fox -m $layered/Y -i $layered/tall.png -s 1 -S 1 --x layers=1,2 -q -o "$work/grid.png" </dev/null
try 0 $apart -q --layers 1 --background opaque -o "$work/w.png" </dev/null
try 0 test "$(colour "$work/w-1.png")" = 2 </dev/null
try_match 0 '^ *qwen-image-layered +53.7 GiB  Qwen/Qwen-Image-Layered$' $lazuli pull --help
try_match 0 '^denoise ' $lazuli plan -m qwen-image-layered

# Generated names overwrite no file, and layers are not left alone
mkdir "$work/own" "$work/none"
echo mine >"$work/own/lazuli-1-2.png"
try 0 $apart -q --layers 2 -o "$work/own" </dev/null
try 0 sh -c "cd $work/own && cat lazuli-1-2.png && ls" <<'END'
mine
lazuli-1-2.png
lazuli-1-3-1.png
lazuli-1-3-2.png
lazuli-1-3.png
END
try 0 cmp "$work/a-1.png" "$work/own/lazuli-1-3-1.png" </dev/null
try_match 1 'cannot be written' sh -c "trap '' XFSZ; ulimit -f 8; exec $apart -q --layers 2 --dump $work/none/d.safetensors -o $work/none"
try 0 ls "$work/none" </dev/null

# What cannot be
try_match 2 'x.jpg: a JPEG has no transparency, so layers need .png or .webp$' $apart -o "$work/x.jpg"
try_match 1 'give it one$' $lazuli fox -m $layered/Y -s 1 -o "$work/x.png"
try_match 1 'needs a prompt that describes the whole image' $lazuli -p ' ' -m $layered/Y -i $layered/tall.png -s 1 -o "$work/x.png"
try_match 2 'takes a whole number from 1 to 64' $apart --layers 65 -o "$work/x.png"
try_match 1 'a resolution of 700 is not possible; layers have 640 or 1024$' $apart --resolution 700 -o "$work/x.png"
try_match 1 'takes no strength, mask or sides to extend$' $apart --strength 0.5 -o "$work/x.png"
try_match 2 'writes one picture, and this model makes 4 layers; name a file$' sh -c "$apart -o - >$work/out"
try_match 1 'layers of this image are 32 x 96' $apart -W 64 -o "$work/x.png"
try 1 test -e "$work/x.png" </dev/null
cp $layered/tall.png "$work/in-1.png"
try_match 2 'in-1.png' $lazuli fox -m $layered/Y -i "$work/in-1.png" -s 1 -o "$work/in.png" # a layer would overwrite the image
finish
