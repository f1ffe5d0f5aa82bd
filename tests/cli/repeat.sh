# Repeating: what a picture says of itself, --from and --settings. The same settings give the same file, byte for byte.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
flux=$PWD/tests/data/flux2
images=$PWD/tests/data/images
absolute=$(realpath $lazuli)
small="-W 32 -H 48 -s 2"

same() { try 0 cmp "$1" "$2" </dev/null; }
differ() { try_match 1 differ cmp "$1" "$2"; }

# repeats FILE OPTIONS...: made with them; then, from another folder, from itself alone. With --full-paths a picture finds
# its files from anywhere; else they are found beside it.
mkdir "$work/away"
repeats() {
    file=$1
    shift
    for paths in '' --full-paths; do
        [ "$paths" ] || [ "$file" != guided.png ] || continue # a model is not looked for beside a picture
        try 0 "$absolute" "$@" $paths -q -o "$work/$file" </dev/null
        try 0 sh -c "cd $work/away && $absolute --from ../$file $paths -q -o $file" </dev/null
        same "$work/$file" "$work/away/$file"
    done
}
cp $flux/ref1.png $flux/ref2.png "$work"
repeats plain.png a fox $small -S 7
repeats plain.jpg a fox $small -S 7
repeats plain.webp a fox $small -S 7 # trap 20: a WebP says how it was made
repeats text.webp "ein Fuchs, 狐 <&> \"so\" \\ $(printf 'two\nlines')" -n 'blau, grün' $small -S 7
repeats own-size.png a fox -S 7 -s 1
repeats random.png a fox $small
repeats text.png "ein Fuchs, 狐 \"so\" \\ $(printf 'two\nlines')" -n 'blau, grün' $small -S 9223372036854775807
repeats looked.png a fox $small -S 7 -i "$work/ref1.png" -i "$work/ref2.png"
repeats started.png a fox -s 4 -S 7 -i "$work/ref1.png" --strength 0.7
repeats guided.png a fox -m tests/data/flux2/C $small -S 7 -g 2.3 -n blue
repeats bf16.png a fox $small -S 7 --precision bf16
repeats dash.png -S 7 $small -p ''
try 0 $lazuli a fox $small -S 7 -q -o "$work/x.png" --dump "$work/x.safetensors" </dev/null
cd "$work"
repeats noise.png a fox $small --noise x.safetensors
cd - >/dev/null
for file in plain.png started.png; do # wherever the environment points
    try 0 env LAZULI_MODEL=$flux/A $lazuli --from "$work/$file" --full-paths -q -o "$work/x.png" </dev/null
    same "$work/$file" "$work/x.png"
done
try 0 $lazuli --from "$work/plain.jpg" -q -o "$work/x.png" </dev/null # another kind of file, the same settings
same "$work/plain.png" "$work/x.png"
try_match 0 '^32 x 48 pixels, 2 steps' $lazuli plan --from "$work/plain.png"
try_match 0 '^lazuli-7.png ' sh -c "cd $work/away && $absolute --from ../plain.png" # a name of its own

# What is typed wins
try 0 $lazuli a dog $small -S 8 -q -o "$work/dog.png" </dev/null
try 0 $lazuli --from "$work/plain.png" -S 8 a dog -q -o "$work/x.png" </dev/null
same "$work/dog.png" "$work/x.png"
try 0 $lazuli --from "$work/plain.png" -S 8 -p 'a dog' -q -o "$work/x.png" </dev/null
same "$work/dog.png" "$work/x.png"
try 0 $lazuli --from "$work/looked.png" -i $flux/ref1.png -q -o "$work/x.png" </dev/null # not one more: instead
try 0 $lazuli a fox $small -S 7 -i $flux/ref1.png -q -o "$work/y.png" </dev/null
same "$work/x.png" "$work/y.png"
try 0 $lazuli --from "$work/noise.png" -S 7 -q -o "$work/x.png" </dev/null # a seed is wanted, not that noise
same "$work/plain.png" "$work/x.png"
try_match 0 ', seed 8, ' $lazuli --from "$work/plain.png" --count 2 -o "$work/x.png"
try 0 $lazuli --from "$work/guided.png" -m models/demo -q -o "$work/x.png" </dev/null
differ "$work/guided.png" "$work/x.png"

# Settings as JSON: by hand, from a picture's text, from --json
cat >"$work/s.json" <<'END'
{"prompt": "a fox", "seed": [7], "width": 32, "height": "48", "steps": 2, "negative": null}
END
try 0 $lazuli --settings "$work/s.json" -q -o "$work/x.png" </dev/null
same "$work/plain.png" "$work/x.png"
try 0 sh -c "$lazuli --settings - -q -o $work/y.png <$work/s.json" </dev/null
same "$work/x.png" "$work/y.png"
try 0 $lazuli --settings "$work/s.json" --from "$work/guided.png" -q -o "$work/x.png" </dev/null # before --from
try 0 $lazuli a fox -m $flux/C $small -S 7 -g 2.3 -n blue -q -o "$work/y.png" </dev/null
same "$work/x.png" "$work/y.png"
$lazuli --from "$work/guided.png" --json -o "$work/x.png" >"$work/json"
try 0 $lazuli --settings "$work/json" --full-paths -q -o "$work/y.png" </dev/null
same "$work/guided.png" "$work/y.png"
$lazuli a fox $small -S 1,2 --json -o "$work/x.png" >"$work/json" 2>/dev/null
try_match 2 'json: describes 2 pictures; use' $lazuli --settings "$work/json"

# As others read it
parameters='Steps: 2, Sampler: Euler, CFG scale: 2.3, Seed: 7, Size: 32x48, Model: C, Version: Lazuli'
try_match 0 "^$parameters" sh -c "LC_ALL=C grep -a -A 2 parameters $work/guided.png | tr -d '\\000'"
try_match 0 '^Negative prompt: blue$' grep -a Negative "$work/guided.png"
if command -v exiftool >/dev/null; then
    try_match 0 "^a fox.Negative prompt: blue.$parameters" exiftool -s3 -Parameters "$work/guided.png"
    for file in text.png plain.png; do
        exiftool -b -Lazuli "$work/$file" >"$work/s.json"
        try 0 $lazuli --settings "$work/s.json" -q -o "$work/x.png" </dev/null
        same "$work/$file" "$work/x.png"
    done
    exiftool -b -Comment "$work/plain.jpg" >"$work/comment"
    try_match 0 'Steps: 2, Sampler' cat "$work/comment"
fi

# trap 13: a picture and its dump tell names, not folders; --no-metadata leaves nothing but pixels
mkdir "$work/private"
cp $flux/ref1.png "$work/private/ref1.png"
cp -r $flux/A "$work/private/A"
try 0 $lazuli a fox $small -S 7 -q -o "$work/x.png" --dump "$work/private/n.safetensors" </dev/null
told() { # OPTIONS...: how many of the files made with them name the folder
    rm -f "$work"/told.*
    try 0 $lazuli a fox -m "$work/private/A" $small -S 7 -i "$work/private/ref1.png" -q -o "$work/told.png" \
        --dump "$work/told.safetensors" "$@" </dev/null
    try 0 $lazuli a fox $small --noise "$work/private/n.safetensors" -q -o "$work/told.jpg" "$@" </dev/null
    told=$(LC_ALL=C grep -la private "$work"/told.* | wc -l)
}
told --full-paths
try 0 test "$told" = 3 </dev/null
told --no-metadata
try 1 sh -c "LC_ALL=C grep -la -e fox -e lazuli -e Lazuli -e Steps -e metadata $work/told.*" </dev/null
try_match 1 'told.png: contains no settings' $lazuli --from "$work/told.png"
try_match 2 'batch does not take --no-metadata' $lazuli batch "$work/s.json" --no-metadata
told
try 0 test "$told" = 0 </dev/null
try_match 0 '"model": "A"' grep -a model "$work/told.png"
try_match 0 '"image": \["ref1.png"\]' grep -a image "$work/told.png"

# A name is looked for beside the picture, then in the current folder; a model as -m and $LAZULI_MODEL find it
mv "$work/told.png" "$work/private"
try_match 1 'A is not a model folder.*; the settings name it, and -m DIR chooses another' $lazuli --from "$work/private/told.png"
try 0 sh -c "cd $work/private && $absolute --from told.png -o again.png | sed 's/,.*//'" <<'END'
lazuli: told.png names the image ref1.png
again.png  32 x 48
END
same "$work/private/told.png" "$work/private/again.png"
try 0 env LAZULI_MODEL="$work/private/A" $lazuli --from "$work/private/told.png" -q -o "$work/x.png" </dev/null
same "$work/private/told.png" "$work/x.png"
mkdir "$work/elsewhere"
mv "$work/private/ref1.png" "$work/elsewhere"
try 0 sh -c "cd $work/elsewhere && $absolute --from ../private/told.png -m ../private/A -q -o again.png" </dev/null
same "$work/private/told.png" "$work/elsewhere/again.png"
cp -r $flux/A "$work/elsewhere/demo" # a folder called like the demo model is not the demo model
try 0 sh -c "cd $work/elsewhere && $absolute a fox -m ./demo $small -S 7 -q -o d.png && $absolute --from d.png -q -o e.png" </dev/null
same "$work/elsewhere/d.png" "$work/elsewhere/e.png"

# What is not there any more is named
cp $flux/ref1.png "$work/gone.png"
cp -r $flux/A "$work/model"
try 0 $lazuli a fox -m "$work/model" $small -S 7 -i "$work/gone.png" -q -o "$work/lost.png" --full-paths </dev/null
rm -r "$work/gone.png"
try 1 $lazuli --from "$work/lost.png" -o "$work/x.png" <<END
lazuli: $work/lost.png names the image $(realpath "$work")/gone.png
lazuli: $(realpath "$work")/gone.png: cannot be opened: No such file or directory; the settings name it, and --image FILE chooses another
END
try 0 $lazuli --from "$work/lost.png" -i $flux/ref1.png -q -o "$work/x.png" </dev/null
rm -r "$work/model"
try_match 1 "$work/model is not a model folder.*; the settings name it, and -m DIR chooses another\$" $lazuli --from "$work/lost.png"

# Pictures of others, and what is no picture
a1111() { # a PNG that holds one text: KEY TEXT
    python3 - "$1" "$2" <<'END'
import struct, sys, zlib
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
text = sys.argv[1].encode() + b'\0' + sys.argv[2].encode('latin-1', 'replace')
rows = b''.join(b'\0' + bytes(3 * 16) for _ in range(16))
sys.stdout.buffer.write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 16, 16, 8, 2, 0, 0, 0)) + chunk(b'tEXt', text)
                        + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))
END
}
for file in $images/rgba-8.png $images/cmyk.jpg $images/alpha.webp "$flux/ref1.png"; do
    try_match 1 'contains no settings; only pictures as Lazuli wrote them do' $lazuli --from $file
done
try_match 1 'cannot be opened: No such file' $lazuli --from "$work/nowhere.png"
try_match 1 'is neither a PNG nor a JPEG nor a WebP picture' $lazuli --from "$work/s.json"
try_match 1 'is not an ordinary file' $lazuli --from /dev/zero
try_match 2 'from needs the name of a file' $lazuli --from ''
for bytes in 0 20 100 300; do
    head -c $bytes "$work/plain.png" >"$work/cut.png"
    try_match 1 '^lazuli: .*cut.png: ' $lazuli --from "$work/cut.png"
done
if command -v python3 >/dev/null; then
    a1111 parameters 'a cat
Steps: 20, Sampler: Euler a, CFG scale: 7, Seed: 1, Size: 512x512, Model: sd15' >"$work/a.png"
    try_match 1 "contains no settings by Lazuli; the settings in it .* are by another program" $lazuli --from "$work/a.png"
    a1111 lazuli '{"prompt": ' >"$work/a.png"
    try_match 1 'the settings in it are damaged' $lazuli --from "$work/a.png"
    # trap 5: the settings of a stranger's picture hold keys and kinds of values that Lazuli writes, or nothing is taken
    for settings in '"dump": "mine"' '"output": "mine.png"' '"sheet": "mine.png"' '"steps-dir": "mine"' '"count": 9' '"threads": 1' \
        '"pictures": [{"settings": {"prompt": "fox", "dump": "mine"}}]' '"pictures": []' '"seed": [1, 2]' '"seed": "1,2"' \
        '"full-paths": 1' '"from": "a.png"' '"offload": "none"' '"image": "a.png"' '"steps": null'; do
        a1111 lazuli "{\"prompt\": \"fox\", $settings}" >"$work/a.png"
        try_match 1 'a.png: the settings in it contain "[a-z-]*" in a form that Lazuli never writes; none of them is used' \
            $lazuli --from "$work/a.png" -o "$work/x.png"
    done
    mkfifo "$work/pipe" # which would wait for ever
    for settings in '"image": ["pipe"]' '"image": ["/dev/zero"]' '"noise": "pipe"' '"noise": "/dev/zero"'; do
        a1111 lazuli "{\"prompt\": \"fox\", $settings}" >"$work/a.png"
        try_match 1 'is not an ordinary file' timeout 20 $lazuli --from "$work/a.png" -o "$work/x.png"
    done
    a1111 lazuli '{"prompt": "fox", "model": "pipe"}' >"$work/a.png"
    try_match 1 'the settings name it' timeout 20 sh -c "cd $work && $absolute --from a.png -o x.png"
    a1111 lazuli '["prompt"]' >"$work/a.png"
    try_match 1 'contains no settings' $lazuli --from "$work/a.png"
    a1111 lazuli '{"prompt": "fox", "width": 7}' >"$work/a.png"
    try_match 2 'a.png: --width takes a whole number from 16 to 8192' $lazuli --from "$work/a.png"
fi

# Settings that are none; a terminal is not driven by what they say
bad() { # PATTERN TEXT
    printf '%s' "$2" >"$work/bad.json"
    try_match "${3:-2}" "^lazuli: $work/bad.json: $1" $lazuli --settings "$work/bad.json" -o "$work/never.png"
}
bad 'there is no setting "widht"; did you mean "width"\?$' '{"widht": 64}'
bad 'there is no setting "x"; there are model, prompt, ' '{"x": 1}'
for key in json help from settings quiet; do bad "there is no setting \"$key\"" "{\"$key\": 1}"; done
bad 'there is no setting "\?\[2J"' '{"\u001b[2J": 1}'
bad '--width takes a whole number from 16 to 8192, not .8193' '{"width": 8193}'
bad '--width takes' '{"width": -64}'
bad '--width takes' '{"width": 64.5}'
bad '--steps takes' '{"steps": "many"}'
bad '--guidance takes a number' '{"guidance": 1e300}'
bad '--seed takes whole numbers' '{"seed": [1, -1]}'
for key in model prompt width steps guidance device; do # trap 16: of a list, the last one was taken
    bad "\"$key\" takes one value, and a list was given" "{\"$key\": [\"demo\", \"16\"]}"
done
bad '"prompt" takes text in quotes' '{"prompt": 5}'
bad '"image" takes text in quotes' '{"image": ["a.png", {}]}'
bad 'the value of "seed" is neither' '{"seed": {}}'
bad 'the value of "steps" is neither' '{"steps": true}'
bad 'the value of "seed" is neither' '{"seed": [[1]]}'
bad 'is not JSON: line 1: ' '{"prompt": "a", "prompt": "b"}' 1
bad 'is not JSON' '{"seed": 99999999999999999999999}' 1
bad 'is not JSON' '{"prompt": "a\u0000b"}' 1
bad 'is not JSON' '' 1
bad 'is not JSON' '{"prompt": "a"' 1
bad 'contains no settings' '[]' 1
bad 'contains no settings' '{"pictures": []}' 1
head -c 3000 "$work/plain.png" >"$work/binary.json"
try_match 1 'binary.json: is not JSON' $lazuli --settings "$work/binary.json"
head -c 100000 /dev/zero | tr '\0' '[' >"$work/deep.json"
try_match 1 'deep.json: is not JSON' $lazuli --settings "$work/deep.json"
try_match 1 '/dev/zero: is too large; the limit is 1.0 MiB' $lazuli --settings /dev/zero
try_match 1 'cannot be read: Is a directory' $lazuli --settings "$work"
try_match 1 'cannot be opened: No such file' $lazuli --settings "$work/nowhere.json"
try_match 1 '^ "file": ".*bad.json"' sh -c "$lazuli --settings $work/bad.json --json 2>/dev/null"
try_match 2 'No such file' ls "$work/never.png"
finish
