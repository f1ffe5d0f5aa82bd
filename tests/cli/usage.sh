# What the command line says about itself, and to those who mistype.
. tests/cli/transcript
unset LAZULI_MODEL

version=$(sed -n 's/#define LZ_VERSION "\(.*\)"/\1/p' include/lazuli.h)
try 0 $lazuli --version <<END
lazuli $version
END

# trap 19: the usage comes first; the first screen fits on one of 24 lines; no line of any help is longer than 80 columns
all="generate plan info tokenize encode decode tensors devices batch completions convert man pull models compare grid serve worker"
try 0 sh -c "$lazuli --help | head -n 1" <<'END'
usage: lazuli [COMMAND] [OPTIONS] [WORDS]
END
try 0 sh -c "$lazuli --help | wc -l | awk '{ print (\$1 < 24) }'" <<'END'
1
END
$lazuli --help >"$work/first"
$lazuli --help all >"$work/all"
for words in 'all --help' 'help all'; do try 0 $lazuli $words <"$work/all"; done
try 0 $lazuli help <"$work/first"
try 0 $lazuli -h <"$work/first"
try 0 sh -c "$lazuli --help all | sed -n '/^commands:/,/^\$/s/^  \\([a-z]*\\) .*/\\1/p' | sort | xargs" <<END
$(echo $all | xargs -n 1 | sort | xargs)
END
for command in $all; do
    $lazuli $command --help >"$work/help"
    try 0 $lazuli help $command <"$work/help"
    try 0 $lazuli --help $command <"$work/help"
    try_match 0 "^usage: lazuli $command \\[OPTIONS\\]" head -n 1 "$work/help"
    try_match 0 "^  .*lazuli " cat "$work/help" # each has an example
    try_match 0 "[ :]$command( |\$)" cat "$work/first"
    cat "$work/help" >>"$work/all"
done
try 1 grep -E '.{81}| $' "$work/first" "$work/all" </dev/null
try_match 0 '^  tensors +PATH +list ' cat "$work/all"
try_match 0 '^  -W, --width PIXELS +' cat "$work/first"
try_match 0 '^usage: lazuli tensors \[OPTIONS\] PATH' $lazuli tensors --help
try_match 0 '^      --json +' $lazuli tensors --help
try 1 sh -c "$lazuli tensors --help | grep -e --width" </dev/null # only what it takes
# trap 19: what is said of an option holds for the command, and pull lists the names that it knows
try_match 0 '^  -o, --output FILE +the .safetensors file to write; required$' $lazuli encode --help
try_match 0 '^  -o, --output FILE +the .png, .*; required$' $lazuli decode --help
try_match 0 '^  -S, --seed .* \(default: the line number\)$' $lazuli batch --help
try_match 0 "a model's part" $lazuli tensors --help
try_match 0 '^  flux2-klein-4b +14.9 GiB +black-forest-labs/FLUX.2-klein-4B$' $lazuli pull --help
try_match 0 '^  qwen-image-edit-2511 ' $lazuli pull --help
try_match 0 '^  HF_TOKEN, ' $lazuli --help all
try_match 0 '^  130 +stopped' $lazuli --help all

# A topic that is no command
for words in 'help modles' '--help modles' 'modles --help'; do
    try 2 $lazuli $words <<'END'
lazuli: there is no command 'modles'; did you mean 'models'?
END
done
try 2 $lazuli help xyzzy <<'END'
lazuli: there is no command 'xyzzy'; 'lazuli --help' lists them
END

# Words
try 2 $lazuli <<'END'
lazuli: a prompt is needed, as in lazuli "a red fox" -o fox.png; 'lazuli --help' lists the options; 'lazuli -' reads the prompt from stdin
END
try 2 $lazuli devices here <<'END'
lazuli: 'here' is one word too many; 'lazuli devices --help' shows the usage
END
try 2 $lazuli tensors <<'END'
lazuli: tensors needs a PATH
END
try 2 $lazuli encode -o x.safetensors <<'END'
lazuli: encode needs an IMAGE
END
try 2 $lazuli tensors a b <<'END'
lazuli: 'b' is one word too many; 'lazuli tensors --help' shows the usage
END
try_match 2 'encode needs an output file' $lazuli encode in.png
try_match 2 'decode needs an output file' $lazuli decode in.safetensors
try_match 2 'encode writes tensors' $lazuli encode in.png -o out.png
try_match 2 'must end in .png, .jpg or .webp' $lazuli decode in.safetensors -o out.safetensors

# trap 15: a word that is nearly a command, that is one of another program, or that names a model is no picture
small="-S 1 -W 16 -H 16 -s 1 -q -o $work/x.png"
no_picture() { # HINT WORDS...
    hint=$1
    shift
    try_match 2 "$hint" $lazuli "$@" $small
    try 1 test -e "$work/x.png" </dev/null
}
try 2 $lazuli tensor <<'END'
lazuli: 'tensor' is not a command; did you mean 'lazuli tensors'? ('lazuli generate tensor' uses the words as a prompt)
END
no_picture "'modles' is not a command; did you mean 'lazuli models'" modles
no_picture "did you mean 'lazuli pull'" pul flux2-klein-4b --to "$work"
no_picture "did you mean 'lazuli tensors'" tensros models/demo/vae/config.json
no_picture "'list' is not a command; 'lazuli models' lists the models" list
no_picture "'hepl' is not a command; did you mean 'lazuli help'" hepl
no_picture "'verison' is not a command; did you mean 'lazuli version'" verison
for word in server start ps chat rm ls show download get install update txt2img img2img edit paint gen create; do
    no_picture "^lazuli: '$word' is not a command; " $word
done
no_picture 'lazuli -m NAME "a fox" ' run NAME 'a fox'
no_picture 'lazuli -m flux2-klein-4b "a red fox" ' run flux2-klein-4b
no_picture 'lazuli -m demo "a red fox" ' run demo
no_picture 'lazuli pull qwen-image. ' download qwen-image
no_picture 'lazuli "a fox" -o picture.png' txt2img 'a fox'
no_picture "'flux2-klein-4b' is the name of a model; use lazuli -m flux2-klein-4b \"a fox\"" flux2-klein-4b 'a fox'
no_picture "'qwen-iamge' is nearly the name of a model; use lazuli -m qwen-image \"a red fox\"" qwen-iamge a red fox
no_picture 'is the name of a model; use lazuli -m models/demo "fox"' models/demo fox
no_picture "'demo' is the name of a model" demo
no_picture "'tests/data/demo/fox.png' is a picture; with -i the model looks at it" tests/data/demo/fox.png
no_picture "'tests/data/demo/fox.png' is a picture" tests/data/demo/fox.png 'make it blue'
no_picture "'tests/data/demo/fox.png' is a picture; with -i tests/data/demo/fox.png the model looks at it" 'make it blue' tests/data/demo/fox.png
no_picture "'demo' is the name of a model; use lazuli -m demo \"a fox\"" demo 'a fox'
mkdir -p "$work/hub/models--some--thing/snapshots/1"
echo '{}' >"$work/hub/models--some--thing/snapshots/1/model_index.json"
try_match 2 'is the name of a model; use lazuli -m some/thing "fox"' env HF_HUB_CACHE="$work/hub" $lazuli some/thing fox
try_match 2 '^ "error": ".*lazuli models' $lazuli list --json
# A command with one typing error is refused before any words, unless it is a word that prompts begin with
no_picture "'genrate' is not a command; did you mean 'lazuli generate'.*'lazuli generate genrate ...' uses the words" genrate fox
no_picture "'modls' is not a command; did you mean 'lazuli models'" modls of ships
no_picture "'plna' is not a command; did you mean 'lazuli plan'" plna a red fox
no_picture "'batchh' is not a command; did you mean 'lazuli batch'" batchh list
picture() { try 0 $lazuli "$@" $small </dev/null; }
for words in plane bull camels fox 'list of fruits' 'run in the park' 'show me a fox' 'generate list' '--prompt list' 'help me out' \
    'concert hall' 'versions of a fox' 'watch in the snow' 'model of a ship' 'Plan of a castle' 'pan and a pot' 'generate genrate fox'; do
    picture $words
done
picture 'list of fruits'
picture help 'a fox'
try 0 $lazuli $small -- list </dev/null
rm "$work/x.png"

# trap 15: an empty prompt is asked for by name
for words in '' ' '; do
    try 2 $lazuli "$words" $small <<'END'
lazuli: the prompt is empty; use --prompt '' if that is intended
END
    try_match 1 'the prompt is read from stdin, but stdin was empty|the prompt from stdin is blank' sh -c "printf '$words' | $lazuli - $small"
done
try_match 1 'the prompt from stdin is blank' sh -c "echo | $lazuli --prompt - $small"
try 1 test -e "$work/x.png" </dev/null
picture --prompt ''

# trap 15: on a terminal it is asked, and nothing is painted unless the answer is yes
if command -v python3 >/dev/null; then
    rm "$work/x.png"
    for answer in n ''; do
        printf '< as a prompt? [y/N]\n> %s\n' $answer >"$work/script"
        code=0
        python3 tests/cli/terminal.py $lazuli modles $small <"$work/script" >"$work/said" || code=$?
        try 0 test $code = 2 </dev/null
        try_match 0 "did you mean 'lazuli models'" cat "$work/said"
        try 1 test -e "$work/x.png" </dev/null
    done
    for words in modles 'genrate a fox'; do
        rm -f "$work/x.png"
        printf '< as a prompt? [y/N]\n> y\n' | python3 tests/cli/terminal.py $lazuli $words $small >"$work/said"
        try 0 test -e "$work/x.png" </dev/null
    done
fi

# trap 19: a device that there cannot be; more threads than cores; --offload without a GPU
try 2 $lazuli fox --device gpu <<'END'
lazuli: --device takes auto, cpu, cuda, cuda:0, cuda:1 ... or ref, not 'gpu'; 'lazuli devices' lists what is here
END
for bad in cuda: cuda:x cuda:-1 CPU ''; do try_match 2 '--device takes auto, cpu' $lazuli fox --device "$bad"; done
said="-S 1 -W 16 -H 16 -s 1 -o $work/x.png"
try_match 0 '^lazuli: --threads 1000 is more than the number of cores, so [0-9]+ (is|are) used$' $lazuli fox --threads 1000 $said
if taskset -c 0 true 2>/dev/null; then
    try_match 0 '^device +cpu .* 1 thread$' taskset -c 0 $lazuli fox --threads 1000 $said -v
fi
try_match 0 '^lazuli: --offload has no effect; ' $lazuli fox --device cpu --offload stream $said
try 1 sh -c "$lazuli fox --device cpu --offload auto --threads 1 $said 2>&1 | grep -e offload -e threads" </dev/null

# Options
try 2 $lazuli devices --frobnicate <<'END'
lazuli: there is no option --frobnicate; 'lazuli --help all' lists them
END
try 2 $lazuli devices --fast <<'END'
lazuli: devices does not take --fast; 'lazuli devices --help' lists its options
END
try 2 $lazuli fox --widht 64 <<'END'
lazuli: there is no option --widht; did you mean --width?
END
# An option that was cut short, one of another program, one with a word added
for pair in out:output size:width n:count num:count cfg:guidance input:image negative-prompt:negative batch-size:batch output-file:output \
    host:listen num-inference-steps:steps stepz:steps; do
    try 2 $lazuli fox --${pair%:*} 3 <<END
lazuli: there is no option --${pair%:*}; did you mean --${pair#*:}?
END
done
try_match 2 'there is no setting "cfg"; did you mean "guidance"' sh -c "echo '{\"cfg\": 2}' | $lazuli fox --settings -"
try_match 2 'there is no option -z' $lazuli fox -qz
try 2 $lazuli devices --seed 3 <<'END'
lazuli: devices does not take --seed; 'lazuli devices --help' lists its options
END
for option in -W --width; do
    try 2 $lazuli fox $option <<'END'
lazuli: --width needs a value: --width PIXELS
END
done
try 2 $lazuli fox -o -q <<'END'
lazuli: --output needs a value: --output FILE
END
for option in --output --sheet --dump --image --noise --steps-dir --from --settings --model; do
    try 2 $lazuli fox $option '' <<END
lazuli: $option needs the name of a file or folder
END
done
# After -- --json is a word
try 1 sh -c "$lazuli -S 1 -W 16 -H 16 -s 1 -q -o $work/word.png -- --json | grep -F '{'" </dev/null
try 2 $lazuli --check <<'END'
lazuli: generate does not take --check; 'lazuli generate --help' lists its options
END
try 2 $lazuli fox --quiet=very <<'END'
lazuli: --quiet takes no value, but was given 'very'
END
try 2 $lazuli fox --widht=3 --json <<'END'
lazuli: there is no option --widht; did you mean --width?
{
 "error": "there is no option --widht; did you mean --width?"
}
END

# Numbers
for bad in 0 15 8193 12x x12 ' 64' +64 -64 64.0 0x40 99999999999999999999999 ''; do
    try_match 2 'lazuli: --width takes a whole number from 16 to 8192, not' $lazuli fox --width="$bad"
done
for bad in 0 1001 1.5; do try_match 2 '--steps takes a whole number from 1 to 1000, not' $lazuli fox -s $bad; done
for bad in 0 1001 nan inf 0x2 '4 ' 4,5 '' -; do try_match 2 '--guidance takes a number from 1 to 1000, not' $lazuli fox -g "$bad"; done
for bad in 0 1.1 -0.5; do try_match 2 '--strength takes a number from 0.001 to 1, not' $lazuli fox --strength $bad; done
for bad in -1 1, ,1 1,,2 a 1.5 9223372036854775808; do
    try_match 2 '--seed takes whole numbers from 0 to 9223372036854775807' $lazuli fox -S $bad
done
try_match 2 '--count takes a whole number from 1 to 1000, not' $lazuli fox --count 0
try_match 2 '--count takes one seed to start from, but 2 were given' $lazuli fox --count 2 -S 1,2
try_match 2 'there are fewer than 9 seeds from 9223372036854775800 on' $lazuli fox --count 9 -S 9223372036854775800
try_match 2 '--threads takes a whole number from 1 to 1024, not' $lazuli fox --threads 0

if [ -e /dev/full ]; then
    for command in --help --version devices 'devices --json' 'info -m tests/data/flux2/A' 'tokenize -m tests/data/flux2/A fox'; do
        try 1 sh -c "$lazuli $command >/dev/full" <<'END'
lazuli: cannot write the output: No space left on device
END
    done
    try 1 sh -c "yes '{\"text\": \"fox\"}' | $lazuli tokenize -m tests/data/flux2/A >/dev/full" <<'END'
lazuli: cannot write the output: No space left on device
END
fi

try_match 0 '^default +cpu \(.*thread' env LAZULI_CUDA_PATH=/nowhere $lazuli devices
try_match 0 '^cpu +baseline +cpu \(baseline' $lazuli devices
try_match 0 '^ref +ref' $lazuli devices
try_match 0 '^ "default": "cpu ' env LAZULI_CUDA_PATH=/nowhere $lazuli devices --json
# A mistyped command with two operands is not painted.
: >"$work/in.safetensors"
try_match 2 "'convrt' is not a command; did you mean 'lazuli convert'" $lazuli convrt "$work/in.safetensors" "$work/out.gguf"
finish
