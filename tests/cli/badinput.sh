# What goes wrong is said in one sentence, with exit code 1, and leaves no file behind.
. tests/cli/transcript
unset LAZULI_MODEL
flux=tests/data/flux2
A=$flux/A
images=tests/data/images
out=$work/out
mkdir "$out"

# wrong PATTERN ARGUMENTS...: fails, in one line that matches, and writes nothing
wrong() {
    pattern=$1
    shift
    try_match 1 "^lazuli: .*$pattern" $lazuli "$@" -W 64 -H 64 -o "$out/x.png"
    cp "$work/output" "$work/said"
    try 0 grep -c '^' "$work/said" <<'END'
1
END
    try 0 ls -A "$out" </dev/null
}

# copy: a fresh copy of a model, to be damaged
copy() {
    rm -rf "$work/model"
    cp -r "$flux/$1" "$work/model"
    chmod -R u+w "$work/model"
}

# Folders
wrong '/nowhere is not a model folder: there is no such file or folder' fox -m "$work/nowhere"
wrong 'is not a model folder: it has no readable model_index.json' fox -m $A/transformer
copy A && echo '{"_class_name": "StableDiffusionPipeline"}' >"$work/model/model_index.json"
wrong "models of the kind 'StableDiffusionPipeline' are not supported" fox -m "$work/model"
copy A && echo '{"_class_name":' >"$work/model/model_index.json"
wrong 'model_index.json' fox -m "$work/model"
for value in 0 -1 1001 99999999999999999999999999 '"8"'; do
    copy A && sed -i "s/{/{\"num_inference_steps\": $value,/" "$work/model/model_index.json"
    wrong 'model_index.json: ' fox -m "$work/model"
done
for value in 15 8193 4.5; do
    copy A && sed -i "s/{/{\"height\": $value,/" "$work/model/model_index.json"
    wrong "model_index.json: 'height' " fox -m "$work/model"
done
copy A && rm -r "$work/model/tokenizer"
wrong 'tokenizer' fox -m "$work/model"
copy A && echo '{}' >"$work/model/tokenizer/tokenizer.json"
wrong 'tokenizer.json' fox -m "$work/model"
copy A && rm "$work/model/vae/config.json"
wrong 'vae/config.json' fox -m "$work/model"

# Weights
shard=transformer/diffusion_pytorch_model-00002-of-00004.safetensors
copy A && head -c 100000 "$A/$shard" >"$work/model/$shard"
wrong 'diffusion_pytorch_model-00002-of-00004.safetensors: .* truncated' fox -m "$work/model"
copy A && rm "$work/model/$shard"
wrong 'diffusion_pytorch_model-00002-of-00004.safetensors' fox -m "$work/model"
copy B # the header of a file is text: the type of every tensor changes, its length does not
LC_ALL=C sed -i '1s/"dtype":"F32"/"dtype":"I32"/g' "$work/model/transformer/diffusion_pytorch_model.safetensors"
wrong 'i32' fox -m "$work/model"
copy B && sed -i 's/"num_layers": [0-9]*/"num_layers": 7/' "$work/model/transformer/config.json"
wrong 'no tensor' fox -m "$work/model"
copy B && sed -i 's/"attention_head_dim": [0-9]*/"attention_head_dim": 64/' "$work/model/transformer/config.json"
wrong 'transformer' fox -m "$work/model"
copy B && sed -i 's/"hidden_size": [0-9]*/"hidden_size": 48/' "$work/model/text_encoder/config.json"
wrong '.' fox -m "$work/model"
copy A && rm -r "$work/model/vae" && cp -r $flux/B/vae "$work/model/vae"
wrong 'they belong to different models' fox -m "$work/model"

# Prompts
wrong 'prompt is not valid UTF-8' "$(printf 'a \377 fox')" -m $A
wrong 'negative prompt is not valid UTF-8' fox -n "$(printf '\303')" -m $A
try_match 1 'stdin was empty' $lazuli - -m $A
for words in - '-p -' 'grid - --x steps=1,2'; do # the model is looked at before the prompt is read
    try_match 1 'nowhere is not a model folder' $lazuli $words -m "$work/nowhere"
    try_match 1 'model_index.json' $lazuli $words -m "$work"
done
try_match 1 'contains a zero byte' sh -c "printf 'a\\0b' | $lazuli - -m $A"
try_match 2 'a prompt is needed' $lazuli generate -m $A
try_match 2 'the prompt was given twice, by --prompt' $lazuli -p fox fox -m $A

# Where to
try_match 2 'x.gif: the name of a picture must end in' $lazuli fox -m $A -o "$out/x.gif"
try_match 2 '--dump writes tensors' $lazuli fox -m $A --dump "$out/x.png"
try_match 1 'No such file or directory; create the folder first' $lazuli fox -m $A -o "$out/no/x.png"
try_match 1 'No such file or directory; create the folder first' $lazuli fox -m $A -o "$out/x.png" --dump "$out/no/x.safetensors"
try_match 1 'Not a directory' $lazuli fox -m $A -o "$A/model_index.json/x.png"
mkdir "$work/folder.png"
try_match 1 'is a folder' $lazuli fox -m $A -o "$work/folder.png"
if [ "$(id -u)" != 0 ]; then
    mkdir -m 555 "$work/locked"
    try_match 1 'cannot be written into this folder' $lazuli fox -m $A -o "$work/locked/x.png"
fi
try_match 2 "--device takes auto, .* not 'abacus'" $lazuli fox -m $A --device abacus -o "$out/x.png"

# Images: every kind of PNG can be looked at; interlaced or not makes no difference; a damaged one is refused
kinds=tests/data/flux2/kinds
for kind in rgb interlaced grey grey16 palette alpha; do
    cp $kinds/$kind.png "$work/input.png" # under one name, which the picture tells
    try 0 $lazuli fox -m $A -i "$work/input.png" -W 64 -H 64 -s 1 -S 1 -q -o "$work/$kind.png" </dev/null
done
try 0 cmp "$work/rgb.png" "$work/interlaced.png" </dev/null
wrong 'corrupt.png: ' fox -m $A -i $kinds/corrupt.png

# Too small ones are not, whatever their kind, and what is no picture is refused
for kind in grey-1 grey-16 grey-8-interlaced palette-4 palette-8-trns-interlaced rgb-16 rgba-16-interlaced rgba-8 grey-alpha-16; do
    wrong 'image 1 is 7 x 5, and each side must be from 16 to 65535' fox -m $A -i $images/$kind.png
done
wrong 'short.png: ' fox -m $A -i $images/short.png
wrong 'empty.png: ' fox -m $A -i $images/empty.png
wrong 'large.png: ' fox -m $A -i $images/large.png
wrong 'picture.gif: is neither a PNG nor a JPEG nor a WebP picture' fox -m $A -i $images/picture.gif
wrong 'nowhere.png: cannot be opened: No such file' fox -m $A -i nowhere.png
wrong 'ref1.png: this is a picture, not a model: -i shows it to the model, and --from repeats its settings' fox -m $flux/ref1.png
# The limit of all images together, 1 GiB as pixels: three of 13000 x 13000 in black, of one bit in the file
if command -v python3 >/dev/null; then
    python3 - "$work/wide.png" <<'END'
import struct, sys, zlib
side = 13000
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
row = bytes(1 + (side + 7) // 8)
packed = zlib.compress(row * side, 1)
with open(sys.argv[1], "wb") as file:
    file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)))
    file.write(chunk(b"IDAT", packed) + chunk(b"tEXt", b"filler\0" + b"x" * (side * side // 1024)) + chunk(b"IEND", b""))
END
    try_match 1 'wide.png: the pixels of all images together take more than 1.0 GiB; use smaller images' \
        $lazuli fox -m $A -i "$work/wide.png" -i "$work/wide.png" -i "$work/wide.png" -W 64 -H 64 -o "$out/x.png"
    rm "$work/wide.png"
fi
head -c 600 $flux/ref1.png >"$work/cut.png"
wrong 'cut.png: ' fox -m $A -i $flux/ref2.png -i "$work/cut.png"
{ head -c 400 $flux/ref1.png && printf 'XXXXXXXX' && tail -c +409 $flux/ref1.png; } >"$work/hurt.png"
wrong 'hurt.png: ' fox -m $A -i "$work/hurt.png"
i=0
many=
while [ $i -lt 17 ]; do
    many="$many -i $flux/ref1.png"
    i=$((i + 1))
done
try_match 2 'at most 16 images can be given' $lazuli fox -m $A $many

# No memory. (The address sanitizer needs more room than any limit that would bite.)
if sh -c "ulimit -v 4000000 && $lazuli --version || exit 1" >/dev/null 2>&1; then
    for kib in 36000 60000 100000; do # the libraries alone take 29000
        try_match 1 '^lazuli: ' sh -c "ulimit -v $kib && $lazuli fox -m $A -W 1024 -H 1024 --threads 1 -o $out/x.png"
    done
    try_match 0 'decoded in tiles of' sh -c "ulimit -v 180000 && $lazuli fox -m $A -W 1024 -H 1024 -s 1 --threads 1 -o $work/tiled.png"
    try 0 ls -A "$out" </dev/null
fi

# trap 11: stopped by any signal while it computes, no file and no part of one stays, and the exit code tells which
for signal in INT.130 TERM.143 HUP.129; do
    $lazuli fox -m $A -W 1024 -H 1024 -s 1000 -o "$out/x.png" --dump "$out/x.safetensors" >"$work/said" 2>&1 </dev/null &
    pid=$!
    sleep 1
    kill -${signal%.*} $pid
    status=0
    wait $pid || status=$?
    try ${signal#*.} sh -c "cat $work/said && exit $status" <<'END'
lazuli: stopped
END
    try 0 ls -A "$out" </dev/null
done
# trap 11: so it is while the prompt of stdin is awaited
mkfifo "$work/prompt"
exec 3<>"$work/prompt"
for command in - 'grid - --x steps=1,2'; do
    $lazuli $command -m $A -q -o "$out/x.png" <"$work/prompt" >"$work/said" 2>&1 3<&- &
    pid=$!
    sleep 1
    kill -INT $pid
    for _ in $(seq 100); do grep -q stopped "$work/said" || sleep 0.1; done
    grep -q stopped "$work/said" || kill -KILL $pid # it ignored the signal
    status=0
    wait $pid || status=$?
    try 130 sh -c "cat $work/said && exit $status" <<'END'
lazuli: stopped
END
done
exec 3<&-
# trap 11: so it is when the reader of stdout goes away while the next picture is painted
try 0 sh -c "{ $lazuli fox -m $A --count 9 -S 1 -W 64 -H 64 -o $work/unread.png; echo \$? >&2; } | :" <<'END'
141
END
try 1 sh -c "ls $work | grep -e part -e unread-9" </dev/null
# trap 8: an endless prompt, an endless line, a configuration without end
try_match 1 '^lazuli: stdin: is too large; the limit is 1.0 MiB$' sh -c "yes | $lazuli -m $A -p - -o $work/never.png"
try_match 1 '^lazuli: line 1 is too long; the limit is 16.0 MiB$' sh -c "yes | tr -d '\\n' | $lazuli tokenize -m $A"
cp -rL $A "$work/endless"
chmod -R u+w "$work/endless"
truncate -s 17M "$work/endless/vae/config.json"
wrong 'vae/config.json: holds 17825792 bytes, more than the 16777216 allowed for a configuration' fox -m "$work/endless"

finish
