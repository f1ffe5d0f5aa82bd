# Where results go: nothing is overwritten that was not named, nothing is written twice, and a name that cannot be written is
# told of before anything is computed.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
absolute=$(realpath $lazuli)
tiny="-W 16 -H 16 -s 1 --threads 1"
cd "$work"
same() { try 0 cmp "$1" "$2" </dev/null; }
nothing_made() { try 1 sh -c "ls $work | grep -e png -e part -e safetensors" </dev/null; }
# refused CODE PATTERN ARGUMENTS...: with as many steps as take minutes: it is found before they are run
refused() {
    wanted_code=$1
    pattern=$2
    shift 2
    try_match $wanted_code "^lazuli: .*$pattern" timeout 60 "$absolute" fox -W 256 -H 256 -s 1000 -S 7 -q "$@"
}

# trap 11: pipes, devices and names that no folder takes
mkfifo pipe.png pipe.safetensors
for output in "-o pipe.png" "-o new.png --dump pipe.safetensors" "--sheet pipe.png"; do
    refused 1 'pipe.[a-z]*: is a device or a pipe; name a file, or use -o - for stdout' $output
done
rm pipe.*
ln -s /dev/null null.png
refused 1 'null.png: is a device or a pipe' -o null.png
ln -sf nowhere.png null.png
refused 1 'null.png: is a broken link' -o null.png
rm null.png
long=$(printf '%0250d' 7)
refused 1 '0000...: the name is too long' -o $long.png
refused 1 '0000...: the name is too long' -o new.png --dump $long.safetensors
refused 1 '0000...: the name is too long' --sheet $long.png
refused 2 '-: --dump writes tensors' --dump -
refused 2 '[.]png: has no name before .png' -o .png
refused 2 'has no name before .safetensors' -o new.png --dump ./.safetensors
if [ "$(id -u)" != 0 ]; then
    mkdir locked
    echo mine >locked.png
    chmod 555 locked
    chmod 444 locked.png
    refused 1 'locked/x.png: cannot be written into this folder' -o locked/x.png
    refused 1 'locked.png: exists and cannot be overwritten' -o locked.png
    try 0 cat locked.png <<'END'
mine
END
    rm -f locked.png
    chmod 755 locked
elif mkdir small && mount -t tmpfs -o size=64k none small 2>/dev/null; then # a disk that is full
    refused 1 'small/x.png: the disk has [0-9.]* KiB free, and up to 192.0 KiB are needed' -o small/x.png
    refused 1 'small/lazuli.png: the disk has [0-9.]* KiB free, and up to 192.0 KiB are needed' -o small
    refused 1 'small/s.png: the disk has [0-9.]* KiB free, and up to 216.8 KiB are needed' -o new.png --sheet small/s.png
    umount small
fi
nothing_made

# trap 11: one file is one output, however it is called
mkdir sub
ln -s . here
twice='would be written twice; give each output another name'
refused 2 "./fox.png $twice" -o fox.png --sheet ./fox.png
refused 2 "here/fox.png $twice" -o fox.png --sheet here/fox.png
refused 2 "fox-2.png $twice" --count 2 -o fox.png --sheet sub/../fox-2.png
refused 2 "7-step-01.png $twice" -o 7-step-03.png --steps-dir .
refused 2 "steps/7-step-01.png $twice" --steps-dir steps -S 7 # twice the same seed
nothing_made
"$absolute" fox $tiny -S 7 -q -o fox.png
ln fox.png linked.png # the same file under two names
refused 2 "linked.png $twice" -o fox.png --sheet linked.png
rm linked.png
cat >twice.txt <<'END'
{"prompt": "a", "output": "a.png", "sheet": "s.png", "seed": 1}
{"prompt": "b", "output": "./a.png"}
{"prompt": "c", "output": "sub/../here/a.png"}
{"prompt": "d", "output": "d.png", "sheet": "s.png"}
{"prompt": "e", "output": "e.png", "sheet": "e.png"}
{"prompt": "f", "output": "f.png", "steps-dir": "sub", "seed": 3}
{"prompt": "g", "output": "g.png", "steps-dir": "./sub", "seed": [2, 3]}
{"prompt": "h", "output": "sub/3-step-01.png"}
{"prompt": "i", "output": "i.png", "dump": "a.png"}
END
"$absolute" batch twice.txt $tiny >said 2>&1
for line in 'line 2: ./a.png is already written by line 1' 'line 3: sub/../here/a.png is already written by line 1' \
    'line 4: s.png is already written by line 1' "line 5: e.png $twice" 'line 7: ./sub/3-step-01.png is already written by line 6' \
    'line 8: sub/3-step-01.png is already written by line 6' 'line 9: a.png: --dump writes tensors' '7 of 9 lines failed'; do
    try_match 0 "^lazuli: $line" cat said
done
try 0 "$absolute" a -S 1 $tiny -q -o x.png </dev/null
same x.png a.png
rm -rf ./*.png sub here twice.txt said

# A batch removes what killed processes left of a file, also where a link leads to it.
mkdir real
: >real/fox.png
ln -s real/fox.png link.png
touch real/fox.png.999999999-0.part real/fox.png.999999999-1.part real/fox.png.999999999-0.part~ real/fox.png.+999999999-0.part
echo fox >list
try 0 "$absolute" batch list $tiny -q -o link.png </dev/null
try 0 env LC_ALL=C ls real <<'END'
fox.png
fox.png.+999999999-0.part
fox.png.999999999-0.part~
END
rm -r real link.png list

# Tensors go into a file that is called so: no other file is overwritten.
echo mine >notes.txt
refused 2 'notes.txt: --dump writes tensors, so the name must end in .safetensors' -o new.png --dump notes.txt
refused 2 'notes: --dump writes tensors' -o new.png --dump notes
try_match 2 'notes.txt: --dump writes tensors' "$absolute" batch notes.txt --dump notes.txt
try_match 2 '1.txt: --dump writes tensors' "$absolute" batch notes.txt --dump '{line}.txt'
try_match 2 'notes.txt: encode writes tensors' "$absolute" encode notes.txt -o notes.txt
try 0 cat notes.txt <<'END'
mine
END
rm notes.txt
nothing_made

# A file that is read is not overwritten.
"$absolute" fox $tiny -S 7 -q -o photo.png --dump photo.safetensors
cp photo.png photo.was
cp photo.safetensors tensors.was
ln photo.png linked.png
ln -s photo.png soft.png
ln photo.png linked.safetensors
read='is an input of this picture and would be overwritten; choose another name for the output'
refused 2 "photo.png $read" -i photo.png -o photo.png
refused 2 "soft.png $read" -i photo.png -o soft.png
refused 2 "linked.png $read" -i ./photo.png -o linked.png
refused 2 "photo.png $read" -i soft.png -o new.png --sheet photo.png
refused 2 "linked.safetensors $read" -i photo.png -o new.png --dump linked.safetensors
refused 2 "photo.safetensors $read" --noise photo.safetensors -o new.png --dump photo.safetensors
cp photo.png photo-2.png
refused 2 "photo-2.png $read" -i photo-2.png -o photo.png --count 2
try_match 2 "linked.png $read" "$absolute" decode linked.safetensors -o linked.png
echo '{"prompt": "fox", "image": "photo.png", "output": "photo.png"}' >list
try_match 1 "line 1: photo.png $read" "$absolute" batch list $tiny
echo fox >list.png
try_match 2 "./list.png $read" "$absolute" batch list.png $tiny -o ./list.png
try_match 2 "list.png $read" sh -c "$absolute batch - $tiny -o list.png <list.png"
same photo.png photo.was
same photo.safetensors tensors.was
rm -f new.png list list.png linked.* soft.png
mkdir steps
cp photo.png steps/7-step-03.png
refused 2 "steps/7-step-03.png $read" -i steps/7-step-03.png --steps-dir ./steps/ -o new.png
rm -r steps
printf '%s\n' '{"prompt": "a", "output": "a.png"}' '{"prompt": "b", "output": "b.png", "image": "a.png"}' >chain # one after the other stays allowed,
try 0 "$absolute" batch chain $tiny -q </dev/null
try 0 "$absolute" batch chain $tiny -q -s 2 </dev/null
# An input of one line is not an output of another, whichever comes first. The batch keeps what is no picture by Lazuli
cp photo.png given.png
printf '%s\n' '{"prompt": "a", "image": "given.png", "output": "c.png"}' '{"prompt": "b", "output": "./given.png"}' >list
try_match 1 '^lazuli: line 2: ./given.png is an input of line 1 and would be overwritten; choose another' "$absolute" batch list $tiny
try_match 1 '^lazuli: line 2: ./given.png is an input of line 1' sh -c "cat list | $absolute batch - $tiny" # from a pipe too
printf '%s\n' '{"prompt": "a", "noise": "photo.safetensors"}' '{"prompt": "b", "dump": "photo.safetensors"}' >list
try_match 1 '^lazuli: line 2: photo.safetensors is an input of line 1' "$absolute" batch list -W 16 -H 16 -s 1
"$absolute" fox $tiny -S 7 -q --no-metadata -o given.png
cp given.png given.was
printf '%s\n' '{"prompt": "a", "output": "given.png"}' '{"prompt": "b", "image": "given.png", "output": "c.png"}' >list
rm -f c.png
try 2 "$absolute" batch list $tiny <<'END'
lazuli: line 2: given.png is an input, and an earlier line would overwrite it; choose another name for that output, or remove the file if the batch makes it
END
try 1 test -e c.png </dev/null
same given.png given.was
try 0 "$absolute" --from photo.png -q -o photo.png </dev/null # and so does a picture that is made again
same photo.png photo.was
rm -f ./*.png ./*.safetensors ./*.was chain list

# trap 11: a file that is replaced keeps its permissions, and a link stays one
mkdir real
: >real/fox.png
chmod 600 real/fox.png
ln -s real/fox.png link.png
: >fox.safetensors
chmod 640 fox.safetensors
try 0 "$absolute" fox $tiny -S 7 -q -o link.png --dump fox.safetensors </dev/null
try 0 stat -c '%a %F' real/fox.png link.png fox.safetensors <<'END'
600 regular file
777 symbolic link
640 regular file
END
try 0 "$absolute" --from real/fox.png -q -o new.png </dev/null
same real/fox.png new.png
try 0 ls -A real <<'END'
fox.png
END
rm -r real ./*.png ./*.safetensors

# trap 11: eight that have no name for their picture make eight
for i in 1 2 3 4 5 6 7 8; do "$absolute" fox $tiny -S 5 -q & done
wait
try 0 test "$(ls lazuli-5*.png | wc -l)" = 8 </dev/null
for i in 2 3 4 5 6 7 8; do same lazuli-5.png lazuli-5-$i.png; done
try_match 0 '^lazuli-6-2.png  16 x 16' "$absolute" fox $tiny -S 6 --sheet lazuli-6.png # the sheet's name is taken
rm -f ./*.png

# trap 20: to stdout, and only the picture
try 0 "$absolute" fox $tiny -S 7 -q -o fox.png </dev/null
try 0 sh -c "$absolute fox $tiny -S 7 -o - 2>said | cmp - fox.png" </dev/null
try_match 0 '^-  16 x 16, seed 7, 1 step, ' cat said
try 0 sh -c "$absolute fox $tiny -S 7 -o - --sheet sheet.png 2>said | cmp - fox.png" </dev/null
try_match 0 '^sheet.png  32 x 32' cat said
try 0 "$absolute" encode -q fox.png -o l.safetensors </dev/null
try 0 "$absolute" decode -q l.safetensors -o back.png </dev/null
try 0 sh -c "$absolute decode l.safetensors -o - 2>/dev/null | cmp - back.png" </dev/null
refused 2 '-o - and --json both write to stdout' -o - --json
refused 2 '-o - writes one picture, but 2 were asked for' -o - --count 2
refused 2 '-: a sheet is a picture' --sheet -
try_match 2 '-: encode writes tensors' "$absolute" encode fox.png -o -
echo fox >list
try_match 2 'a batch writes files; name them' "$absolute" batch list -o -
if command -v script >/dev/null; then
    try_match 2 'stdout, which is a terminal' script -qec "$absolute fox $tiny -o -" /dev/null
fi
if [ -e /dev/full ]; then # also if the picture is larger than the buffer of the stream
    for size in '' '-W 256 -H 256'; do
        try 1 sh -c "$absolute fox -S 7 $tiny $size -q -o - >/dev/full" <<'END'
lazuli: cannot write the output: No space left on device
END
    done
    try 1 sh -c "$absolute decode -q l.safetensors -o - >/dev/full" <<'END'
lazuli: cannot write the output: No space left on device
END
fi
try 1 sh -c "ls -A | grep -e part -e '^-'" </dev/null
finish
