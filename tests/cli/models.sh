# The commands that look at a model or use one part of it: info, tokenize, encode, decode.
. tests/cli/transcript
unset LAZULI_MODEL
flux=tests/data/flux2
A=$flux/A

for line in '^family +FLUX.2 \[klein\], distilled$' '^defaults +1024 x 1024 pixels, 4 steps, guidance is built in' '^text_encoder +310 .* 310 bf16$' \
    '^transformer +49 ' '^vae +251 ' '^together +610 ' '^A picture of 1024 x 1024 takes .* on cpu'; do
    try_match 0 "$line" $lazuli info -m $A
done
try_match 0 '^defaults +1024 x 1024 pixels, 50 steps, guidance 4' $lazuli info -m $flux/C
for line in '"distilled": false' '"steps": 50' '"guidance": 4.0' '"f16": 33' '"channels": 32'; do
    try_match 0 "$line" $lazuli info -m $flux/C --json
done
try_match 1 'is not a model folder' $lazuli info -m "$work"

# info of a picture: its settings, or one sentence
$lazuli a fox -q -S 7 -s 1 -W 16 -H 16 -o "$work/fox.png"
try_match 0 '^seed +7$' $lazuli info "$work/fox.png"
try_match 0 '"seed": 7' $lazuli info "$work/fox.png" --json
$lazuli a fox -q -S 7 -s 1 -W 16 -H 16 -o "$work/bare.png" --no-metadata
try_match 1 'bare.png: is a picture without settings by Lazuli' $lazuli info "$work/bare.png"

# trap 18: info and tensors take a model, a folder of tensors or a file, without -m
for model in models/demo demo; do try_match 0 '^transformer +53 ' $lazuli info $model; done
try_match 0 '"components"' $lazuli info $A --json
try_match 0 'about [0-9.]+ ?(ms|s|m|h)' $lazuli info $A
try_match 0 '"seconds": [0-9]*\.?[0-9]*[1-9]' $lazuli info $A --json
try_match 2 "the model was given twice, by --model and as 'models/demo'" $lazuli info -m $A models/demo
try_match 1 'is not a model folder' $lazuli info "$work"
try_match 1 'nowhere.safetensors' $lazuli info "$work/nowhere.safetensors"
vae=$A/vae/diffusion_pytorch_model.safetensors
for path in $vae $A/vae; do
    try_match 0 '^holds +251 tensors, [0-9]+ elements, 447.6 KiB$' $lazuli info $path
    try_match 0 '^types +1 i64 250 bf16$' $lazuli info $path
done
try_match 0 '^holds +42 tensors' $lazuli info tests/data/python.safetensors
try_match 0 '^unreadable +[1-9]' $lazuli info tests/data/python.safetensors
try_match 0 '"bf16": 250' $lazuli info $vae --json
head -c 5000 $vae >"$work/cut.safetensors"
try_match 1 'cut.safetensors: .*truncated' $lazuli info "$work/cut.safetensors"
try_match 0 '^transformer/x_embedder.weight +bf16 ' $lazuli tensors $A
try_match 0 '^vae/decoder.conv_in.weight +bf16 ' $lazuli tensors $A
try_match 0 '^610 tensors, ' $lazuli tensors $A
try_match 0 '"name": "text_encoder/model.norm.weight"' $lazuli tensors $A --json

# trap 18: every short name of a folder can be planned before it is downloaded, from the published sizes; a picture cannot be made
export HOME="$work/home" TMPDIR="$work/temporary"
unset XDG_CACHE_HOME HF_HOME HF_HUB_CACHE HUGGINGFACE_HUB_CACHE
mkdir "$HOME" "$TMPDIR"
names=$($lazuli pull --help | awk '$3 == "GiB" && $4 ~ /\// { print $1 }')
try 0 test "$(echo "$names" | wc -l)" -ge 9 </dev/null
for name in $names; do
    size="-W 256 -H 256"
    [ $name != qwen-image-layered ] || size= # its image decides
    $lazuli plan -m $name $size -s 1 --device cpu >"$work/planned" 2>&1
    try_match 0 "^at most .* of weights\$" cat "$work/planned"
    try_match 0 "published model; nothing was downloaded. 'lazuli pull $name' downloads [0-9.]+ GiB" cat "$work/planned"
done
try_match 0 '^denoise .* Tflop +[0-9.]+' $lazuli plan -m FLUX.2-klein-4B --device cpu
$lazuli info flux2-klein-4b >"$work/planned" 2>&1
for line in '^model +flux2-klein-4b$' '^transformer +169 +7.2 GiB' "'lazuli pull flux2-klein-4b' downloads 14.9 GiB"; do
    try_match 0 "$line" cat "$work/planned"
done
$lazuli plan -m flux2-klein-4b -W 256 -H 256 --json --device cpu >"$work/planned" 2>&1
for line in '"downloaded": false' '"model": "flux2-klein-4b"' '"seconds": [0-9]*\.?[0-9]*[1-9]'; do
    try_match 0 "$line" cat "$work/planned"
done
try_match 1 "no model at flux2-klein-4b; 'lazuli pull flux2-klein-4b' downloads 14.9 GiB" $lazuli fox -m flux2-klein-4b
try 0 ls "$TMPDIR" </dev/null # nothing is left there
TMPDIR="$work/nowhere"
try_match 1 'nowhere/lazuli-plan-.*: cannot be created: .*set TMPDIR to use another folder' $lazuli plan -m flux2-klein-4b
unset TMPDIR
# A signal that comes while the stand-in is there ends the program after it is removed
mkdir "$work/stopped"
for wait in 0.01 0.05 0.1 0.2; do
    TMPDIR="$work/stopped" $lazuli plan -m qwen-image >/dev/null 2>&1 &
    sleep $wait
    kill -TERM $! 2>/dev/null
    wait $! 2>/dev/null
done
try 0 ls "$work/stopped" </dev/null

# Text to ids
try 0 $lazuli tokenize -m $A a red fox <<'END'
{"ids": [64, 575, 531]}
END
cat >"$work/lines" <<'END'
{"text": "a red fox"}
{"text": "", "more": 1}
{"text": "\u0061 red fox"}
END
for folder in $A $A/tokenizer; do
    try 0 sh -c "$lazuli tokenize -m $folder <$work/lines" <<'END'
{"ids": [64, 575, 531]}
{"ids": []}
{"ids": [64, 575, 531]}
END
done
for bad in 'text' '[1]' '{"text": 1}' '{"t": "a"}' '{"text": "a"} {' '' '{"text": "\ud800"}'; do
    printf '{"text": "a"}\n%s\n{"text": "a"}\n' "$bad" >"$work/bad"
    try_match 1 '^lazuli: line 2 is not ' sh -c "$lazuli tokenize -m $A <$work/bad"
done
printf '{"text": "\377"}' >"$work/bad"
try_match 1 'line 1 is not JSON' sh -c "$lazuli tokenize -m $A <$work/bad"
try_match 1 'not valid UTF-8' $lazuli tokenize -m $A "$(printf 'a\377')"
try_match 1 'lazuli: ' $lazuli tokenize -m "$work" fox
try 0 $lazuli tokenize -m $A </dev/null

# A picture to latents and back; the tiny autoencoder is random, but what it gives is a picture
try 0 $lazuli encode -m $A $flux/ref1.png -o "$work/l.safetensors" <<END
$work/l.safetensors  64 x 64 pixels, latents [1, 128, 4, 4]
END
try 0 $lazuli decode -m $A "$work/l.safetensors" -o "$work/l.png" --threads 1 <<END
$work/l.png  64 x 64 pixels, latents [1, 128, 4, 4]
END
try 0 $lazuli decode -m $A "$work/l.safetensors" -q -o "$work/l2.png" --threads 2 </dev/null
try 0 cmp "$work/l.png" "$work/l2.png" </dev/null
try_match 0 '"width": 64' $lazuli encode -m $A "$work/l.png" -o "$work/l.safetensors" --json
try_match 0 '^latents +f32 ' $lazuli tensors "$work/l.safetensors"
try_match 1 "there is no tensor 'latents'" $lazuli decode -m $A $A/vae/diffusion_pytorch_model.safetensors -o "$work/x.png"
try_match 1 'latents are \[1, 32, h, w\], not \[1, 128, 4, 4\]' $lazuli decode -m $flux/B "$work/l.safetensors" -o "$work/x.png"
try_match 1 'cannot be opened' $lazuli encode -m $A nowhere.png -o "$work/x.safetensors"
try_match 1 'create the folder first' $lazuli decode -m $A "$work/l.safetensors" -o "$work/no/x.png"
try_match 2 'No such file' ls "$work/x.png" "$work/x.safetensors"

# trap 2: folders as transformers 5 and save_pretrained(variant="fp16") leave them. Links to a model, but for one part
relink() { # MODEL FOLDER PART
    mkdir -p "$2/$3"
    for file in "$1"/*; do [ "${file##*/}" = "$3" ] || ln -s "$(realpath "$file")" "$2/"; done
}
relink tests/data/qwen/P "$work/edit" processor
{ echo '{"processor_class": "Qwen2VLProcessor", "image_processor":' && cat tests/data/qwen/P/processor/preprocessor_config.json && echo '}'; } \
    >"$work/edit/processor/processor_config.json"
# A folder that lost its index
relink models/demo "$work/lost" none
rm "$work/lost/model_index.json"
for command in info 'generate fox'; do
    try_match 1 "^lazuli: $work/lost: model_index.json is missing; without it: .*text_encoder/config.json: " $lazuli $command -m "$work/lost"
done
try_match 0 '^is +a LoRA$' $lazuli info models/demo/loras/pixel.safetensors

# `models` reads configurations, and looks for the list of words
relink models/demo "$work/own" transformer
ln -s "$PWD"/models/demo/transformer/* "$work/own/transformer"
LAZULI_MODEL=$work/own try_match 0 " complete +$work/own" $lazuli models
rm "$work/own/transformer/config.json" "$work/own/words.txt"
head -c 100 models/demo/transformer/config.json >"$work/own/transformer/config.json"
LAZULI_MODEL=$work/own try_match 0 '^    words.txt is missing; lazuli.json names it, and 1 more problem$' $lazuli models
LAZULI_MODEL=$work/own try_match 0 '"transformer/config.json is damaged"' $lazuli models --json
rm "$work/own/lazuli.json"
echo '{' >"$work/own/lazuli.json"
LAZULI_MODEL=$work/own try_match 0 '^    lazuli.json is damaged, and 1 more problem$' $lazuli models

LAZULI_MODEL=$work/edit try_match 0 " complete +$work/edit" $lazuli models
edit="-i tests/data/qwen/ref1.png -S 1 -s 1 -W 48 -H 48 -q --no-metadata"
try 0 $lazuli blue -m "$work/edit" $edit -o "$work/edit.png" </dev/null
try 0 $lazuli blue -m tests/data/qwen/P $edit -o "$work/P.png" </dev/null
try 0 cmp "$work/edit.png" "$work/P.png" </dev/null
relink $A "$work/half" text_encoder
for file in $A/text_encoder/*; do
    name=$(basename "$file" | sed 's/model-/model.fp16-/; s/index.json/index.fp16.json/')
    sed 's/model-/model.fp16-/' "$file" >"$work/half/text_encoder/$name" # no shard holds these words
done
LAZULI_MODEL=$work/half try_match 0 " complete +$work/half" $lazuli models
for model in $A "$work/half"; do
    try 0 $lazuli fox -m "$model" -S 1 -s 1 -W 32 -H 32 -q --no-metadata -o "$work/$(basename "$model").png" </dev/null
done
try 0 cmp "$work/A.png" "$work/half.png" </dev/null
finish
