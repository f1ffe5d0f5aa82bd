# The first run: which model is taken when none is named, every option of `generate` on the demo model, and `make demo`.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
flux=$PWD/tests/data/flux2
root=$PWD
absolute=$(realpath $lazuli)
fox="a fox in 3d style on a blue background"
said='^lazuli: using the demo model; -m DIR chooses another$'

same() { try 0 cmp "$1" "$2" </dev/null; }

# Nobody names a model, size or steps: the demo model, from any folder, and through a link
mkdir "$work/away"
cd "$work/away"
try_match 0 '^fox.png  256 x 256, seed 1, 4 steps, ' "$absolute" "$fox" -S 1 -o fox.png
try_match 0 "$said" "$absolute" "$fox" -S 1 -W 16 -H 16 -o small.png
ln -s "$absolute" linked
try 0 ./linked "$fox" -S 1 -W 16 -H 16 -q -o linked.png </dev/null
same small.png linked.png
try 0 sh -c "$absolute '$fox' -m $root/models/demo -S 1 -W 16 -H 16 -o chosen.png 2>said >/dev/null" </dev/null
try 1 grep 'demo model' said </dev/null
same small.png chosen.png
for line in "^model +$root/models/demo\$" '^defaults +256 x 256 pixels, 4 steps, guidance is built in' \
    '^A picture of 256 x 256 takes ' "$said"; do
    try_match 0 "$line" "$absolute" info
done
try_match 0 '^ "width": 256,' sh -c "$absolute info --json 2>/dev/null"
try_match 0 '^256 x 256 pixels, 4 steps, cpu' "$absolute" plan
try_match 0 '^\{"ids": \[' "$absolute" tokenize a fox
try 0 "$absolute" encode small.png -q -o small.safetensors </dev/null
try_match 0 '^back.png  16 x 16 pixels' "$absolute" decode small.safetensors -o back.png
cd "$root"

# The environment comes before it, -m before both; an empty one is none
try 0 env LAZULI_MODEL="$flux/A" $lazuli fox -S 1 -W 64 -H 64 -q -o "$work/environment.png" </dev/null
try 0 $lazuli fox -m "$flux/A" -S 1 -W 64 -H 64 -q -o "$work/named.png" </dev/null
same "$work/environment.png" "$work/named.png"
try 0 env LAZULI_MODEL="$work/nowhere" $lazuli fox -m "$flux/A" -S 1 -W 64 -H 64 -q -o "$work/named.png" </dev/null
same "$work/environment.png" "$work/named.png"
try_match 0 "$said" env LAZULI_MODEL= $lazuli fox -S 1 -W 16 -H 16 -o "$work/x.png"
for command in "generate fox" plan info "tokenize fox"; do
    try_match 1 "^lazuli: .*$work/nowhere.*; \\\$LAZULI_MODEL names it\$" env LAZULI_MODEL="$work/nowhere" $lazuli $command
done
try_match 2 'model needs the name of a file or folder' $lazuli fox -m ''

# A program on its own has no demo model, and says where it looked; with models/ beside it, it has one
mkdir "$work/alone"
cp "$absolute" "$work/alone/lazuli"
if [ ! -e /usr/local/share/lazuli/models/demo ]; then
    for command in fox plan info 'tokenize fox' "encode $flux/ref1.png -o $work/x.safetensors"; do
        try_match 2 "^lazuli: no model was named, and the demo model was not found \\($work/alone/../share/lazuli/models/demo, $work/alone/models/demo, .*-m DIR" \
            "$work/alone/lazuli" $command
    done
fi
ln -s "$root/models" "$work/alone/models"
try_match 0 "$said" "$work/alone/lazuli" plan

# Every option of `generate`, as its help lists them: a new one needs a line here
one="-S 1 -W 16 -H 16 -s 1"
try 0 $lazuli fox $one -q -o "$work/base.png" --dump "$work/base.safetensors" </dev/null
echo '{"guidance": 1}' >"$work/settings.json"
apart="-m tests/data/layered/Y -i tests/data/layered/tall.png -W 32 -H 96"
masked="-i $flux/ref3.png --mask tests/data/inpaint/small.png"
options=$($lazuli generate --help | sed -n 's/^  \(-.,\|   \) --\([a-z-]*\).*/\2/p')
for option in $options; do
    words=fox
    case $option in # what is given, then what is to be seen
    model) given="-m models/demo" seen=', 1 step, ' ;;
    prompt) words= given='--prompt fox' seen=', 1 step, ' ;;
    width) given='--width 48' seen='  48 x 16, ' ;;
    height) given='--height 48' seen='  16 x 48, ' ;;
    seed) given='--seed 5,6' seen=', seed 5, ' ;;
    count) given='--count 2' seen=', seed 2, ' ;;
    text-encoder) given='--text-encoder models/demo/text_encoder' seen=', 1 step, ' ;;
    vae) given='--vae models/demo/vae' seen=', 1 step, ' ;;
    tokenizer) given='--tokenizer models/demo/tokenizer' seen=', 1 step, ' ;;
    vision) given='--vision models/demo/text_encoder' seen=', 1 step, ' ;; # not opened: the model looks at no image here
    variant) given='--variant distilled' seen=', 1 step, ' ;;
    lora) given="-m $flux/B --lora tests/data/lora/klein-peft.safetensors" seen='LoRA klein-peft.safetensors: 17 of 17 modules' ;;
    lora-partial) given='--lora-partial' seen=', 1 step, ' ;;
    lora-folder) given='--lora-folder tests/data/lora' seen=', 1 step, ' ;;
    lora-schedule) given='--lora-schedule model' seen=', 1 step, ' ;;
    steps) given='--steps 2' seen=', 2 steps, ' ;;
    guidance) given='--guidance 2' seen='guidance has no effect' ;;
    negative) given='--negative blue' seen='negative has no effect' ;;
    sampler) given='--sampler heun -s 2 -v' seen='^picture +16 x 16, 2 steps of heun in 3 passes, ' ;;
    schedule) given='--schedule beta -v' seen='^picture +16 x 16, 1 step, schedule beta, ' ;;
    shift) given='--shift 3 --json' seen='^ "shift": 3.0,$' ;;
    cache) given='--cache 0.5 -s 8 -v' seen='^picture +16 x 16, 8 steps .4 passes computed, 4 forecast., ' ;;
    guidance-range) given='--guidance-range 0..0.5' seen='guidance-range has no effect without guidance' ;;
    guidance-every) given='--guidance-every 2' seen='guidance-every has no effect without guidance' ;;
    image) given="--image $flux/ref1.png" seen=', 1 step, ' ;;
    strength) given="-i $flux/ref1.png --strength 0.5 -s 4" seen=', 2 of 4 steps, ' ;;
    fast) given='--fast' seen=', 1 step, ' ;;
    wildcards) given='--wildcards tests/data' seen=', 1 step, ' ;;
    no-templates) given='--no-templates' seen=', 1 step, ' ;;
    combinations) given='--combinations' seen='--combinations has no effect; the prompt has no choices' ;;
    mask) given="$masked" seen='  16 x 16, ' ;;
    crop-to-mask) given="$masked --crop-to-mask 8" seen='  67 x 85, ' ;;
    keep-outside) given="$masked --keep-outside off" seen='  16 x 16, ' ;;
    feather) given="$masked --feather 2" seen='  16 x 16, ' ;;
    background) given='--background opaque' seen=', 1 step, ' ;;
    layers) given="$apart --layers 1" seen=', layer 1 of 1$' ;;
    resolution) given="$apart --resolution 640" seen=', layer 4 of 4$' ;;
    extend) given="-i $flux/ref2.png --extend left=16 -W 96 -H 64" seen='  96 x 64, ' ;;
    output) given="--output $work/option.webp" seen="^$work/option.webp  " ;;
    noise) given="--noise $work/base.safetensors" seen=', 1 step, ' ;;
    dump) given="--dump $work/dump.safetensors" seen=', 1 step, ' ;;
    from) given="--from $work/base.png" seen=', seed 1, 1 step, ' ;;
    settings) given="--settings $work/settings.json" seen=', 1 step, ' ;;
    precision) given='--precision bf16' seen=', 1 step, ' ;;
    offload) given='--offload stream' seen='--offload has no effect' ;;
    device) given='--device ref' seen=', 1 step, ' ;;
    threads) given='--threads 1' seen=', 1 step, ' ;;
    batch) given='--batch 4' seen=', 1 step, ' ;;
    steps-dir) given="--steps-dir $work/steps" seen=', 1 step, ' ;;
    full-paths) given='--full-paths' seen=', 1 step, ' ;;
    no-metadata) given='--no-metadata' seen=', 1 step, ' ;;
    sheet) given="--sheet $work/sheet.png" seen="^$work/sheet.png  32 x 32, a sheet of 1" ;;
    preview) given='--preview' seen='--preview (needs a terminal|has no effect)' ;;
    show) given='--show' seen='--show (needs a terminal|has no effect)' ;;
    json) given='--json' seen='^ "family": "FLUX.2 ' ;;
    quiet) given='--quiet' seen='' ;;
    verbose) given='--verbose' seen='^picture +16 x 16, 1 step, ' ;;
    profile) given='--profile' seen='^cpu.matmul ' ;;
    help) given='--help' seen='^usage: lazuli generate ' ;;
    version) given='--version' seen='^lazuli [0-9]' ;;
    *) given= seen="a test of --$option in tests/cli/demo.sh" ;;
    esac
    if [ "$option" = quiet ]; then
        try 0 $lazuli generate $words $one -o "$work/option.png" $given </dev/null
    else
        try_match 0 "$seen" $lazuli generate $words $one -o "$work/option.png" $given
    fi
    case $option in model | prompt | lora-* | fast | wildcards | no-templates | combinations | dump | from | settings | offload | threads | batch | steps-dir | sheet | preview | show) same "$work/base.png" "$work/option.png" ;; esac
done
same "$work/base.safetensors" "$work/dump.safetensors"
try 0 test "$(echo $options | wc -w)" -gt 20 </dev/null # the list was read

# `make demo` is tools/demo: pictures, where they are, what next. It runs in a folder of its own, by a painter that makes
# pictures in one step.
mkdir -p "$work/root/tools" "$work/root/build"
cp tools/demo "$work/root/tools"
ln -s "$root/models" "$work/root/models"
cat >"$work/root/build/lazuli" <<END
#!/bin/sh
[ "\$LAZULI_MODEL" = models/demo ] && exec "$absolute" "\$@" -s 1
END
chmod +x "$work/root/build/lazuli"
cd "$work/root"
try 0 sh -c "tools/demo build >$work/said 2>&1" </dev/null
for line in '^\$ build/lazuli "a fox in 3d style" -S 1 -o build/demo/fox.png$' \
    '^build/demo/fox.png  256 x 256, seed 1, 1 step, ' '^4 pictures in [0-9]+ s: they are in build/demo$' '^What to try next:$'; do
    try_match 0 "$line" cat "$work/said"
done
try_match 0 'fox.png -m models/demo$' env LAZULI_MODEL=mine tools/demo build
escape=$(printf '\033')
try 1 grep -e "$escape" -e chafa -e terminal -e '.\{81\}' "$work/said" </dev/null # trap 14: plain lines where there is no terminal
if command -v script >/dev/null && ! $lazuli fox $one --show -o "$work/x.png" 2>&1 | grep -q 'made without chafa'; then
    on_terminal() { env TERM=xterm-256color LC_ALL=C.UTF-8 script -qec "stty cols 80 rows 24; tools/demo build" /dev/null; }
    # trap 14: each picture is seen, without the program chafa; the last one fits on a screen with its command and the hints
    on_terminal >"$work/said"
    try 0 sh -c "grep -c '$escape.*$escape' $work/said | awk '{ print (\$1 >= 4 * 8) }'" <<'END'
1
END
    try 0 sh -c "awk '/^\\\$ /{ first = NR } END { print (NR - first < 23) }' $work/said" <<'END'
1
END
    try_match 0 '^What to try next:' cat "$work/said"
    try 1 grep -e chafa -e 'needs a terminal' "$work/said" </dev/null
    try 1 sh -c "NO_COLOR=1 TERM=xterm script -qec 'tools/demo build' /dev/null | grep '$escape\[[34]8'" </dev/null
fi
# trap 14: nothing lies in the checkout afterwards, whether the demo or the commands that it names were run
sed -n 's/^  \(build.* -o .*\)/\1/p' "$work/said" | tr -d '\r' >"$work/hints"
try 0 sh -c "wc -l <$work/hints" <<'END'
2
END
try 0 env LAZULI_MODEL=models/demo sh -ec "sed 's/--show//' $work/hints | sh -e >/dev/null" </dev/null
try_match 0 '^fox2.png' ls build/demo
try 0 ls <<'END'
build
models
tools
END
cd "$root"
mkdir -p "$work/bin"
printf '#!/bin/sh\necho "lazuli: no" >&2\nexit 1\n' >"$work/bin/lazuli"
chmod +x "$work/bin/lazuli"
try_match 1 '^lazuli: no$' tools/demo "$work/bin" # a failure is not hidden
finish
