# A model that does not fit on the GPU, which is a simulated one here: what is said of it, and by --offload.
. tests/cli/transcript
if [ ! -e "$build/cuda-sim/libcuda.so.1" ]; then
    echo "skipped: there is no simulated GPU"
    try 0 true </dev/null
    finish
    exit
fi
export LAZULI_CUDA_PATH="$(realpath "$build")/cuda-sim" LAZULI_CACHE="$PWD/build/cuda-cache" # as in tests/cuda-sim
one="fox -m models/demo --device cuda -S 1 -W 32 -H 32 -s 1"
said='^lazuli: the model does not fit on the device, so [0-9.]+ MiB of weights are sent there in every step'
short() { env LAZULI_SIM_MEMORY=16000000 "$@"; }
without() { # PATTERN COMMAND...: the command succeeds and prints nothing that matches
    kind=$1
    shift
    "$@" >"$work/said" 2>&1 && ! grep -e "$kind" "$work/said"
}

# The plan knows, and so does whoever generates: before, with -v afterwards, and in JSON
try_match 0 '^stage +memory +operations +about +with weights +streamed$' $lazuli plan $one
try_match 0 '^denoise .* MiB +0 bytes$' $lazuli plan $one
try_match 0 '^[0-9.]+ MiB of weights are sent to the device in every step, because not all of them fit there$' short $lazuli plan $one
try_match 0 '^[0-9.]+ MiB of weights are sent to the device in every step$' $lazuli plan $one --offload stream
try_match 0 '"streamed_bytes": [1-9][0-9]{6}' short $lazuli plan $one --json
try 0 without '"streamed_bytes": [1-9]' $lazuli plan $one --json </dev/null # in no stage

# trap 21: what is promised of streaming. Roundings may differ on a GPU; the simulated one computes a product one way only,
# so here all three pictures are the same, and differ if a weight arrives late, in the wrong place or not at all. Each run
# writes a file of its own: one that failed leaves nothing to compare. Another seed shows that the pictures are not flat.
try 0 $lazuli $one -q -o "$work/all.png" </dev/null
try_match 0 "$said" short $lazuli $one -o "$work/less.png"
try 0 cmp "$work/all.png" "$work/less.png" </dev/null
try 0 $lazuli $one --offload stream -o "$work/streamed.png" -q </dev/null
try 0 cmp "$work/all.png" "$work/streamed.png" </dev/null
try 0 $lazuli $(echo "$one" | sed 's/-S 1/-S 2/') -q -o "$work/other.png" </dev/null
try_match 1 differ cmp "$work/all.png" "$work/other.png"
try_match 0 '; streamed [0-9.]+ MiB a step; at most' short $lazuli $one -v -o "$work/less.png"
try_match 0 '"streamed_bytes": [1-9][0-9]{6}' short $lazuli $one --json -o "$work/less.png"
try 0 short $lazuli $one -q -o "$work/less.png" </dev/null

# Nothing is said of what was asked for; what may not be streamed fails with one sentence; the rest is refused
try 0 without 'does not fit' $lazuli $one --offload stream -o "$work/streamed.png" </dev/null
try_match 1 "^lazuli: out of memory on Simulated GPU: [0-9]+ bytes of weights are needed there at once, .*offload 'auto'" \
    short $lazuli $one --offload none -o "$work/none.png"
try_match 2 "^lazuli: --offload takes auto, none or stream, not 'some'" $lazuli $one --offload some
# Nobody asked for a device: a small model stays on the CPU, a large one goes to the GPU, if that works
mkdir "$work/large"
cp -r models/demo/* "$work/large"
truncate -s 300M "$work/large/vae/more.safetensors"
any="fox -S 1 -W 32 -H 32 -s 1 -v -o $work/any.png"
try_match 0 '^device +cpu ' $lazuli $any -m models/demo
try_match 0 '^device +cuda \(' $lazuli $any -m "$work/large"
try_match 0 '^device +cuda \(' $lazuli $any -m "$work/large" --device auto
try_match 0 '^device +cpu ' $lazuli $any -m "$work/large" --device cpu
try_match 0 '^default +cuda \(' $lazuli devices
try_match 0 '^default small +cpu \(' $lazuli devices
mkdir "$work/driver"
cp "$LAZULI_CUDA_PATH/libcuda.so.1" "$work/driver"
try_match 0 '^lazuli: the GPU is not used: no CUDA runtime compiler' env LAZULI_CUDA_PATH="$work/driver" $lazuli $any -m "$work/large"
try_match 0 '^device +cpu ' env LAZULI_CUDA_PATH="$work/driver" $lazuli $any -m "$work/large"
try 0 without 'not used' env LAZULI_CUDA_PATH="$work" $lazuli $any -m "$work/large" </dev/null
try 0 without 'not used' env LAZULI_SIM_GPUS=0 LAZULI_CUDA_PATH="$work/driver" $lazuli $any -m "$work/large" </dev/null
try 0 without 'not used' env LAZULI_SIM_GPUS=0 $lazuli $any -m "$work/large" </dev/null

# The picture tells which it was; where that is missing, the CPU makes it, and says so
try 0 without '^    "device"' $lazuli $any -m models/demo --json </dev/null # in its settings, which are four spaces in
try_match 0 '^    "device": "cuda"' $lazuli $any -m "$work/large" --json
try_match 0 '^lazuli: no NVIDIA driver .*; the picture was made there, so on the CPU it will differ slightly$' \
    env LAZULI_CUDA_PATH="$work" $lazuli --from "$work/any.png" -m "$work/large" -o "$work/again.png"
try 0 $lazuli --from "$work/any.png" -m "$work/large" -q -o "$work/again.png" </dev/null
try 0 cmp "$work/any.png" "$work/again.png" </dev/null

# Weights are looked for where models have them: not all over the disk, whatever folder is named
mkdir -p "$work/large/vae/more"
mv "$work/large/vae/more.safetensors" "$work/large/vae/more"
ln -s / "$work/large/all"
try_match 0 '^device +cpu ' timeout -s KILL 20 $lazuli $any -m "$work/large"
finish
