# trap 6: a weight file that becomes shorter while it is in use: one sentence, and nothing half-written.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
if [ ! -e /proc/self/maps ]; then # which tells when the model is open
    finish
    exit
fi
flux=$PWD/tests/data/flux2
absolute=$(realpath $lazuli)
cd "$work"
mkdir out steps
weights=model/transformer/diffusion_pytorch_model-00002-of-00004.safetensors

fresh() { # a model of its own, for the test to spoil
    rm -rf model
    cp -rL "$flux/A" model
    chmod -R u+w model
}
wait_for() { # until the command is true, or the program that is tested has ended
    until "$@" 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
}
ended() { # CODE REGEX: of the program in the background
    code=0
    wait $pid || code=$?
    try_match $1 "$2" sh -c "cat said && exit $code"
    try 0 ls -A out </dev/null
}

# Between two pictures of a batch, which waits for its second line with the model open
for json in '' --json; do
    fresh
    rm -f out/*
    mkfifo lines
    "$absolute" batch - -m model -W 64 -H 64 -s 1 $json -o out <lines >said 2>&1 &
    pid=$!
    exec 3>lines
    echo a fox >&3
    wait_for sh -c 'find out -name "*.png" -size +0 | grep -q .' # the first picture is complete
    truncate -s 4096 $weights
    echo a dog >&3
    exec 3>&-
    code=0
    wait $pid || code=$?
    try_match 1 "$weights: the file was changed after it was opened \\([0-9]+ bytes then, 4096 now\\)" sh -c "cat said && exit $code"
    try 0 sh -c 'ls -A out | wc -l' <<'END'
1
END
    rm -f lines out/*
done

# In the middle: after the first of many steps
for json in '' --json; do
    fresh
    rm -f steps/*
    "$absolute" a fox -m model -W 64 -H 64 -S 1 -s 1000 $json --steps-dir steps -o out/fox.png --dump out/fox.safetensors >said 2>&1 &
    pid=$!
    wait_for test -e steps/1-step-0001.png -o -e steps/1-step-01.png
    truncate -s 4096 $weights
    ended 1 "^lazuli: .*$weights: the file became shorter while it was in use"
    [ -z "$json" ] || try_match 0 '^\{"error": ".*the file became shorter' cat said
    try 1 sh -c 'ls steps | grep part' </dev/null
done
finish
