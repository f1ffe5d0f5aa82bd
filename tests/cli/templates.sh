# Prompts with choices: by the seed, recorded resolved, in pictures, batches and sessions; wildcards; JSON prompts.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
export LAZULI_SETTINGS="$work/settings.toml"
: >"$work/settings.toml"
absolute=$(realpath $lazuli)
data=$PWD/tests/data/seeing
tiny="-W 16 -H 16 -s 1 --threads 1 -m demo"
cd "$work"
prompt_of() { # FILE PROMPT: the prompt that the picture records
    try 0 sh -c "$absolute info $1 --json | sed -n 's/^  \"prompt\": \"\\(.*\\)\",*\$/\\1/p'" <<END
$2
END
}
template_of() {
    try 0 sh -c "$absolute info $1 --json | sed -n 's/^  \"template\": \"\\(.*\\)\",*\$/\\1/p'"
}
same() { try 0 cmp "$1" "$2" </dev/null; }

# The choices are those of tools/oracle/seeing.py, and of the seed alone: one by one, or all at once
try_match 0 '^a-1.png  16 x 16, seed 1, 1 step, .*, "blue car"$' "$absolute" '{red|blue} car' $tiny -S 1 --count 3 -o a.png
prompt_of a-1.png 'blue car'
prompt_of a-2.png 'blue car'
prompt_of a-3.png 'red car'
template_of a-3.png <<'END'
{red|blue} car
END
try 0 "$absolute" '{red|blue} car' $tiny -S 3 -q -o b.png </dev/null
same a-3.png b.png
# --from repeats the picture, byte for byte; another seed does not choose again; another prompt does
try 0 "$absolute" --from a-3.png -q -o c.png </dev/null
same a-3.png c.png
try 0 "$absolute" --from a-3.png -S 1 -q -o c.png </dev/null
prompt_of c.png 'red car'
try 0 "$absolute" --from a-3.png -S 1 '{red|blue} car' -q -o c.png </dev/null
same a-1.png c.png
"$absolute" '{red|blue} car' $tiny -S 3 -q -o d.png --json >run.json
try 0 "$absolute" --settings run.json -q -o c.png </dev/null
prompt_of c.png 'red car'
try_match 0 '^ "prompt": "\{red\|blue\} car",$' cat run.json
echo '{red|blue} car' | "$absolute" - $tiny -S 3 -q -o c.png
same a-3.png c.png

# A sheet has the template, and all seeds; its settings make the same pictures
try 0 "$absolute" '{red|blue} car' $tiny -S 1 --count 3 -q -o s.png --sheet sheet.png </dev/null
grep -a -o '{"model": .*"seed": \[1, 2, 3\].*}' sheet.png >sheet.json
try 0 "$absolute" --settings sheet.json -q -o t.png </dev/null
for n in 1 2 3; do same a-$n.png t-$n.png; done

# Prompts that are no templates stay as they are, byte for byte
for text in 'a {red} fox' ':-{ fox' '{"scene": "a|b", "of": [{"x": "{c|d}"}]}' 'a | b' 'back\slash'; do
    try 0 "$absolute" "$text" $tiny -S 1 -q -o p.png </dev/null
    try 0 "$absolute" --no-templates "$text" $tiny -S 1 -q -o q.png </dev/null
    same p.png q.png
    template_of p.png </dev/null
done
try 0 "$absolute" --no-templates 'a {b|c} d' $tiny -S 1 -q -o p.png </dev/null
prompt_of p.png 'a {b|c} d'
try 0 "$absolute" --from p.png -q -o q.png </dev/null # and is not read as a template later
same p.png q.png
try 0 "$absolute" 'a \{b|c\} d' $tiny -S 1 -q -o q.png </dev/null
prompt_of q.png 'a {b|c} d'
try_match 2 "^lazuli: the prompt has choices after a . that is never closed: '.red.blue car'; write . after them" \
    "$absolute" '{red|blue car' $tiny -o never.png
try 1 test -e never.png </dev/null

# All combinations
try 0 "$absolute" '{a|b} {c|d}' $tiny -S 5 --combinations -q -o k.png </dev/null
prompt_of k-1.png 'a c'
prompt_of k-4.png 'b d'
try 1 test -e k-5.png </dev/null
try_match 0 '"seed": 8' "$absolute" info k-4.png --json
try_match 2 'combinations decides the number' "$absolute" '{a|b}' $tiny --combinations --count 2
try_match 2 'combinations takes one seed to start from' "$absolute" '{a|b}' $tiny --combinations -S 1,2
try_match 2 'has more than 1000 combinations' "$absolute" '{5$$1|2|3|4|5|6|7}' $tiny --combinations
try_match 0 'combinations has no effect; the prompt has no choices' "$absolute" fox $tiny --combinations -o x.png

# Wildcards: a folder by option, or by the settings file
try 0 "$absolute" 'a __sub/animal__, {a|__colour__}' $tiny -S 3 --wildcards "$data" -q -o w.png </dev/null
prompt_of w.png 'a fox, green'
try_match 0 '^lazuli: __NAME__ in the prompt is read as words; --wildcards DIR names' "$absolute" 'a __colour__ fox' $tiny -S 3 -o v.png
prompt_of v.png 'a __colour__ fox'
printf 'wildcards = "%s"\n[models.m]\nmodel = "x"\n' "$data" >settings.toml
try 0 "$absolute" 'a __sub/animal__, {a|__colour__}' $tiny -S 3 -q -o v.png </dev/null
same w.png v.png
echo 'wildcard = "x"' >settings.toml
try_match 1 'line 1 is not understood.*wildcards = "DIR" may stand before' "$absolute" '__a__' $tiny
: >settings.toml
try_match 2 'is no name of a file in the folder of wildcards' "$absolute" '__../seeing/colour__' $tiny --wildcards "$data"
try_match 2 'nobody.txt: cannot|has no lines' "$absolute" '__nobody__' $tiny --wildcards "$data"
try_match 2 'nested more than 32 deep; does a file name itself' "$absolute" '__itself__' $tiny --wildcards "$data"
mkdir latin
printf 'gr\374n\n' >latin/a.txt
try_match 1 'the prompt is not valid UTF-8' "$absolute" '__a__' $tiny --wildcards latin

# A batch: lines with choices, also at their start; errors before the first picture; nothing is made twice
cat >list.txt <<'END'
{red|blue} car
{"prompt": "{red|blue} car", "seed": [1, 2]}
END
try_match 0 '^lazuli: 3 pictures made, 0 there already' "$absolute" batch list.txt $tiny
try_match 0 '^lazuli: 0 pictures made, 3 there already' "$absolute" batch list.txt $tiny
same list-2-1.png a-1.png
same list-2-2.png a-2.png
same list-1-1.png a-1.png
printf 'fox\n{red|blue\n{"prompt": "a|b\n__none__ fox\n' >bad.txt
"$absolute" batch bad.txt $tiny --wildcards "$data" >said 2>&1
for line in 'line 2: the prompt has choices after' 'line 3: is not JSON, though' 'line 4: __none__ in the prompt: .* cannot be opened' \
    '3 of 4 lines have errors'; do
    try_match 0 "^lazuli: $line" cat said
done
finish
