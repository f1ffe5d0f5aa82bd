# --precision on the CPU: f32 for small models; for large ones bf16, if the processor multiplies it faster.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
small="fox -W 32 -H 32 -s 2 -S 7 --device cpu --json -o $work/x.png"
precision() { # OPTIONS...: the one that the picture records
    $lazuli $small "$@" </dev/null 2>/dev/null | tr -d ' \n' | sed -n 's/.*"precision":"\([a-z0-9]*\)".*/\1/p'
}
expect() { # WANTED OPTIONS...
    wanted=$1
    shift
    found=$(precision "$@")
    try 0 test "$found" = "$wanted" </dev/null
}

expect f32 -m tests/data/flux2/A
expect f32 -m tests/data/flux2/A --precision auto
expect bf16 -m tests/data/flux2/A --precision bf16

# int8 quantises the model once, and keeps the result in the folder for caches.
LAZULI_CACHE=$work/cache
export LAZULI_CACHE
try_match 0 'quantising the weights to int8' $lazuli fox -W 32 -H 32 -s 2 -S 7 --device cpu -m tests/data/flux2/A \
    --precision int8 --full-paths -o "$work/int8.png"
expect int8 -m tests/data/flux2/A --precision int8
try 0 test "$(ls "$work/cache/int8" | wc -l)" -eq 2 </dev/null
try 0 $lazuli --from "$work/int8.png" --full-paths -q -o "$work/int8-again.png" </dev/null
try 0 cmp "$work/int8.png" "$work/int8-again.png" </dev/null
try_match 0 'with --precision int8 weights take half' env LAZULI_CACHE="$work/none" $lazuli plan fox \
    -m tests/data/flux2/A --precision int8
# encode and decode use the autoencoder only, which has no layers of 8 bits.
for kind in int8 fp8; do
    try_match 0 'latents.safetensors' env LAZULI_CACHE="$work/none" $lazuli encode -m tests/data/flux2/A --precision $kind \
        "$work/int8.png" -o "$work/latents.safetensors"
    try_match 0 'decoded.png' env LAZULI_CACHE="$work/none" $lazuli decode -m tests/data/flux2/A --precision $kind \
        "$work/latents.safetensors" -o "$work/decoded.png"
done
try 1 test -e "$work/none" </dev/null
unset LAZULI_CACHE
try_match 1 'has no products of fp8; NVIDIA GPUs of compute capability 8.9' $lazuli fox -W 32 -H 32 -s 2 --device cpu \
    -m tests/data/flux2/A --precision fp8 -o "$work/fp8.png"
if ! $lazuli devices | grep -E '^cuda:[0-9]+ +cuda ' >/dev/null; then
    try_match 1 'precision auto computes on any machine' $lazuli fox -W 32 -H 32 -s 2 -m tests/data/flux2/A --precision fp8 \
        -o "$work/fp8.png"

    # A picture that was made on a GPU in fp8. The settings of a JPEG are plain text, and this change keeps their length.
    try 0 $lazuli fox -W 32 -H 32 -s 2 -S 7 --device cpu -m tests/data/flux2/A --full-paths -q -o "$work/cpu.jpg" </dev/null
    LC_ALL=C sed 's/"device": "cpu", "precision": "f32"/"device":"cuda", "precision": "fp8"/' "$work/cpu.jpg" >"$work/gpu.jpg"
    try_match 1 differ cmp "$work/cpu.jpg" "$work/gpu.jpg"
    try_match 0 'the picture was made there, so on the CPU it will differ slightly' env LAZULI_CACHE="$work/none" \
        $lazuli --from "$work/gpu.jpg" --full-paths -o "$work/x.png"
    try 1 test -e "$work/none" </dev/null
fi

# A model is large by the bytes of its weight files, and a file with a hole counts as what it pretends to be.
cp -r tests/data/flux2/A "$work/large"
truncate -s 300M "$work/large/unused.safetensors"
fastest=f32
$lazuli devices | grep -E '^cpu +(amx|avx512bf16|armbf16) +cpu' >/dev/null && fastest=bf16
expect $fastest -m "$work/large"
expect $fastest -m "$work/large" --precision auto
expect f32 -m "$work/large" --precision f32

# What was taken is recorded, and --from repeats it.
try 0 $lazuli fox -W 32 -H 32 -s 2 -S 7 --device cpu -m "$work/large" --full-paths -q -o "$work/once.png" </dev/null
try 0 $lazuli --from "$work/once.png" --full-paths -q -o "$work/again.png" </dev/null
try 0 cmp "$work/once.png" "$work/again.png" </dev/null
try_match 2 "takes auto, f32, bf16, int8 or fp8, not .f16." $lazuli fox --precision f16
finish
