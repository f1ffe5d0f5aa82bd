# `lazuli pull OWNER/REPO FILE...` and published models of several files, against the hub of pull.sh; then the files by their
# names in the cache.
. tests/cli/transcript
unset LAZULI_MODEL LAZULI_SETTINGS XDG_CONFIG_HOME HF_TOKEN HUGGING_FACE_HUB_TOKEN HF_TOKEN_PATH HF_HOME HF_ENDPOINT
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE XDG_CACHE_HOME CURL_CA_BUNDLE SSL_CERT_FILE http_proxy https_proxy all_proxy
unset HTTP_PROXY HTTPS_PROXY ALL_PROXY
data=$PWD/tests/data
export HOME="$work/home" LAZULI_PULL_PAUSE=0.001 TMPDIR="$work/tmp"
cache=$HOME/.cache/huggingface/hub
commit=c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeebeef
mkdir "$HOME" "$TMPDIR"
small='-q -S 3 -W 64 -H 64 -s 2 --no-metadata'

# Files that are not here: what would fetch them
try_match 1 "no file at plain/Files/klein.gguf, and none in the Hugging Face cache; 'lazuli pull plain/Files klein.gguf' would look" \
    $lazuli fox -m plain/Files/klein.gguf
try 1 $lazuli fox -m flux2-klein-4b-q4 <<'END'
lazuli: no model at flux2-klein-4b-q4: flux-2-klein-4b-Q4_K_M.gguf of unsloth/FLUX.2-klein-4B-GGUF is missing; 'lazuli pull flux2-klein-4b-q4' downloads 5.1 GiB
END
try_match 1 "downloads 5.1 GiB" $lazuli plan -m flux2-klein-4b-q4
try_match 0 '^  flux2-klein-4b-q4 +5.1 GiB  of unsloth/FLUX.2-klein-4B-GGUF$' $lazuli pull --help
try_match 0 '^  flux2-klein-9b-q4 +[0-9.]+ GiB  of unsloth/FLUX.2-klein-9B-GGUF \*$' $lazuli pull --help
for line in 'no mark: Apache-2.0' '\* FLUX Non-Commercial' '\+ FLUX Kommunity, which limits commercial use' '# Qwen Research, non-commercial'; do
    try_match 0 "^  $line\$" $lazuli pull --help
done
try_match 0 '^  flux3-klein-base +[0-9.]+ GiB  .*/flux-3-image-klein-base \+$' $lazuli pull --help
try_match 0 '^flux2-klein-4b-q4$' $lazuli completions names

if $lazuli pull fox 2>&1 </dev/null | grep -q 'built without download support' || ! command -v python3 >/dev/null; then
    echo "skipped: pull is not built in, or there is no python3 for its hub"
    finish
    exit
fi
python3 tests/cli/hub.py "$data/flux2" "$work" 2>"$work/hub-errors" &
hub=$!
trap 'kill $hub 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 200); do [ -e "$work/ports" ] || sleep 0.05; done
read -r port _ _ <"$work/ports"
export HF_ENDPOINT="http://127.0.0.1:$port"

pull() { $lazuli pull "$@"; }
asked() { grep -c -e "$1" "$work/log"; }
forget() { : >"$work/log"; }
# refused PATTERN FILE: one sentence, and no more than the first bytes of the file were fetched
refused() {
    forget
    try_match 1 "^lazuli: plain/Files.*$1" pull plain/Files "$2" -q
    try 0 test "$(awk '/resolve/ { sub(/.*sent=/, ""); n += $0 } END { print n + 0 }' "$work/log")" -lt 600000 </dev/null
    try 1 sh -c "ls -A $TMPDIR $cache/models--plain--Files/snapshots 2>/dev/null | grep -v :" </dev/null
}

# What is of no use is refused before its weights are fetched
refused 'nunchaku.safetensors: it is a Nunchaku file, .*; nothing was downloaded$' nunchaku.safetensors
try 0 test "$(asked 'range=bytes=0-262143 ')" = 1 </dev/null
refused 'dev.safetensors: it is FLUX.2 \[dev\], FLUX.1 or another model .*; nothing was downloaded$' dev.safetensors
refused 'language.safetensors: this is no model that is known here; nothing was downloaded$' language.safetensors
refused 'vast.safetensors: .*header.*; nothing was downloaded$' vast.safetensors
refused 'broken.gguf: .*; nothing was downloaded$' broken.gguf
refused "iq2.gguf: its tensor 'double_blocks.0.img_mlp.0.weight' has the type IQ2_XXS, which Lazuli does not read: .*; nothing was downloaded\$" iq2.gguf
refused "best-of-two.gguf: its tensor 'double_blocks.0.img_mlp.0.weight' has the type IQ2_XXS, which Lazuli does not read: .*; nothing was downloaded\$" best-of-two.gguf
refused 'pickle.ckpt: is a PyTorch file .*; nothing was downloaded$' pickle.ckpt
refused 'has no file nothing.gguf; it has split_files/diffusion_models/klein.gguf, ' nothing.gguf
refused 'has 2 files called twin.gguf, such as one/twin.gguf; name one by its whole path$' twin.gguf
refused 'invalid characters in its name' 'con fig.gguf'
try_match 2 'is a model of several files, and files are named after OWNER/REPO' pull flux2-klein-4b-q4 x.gguf
try_match 2 'has files of several repositories, so --to cannot be used' pull flux2-klein-4b-q4 --to "$work/x"

# Single files: the size and the licence first, then how to use them; the header of the text encoder has more than one range
forget
try_match 0 '^lazuli: terms/Files: 2 files, 1.4 MiB, licence own-terms; 1.4 MiB to download into ' \
    pull terms/Files klein.gguf split_files/text_encoders/qwen3.gguf --to "$work/to"
try_match 0 "^    -m $work/to/split_files/diffusion_models/klein.gguf  a FLUX.2 \[klein\] transformer\$" \
    pull terms/Files klein.gguf --to "$work/to"
try 0 cmp "$work/to/split_files/text_encoders/qwen3.gguf" "$data/parts/qwen3.gguf" </dev/null
forget
pull plain/Files klein.gguf qwen3.gguf vae.safetensors lora.safetensors >"$work/said" 2>&1
snapshot=$cache/models--plain--Files/snapshots/$commit
try 0 sed 's/[0-9.]* MiB/SIZE/g' "$work/said" <<END
lazuli: plain/Files: 4 files, SIZE; SIZE to download into $snapshot
$snapshot  4 files, SIZE, checked
    --lora plain/Files/lora.safetensors  a LoRA
    --text-encoder plain/Files/split_files/text_encoders/qwen3.gguf  a Qwen3 text encoder
    -m plain/Files/split_files/diffusion_models/klein.gguf  a FLUX.2 [klein] transformer
    --vae plain/Files/split_files/vae/vae.safetensors  a FLUX.2 autoencoder
END
try 0 readlink "$snapshot/split_files/diffusion_models/klein.gguf" <<END
../../../../blobs/$(sha256sum <"$data/parts/klein.gguf" | cut -d ' ' -f 1)
END
try 0 cmp "$snapshot/split_files/diffusion_models/klein.gguf" "$data/parts/klein.gguf" </dev/null
try 0 test "$(cat "$cache/models--plain--Files/refs/main")" = $commit </dev/null
try 0 ls -A "$TMPDIR" </dev/null
forget
try_match 0 '1 file, .* were there before and were not checked' pull plain/Files klein.gguf
try 0 test "$(asked resolve)" = 0 </dev/null # it is here already
try_match 0 '"paths": \[' pull plain/Files klein.gguf --json

# A hub without ranges, and one that breaks connections
try_match 0 'noranges/Files/.*klein.gguf: the hub sends no ranges of files, so its header was read from a download that was stopped' \
    pull noranges/Files klein.gguf
try 0 cmp "$cache/models--noranges--Files/snapshots/$commit/split_files/diffusion_models/klein.gguf" "$data/parts/klein.gguf" </dev/null
try 0 pull breaks/Files klein.gguf -q --to "$work/breaks" </dev/null
try 0 cmp "$work/breaks/split_files/diffusion_models/klein.gguf" "$data/parts/klein.gguf" </dev/null

# By their names in the cache, whole or in short
parts="--text-encoder plain/Files/qwen3.gguf --vae plain/Files/split_files/vae/vae.safetensors"
$lazuli a red fox -m "$data/parts/klein.gguf" --text-encoder "$data/parts/qwen3.gguf" --vae "$data/parts/klein_vae" $small -o "$work/local.png"
$lazuli a red fox -m plain/Files/klein.gguf $parts $small -o "$work/cached.png"
try 0 cmp "$work/local.png" "$work/cached.png" </dev/null
$lazuli a red fox -m plain/Files/split_files/diffusion_models/klein.gguf $parts -q -S 3 -W 64 -H 64 -s 2 -o "$work/told.png"
try_match 0 '^text-encoder +plain/Files/qwen3.gguf$' $lazuli info "$work/told.png"
$lazuli -q --from "$work/told.png" -o "$work/again.png"
try 0 cmp "$work/told.png" "$work/again.png" </dev/null
try_match 1 'klein.gguf: this FLUX.2 \[klein\] model lacks its text encoder' $lazuli fox -m plain/Files/klein.gguf
try_match 0 '^is +a Qwen3 text encoder, with its tokenizer$' $lazuli info plain/Files/qwen3.gguf
try_match 0 'blk.0.attn_q.weight' $lazuli tensors plain/Files/qwen3.gguf

# What is here, and what it needs
try_match 0 '^plain/Files/split_files/diffusion_models/klein.gguf +845.5 KiB  file +.*klein.gguf$' $lazuli models
try_match 0 '^    a FLUX.2 \[klein\] transformer; needs a text encoder \(--text-encoder\), ' $lazuli models
try_match 0 '^    a FLUX.2 autoencoder$' $lazuli models
try_match 0 '^    a LoRA$' $lazuli models
try_match 0 '"is": "a Qwen3 text encoder"' $lazuli models --json

# A published model of several files: one command for all of them, and one name
forget
try_match 0 '^lazuli: flux2-klein-4b-q4: 3 files of 3 repositories, 3.5 MiB, licence apache-2.0; 3.5 MiB to download' pull flux2-klein-4b-q4
try 0 test "$(asked ' 200 \| 206 ')" -gt 9 </dev/null
try_match 0 '^flux2-klein-4b-q4  3 files, .* were there before and were not checked' pull flux2-klein-4b-q4
try_match 0 '^    -m flux2-klein-4b-q4$' pull flux2-klein-4b-q4
try_match 0 '"repositories": \[' pull flux2-klein-4b-q4 --json
try_match 0 '^flux2-klein-4b-q4 +3.5 MiB  complete +.*Q4_K_M.gguf$' $lazuli models
$lazuli a red fox -m flux2-klein-4b-q4 $small -o "$work/set.png"
try 0 cmp "$work/local.png" "$work/set.png" </dev/null
$lazuli a red fox -m FLUX2-klein-4B-Q4 -q -S 3 -W 64 -H 64 -s 2 -o "$work/named.png"
try_match 0 '^model +flux2-klein-4b-q4$' $lazuli info "$work/named.png"
try_match 0 '^1024 x 1024 pixels, 4 steps' $lazuli plan -m flux2-klein-4b-q4
rm "$cache/models--unsloth--Qwen3-4B-GGUF/snapshots/$commit/Qwen3-4B-Q4_K_M.gguf"
try_match 0 '^flux2-klein-4b-q4 .* incomplete ' $lazuli models
try_match 0 '^    Qwen3-4B-Q4_K_M.gguf of unsloth/Qwen3-4B-GGUF is missing; lazuli pull flux2-klein-4b-q4 continues$' $lazuli models
try_match 1 'no model at flux2-klein-4b-q4: Qwen3-4B-Q4_K_M.gguf of unsloth/Qwen3-4B-GGUF is missing' $lazuli fox -m flux2-klein-4b-q4
try 0 pull flux2-klein-4b-q4 -q </dev/null
$lazuli a red fox -m flux2-klein-4b-q4 $small -o "$work/set.png"
try 0 cmp "$work/local.png" "$work/set.png" </dev/null

# One that looks at images: its file of the vision encoder is a part too
try 0 pull qwen-image-edit-2511-q4 -q </dev/null
try_match 0 '^qwen-image-edit-2511-q4 .* complete ' $lazuli models
cp "$data/parts/qwen/transformer/diffusion_pytorch_model.safetensors" "$work/edit-2511.safetensors"
cp "$data/parts/qwen/vae/diffusion_pytorch_model.safetensors" "$work/vae.safetensors"
$lazuli a red fox -m "$work/edit-2511.safetensors" --text-encoder "$data/parts/qwen2.5-vl.gguf" --vae "$work/vae.safetensors" \
    --vision "$data/parts/mmproj-qwen2.5-vl.gguf" -i "$data/qwen/ref1.png" $small -o "$work/edit.png"
$lazuli a red fox -m qwen-image-edit-2511-q4 -i "$data/qwen/ref1.png" $small -o "$work/edited.png"
try 0 cmp "$work/edit.png" "$work/edited.png" </dev/null
try 0 cat "$work/hub-errors" </dev/null
finish
