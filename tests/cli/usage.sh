# What the command line says about itself, and to those who mistype.
. tests/cli/transcript
unset LAZULI_MODEL

version=$(sed -n 's/#define LZ_VERSION "\(.*\)"/\1/p' include/lazuli.h)
try 0 $lazuli --version <<END
lazuli $version
END
try_match 0 '^usage: lazuli \[COMMAND\]' $lazuli --help
try_match 0 '^  tensors +PATH +what ' $lazuli --help
try_match 0 '^  -W, --width PIXELS +' $lazuli -h
try_match 0 '^usage: lazuli tensors \[OPTIONS\] PATH' $lazuli tensors --help
try_match 0 '^      --json +' $lazuli tensors --help
try 1 sh -c "$lazuli tensors --help | grep -e --width" </dev/null # only what it takes
for command in generate plan info tokenize encode decode tensors devices batch completions man pull models; do
    try_match 0 "^  .*lazuli " $lazuli $command --help # each has an example
done

# Words
try 2 $lazuli <<'END'
lazuli: what shall be shown? lazuli "a red fox" -o fox.png; 'lazuli --help' tells the rest
END
try 2 $lazuli tensor <<'END'
lazuli: is the command tensors meant? For a picture of it: lazuli generate tensor
END
try 2 $lazuli devices here <<'END'
lazuli: 'here' is one word too many; 'lazuli devices --help' shows how it is used
END
try 2 $lazuli tensors <<'END'
lazuli: tensors needs a PATH
END
try 2 $lazuli tensors a b <<'END'
lazuli: 'b' is one word too many; 'lazuli tensors --help' shows how it is used
END
try_match 2 'encode needs to know where to' $lazuli encode in.png
try_match 2 'decode needs to know where to' $lazuli decode in.safetensors
try_match 2 'latents are no picture' $lazuli encode in.png -o out.png
try_match 2 'ends in .png, .jpg or .webp' $lazuli decode in.safetensors -o out.safetensors

# Options
try 2 $lazuli devices --fast <<'END'
lazuli: there is no option --fast; 'lazuli --help' lists them
END
try 2 $lazuli fox --widht 64 <<'END'
lazuli: there is no option --widht; is --width meant?
END
try_match 2 'there is no option -z' $lazuli fox -qz
try 2 $lazuli devices --seed 3 <<'END'
lazuli: devices has no use for --seed; 'lazuli devices --help' lists what it takes
END
for option in -W --width; do
    try 2 $lazuli fox $option <<'END'
lazuli: --width needs a value: --width PIXELS
END
done
try 2 $lazuli fox -o -q <<'END'
lazuli: --output needs a value: --output FILE
END
try 2 $lazuli fox --quiet=very <<'END'
lazuli: --quiet takes no value, but was given 'very'
END
try 2 $lazuli fox --widht=3 --json <<'END'
lazuli: there is no option --widht; is --width meant?
{
 "error": "there is no option --widht; is --width meant?"
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
try_match 2 '--count counts on from one seed, and 2 were given' $lazuli fox --count 2 -S 1,2
try_match 2 'there are no 9 seeds from 9223372036854775800 on' $lazuli fox --count 9 -S 9223372036854775800
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
finish
