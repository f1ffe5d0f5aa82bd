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
for line in '^lazuli: line 2: using the demo model' '^p-2-2.png  16 x 16, seed 2, 1 step, ' '^p-4-5.png  32 x 16, seed 5' \
    '^p-4-6.png  32 x 16, seed 6' '^c/3-6.jpg  16 x 16, seed 6' '^lazuli: 4 pictures made, 0 there already$'; do
    try_match 0 "$line" cat said
done
try 0 "$absolute" a fox -S 2 $tiny -q -o x.png </dev/null
same x.png p-2-2.png # as `generate` makes it
try 0 "$absolute" --from p-4-6.png -q -o x.png </dev/null
same x.png p-4-6.png

# A picture is written while that of the next line is made. If it cannot be, its own line has failed.
printf 'a fox\na dog\na cat\n' >late.txt
try_match 1 '^lazuli: 3 of 3 lines failed$' sh -c \
    "ulimit -f 1 && '$absolute' batch late.txt -W 64 -H 64 -s 1 --threads 1 -o 'late-{n}.png' >said 2>&1; code=\$?; cat said; exit \$code"
for line in '^lazuli: line 1: late-1.png: ' '^lazuli: line 2: late-2.png: ' '^lazuli: line 3: late-3.png: ' \
    '^lazuli: 0 pictures made, 0 there already$'; do
    try_match 0 "$line" cat said
done
try_match 0 '^0$' sh -c 'ls late-* 2>/dev/null | wc -l'

# It is reported after the settings of its line are freed (a sanitizer would stop it), and belongs to no sheet of the
# next line.
printf '%s\n' '{"prompt": "a", "output": "free-1.png", "seed": 1}' \
    '{"prompt": "b", "output": "free-{seed}.png", "seed": [2, 3], "sheet": "free.png"}' '{"prompt": "c", "output": "free-4.png"}' >free.txt
"$absolute" batch free.txt $tiny -m $flux/A >said 2>&1
for line in '^free-1.png  16 x 16, seed 1' '^free-3.png  16 x 16, seed 3' '^free.png  56 x 32, a sheet of 2$' '^free-4.png  16 x 16, seed 3' \
    '^lazuli: 4 pictures made, 0 there already$'; do
    try_match 0 "$line" cat said
done
try 0 "$absolute" b -S 2,3 $tiny -m $flux/A -q -o x.png --sheet sheet.png </dev/null
same sheet.png free.png

# It is reported also if the next line fails meanwhile.
mkdir -p steps/2-step-01.png
printf '%s\n' '{"prompt": "a", "output": "slow.webp", "dump": "slow.safetensors", "seed": 1, "width": 768, "height": 512}' \
    '{"prompt": "a", "output": "never.png", "seed": 2, "steps-dir": "steps"}' >slow.txt
try_match 1 '^lazuli: line 2: steps/2-step-01.png: is a folder' sh -c \
    "'$absolute' batch slow.txt $tiny -m $flux/A >said 2>&1; code=\$?; cat said; exit \$code"
for line in '^slow.webp  768 x 512, seed 1, ' '^lazuli: 1 picture made, 0 there already$' '^lazuli: 1 of 2 lines failed$'; do
    try_match 0 "$line" cat said
done
rm -r steps free* slow* x-?.png sheet.png

# Finished ones are skipped; what is missing, or made from other settings, or by others, is made
try 0 "$absolute" batch p.txt $tiny <<'END'
lazuli: line 2: using the demo model; -m DIR chooses another
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
try_match 1 '^lazuli: line 2: out/x.png is already written by line 1; put \{line\} or \{seed\}' "$absolute" batch two.txt $tiny -o out/x.png
try_match 0 'out/1-2.png' "$absolute" batch two.txt $tiny --count 2 -S 1 -o 'out/{n}.png' # several of a line are numbered
for name in 'out/{what}.png' 'out/{line.png' 'out/{}.png'; do
    try_match 2 '^lazuli: [^ ]*: a name may contain \{file\}, \{line\}, \{n\} and \{seed\}' "$absolute" batch two.txt -o "$name"
done
# trap 20: a WebP says how it was made, so that a batch of them goes on too
try_match 0 '^lazuli: 2 pictures made, 0 there' "$absolute" batch two.txt $tiny -o 'out/{n}.webp'
try_match 0 '^lazuli: 0 pictures made, 2 there' "$absolute" batch two.txt $tiny -o 'out/{n}.webp'
try_match 0 '^lazuli: 2 pictures made, 0 there' "$absolute" batch two.txt $tiny -s 2 -o 'out/{n}.webp'
try_match 2 'lazuli: nowhere/1.png: cannot be written: .*create the folder first' "$absolute" batch two.txt -o 'nowhere/{n}.png'
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
for line in '^bad-1-1.png' 'line 2: there is no setting "promt"; did you mean "prompt"\?$' 'line 3: --steps takes a whole number' \
    'line 4: is not JSON, though it begins with \{' 'line 5: has no "prompt"' 'line 6: .*nowhere is not a model folder.*; this line names it$' \
    'line 7: nowhere.png: cannot be opened: .*; this line names it$' 'line 8: --strength needs an image to start from' 'line 9: --count takes one seed to start from' \
    'line 10: is not valid UTF-8' '^bad-11-11.png' '^lazuli: 2 pictures made, 0 there already' '^lazuli: 9 of 11 lines failed$'; do
    try_match 0 "$line" cat said
done
"$absolute" batch bad.txt $tiny --json >json 2>/dev/null
for line in '^\{"line": 1, "there": 1\}$' '^\{"error": "there is no setting .*, "line": 2\}$' '^\{"made": 0, "there": 2, "failed": 9\}$'; do
    try_match 0 "$line" cat json
done
try 0 grep -c '^{"error"' json <<'END'
9
END
rm bad-1-1.png
try_match 1 '^\{"file": "bad-1-1.png", "seed": 1, .*"settings": \{.*, "line": 1\}$' "$absolute" batch bad.txt $tiny --json

# A fault of the command's own -o or --dump is said once; settings that the command names are not called the line's
printf 'a fox\na dog\n' >own.txt
try 2 "$absolute" batch own.txt $tiny -o '{lin}.png' <<'END'
lazuli: {lin}.png: a name may contain {file}, {line}, {n} and {seed}, and no other {}
END
try 2 "$absolute" batch own.txt $tiny -o nix/ <<'END'
lazuli: nix/: is not a folder that can be written into; create it first
END
mkdir rom
chmod 555 rom
for folder in rom/ own.txt/; do # the superuser may write into the first
    [ -w $folder ] || try_match 2 "^lazuli: $folder: is not a folder that can be written into: (Permission denied|Not a directory)\$" \
        "$absolute" batch own.txt $tiny -o $folder
done
rmdir rom
try 2 "$absolute" batch own.txt $tiny -o 'nix/{line}.png' <<'END'
lazuli: nix/1.png: cannot be written: nix/: No such file or directory; create the folder first
END
try 2 "$absolute" batch own.txt $tiny -o - <<'END'
lazuli: -o - writes one picture to stdout, but a batch writes files; name them, as in -o 'out/{line}-{seed}.png'
END
try 2 "$absolute" batch own.txt $tiny --dump x.png <<'END'
lazuli: x.png: --dump writes tensors, so the name must end in .safetensors
END
echo '{"image": "nowhere.png"}' >own.json
try_match 1 'line 2: nowhere.png: .*; the settings name it, and --image FILE chooses another$' "$absolute" batch own.txt $tiny --settings own.json
echo '{"prompt": "a fox", "image": "nowhere.png"}' >own.txt
try_match 1 '^lazuli: 1 of 1 line failed$' "$absolute" batch own.txt $tiny

# trap 16: all lines of a file are checked before the first picture; a picture that an earlier line makes is no missing one
cat >typo.txt <<'END'
{"prompt": "a fox", "output": "out/typo-{n}.png"}
{"prompt": "a fox", "output": "out/typo-{n}.png", "image": "out/typo-1.png", "strength": 0.5}
{"prompt": "a fox", "output": "nowhere/{n}.png"}
{"prompt": "a fox", "output": "out/typo-1.png"}
{"prompt": "a fox", "image": "nowhere.png"}
{"prompt": ["a fox", "a dog"]}
{"prompt": "a fox", "width": [16], "sheet": "out/typo.png"}
{"prompt": "a fox", "stepz": 1}
END
"$absolute" batch typo.txt -W 64 -H 64 -s 4 >said 2>&1
try 0 test $? = 1 </dev/null
try 0 sed -E 's/, [0-9.]+ m?s$//; s/(meant|there|opened|written).*/\1/' said <<'END'
lazuli: line 3: nowhere/3.png: cannot be written
lazuli: line 4: out/typo-1.png is already written
lazuli: line 5: nowhere.png: cannot be opened
lazuli: line 6: "prompt" takes one value, and a list was given
lazuli: line 7: "width" takes one value, and a list was given
lazuli: line 8: there
lazuli: 6 of 8 lines have errors; the others will be made
lazuli: line 1: using the demo model; -m DIR chooses another
lazuli: line 1: this model was not trained for pictures of 64 x 64, so this one may be poor; the nearest size is 128 x 128
out/typo-1.png  64 x 64, seed 1, 4 steps
out/typo-2.png  64 x 64, seed 2, 2 of 4 steps
lazuli: 2 pictures made, 0 there
lazuli: 6 of 8 lines failed
END
try_match 1 'line 8: there is no setting' sh -c "$absolute batch - -W 64 -H 64 -s 4 <typo.txt 2>&1 | head -6; exit 1" # of stdin too, where it is a file

# trap 16: lines of a pipe are taken as they come: the second line is written when the first picture is there
waits() { # until a file is there, for a minute at most
    i=0
    while [ ! -e "$1" ] && [ $i -lt 600 ]; do sleep 0.1 && i=$((i + 1)); done
}
(echo 'a fox' && waits out/pipe-1.png && ls out/pipe-1.png >seen && echo 'a dog' && echo '{"promt": 1}' && echo 'a cat') |
    "$absolute" batch - $tiny -o 'out/pipe-{line}.png' >said 2>&1
try 0 cat seen <<'END'
out/pipe-1.png
END
try 0 test -e out/pipe-4.png </dev/null
try_match 0 '^lazuli: line 3: there is no setting "promt"' cat said
try_match 0 '^lazuli: 1 of 4 lines failed$' cat said
mkfifo fifo
(printf '\357\273\277a fox\r\n# none\n\n' && head -c 2000000 /dev/zero | tr '\0' x && printf '\na dog') >fifo &
"$absolute" batch fifo $tiny -o 'out/fifo-{line}.png' >said 2>&1
try_match 0 '^lazuli: line 4: is too long; the limit is 1.0 MiB' cat said
try 0 "$absolute" a fox -S 1 $tiny -q -o x.png </dev/null
same out/fifo-1.png x.png
try 0 sh -c 'ls out/fifo-*' <<'END'
out/fifo-1.png
out/fifo-5.png
END
exec 3<>fifo # Ctrl-C while nothing comes
"$absolute" batch fifo $tiny -o 'out/idle-{line}.png' >said 2>&1 3<&- &
pid=$!
echo 'a fox' >&3
waits out/idle-1.png
kill -INT $pid
status=0
wait $pid || status=$?
exec 3<&-
try_match 130 '^lazuli: run the same command again to continue$' sh -c "cat said && exit $status"

# trap 16: an existing folder, or a name with a slash at its end, takes pictures under names of their own
mkdir folder
try_match 0 '^folder/two-2-2.png ' "$absolute" batch two.txt $tiny -o folder
try_match 0 ' 0 pictures made, 2 there' "$absolute" batch two.txt $tiny -o folder/
try_match 2 'lazuli: nowhere/: is not a folder that can be written into; create it first' "$absolute" batch two.txt -o nowhere/
try_match 0 '^folder/lazuli-7.png ' "$absolute" a fox $tiny -S 7 -o folder
try_match 0 '^folder/lazuli-7-2.png ' "$absolute" a fox $tiny -S 7 -o folder/
try_match 1 'nowhere/lazuli.png: cannot be written: .*create the folder first' "$absolute" a fox -o nowhere/

# trap 16: the sheet of a second run, and of one that goes on, is the one of the first, byte for byte
echo '{"prompt": "a fox", "seed": [1, 2, 3, 4], "output": "folder/{seed}.png", "sheet": "folder/sheet-{line}.png"}' >sheet.txt
try_match 0 '^folder/sheet-1.png  56 x 56, a sheet of 4$' "$absolute" batch sheet.txt -s 1 -W 16 -H 16
cp folder/sheet-1.png sheet.png
try_match 0 ' 0 pictures made, 4 there' "$absolute" batch sheet.txt -s 1 -W 16 -H 16
same sheet.png folder/sheet-1.png
for gone in 1 '2 4' '1 2 3' 3; do
    for seed in $gone; do rm folder/$seed.png; done
    "$absolute" batch sheet.txt -s 1 -W 16 -H 16 >/dev/null 2>&1
    same sheet.png folder/sheet-1.png
done
try 0 "$absolute" a fox -S 1,2,3,4 -s 1 -W 16 -H 16 -q -o x.png --sheet y.png </dev/null
same sheet.png y.png

# trap 16: -p is the prompt of JSON lines without one; lines of text are prompts themselves, and nothing is made
echo '{"seed": 3}' >given.txt
try_match 0 '^given-1-3.png' "$absolute" batch given.txt $tiny -p 'a fox'
try 0 "$absolute" a fox -S 3 $tiny -q -o x.png </dev/null
same x.png given-1-3.png
echo 'a dog' >>given.txt
rm given-1-3.png
try 2 "$absolute" batch given.txt $tiny -p 'a fox' <<'END'
lazuli: line 2: is a prompt itself, so --prompt cannot be used; it is for JSON lines without a "prompt"
END
try_match 2 'No such file' ls given-1-3.png
try_match 0 '^given-2-3.png' "$absolute" batch given.txt --from x.png # the prompt of a picture is only a default
try_match 2 'cannot be used with a batch, which has many prompts' "$absolute" batch given.txt -p -

# trap 16: the last line of --json is the summary, also when lines failed
try 1 sh -c "$absolute batch typo.txt -W 64 -H 64 -s 4 --json 2>/dev/null >json; code=\$?; tail -n 1 json; exit \$code" <<'END'
{"made": 0, "there": 2, "failed": 6}
END
try 0 sh -c "$absolute batch two.txt $tiny -o folder --json 2>/dev/null | tail -n 1" <<'END'
{"made": 0, "there": 2, "failed": 0}
END

# Files that are none
try_match 1 'nowhere.txt: cannot be opened' "$absolute" batch nowhere.txt
try_match 1 'cannot be read: Is a directory' "$absolute" batch out
try_match 1 'out/2.png: contains a zero byte, so it is not text' "$absolute" batch out/2.png
try_match 1 '/dev/zero: contains a zero byte, so it is not text' "$absolute" batch /dev/zero
truncate -s 65M huge.txt
try_match 1 'huge.txt: is too large; the limit is 64.0 MiB' "$absolute" batch huge.txt
rm huge.txt
try_match 2 'batch needs a FILE' "$absolute" batch
head -c 2000000 /dev/zero | tr '\0' 'x' >long.txt
echo >>long.txt
echo 'a fox' >>long.txt
try_match 1 '^lazuli: line 1: is too long; the limit is 1.0 MiB' "$absolute" batch long.txt $tiny
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
try_match 130 '^lazuli: run the same command again to continue$' sh -c "cat said && exit $status"
try_match 2 'No such file' ls out/stop-1.png

if command -v script >/dev/null; then # all of it, not one picture
    try_match 0 '2/2 [a-z]+ +#+\.+ +[0-9]+% ' \
        env TERM=xterm script -qec "stty cols 100; $absolute batch two.txt -W 512 -H 256 -s 8 -o 'out/t{n}.png'" /dev/null
fi
if [ -e /dev/full ]; then # an answer that does not arrive ends it
    rm -f whole/*
    try_match 1 'cannot write the output' sh -c "$absolute batch kill.txt $tiny -o 'whole/{n}.png' >/dev/full"
    lists whole <<'END'
1.png
END
fi
finish
