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
try_match 1 'make the folder first' $lazuli decode -m $A "$work/l.safetensors" -o "$work/no/x.png"
try_match 2 'No such file' ls "$work/x.png" "$work/x.safetensors"
finish
