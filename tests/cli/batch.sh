# `lazuli batch`: a line, a picture; goes on after whatever stopped it, until exactly the full set is there.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
flux=$PWD/tests/data/flux2
absolute=$(realpath $lazuli)
tiny="-W 16 -H 16 -s 1 --threads 1"
cd "$work"

same() { try 0 cmp "$1" "$2" </dev/null; }
lists() { try 0 ls -A "$1"; } # the names come from stdin

# Prompts and settings, comments and blank lines; names by line and seed, of the file's own name
printf '\357\273\277# the first\na fox\r\n\n  {"prompt": "a dog", "seed": [5, 6], "width": 32}  \n\t\n{"prompt": "a cat", "output": "c/{n}-{seed}.jpg"}' >p.txt
mkdir c
"$absolute" batch p.txt $tiny >said 2>&1
for line in '^lazuli: line 2: this is the demo model' '^p-2-2.png  16 x 16, seed 2, 1 step, ' '^p-4-5.png  32 x 16, seed 5' \
    '^p-4-6.png  32 x 16, seed 6' '^c/3-6.jpg  16 x 16, seed 6' '^lazuli: 4 pictures made, 0 there already$'; do
    try_match 0 "$line" cat said
done
try 0 "$absolute" a fox -S 2 $tiny -q -o x.png </dev/null
same x.png p-2-2.png # as `generate` makes it
try 0 "$absolute" --from p-4-6.png -q -o x.png </dev/null
same x.png p-4-6.png

# Finished ones are skipped; what is missing, or made from other settings, or by others, is made
try 0 "$absolute" batch p.txt $tiny <<'END'
lazuli: line 2: this is the demo model; -m DIR takes another
lazuli: 0 pictures made, 4 there already
END
cp p-4-5.png before.png
rm p-4-5.png
try_match 0 '^lazuli: 1 picture made, 3 there already' "$absolute" batch p.txt $tiny
same before.png p-4-5.png
head -c -20 before.png >half.png
for other in "$flux/ref1.png" said p-4-6.png half.png; do
    cp "$other" p-4-5.png
    try_match 0 '^lazuli: 1 picture made, 3 there already' "$absolute" batch p.txt $tiny
    same before.png p-4-5.png
done
try_match 0 '^lazuli: 4 pictures made, 0 there already' "$absolute" batch p.txt $tiny -s 2
try_match 0 '^lazuli: 0 pictures made, 4 there already' "$absolute" batch p.txt $tiny -s 2 --threads 2 # the same picture
try 0 "$absolute" batch p.txt $tiny -s 2 -q </dev/null

# Names
mkdir out
try_match 0 '^out/p-1-7-2.png ' "$absolute" batch p.txt $tiny -S 7 -o 'out/{file}-{n}-{seed}-{line}.png'
printf 'a fox\na dog\n' >two.txt
try_match 1 '^lazuli: line 2: out/x.png is the picture of line 1 already: put \{line\} or \{seed\}' "$absolute" batch two.txt $tiny -o out/x.png
try_match 0 'out/1-2.png' "$absolute" batch two.txt $tiny --count 2 -S 1 -o 'out/{n}.png' # several of a line are numbered
for name in 'out/{what}.png' 'out/{line.png' 'out/{}.png'; do
    try_match 1 'line 1: .*: \{file\}, \{line\}, \{n\} and \{seed\} can stand in a name' "$absolute" batch two.txt -o "$name"
done
# trap 20: a WebP says how it was made, so that a batch of them goes on too
try_match 0 '^lazuli: 2 pictures made, 0 there' "$absolute" batch two.txt $tiny -o 'out/{n}.webp'
try_match 0 '^lazuli: 0 pictures made, 2 there' "$absolute" batch two.txt $tiny -o 'out/{n}.webp'
try_match 0 '^lazuli: 2 pictures made, 0 there' "$absolute" batch two.txt $tiny -s 2 -o 'out/{n}.webp'
try_match 1 'line 2: nowhere/2.png: cannot be written: .*make the folder first' "$absolute" batch two.txt -o 'nowhere/{n}.png'
try_match 0 '^out/2.png' "$absolute" batch two.txt $tiny -o 'out/{n}.png' --dump 'out/{n}.safetensors'
rm out/2.safetensors
try_match 0 '1 picture made, 1 there' "$absolute" batch two.txt $tiny -o 'out/{n}.png' --dump 'out/{n}.safetensors'
try_match 0 '^lazuli-1-1.png' sh -c "$absolute batch - $tiny <two.txt"

# A bad line is told of, and the rest goes on
cat >bad.txt <<END
a fox
{"promt": "a dog"}
{"prompt": "a dog", "steps": 0}
{"prompt": "a dog"
{"seed": 3}
{"prompt": "a dog", "model": "$work/nowhere"}
{"prompt": "a dog", "image": "nowhere.png"}
{"prompt": "a dog", "strength": 0.5}
{"prompt": "a dog", "seed": [1, 2], "count": 2}
$(printf 'a \377 dog')
[1, 2] is a prompt
END
"$absolute" batch bad.txt $tiny >said 2>&1
try 0 test $? = 1 </dev/null
for line in '^bad-1-1.png' 'line 2: there is no setting "promt"; is "prompt" meant\? There are ' 'line 3: --steps takes a whole number' \
    'line 4: is not JSON, though it begins with \{' 'line 5: has no "prompt"' 'line 6: .*nowhere is not a model folder.*; the settings name it' \
    'line 7: nowhere.png: cannot be opened' 'line 8: --strength says how much' 'line 9: --count counts on from one seed' \
    'line 10: is not valid UTF-8' '^bad-11-11.png' '^lazuli: 2 pictures made, 0 there already' '^lazuli: 9 of 11 lines failed$'; do
    try_match 0 "$line" cat said
done
"$absolute" batch bad.txt $tiny --json >json 2>/dev/null
for line in '^\{"line": 1, "there": 1\}$' '^\{"error": "there is no setting .*, "line": 2\}$' '^\{"made": 0, "there": 2, "failed": 9\}$' \
    '^\{"error": "9 of 11 lines failed"\}$'; do
    try_match 0 "$line" cat json
done
rm bad-1-1.png
try_match 1 '^\{"file": "bad-1-1.png", "seed": 1, .*"settings": \{.*, "line": 1\}$' "$absolute" batch bad.txt $tiny --json

# Files that are none
try_match 1 'nowhere.txt: cannot be opened' "$absolute" batch nowhere.txt
try_match 1 'cannot be read: Is a directory' "$absolute" batch out
try_match 1 'out/2.png: holds a zero byte: it is not text' "$absolute" batch out/2.png
try_match 1 '/dev/zero: is too large: at most 64.0 MiB are read' "$absolute" batch /dev/zero
try_match 2 'batch needs a FILE' "$absolute" batch
head -c 2000000 /dev/zero | tr '\0' 'x' >long.txt
echo >>long.txt
echo 'a fox' >>long.txt
try_match 1 '^lazuli: line 1: is too long: at most 1.0 MiB' "$absolute" batch long.txt $tiny
try_match 1 '^lazuli: 0 pictures made, 1 there already' "$absolute" batch long.txt $tiny
try 0 "$absolute" batch /dev/null <<'END'
lazuli: 0 pictures made, 0 there already
END

# Lines may name other models; the last one stays open
cat >models.jsonl <<END
{"prompt": "a fox", "model": "$flux/A"}
{"prompt": "a dog", "model": "$flux/A"}
{"prompt": "a fox", "model": "$flux/B"}
{"prompt": "a fox", "model": "demo"}
{"prompt": "a fox", "image": "$flux/ref1.png"}
END
try_match 0 '^lazuli: 5 pictures made' "$absolute" batch models.jsonl -W 32 -H 32 -s 1 -S 1
for model in "$flux/A 1" "$flux/B 3" "demo 4"; do
    try 0 "$absolute" a fox -m ${model% *} -W 32 -H 32 -s 1 -S 1 -q -o x.png </dev/null
    same x.png "models-${model#* }-1.png"
done
try_match 0 ' 0 pictures made, 5 there' "$absolute" batch models.jsonl -W 32 -H 32 -s 1 -S 1

# Killed at any point and started again: exactly the full set, each file whole. Whatever is there meanwhile is whole too.
i=0
while [ $i -lt 14 ]; do
    i=$((i + 1))
    echo "a fox in style $i" >>kill.txt
done
mkdir killed whole
kill="-W 32 -H 32 -s 2 --threads 1 -q"
try 0 "$absolute" batch kill.txt $kill -o 'whole/{n}.png' --dump 'whole/{n}.safetensors' </dev/null
for pause in KILL.05 KILL.13 TERM.09 KILL.21 INT.11 KILL.16 KILL.3 TERM.07 KILL.24; do
    "$absolute" batch kill.txt $kill -o 'killed/{n}.png' --dump 'killed/{n}.safetensors' >/dev/null 2>&1 &
    pid=$!
    sleep 0.${pause#*.}
    kill -${pause%.*} $pid 2>/dev/null
    wait $pid 2>/dev/null
    for file in killed/*.png; do
        [ ! -e "$file" ] || cmp -s "$file" "whole/${file#killed/}" || try 0 cmp "$file" "whole/${file#killed/}" </dev/null
    done
done
touch killed/3.png.999999999-0.part killed/3.png.note # left by a process that is no more; and something of somebody's
rm -f killed/3.png
try 0 "$absolute" batch kill.txt $kill -o 'killed/{n}.png' --dump 'killed/{n}.safetensors' </dev/null
rm killed/3.png.note
try 0 diff -r whole killed </dev/null

# Ctrl-C: stops, says how to go on
"$absolute" batch kill.txt -s 1000 -W 256 -H 256 -o 'out/stop-{n}.png' >said 2>&1 &
pid=$!
sleep 0.5
kill -INT $pid
status=0
wait $pid || status=$?
try_match 130 '^lazuli: the same command goes on from here$' sh -c "cat said && exit $status"
try_match 2 'No such file' ls out/stop-1.png

if command -v script >/dev/null; then # all of it, not one picture
    try_match 0 '2/2 [a-z]+ +#+\.+ +[0-9]+% ' \
        script -qec "stty cols 100; $absolute batch two.txt -W 48 -H 48 -o 'out/t{n}.png'" /dev/null
fi
if [ -e /dev/full ]; then # an answer that does not arrive ends it
    rm -f whole/*
    try_match 1 'cannot write the output' sh -c "$absolute batch kill.txt $tiny -o 'whole/{n}.png' >/dev/full"
    lists whole <<'END'
1.png
END
fi
finish
