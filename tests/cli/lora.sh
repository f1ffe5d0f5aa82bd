# LoRAs: --lora, in prompts, in batches and sessions, in what pictures say of themselves.
. tests/cli/transcript
unset LAZULI_MODEL LAZULI_LORAS NO_COLOR
root=$PWD
absolute=$(realpath $lazuli)
loras=$root/tests/data/lora
klein="-m $root/tests/data/flux2/B -W 32 -H 32 -s 2 -S 7"
qwen="-m $root/tests/data/qwen/Q -W 32 -H 32 -S 7"
peft=$loras/klein-peft.safetensors few=$loras/klein-few.safetensors
lightning=$loras/Qwen-Image-Lightning-4steps-V1.0-bf16.safetensors

same() { try 0 cmp "$1" "$2" </dev/null; }
differ() { try_match 1 differ cmp "$1" "$2"; }
pixels() { # the same pixels: metadata may differ
    try 0 $lazuli "$@" --no-metadata -q </dev/null
}

# Weights: 0 is the model itself, 1 is meant where none is said
pixels a fox $klein -o "$work/base.png"
pixels a fox $klein --lora $peft=0 -o "$work/zero.png"
same "$work/base.png" "$work/zero.png"
pixels a fox $klein --lora $peft -o "$work/one.png"
pixels a fox $klein --lora=$peft=1.0 -o "$work/one-said.png"
same "$work/one.png" "$work/one-said.png"
differ "$work/base.png" "$work/one.png"
pixels a fox $klein --lora $peft=0.5 --lora $few=-0.8 -o "$work/two.png"
differ "$work/one.png" "$work/two.png"

# What is told
try_match 0 'lazuli: LoRA klein-peft.safetensors: 17 of 17 modules$' $lazuli a fox $klein --lora $peft -o "$work/x.png"
try 0 $lazuli a fox $klein --lora $peft -q -o "$work/x.png" </dev/null
try_match 0 'decode' $lazuli plan $klein --lora $peft
plain=$($lazuli plan $klein --json | sed 's/.*"flops": \([0-9]*\),.*"device_bytes.*/\1/')
more=$($lazuli plan $klein --lora $peft --json -q | sed 's/.*"flops": \([0-9]*\),.*"device_bytes.*/\1/')
try 0 test "$plain" != "$more" </dev/null # a plan counts them

try_match 0 'lazuli: the LoRA .*klein-peft.safetensors is given more than once, so its weights are added up$' \
    $lazuli a fox $klein --lora $peft --lora $peft=0.5 -o "$work/x.png"

# Refused: a picture, nothing or a part of it fits, no such file, a weight that is none
try_match 1 'base.png: is a PNG picture, and no file of weights' $lazuli a fox $klein --lora "$work/base.png" -o "$work/x.png"
try_match 1 "6 of its 9 modules belong to nothing in this model, such as 'transformer.time_text_embed.*: --lora-partial$" \
    $lazuli a fox $klein --lora $loras/qwen-peft.safetensors -o "$work/x.png"
try_match 1 "none of its 6 modules belongs to this model" \
    $lazuli a fox $klein --lora tests/data/flux2/cases/b_square.safetensors --lora-partial -o "$work/none.png"
try_match 1 'there is no LoRA nowhere.safetensors' $lazuli a fox $klein --lora nowhere.safetensors=0.5 -o "$work/none.png"
try_match 2 'takes FILE or FILE=WEIGHT' $lazuli a fox $klein --lora $peft=much -o "$work/none.png"
try_match 2 'needs the name of a file' $lazuli a fox $klein --lora '' -o "$work/none.png"
try_match 2 'takes lora or model' $lazuli a fox $klein --lora-schedule mine -o "$work/none.png"
try_match 2 'would be overwritten' $lazuli a fox $klein --lora $peft=0.5 -o "$work/x.png" --dump $peft
try 1 test -e "$work/none.png" </dev/null

# In prompts, where a folder is named; what is left of the prompt is painted
pixels 'a fox' $klein --lora $peft=0.5 -o "$work/half.png"
pixels 'a <lora:klein-peft:0.5> fox' $klein --lora-folder $loras -o "$work/x.png"
same "$work/half.png" "$work/x.png"
pixels '<lora:klein-peft.safetensors:0.5>a fox ' $klein --lora-folder $loras -o "$work/x.png"
same "$work/half.png" "$work/x.png"
try 0 env LAZULI_LORAS=$loras $lazuli 'a fox <lora:klein-peft>' $klein --no-metadata -q -o "$work/x.png" </dev/null
same "$work/one.png" "$work/x.png"
try_match 0 'is read as words: name the folder' $lazuli 'a fox <lora:klein-peft:0.5>' $klein -o "$work/x.png"
try_match 1 'there is no LoRA foxes, nor in' $lazuli 'a <lora:foxes:1> fox' $klein --lora-folder $loras -o "$work/none.png"
try_match 2 'the weight must be a number' $lazuli 'a <lora:klein-peft:x> fox' $klein --lora-folder $loras -o "$work/none.png"

# Format trap 5: Lightning brings steps, guidance and schedule along, and each can be set
try_match 0 'is for few steps: 4 steps, no guidance and a schedule shifted by 3, unless' \
    $lazuli a fox $qwen --lora $lightning -o "$work/x.png"
try_match 0 ', 4 steps,' $lazuli a fox $qwen --lora $lightning -o "$work/x.png"
try_match 0 ', 6 steps,' $lazuli a fox $qwen --lora $lightning -s 6 -o "$work/x.png"
try_match 0 ', 50 steps,' $lazuli plan a fox $qwen --lora $lightning --lora-schedule model
pixels a fox $qwen --lora $lightning -s 3 -g 1 -o "$work/lora.png"
pixels a fox $qwen --lora $lightning -s 3 -g 1 --lora-schedule model -o "$work/model.png"
differ "$work/lora.png" "$work/model.png"

# A picture says what it was made with, and is made again from that: files are found beside it, or in the folder
cp $peft $few "$work"
mkdir "$work/away"
try 0 $lazuli a fox $klein --lora "$work/klein-peft.safetensors=0.5" --lora "$work/klein-few.safetensors=-0.8" -q \
    -o "$work/made.png" </dev/null
try_match 0 '"lora": \["klein-peft.safetensors=0.5", "klein-few.safetensors=-0.8"\]' strings "$work/made.png"
try 0 sh -c "cd $work/away && $absolute --from ../made.png -m $root/tests/data/flux2/B -q -o made.png" </dev/null
same "$work/made.png" "$work/away/made.png"
try 0 $lazuli --from "$work/made.png" -m tests/data/flux2/B --lora $peft=0.5 -q -o "$work/x.png" </dev/null # instead
try_match 0 '"lora": \["klein-peft.safetensors=0.5"\]' strings "$work/x.png"
cp "$work/made.png" "$work/away/alone.png"
try_match 1 'there is no LoRA klein-peft.safetensors.*the settings name it, and --lora FILE chooses another' \
    $lazuli --from "$work/away/alone.png" -m tests/data/flux2/B -q -o "$work/none.png"
try 0 $lazuli --from "$work/away/alone.png" -m tests/data/flux2/B --lora-folder $loras -q -o "$work/x.png" </dev/null
same "$work/made.png" "$work/x.png"
try 0 $lazuli a fox $qwen --lora $lightning -s 3 --lora-schedule model -q --full-paths -o "$work/model.png" </dev/null
try 0 $lazuli --from "$work/model.png" --full-paths -q -o "$work/x.png" </dev/null
same "$work/model.png" "$work/x.png"

# Lines of a batch have LoRAs of their own; the model is opened once
cat >"$work/lines.txt" <<END
{"prompt": "a fox", "lora": "$peft=0.5"}
{"prompt": "a fox"}
{"prompt": "a fox", "lora": ["$peft=0.5", "$few=-0.8"]}
a <lora:klein-peft> fox
{"prompt": "a fox", "lora": "$loras/nowhere.safetensors"}
END
try_match 1 'line 5.*there is no LoRA' $lazuli batch "$work/lines.txt" $klein --lora-folder $loras -o "$work/line-{line}.png"
for pair in 1:half 2:base 3:two 4:one; do
    try 0 $lazuli --from "$work/line-${pair%%:*}.png" -m tests/data/flux2/B --lora-folder $loras --no-metadata -q \
        -o "$work/x.png" </dev/null
    same "$work/x.png" "$work/${pair##*:}.png"
done

# A session: LoRAs come and go between pictures, and a saved picture remembers those that it was painted with
if command -v python3 >/dev/null && python3 -c 'import pty' 2>/dev/null; then
    export TERM=dumb NO_COLOR=1 LC_ALL=C XDG_STATE_HOME="$work/state"
    echo leak:wcsdup >"$work/lsan" # of libedit: see interactive.sh
    export LSAN_OPTIONS="suppressions=$work/lsan:print_suppressions=0"
    code=0 good=0
    python3 tests/cli/terminal.py "$absolute" $klein >"$work/session" 2>&1 <<END || code=$?
< lazuli> 
> a fox
< \$1  32 x 32, seed 7
< lazuli> 
> /lora $peft=0.5
< LoRA klein-peft.safetensors: 17 of 17 modules
< lazuli> 
> a fox
< \$2  32 x 32, seed 7
< lazuli> 
> /lora $few=-0.8
< LoRA klein-few.safetensors: 
< lazuli> 
> a fox
< \$3  32 x 32, seed 7
< lazuli> 
> /lora nowhere.safetensors
< there is no LoRA nowhere.safetensors
< lazuli> 
> /lora
< lazuli> 
> a fox
< \$4  32 x 32, seed 7
< lazuli> 
> /save \$1 $work/s1.png
< lazuli> 
> /save \$2 $work/s2.png
< lazuli> 
> /save \$3 $work/s3.png
< lazuli> 
> /save \$4 $work/s4.png
< lazuli> 
^D
END
    if ! grep -q 'left out of this build' "$work/session"; then
        cp "$work/session" "$work/difference"
        [ "$code" = 0 ] || good=1
        report $good session
        for pair in 1:base 2:half 3:two 4:base; do
            try 0 $lazuli --from "$work/s${pair%%:*}.png" -m tests/data/flux2/B --lora-folder $loras --no-metadata -q \
                -o "$work/x.png" </dev/null
            same "$work/x.png" "$work/${pair##*:}.png"
        done
    fi
fi

# A LoRA that comes with the model, by its name; diffusers made the golden picture with the same file (tools/demo-model/goldens.py)
demo="-m $root/models/demo -S 8 --threads $threads"
prompt='a panda in flat style on a green background'
pixels "$prompt" $demo --lora pixel -o "$work/own.png"
pixels "$prompt <lora:pixel>" $demo -o "$work/tag.png"
same "$work/own.png" "$work/tag.png"
try_match 1 '^PSNR +([6-9][0-9]|1[0-9][0-9])[.][0-9]+ dB$' $lazuli compare "$work/own.png" tests/data/demo/pixel.png
try_match 0 '^loras      pixel: --lora NAME adds one$' $lazuli info -m models/demo
try_match 0 '^  "pixel"$' $lazuli info -m models/demo --json
try_match 1 'there is no LoRA pixle; LoRAs of the model: pixel$' $lazuli a fox $demo --lora pixle -o "$work/none.png"
try_match 1 "there is no LoRA x, nor in $loras; LoRAs of the model: pixel" $lazuli 'a fox <lora:x>' $demo --lora-folder $loras -o "$work/none.png"
try 0 $lazuli "$prompt" $demo --lora pixel -q -o "$work/said.png" </dev/null
try 0 sh -c "cd '$work' && $absolute --from said.png -q -m $root/models/demo -o again.png" </dev/null # finds it there again
same "$work/said.png" "$work/again.png"
mkdir "$work/adapter"
cp models/demo/loras/pixel.safetensors "$work/adapter/adapter_model.safetensors" # as PEFT saves it
pixels "$prompt" $demo --lora "$work/adapter" -o "$work/peft.png"
same "$work/own.png" "$work/peft.png"
finish
