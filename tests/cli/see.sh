# Seeing pictures: --preview and --show on a terminal and without one, --steps-dir, --sheet.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
fox="-p fox -m models/demo --threads $threads -S 7"
built=$($lazuli $fox -W 16 -H 16 -s 1 --show -o "$work/x.png" 2>&1 >/dev/null)

same() { try 0 cmp "$1" "$2" </dev/null; }
size_of() { # WIDTHxHEIGHT of a PNG, from its header
    od -An -tu1 -j16 -N8 "$1" | awk '{ print $1 * 16777216 + $2 * 65536 + $3 * 256 + $4 "x" $5 * 16777216 + $6 * 65536 + $7 * 256 + $8 }'
}
sized() { try 0 echo "$(size_of "$1")" <<END; }
$2
END
gone() { try_match 2 'No such file' ls "$@"; }

# Steps: one file for each, as large as the picture; the last one is the picture, and looking changes nothing of it
try 0 $lazuli $fox -W 64 -H 48 -s 3 -q -o "$work/plain.png" </dev/null
try 0 $lazuli $fox -W 64 -H 48 -s 3 -q -o "$work/fox.png" --steps-dir "$work/steps" </dev/null
same "$work/plain.png" "$work/fox.png"
try 0 ls "$work/steps" <<'END'
7-step-01.png
7-step-02.png
7-step-03.png
END
for step in 1 2 3; do sized "$work/steps/7-step-0$step.png" 64x48; done
for file in fox steps/7-step-03; do
    try 0 $lazuli encode -m models/demo "$work/$file.png" -q -o "$work/$(basename $file).safetensors" </dev/null
done
same "$work/fox.safetensors" "$work/7-step-03.safetensors"
try_match 1 differ cmp "$work/steps/7-step-01.png" "$work/steps/7-step-03.png"
try 0 $lazuli $fox,8 -W 16 -H 16 -s 1 -q -o "$work/two.png" --steps-dir "$work/steps" </dev/null # a folder that is there
sized "$work/steps/8-step-01.png" 16x16
try_match 1 'cannot be created: No such file' $lazuli $fox --steps-dir "$work/no/steps" -o "$work/never.png"
try_match 1 'is not a folder' $lazuli $fox --steps-dir "$work/fox.png" -o "$work/never.png"
try_match 2 'must end in .png' $lazuli $fox --steps-dir "$work/refused" -o "$work/never.txt" # what is refused leaves no folder
try_match 2 'give one with --image' $lazuli $fox --steps-dir "$work/refused/" --strength 0.5 -o "$work/never.png"
gone "$work/refused"
try 0 $lazuli $fox -W 16 -H 16 -s 1 -q --steps-dir "$work/slash/" -o "$work/slash.png" </dev/null
try 0 ls "$work/slash" <<'END'
7-step-01.png
END
mkdir "$work/blocked" "$work/blocked/7-step-02.png" # a step that cannot be written ends it, in one sentence
try_match 1 '^lazuli: .*7-step-02.png' $lazuli $fox -W 16 -H 16 -s 3 -q --steps-dir "$work/blocked" -o "$work/never.png"
try 1 sh -c "$lazuli $fox -W 16 -H 16 -s 3 -q --steps-dir $work/blocked -o $work/never.png 2>&1 | grep stopped" </dev/null
gone "$work/never.png"

# Sheets: 8 pixels between pictures and around them; about as wide as high
sheet() { # COUNT WIDTH HEIGHT SIZE
    try_match 0 "^$work/sheet.png  $(echo $4 | sed 's/x/ x /'), a sheet of $1\$" \
        $lazuli $fox --count $1 -W $2 -H $3 -s 1 -o "$work/c.png" --sheet "$work/sheet.png"
    sized "$work/sheet.png" $4
}
sheet 1 16 16 32x32
sheet 3 32 16 88x56
sheet 5 16 16 80x56
try 0 $lazuli $fox --count 2 -W 16 -H 16 -s 1 -q -o "$work/c.png" --sheet "$work/again.png" </dev/null
try 0 $lazuli $fox --count 2 -W 16 -H 16 -s 1 -q -o "$work/c.png" --sheet "$work/again2.png" </dev/null
same "$work/again.png" "$work/again2.png"
try_match 0 . ls "$work/c-1.png" "$work/c-2.png"
# trap 20: a sheet says how its pictures were made; --from takes one picture, --settings takes all of them
for sheet in s.png s.jpg s.webp; do
    try 0 $lazuli $fox --count 2 -W 16 -H 16 -s 1 -q -o "$work/c.png" --sheet "$work/$sheet" </dev/null
    try_match 1 "$sheet: is a sheet of several pictures, and --from repeats one; name the file of one" $lazuli --from "$work/$sheet"
    grep -a -o '{"model": .*"seed": \[7, 8\].*}' "$work/$sheet" >"$work/sheet.json"
    try 0 $lazuli --settings "$work/sheet.json" -q -o "$work/d.png" --sheet "$work/again2.png" </dev/null
    same "$work/again.png" "$work/again2.png"
    for n in 1 2; do same "$work/c-$n.png" "$work/d-$n.png"; done
done
try_match 0 "Lazuli [0-9]" grep -a -o 'software.Lazuli [0-9.]*' "$work/again.png"
try 0 $lazuli $fox --count 2 -W 16 -H 16 -s 1 -q -o "$work/c.png" --sheet "$work/bare.png" --no-metadata </dev/null
try_match 1 'contains no settings' $lazuli --from "$work/bare.png"
try_match 2 'a sheet is a picture' $lazuli $fox --sheet "$work/sheet.txt" -o "$work/never.png"
try_match 1 'create the folder first' $lazuli $fox --sheet "$work/no/sheet.png" -o "$work/never.png"
try_match 0 '^ "family"' $lazuli $fox -W 16 -H 16 -s 1 --sheet "$work/j.png" -o "$work/c.png" --json
try 1 sh -c "$lazuli $fox -W 16 -H 16 -s 1 --sheet $work/j.png -o $work/c.png --json -q | grep 'a sheet'" </dev/null
gone "$work/never.png"

# Without a terminal it is said, and the picture is made all the same
case $built in
*'made without chafa'*)
    try_match 0 'preview has no effect: this build was made without chafa' $lazuli $fox -W 16 -H 16 --preview -o "$work/x.png"
    ;;
*)
    for option in preview show; do
        try_match 0 "^lazuli: --$option needs a terminal, but stderr is not one; nothing is shown\$" \
            $lazuli $fox -W 16 -H 16 -s 1 --$option -o "$work/x.png"
    done
    try 0 $lazuli $fox -W 16 -H 16 -s 1 -q --preview --show -o "$work/x.png" </dev/null
    if command -v script >/dev/null; then
        escape=$(printf '\033')
        on() { # TERM COMMAND: on a terminal of that kind, of 60 x 20 letters
            env TERM=$1 script -qec "stty cols 60 rows 20; $2" /dev/null
        }
        large="$lazuli -m models/demo -p 'a fox in 3d style on a blue background' -S 1 -W 64 -H 64 -q -o $work/t.png"
        # Plain letters: no escape anywhere, as many lines as fit
        export LC_ALL=C
        try 1 sh -c "TERM=dumb script -qec \"stty cols 60 rows 20; $large --show\" /dev/null | grep '$escape'" </dev/null
        try 0 sh -c "TERM=dumb script -qec \"stty cols 60 rows 20; $large --show\" /dev/null | wc -l" <<'END'
17
END
        try_match 0 '@@@@@' on dumb "$large --show"
        try 1 sh -c "NO_COLOR=1 TERM=xterm-256color script -qec \"stty cols 60 rows 20; $large --show\" /dev/null | grep '$escape\\[[34]8'" </dev/null
        # Colours where the terminal has them; pixels where it has those
        export LC_ALL=C.UTF-8
        try_match 0 "$escape\\[[0-9;]*[34]8;[25];" on xterm-256color "$large --show"
        try_match 0 "${escape}_G" on xterm-kitty "$large --show"
        # A preview goes back up over its own lines; a dumb terminal cannot
        try_match 0 "$escape\\[16A" on xterm-256color "$large --preview"
        try_match 0 'needs a terminal that can move its cursor' on dumb "$(echo "$large" | sed 's/ -q / /') --preview"
        same "$work/t.png" "$work/t.png"
    fi
    ;;
esac
finish
