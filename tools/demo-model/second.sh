#!/usr/bin/env bash
# Trains the second edition and a LoRA on one GPU with 16 cores, from the folder that `paint.py pack` wrote.
#
#     tools/demo-model/second.sh CACHE WORK OUT [MINUTES [DISTIL [ARGUMENT OF train2.py...]]]
#
# MINUTES (28) is the time of everything, DISTIL (5.5) that of the student; the base gets what is left, about MINUTES - 10.
# Kernels are compiled while drawings are rendered and scenes are encoded. No other program should use the GPU: in a trial
# with two judges in training beside it, a quarter of the scenes was encoded in the same time. OUT gets text, transformer (the
# base), vae, student, pixel.safetensors, sheets and logs. Weights are written every minute, each file at once, so OUT can be
# copied at any time.
set -u
here=$(cd "$(dirname "$0")" && pwd)
cache=$1 work=$2 out=$3 minutes=${4:-28} distil=${5:-5.5}
shift $(($# < 5 ? $# : 5))
start=$(date +%s)
mkdir -p "$work" "$out"
export TORCHINDUCTOR_CACHE_DIR=$work/inductor PYTHONUNBUFFERED=1
run() { # LOG SCRIPT ARGUMENT...
    local log=$out/$1.log
    shift
    python3 "$here/$1" "${@:2}" >"$log" 2>&1
}

run warm train2.py --warm --cache "$cache" --work "$work/warm" &
run drawings paint.py render "$cache" "$work"
until=$(awk "BEGIN { printf \"%.0f\", $start + 60 * ($minutes - $distil) - 110 }") # a LoRA takes 90 seconds
run train train2.py --base 1 --until "$until" --distil "$distil" --cache "$cache" --work "$work" --out "$out" "$@" || {
    tail -n 5 "$out/train.log"
    echo "second.sh: training failed; $out/train.log says why" >&2
    exit 1
}
wait
run lora lora.py --look pixel --edition 2 --minutes 1 --cache "$cache" --work "$work" --out "$out" || exit 1
echo "second.sh: $(($(date +%s) - start)) s" | tee "$out/done"
