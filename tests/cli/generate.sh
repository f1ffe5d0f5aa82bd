# `lazuli generate` and `lazuli plan`: every option, on the tiny models.
. tests/cli/transcript
unset LAZULI_MODEL
flux=tests/data/flux2
A=$flux/A
small="-W 64 -H 64 --threads $threads"

same() { try 0 cmp "$1" "$2" </dev/null; }
differ() { try_match 1 differ cmp "$1" "$2"; }
holds() { try_match 0 . sh -c "LC_ALL=C grep -a -e '$2' '$1' | tr -d '\\000'"; } # a file, a basic regex
gone() { try_match 2 'No such file' ls "$@"; }

# One picture, and what is said of it
try_match 0 "^$work/fox.png  64 x 64, seed 42, 4 steps, " $lazuli "a red fox" -m $A -S 42 $small -o "$work/fox.png"
try 0 $lazuli generate a red fox -m $A --seed=42 -W64 --height=64 -q --threads 1 -o "$work/fox1.png" </dev/null
same "$work/fox.png" "$work/fox1.png" # the words, the command and the threads make no difference
for chunk in prompt 'a red fox' seed 42 steps guidance size 64x64 model software 'Lazuli [0-9]'; do holds "$work/fox.png" "$chunk"; done
try 0 $lazuli a red fox -m $flux/B -s 1 -W 32 -H 32 --device ref -q -o "$work/ref.png" </dev/null
try 0 $lazuli a red fox -m $A -S 43 $small -q -o "$work/other.png" </dev/null
differ "$work/fox.png" "$work/other.png"
LAZULI_MODEL=$A try 0 $lazuli -qp 'a red fox' -S 42 $small -o "$work/env.png" </dev/null
same "$work/fox.png" "$work/env.png"
for word in - '-p -'; do
    try 0 sh -c "echo a red fox | $lazuli $word -m $A -S 42 $small -q -o $work/stdin.png" </dev/null
    same "$work/fox.png" "$work/stdin.png"
done
try 0 $lazuli -m $A -p '' -S 42 $small -q -o "$work/fox.png" </dev/null # -o overwrites
differ "$work/fox.png" "$work/fox1.png"

# Other kinds of files
try 0 $lazuli a red fox -m $A -S 42 $small -q -o "$work/fox.jpg" </dev/null
try 0 $lazuli a red fox -m $A -S 42 $small -q -o "$work/fox.webp" </dev/null
holds "$work/fox.jpg" JFIF
holds "$work/fox.webp" WEBP

# Names without -o never overwrite
absolute=$(realpath $lazuli)
model=$(realpath $A)
for name in lazuli-5.png lazuli-5-2.png lazuli-5-3.png; do
    try_match 0 "^$name  " sh -c "cd $work && $absolute fox -m $model -S 5 $small"
done
same "$work/lazuli-5.png" "$work/lazuli-5-3.png"
try_match 0 '^lazuli-[0-9]+.png .* seed [0-9]+' sh -c "cd $work && $absolute fox -m $model $small"

# Several
try 0 $lazuli a red fox -m $A --count 2 -S 42 $small -q -o "$work/c.png" --dump "$work/c.safetensors" </dev/null
same "$work/c-1.png" "$work/fox1.png"
same "$work/c-2.png" "$work/other.png"
try_match 0 . ls "$work/c-1.safetensors" "$work/c-2.safetensors"
try 0 $lazuli a red fox -m $A -S 43,7 -S 42 $small -q -o "$work/d.png" </dev/null
same "$work/d-1.png" "$work/other.png"
same "$work/d-3.png" "$work/fox1.png"
gone "$work/d.png" "$work/d-4.png"
for line in 1 2 3; do # told in order, each once
    try_match 0 "^$work/d-$line.png" sh -c "$lazuli fox -m $A -S 43,7,42 $small -o $work/d.png | sed -n ${line}p"
done
mkdir "$work/e-2.png" # trap 11: one that cannot be written is found before any is made
# Pictures that are made together are those that are made one by one, and a failure ends after the same files.
try 0 $lazuli a red fox -m $A --count 5 -S 42 $small --batch off -q -o "$work/alone.png" --dump "$work/alone.safetensors" </dev/null
try_match 0 "^$work/some-5.png  .* seed 46, " $lazuli a red fox -m $A --count 5 -S 42 $small --batch 2 -o "$work/some.png" --dump "$work/some.safetensors"
try_match 0 "^$work/all-3.png  .* seed 44, " $lazuli a red fox -m $A --count 5 -S 42 $small --batch 16 -o "$work/all.png" --dump "$work/all.safetensors"
for i in 1 2 3 4 5; do
    for end in png safetensors; do
        try 0 cmp "$work/alone-$i.$end" "$work/some-$i.$end" </dev/null
        try 0 cmp "$work/alone-$i.$end" "$work/all-$i.$end" </dev/null
    done
done
# The passes through the model, as --json tells: each picture names the number of pictures in its passes.
count_passes() { # OPTION...: prints the pictures of each round, in order
    $lazuli a red fox -m $A --count 4 -S 42 $small "$@" -q --json -o "$work/round.png" | sed -n 's/^ *"together": \([0-9]*\),$/\1/p' | paste -sd ' '
}
try 0 count_passes --batch 2 <<'END'
2 2 2 2
END
for i in 1 2 3 4; do try 0 cmp "$work/alone-$i.png" "$work/round-$i.png" </dev/null; done
try_match 0 '^3 3 3 1$' count_passes --batch 3
try_match 0 '^1 1 1 1$' count_passes --batch off
try_match 2 '--batch takes auto, off or a number of pictures from 1 to 16, not .17' $lazuli fox -m $A --batch 17
try_match 1 'e-2.png: is a folder' $lazuli a red fox -m $A --count 4 -S 42 $small -q -o "$work/e.png"
gone "$work/e-1.png" "$work/e-3.png" "$work/e-4.png"
# What cannot be known before ends it, though the next is being painted, and leaves nothing
try_match 1 'f-1.png: cannot be written: File too large' \
    sh -c "ulimit -f 1 && $lazuli a red fox -m $A --count 4 -S 42 $small -q -o $work/f.png"
gone "$work"/f-*
try_match 0 '^lazuli-6-2.png' sh -c "cd $work && $absolute fox -m $model -S 6,6 $small | tail -n 1" # no name twice
same "$work/lazuli-6.png" "$work/lazuli-6-2.png"
try_match 0 '^3$' sh -c "$lazuli fox -m $A --count 3 -S 1 $small --json -o $work/j.png | grep -c write"

# Steps, guidance, negative: model C has guidance
try_match 0 ', 3 steps, ' $lazuli fox -m $flux/C -s 3 -S 1 $small -o "$work/g4.png"
try 0 $lazuli fox -m $flux/C --steps 3 -S 1 -g 4 $small -q -o "$work/g.png" </dev/null
same "$work/g.png" "$work/g4.png" # 4 is its own
try 0 $lazuli fox -m $flux/C -s 3 -S 1 -g 1.5 $small -q -o "$work/g.png" </dev/null
differ "$work/g.png" "$work/g4.png"
try 0 $lazuli fox -m $flux/C -s 3 -S 1 -n 'blue' $small -q -o "$work/g.png" </dev/null
differ "$work/g.png" "$work/g4.png"
holds "$work/g.png" negative
try_match 0 'guidance has no effect' $lazuli fox -m $A -g 3 $small -o "$work/g.png"
# trap 3: a Lightning model has no guidance unless it is asked for
lightning="$lazuli fox -m tests/data/qwen/L -S 1 -s 2 -W 48 -H 48 --no-metadata"
try_match 0 '^defaults .* 8 steps, no guidance$' $lazuli info -m tests/data/qwen/L
try 0 $lightning -q -o "$work/l1.png" </dev/null
try_match 0 'negative has no effect' $lightning -n dark -o "$work/l2.png"
same "$work/l1.png" "$work/l2.png"
try 0 sh -c "$lightning -g 4 -n dark -o $work/l2.png 2>&1 | grep 'changes nothing'; exit 0" </dev/null
differ "$work/l1.png" "$work/l2.png"
try_match 0 'negative has no effect' $lazuli fox -m $A -n blue $small -o "$work/g.png"

# Sizes
try 0 sh -c "$lazuli fox -m $A -W 70 -H 95 -o $work/cut.png >/dev/null" <<'END'
lazuli: the size is cut to 64 x 80, because sides are multiples of 16
END
holds "$work/cut.png" 64x80

# Images: to look at, to start from
try 0 $lazuli fox -m $A -S 42 $small -q -i $flux/ref1.png -o "$work/i1.png" </dev/null
try 0 $lazuli fox -m $A -S 42 $small -q -i $flux/ref1.png --image $flux/ref2.png -o "$work/i2.png" </dev/null
try 0 $lazuli fox -m $A -S 42 -q -i $flux/ref1.png --strength 0.5 -o "$work/i3.png" </dev/null
holds "$work/i3.png" 64x64
differ "$work/i1.png" "$work/i2.png"
differ "$work/i1.png" "$work/i3.png"
strength="$lazuli fox -m $A -S 42 -i $flux/ref1.png --strength 0.5 -o $work/i3.png" # what is counted is what was run
try_match 0 ', seed 42, 2 of 4 steps, ' $strength
try_match 0 '^picture .* 2 of 4 steps, ' $strength -v
try_match 0 '^64 x 64 pixels, 2 of 4 steps, ' $lazuli plan fox -m $A -i $flux/ref1.png --strength 0.5
for line in '"steps": 2,' '"schedule_steps": 4,' '"strength": 0.5,'; do try_match 0 "^ $line" $strength --json; done
holds "$work/i3.png" '2 of 4'
holds "$work/i3.png" strength
try_match 2 'strength needs an image to start from' $lazuli fox -m $A --strength 0.5

# Noise in, everything out
case=$flux/cases/a_square.safetensors
cat='A cat holding a sign that says hello world'
try_match 0 . $lazuli "$cat" -m $A $small --noise $case -o "$work/n.png" --dump "$work/n.safetensors"
try 0 $lazuli "$cat" -m $A $small -q -S 42 -o "$work/s.png" --dump "$work/s.safetensors" </dev/null
for tensor in 'image +f32 +\[1, 3, 64, 64\]' 'latents +f32 +\[1, 128, 4, 4\]' 'noise +f32 +\[1, 128, 4, 4\]' 'text +f32 +\[1, 512, 72\]'; do
    try_match 0 "^$tensor" $lazuli tensors "$work/s.safetensors"
done
try 0 $lazuli "$cat" -m $A $small -q --noise "$work/s.safetensors" -o "$work/again.png" </dev/null
try 0 $lazuli decode -m $A "$work/s.safetensors" -q -o "$work/s2.png" </dev/null # its latents are the picture
try 0 $lazuli encode -m $A "$work/s.png" -q -o "$work/e1.safetensors" </dev/null
try 0 $lazuli encode -m $A "$work/s2.png" -q -o "$work/e2.safetensors" </dev/null
same "$work/e1.safetensors" "$work/e2.safetensors"
try 0 $lazuli "$cat" -m $A --threads 2 -q --noise "$work/s.safetensors" -o "$work/size.png" </dev/null # its size too
same "$work/size.png" "$work/again.png"
try_match 0 '^64 x 64 pixels' $lazuli plan -m $A --noise "$work/s.safetensors"
try_match 1 'the noise is .*, and this picture needs' $lazuli fox -m $A -W 64 -H 80 --noise $case -o "$work/x.png"
try_match 1 "there is no tensor 'noise'\$" $lazuli fox -m $A $small --noise $flux/B/vae/diffusion_pytorch_model.safetensors -o "$work/x.png"
try_match 2 '--noise makes one picture' $lazuli fox -m $A --count 2 --noise $case -o "$work/x.png"

# For programs
json="$lazuli fox -m $A -S 1,2 $small -i $flux/ref1.png --json -o $work/j.png"
$json >"$work/json"
for key in '^\{$' '^\}$' '"model": "tests' '"family": "FLUX.2 \[klein\]"' '"device": "cpu' '"prompt": "fox"' '"width": 64' '"height": 64' \
    '"steps": 4' '"guidance": 1.0' '"seeds": \[' '"peak_bytes": [1-9]' '"step_milliseconds": \[' '"denoise": [0-9.]+' "\"file\": \"$work/j-2.png\""; do
    try_match 0 "$key" cat "$work/json"
done
if command -v python3 >/dev/null; then
    try 0 sh -c "$json | python3 -c 'import json, sys; r = json.load(sys.stdin); print(r[\"seeds\"], [len(p[\"step_milliseconds\"]) for p in r[\"pictures\"]])'" <<'END'
[1, 2] [4, 4]
END
fi
try_match 1 '^ "error": ".*/nowhere is not a model folder' $lazuli fox -m "$work/nowhere" --json -o "$work/x.png"

if [ -e /dev/full ]; then # an answer that does not arrive is a failure, and ends it
    for option in --json '' '--count 3'; do
        try 1 sh -c "$lazuli fox -m $A -S 5 $small $option -o $work/full.png >/dev/full" <<'END'
lazuli: cannot write the output: No space left on device
END
    done
    gone "$work/full-2.png"
fi

# For people
$lazuli fox -m $A $small -v -o "$work/v.png" >"$work/v" 2>&1
for line in '^device +cpu' '^model +.*FLUX.2' '^denoise +[0-9.]+ [KM]iB +[0-9.]+ Gflop' '^open .* decode .* at most'; do
    try_match 0 "$line" cat "$work/v"
done
for option in -vv '-v -v' --profile; do try_match 0 '^cpu.matmul ' $lazuli fox -m $A $small $option -o "$work/v.png"; done
if command -v script >/dev/null; then # a terminal sees a line that moves, and is cleaned
    try_match 0 '#+\.+ +[0-9]+%' env TERM=xterm script -qec "stty cols 100; $lazuli fox -m $A -W 512 -H 512 -o $work/t.png" /dev/null
    try 1 sh -c "script -qec '$lazuli fox -m $A -W 256 -H 256 -q -o $work/t.png' /dev/null | grep ." </dev/null
    # A terminal that cannot draw over a line gets no moving one, and no escape sequence either
    escape=$(printf '\033')
    try 1 sh -c "TERM=dumb script -qec 'stty cols 100; $lazuli fox -m $A -W 256 -H 256 -o $work/t.png' /dev/null | grep -e '#' -e '$escape'" </dev/null
    # It gets a plain line every ten seconds. The program sleeps for that long, and the end of this script reads the lines
    TERM=dumb script -qec "$lazuli fox -m $A -W 1024 -H 1024 -s 1000 -o $work/never.png & sleep 2; kill -STOP \$!; sleep 11; kill -CONT \$!; for i in 1 2 3 4 5 6 7 8 9; do grep -q denoise $work/dumb || sleep 2; done; kill \$!; wait" /dev/null >"$work/dumb" 2>&1 &
fi

# What it will take
for line in '^64 x 64 pixels, 4 steps, cpu' '^denoise +[0-9.]+ [KM]iB' '^at most .* of weights'; do
    try_match 0 "$line" $lazuli plan a red fox -m $A $small -o "$work/never.png"
done
try_match 0 '^encode ' $lazuli plan fox -m $A -i $flux/ref1.png
try_match 0 '"peak_bytes": [1-9]' $lazuli plan fox -m $A $small --json
try_match 0 '^decode ' $lazuli plan -m $A $small
gone "$work/never.png"
# Options that a model does not have
try_match 0 '^lazuli: --steps has no effect; this model has noise levels of its own for [0-9]+ steps$' \
    $lazuli fox -m tests/data/qwen21/T -W 64 -H 64 -s 3 -S 1 -o "$work/turbo.png"
try_match 1 'looks at no images; with a strength \(--strength 0.6, .*\) it starts from one$' \
    $lazuli fox -m tests/data/qwen/Q -i tests/data/qwen/ref1.png -o "$work/no.png"
try 1 test -e "$work/no.png" </dev/null
wait
if [ -e "$work/dumb" ]; then
    try_match 0 '^denoise +[0-9]+% step [0-9]+/1000 [0-9.]+ s' cat "$work/dumb"
    try 1 grep -e '#' -e "$escape" "$work/dumb" </dev/null
fi
finish
