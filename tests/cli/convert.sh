# `lazuli convert`: files, parts and whole models, and what it refuses.
. tests/cli/transcript
data=tests/data/flux2/A
dir=$work

try_match 0 '^bf16   q8_0         28 .*0\.5[0-9][0-9]%$' $lazuli convert $data "$dir/t.gguf" --type q8_0 --part transformer
try_match 0 '^transformer_blocks.0.attn.to_q.weight +q8_0 ' $lazuli tensors "$dir/t.gguf"
try_match 0 '^bf16   fp8          28 ' $lazuli convert $data/transformer "$dir/t.safetensors" --type fp8
try_match 0 '"error": 0\.0' $lazuli convert $data/transformer "$dir/u.safetensors" --type int8 --json
# A GGUF file is a source too.
try_match 0 '^q8_0   bf16         28 ' $lazuli convert "$dir/t.gguf" "$dir/back.safetensors" --type bf16
# A whole model, in its own type: the picture stays the same.
try_match 0 '' $lazuli convert $data "$dir/model" --type bf16
$lazuli -m $data -p "a red fox" -W 64 -H 64 -s 2 -S 1 --device cpu --no-metadata -q -o "$dir/a.png"
$lazuli -m "$dir/model" -p "a red fox" -W 64 -H 64 -s 2 -S 1 --device cpu --no-metadata -q -o "$dir/b.png"
try 0 cmp "$dir/a.png" "$dir/b.png" </dev/null
# Text encoders with a vision encoder have a tensor of five axes, and GGUF has at most four: its shape is kept, and all bytes.
for encoder in qwen/E qwen21/B flux3/B; do
    made=$dir/${encoder%%/*}
    encoder=tests/data/$encoder/text_encoder
    $lazuli tensors $encoder | grep -Eq '\[([0-9]+, ){4}[0-9]+\]' # there is one
    try 0 test $? = 0 </dev/null
    try_match 0 '' $lazuli convert $encoder "$made-direct.safetensors" --type bf16
    try_match 0 '' $lazuli convert $encoder "$made-five.gguf" --type bf16
    try_match 0 '' $lazuli convert "$made-five.gguf" "$made-through.safetensors" --type bf16
    try 0 cmp "$made-direct.safetensors" "$made-through.safetensors" </dev/null
done
try_match 0 '' $lazuli convert tests/data/qwen21/B "$dir/q8" --type q8_0
try_match 0 '64 x 64' $lazuli fox -m "$dir/q8" -i tests/data/qwen21/ref1.png -W 64 -H 64 -s 1 -S 1 -o "$dir/q8.png"

try_match 2 'needs a type' $lazuli convert $data "$dir/x.gguf" --part transformer
try_match 2 "there is no type 'q9_k'" $lazuli convert $data "$dir/x.gguf" --type q9_k --part transformer
try_match 2 'is a whole model: name the part' $lazuli convert $data "$dir/x.gguf" --type q8_0
try_match 2 'must end in .safetensors or .gguf' $lazuli convert $data/transformer "$dir/x" --type q8_0
try_match 1 'must end in .safetensors' $lazuli convert $data/transformer "$dir/x.gguf" --type int8
try_match 1 'is there already' $lazuli convert $data "$dir/model" --type bf16
# A file that is there stays, above all the input, by whatever name
cp "$dir/t.gguf" "$dir/kept.gguf"
ln -s t.gguf "$dir/link.gguf"
for name in t.gguf ./t.gguf link.gguf back.safetensors; do
    try 1 $lazuli convert "$dir/t.gguf" "$dir/$name" --type bf16 <<END
lazuli: $dir/$name: is there already: choose another name
END
done
try 0 cmp "$dir/t.gguf" "$dir/kept.gguf" </dev/null
# Names of models, as with -m
try_match 0 '^bf16 +q8_0 ' $lazuli convert demo "$dir/demo.gguf" --type q8_0 --part transformer
try_match 1 "^lazuli: no model at flux2-klein-4b; 'lazuli pull flux2-klein-4b' downloads" \
    env HF_HUB_CACHE="$dir/hub" $lazuli convert flux2-klein-4b "$dir/klein" --type q8_0
try_match 1 'cannot be read' $lazuli convert "$dir/none" "$dir/x.gguf" --type q8_0
# Codes with scales beside them are unpacked
try_match 0 '^e4m3 +bf16 +28 ' $lazuli convert "$dir/t.safetensors" "$dir/x.safetensors" --type bf16
rm "$dir/x.safetensors"
try_match 2 'part is for the folder of a model' $lazuli convert $data/transformer "$dir/x.gguf" --type q8_0 --part vae
printf 'broken' >"$dir/broken.safetensors"
try_match 1 'broken.safetensors' $lazuli convert "$dir/broken.safetensors" "$dir/x.safetensors" --type bf16
[ ! -e "$dir/x.gguf" ] && [ ! -e "$dir/x.safetensors" ] && [ ! -e "$dir/x" ]
try 0 test $? = 0 </dev/null
finish
