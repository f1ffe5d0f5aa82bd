# Models from single files: -m FILE with --text-encoder, --vae and --tokenizer, and short names for them in the settings file.
. tests/cli/transcript
unset LAZULI_MODEL LAZULI_SETTINGS XDG_CONFIG_HOME
HOME=$work
export HOME
data=tests/data/parts
klein="-m $data/klein.gguf --text-encoder $data/qwen3.gguf --vae $data/klein_vae"
small='-q -S 3 -W 64 -H 64 -s 2 --no-metadata'

# The same picture as from a folder with this autoencoder
$lazuli a red fox -m tests/data/flux2/A --vae $data/klein_vae $small -o "$work/folder.png"
$lazuli a red fox $klein $small -o "$work/files.png"
try 0 cmp "$work/folder.png" "$work/files.png" </dev/null
$lazuli a red fox $klein --tokenizer tests/data/flux2/A/tokenizer/tokenizer.json $small -o "$work/tokenizer.png"
try 0 cmp "$work/folder.png" "$work/tokenizer.png" </dev/null

# Packed weights: the same picture as with the numbers that they stand for, and another one than with other numbers
for type in q8_0 q4_0; do
    $lazuli convert $data/klein.gguf "$work/$type.gguf" --type $type >/dev/null 2>&1
    $lazuli convert "$work/$type.gguf" "$work/$type.safetensors" --type f32 >/dev/null 2>&1
    for file in $type.gguf $type.safetensors; do
        $lazuli a red fox -m "$work/$file" --text-encoder $data/qwen3.gguf --vae $data/klein_vae $small -o "$work/$file.png"
    done
    try 0 cmp "$work/$type.gguf.png" "$work/$type.safetensors.png" </dev/null
    try_match 1 differ cmp "$work/$type.gguf.png" "$work/files.png"
done
# The same for codes with scales beside them
for type in fp8 int8; do
    $lazuli convert $data/klein.gguf "$work/$type.safetensors" --type $type >/dev/null 2>&1
    try_match 0 'comfy_quant' $lazuli tensors "$work/$type.safetensors"
    try_match 0 '^(e4m3|i8) +f32 +20 ' $lazuli convert "$work/$type.safetensors" "$work/$type-wide.safetensors" --type f32
    try 1 sh -c "$lazuli tensors $work/$type-wide.safetensors | grep -e comfy_quant -e weight_scale" </dev/null
    for file in $type $type-wide; do
        $lazuli a red fox -m "$work/$file.safetensors" --text-encoder $data/qwen3.gguf --vae $data/klein_vae $small -o "$work/$file.png"
    done
    try 0 cmp "$work/$type.png" "$work/$type-wide.png" </dev/null
    try_match 1 differ cmp "$work/$type.png" "$work/files.png"
done

# Folders with a config.json given for another part, or for a model of another family
try_match 1 'flux2/A/vae: a Qwen3 text encoder is needed, and this is a FLUX.2 autoencoder$' \
    $lazuli fox -m tests/data/flux2/A --text-encoder tests/data/flux2/A/vae -o "$work/x.png"
try_match 1 'qwen/Q/vae: a FLUX.2 autoencoder is needed, and this is a Qwen-Image autoencoder$' \
    $lazuli fox -m tests/data/flux2/A --vae tests/data/qwen/Q/vae -o "$work/x.png"
try_match 1 'model_index.json: this is the index of a model: name the folder that holds it$' \
    $lazuli fox -m tests/data/flux2/A/model_index.json -o "$work/x.png"

# What a file is, and what it needs
try_match 0 '^is +a FLUX.2 \[klein\] transformer$' $lazuli info $data/klein.gguf
try_match 0 '^needs +a text encoder \(--text-encoder\), an autoencoder \(--vae\), a tokenizer \(--tokenizer\)$' $lazuli info $data/klein.gguf
try_match 0 '^is +a Qwen3 text encoder, with its tokenizer$' $lazuli info $data/qwen3.gguf
try_match 0 '^is +a Qwen2.5-VL vision encoder$' $lazuli info $data/mmproj-qwen2.5-vl.gguf
try_match 0 '"is": "a FLUX.2 autoencoder"' $lazuli info $data/klein_vae --json
try_match 0 '^is +no model that is known here$' $lazuli info tests/data/python.safetensors
try_match 0 '^transformer +41 ' $lazuli info $klein
try_match 0 '^defaults .*, 4 steps, guidance is built in$' $lazuli info $klein
try_match 0 '^defaults .*, 50 steps, guidance 4: ' $lazuli info $klein --variant base
try_match 0 '^family +FLUX.2 \[klein\], distilled$' $lazuli info $klein
try_match 0 '^family +FLUX.2 \[klein\], distilled, references are computed once$' $lazuli info $klein --variant kv
try_match 0 '"references_once": true' $lazuli info $klein --variant kv --json
try_match 0 'besides .* of weights$' $lazuli plan $klein

# The tokenizer alone: of a model from parts, or in a GGUF file; the ids are those of the folder
$lazuli tokenize -m tests/data/flux2/A 'a red fox, zażółć' >"$work/ids"
for given in "$klein" "-m $data/qwen3.gguf" "-m $data/klein.gguf --tokenizer $data/qwen3.gguf" \
    "-m $data/klein.gguf --tokenizer tests/data/flux2/A/tokenizer" "-m $data/klein.gguf --text-encoder $data/qwen3.gguf"; do
    try 0 $lazuli tokenize ${given%% --vae*} 'a red fox, zażółć' <"$work/ids"
done
try 0 sh -c "echo '{\"text\": \"a red fox, zażółć\"}' | $lazuli tokenize -m $data/qwen3.gguf" <"$work/ids"
try_match 1 'klein.gguf: this FLUX.2 \[klein\] model lacks its tokenizer' $lazuli tokenize -m $data/klein.gguf fox
try_match 1 'mmproj-qwen2.5-vl.gguf: this is a Qwen2.5-VL vision encoder' $lazuli tokenize -m $data/mmproj-qwen2.5-vl.gguf fox

# What is missing or wrong is one sentence
try_match 1 '^lazuli: .*klein.gguf: this FLUX.2 \[klein\] model lacks its text encoder, which is given with --text-encoder: ' $lazuli fox -m $data/klein.gguf
try_match 1 'lacks its tokenizer, which is given with --tokenizer: tokenizer/ of ' $lazuli fox -m $data/klein.gguf \
    --text-encoder tests/data/flux2/A/text_encoder --vae $data/klein_vae
try_match 1 'this is a Qwen3 text encoder, a part of a model: name the transformer with -m, and this file with --text-encoder' $lazuli fox -m $data/qwen3.gguf
try_match 1 'klein.gguf: a FLUX.2 autoencoder is needed, and this is a FLUX.2 \[klein\] transformer' $lazuli fox -m $data/klein.gguf \
    --text-encoder $data/qwen3.gguf --vae $data/klein.gguf
printf 'PK\003\004 a zip file with pickles, as PyTorch writes them' >"$work/model.ckpt"
try_match 1 'model.ckpt: .*PyTorch' $lazuli fox -m "$work/model.ckpt"
try_match 1 'a variant of a model is base, distilled, kv, text, edit or edit-plus' $lazuli fox $klein --variant fast

# The picture records its files, and can be made again where they are
$lazuli a red fox $klein -q -S 3 -W 64 -H 64 -s 2 --full-paths -o "$work/told.png"
$lazuli -q --full-paths --from "$work/told.png" -o "$work/again.png"
try 0 cmp "$work/told.png" "$work/again.png" </dev/null
$lazuli a red fox $klein -q -S 3 -W 64 -H 64 -s 2 -o "$work/short.png"
try_match 0 '^text-encoder +qwen3.gguf$' $lazuli info "$work/short.png"

# A short name in the settings file; paths are as seen from there
mkdir -p "$work/.config/lazuli"
here=$(pwd)
cat >"$work/.config/lazuli/settings.toml" <<END
# models of several files
[models.little]
model = "$here/$data/klein.gguf"   # the transformer
text-encoder = '../../qwen3.gguf'
vae = "~/vae"

[models.gone]
model = "nowhere.gguf"
END
cp $data/qwen3.gguf "$work"
cp -r $data/klein_vae "$work/vae"
$lazuli a red fox -m little $small -o "$work/named.png"
try 0 cmp "$work/folder.png" "$work/named.png" </dev/null
try 0 $lazuli tokenize -m little 'a red fox, zażółć' <"$work/ids"
try_match 0 '^little +[0-9.]+ [KM]iB +complete +.*klein.gguf$' $lazuli models
try_match 0 '^    .*nowhere.gguf is not there$' $lazuli models
try_match 0 '"from": "settings"' $lazuli models --json
try_match 0 '^1024 x 1024 pixels, 4 steps' $lazuli plan -m little
try_match 1 'nowhere.gguf' $lazuli fox -m gone
try_match 1 'no model at litle; did you mean little\?' $lazuli fox -m litle
try_match 1 'no model at z-imag; did you mean z-image\?' $lazuli fox -m z-imag
$lazuli a red fox -m little -q -S 3 -W 64 -H 64 -s 2 -o "$work/little.png"
try_match 0 '^model +little$' $lazuli info "$work/little.png"
$lazuli -q --from "$work/little.png" -o "$work/repeated.png"
try 0 cmp "$work/little.png" "$work/repeated.png" </dev/null

# A line of a batch may name another model
printf '%s\n' '{"prompt": "a red fox", "model": "little", "output": "'"$work"'/1.png"}' \
    '{"prompt": "a red fox", "model": "'$data'/klein.gguf", "text-encoder": "'$data'/qwen3.gguf", "vae": "'$data'/klein_vae", "output": "'"$work"'/2.png"}' >"$work/lines"
$lazuli batch "$work/lines" -q -S 3 -W 64 -H 64 -s 2
try 0 cmp "$work/1.png" "$work/little.png" </dev/null
try 0 cmp "$work/2.png" "$work/short.png" </dev/null
# The whole list with a set, and with parts; a second run finds the pictures that are there
printf 'a red fox\na blue fox\n' >"$work/prompts"
for given in "-m little" "$klein"; do
    rm -f "$work/line-"*
    try_match 0 '^\{"made": 2, "there": 0, "failed": 0\}$' $lazuli batch "$work/prompts" $given -S 3 -W 64 -H 64 -s 2 --json -o "$work/line-{line}.png"
    try_match 0 '^\{"made": 0, "there": 2, "failed": 0\}$' $lazuli batch "$work/prompts" $given -S 3 -W 64 -H 64 -s 2 --json -o "$work/line-{line}.png"
    case $given in *little) try 0 cmp "$work/line-1.png" "$work/little.png" </dev/null ;; *) try 0 cmp "$work/line-1.png" "$work/short.png" </dev/null ;; esac
done
try_match 0 'line 2.*nowhere.gguf' sh -c "printf 'a fox\n{\"prompt\": \"a fox\", \"model\": \"gone\"}\n' >$work/prompts; $lazuli batch $work/prompts -m little -q -s 1 -W 64 -H 64 -o $work/last-{line}.png 2>&1; true"

# A session: the pictures of the same settings; one that looks at another
if command -v python3 >/dev/null && python3 -c 'import pty' 2>/dev/null; then
    export TERM=dumb NO_COLOR=1 LC_ALL=C XDG_STATE_HOME="$work/state"
    echo leak:wcsdup >"$work/lsan" # of libedit, see interactive.sh
    export LSAN_OPTIONS="suppressions=$work/lsan:print_suppressions=0"
    session() {
        python3 tests/cli/terminal.py "$(realpath $lazuli)" "$@" --threads 2 -W 64 -H 64 -s 2 >"$work/session" 2>&1 <<END
< FLUX.2 [klein]
< lazuli> 
> /seed 3
< lazuli> 
> a red fox
< \$1  64 x 64, seed 3, 2 steps, 
< lazuli> 
> /save $work/session.png
< lazuli> 
> a blue \$1
< \$2  64 x 64, seed 3, 2 steps, 
< lazuli> 
^D
END
    }
    rm -f "$work/session.png"
    session -m little
    if ! grep -q 'made without libedit' "$work/session"; then
        try 0 cmp "$work/session.png" "$work/little.png" </dev/null
        rm "$work/session.png"
        session $klein
        try 0 cmp "$work/session.png" "$work/short.png" </dev/null
    fi
fi

# What is wrong in the settings file is told by its line
LAZULI_SETTINGS=$work/bad.toml
export LAZULI_SETTINGS
bad() {
    printf "$2" >"$LAZULI_SETTINGS"
    try_match 1 "$1" $lazuli models
}
bad 'bad.toml: line 2 is not understood' '[models.a]\nmodel = nothing\n'
bad 'bad.toml: line 1 is not understood' 'model = "a"\n'
bad 'bad.toml: line 3 is not understood' '[models.a]\nmodel = "a"\nsteps = "4"\n'
bad 'bad.toml: line 3 is not understood' '[models.a]\nmodel = "a"\n[models.a]\n'
bad 'bad.toml: line 2 is not understood' '[models.a]\nmodel = "a\n'
bad '\[models.a\] names no model' '[models.a]\nvae = "b"\n'
rm "$LAZULI_SETTINGS"
try_match 1 'bad.toml' $lazuli models
finish
