# What a model was not trained for is said on stderr: sizes and images once, words once for each prompt. With -q nothing is.
. tests/cli/transcript
unset LAZULI_MODEL
flux=tests/data/flux2
small="-m models/demo -W 16 -H 16 -s 1 -S 1"
size='^lazuli: .*this model was not trained for pictures of 16 x 16, so this one may be poor; the nearest size is 128 x 128$'
told() { # PATTERN COMMAND...: the command succeeds; how many lines of stderr match
    kind=$1
    shift
    "$@" >"$work/printed" 2>"$work/said" && { grep -c -e "$kind" "$work/said" || true; }
}
tells() { # NUMBER PATTERN COMMAND...
    echo "$1" >"$work/number"
    shift
    try 0 told "$@" <"$work/number"
}

# trap 4: a size or images that the model does not know
tells 1 "$size" $lazuli a fox $small --count 2 -o "$work/fox.png"
tells 0 . $lazuli a fox -m models/demo -s 1 -S 1 -o "$work/own.png"
tells 0 . $lazuli a fox $small -q -o "$work/fox.png"
tells 0 . $lazuli plan a fox $small
tells 0 . $lazuli a wombat -m $flux/A -W 16 -H 16 -s 1 -S 1 -i $flux/ref1.png -o "$work/fox.png"
tells 0 'trained to' $lazuli a fox $small -i $flux/ref1.png -o "$work/fox.png"
tells 1 '^lazuli: the picture is 128 x 128, the size of the training that is nearest to the image; -W and -H set another$' \
    $lazuli a fox -m models/demo -s 1 -S 1 -i $flux/ref1.png -o "$work/fox.png"
mkdir "$work/own"
for part in model_index.json scheduler text_encoder tokenizer transformer vae; do ln -s "$PWD/models/demo/$part" "$work/own"; done
echo '{"version": "1", "sizes": [[64, 64]], "references": false}' >"$work/own/lazuli.json"
own="-W 16 -H 16 -s 1 -S 1"
tells 1 'not trained to look at images' $lazuli a fox -m "$work/own" $own -i $flux/ref1.png -o "$work/fox.png"
tells 1 'not trained for pictures of 16 x 16, so this one may be poor; the nearest size is 64 x 64$' $lazuli a fox -m "$work/own" $own -o "$work/fox.png"

# A picture names the version of its model, and settings of another version are not repeated without a word
absolute=$(realpath $lazuli)
try_match 0 '^version +1$' $lazuli info -m "$work/own"
try_match 0 '^ "version": "4"' $lazuli info -m models/demo --json
try_match 0 '^ "version": null' $lazuli info -m $flux/A --json
try_match 0 '^model-version 1$' $lazuli info "$work/fox.png"
cd "$work"
printf 'a fox\na dog\n' >list.txt
version='^lazuli: the settings were made with version 1 of this model, and this is version 2, so the picture will differ$'
tells 0 'version' "$absolute" --from fox.png -o again.png
try 0 cmp fox.png again.png </dev/null
"$absolute" a fox -m own $own --json -q -o json.png >settings.json
echo '{"version": "2"}' >own/lazuli.json
tells 1 "$version" "$absolute" --from fox.png --count 2 -o again.png
tells 1 "$version" "$absolute" --settings settings.json -o again.png
tells 0 'version' "$absolute" --from again.png -o "$work/more.png"
tells 1 "$version" "$absolute" --from fox.png -m own -o typed.png # the same model was typed
tells 0 version "$absolute" --from fox.png -m "$OLDPWD/$flux/A" -o typed.png # another one was typed
printf '%s\n' '{"prompt": "a fox", "model-version": "1"}' '{"prompt": "a dog", "model-version": null}' >versions.txt
tells 1 "^lazuli: line 1: ${version#^lazuli: }" "$absolute" batch versions.txt -m own $own -o 'of-{line}.png'
try_match 0 '^lazuli: 2 pictures made' "$absolute" batch list.txt -m own $own -o '{line}.png'
try_match 0 '^lazuli: 0 pictures made, 2 there' "$absolute" batch list.txt -m own $own -o '{line}.png'
echo '{}' >own/lazuli.json
try_match 0 '^lazuli: 2 pictures made' "$absolute" batch list.txt -m own $own -o '{line}.png' # of another version
tells 1 'made with version 2 of this model, and this is another one' "$absolute" --from again.png -o more.png
tells 1 'made with another version of this model, and this is version 2' sh -c "$absolute a fox -m own $own -q -o bare.png; echo '{\"version\": \"2\"}' >own/lazuli.json; $absolute --from bare.png -o more.png"
cd - >/dev/null

tells 0 'trained to' $lazuli a fox $small -s 2 -i $flux/ref1.png --strength 0.5 -o "$work/fox.png"
printf '%s\n' 'a fox' '{"prompt": "a dog", "width": 32}' 'a cat' >"$work/list.txt"
tells 1 'trained for pictures' $lazuli batch "$work/list.txt" $small -o "$work/{line}.png"
tells 0 'trained for' $lazuli batch "$work/list.txt" $small -o "$work/{line}.png" # they are there

# trap 22: words that the model does not know, with the nearest; words that are read as others; the picture keeps the prompt
coffee='^lazuli: the prompt is read as "a hot beverage"$'
tells 1 "$coffee" $lazuli a cup of coffee $small --count 2 -o "$work/coffee.png"
try_match 0 '"prompt": "a cup of coffee"' $lazuli a cup of coffee $small --json -o "$work/coffee.png"
try_match 0 'a cup of coffee' cat "$work/coffee.png"
tells 1 "$coffee" $lazuli --from "$work/coffee.png" -m models/demo -o "$work/again.png"
try 0 cmp "$work/coffee.png" "$work/again.png" </dev/null
tells 1 "^lazuli: this model does not know \"pengiun\" (it knows \"penguin\"), and the prompt names no thing that it knows; 'lazuli info -m models/demo --words' lists all that it knows\$" \
    $lazuli a pengiun $small -o "$work/x.png"
tells 0 'know' $lazuli a pengiun $small -q -o "$work/x.png"
printf '%s\n' 'a wombat' 'a fox' 'a yak' >"$work/list.txt"
tells 2 'know' $lazuli batch "$work/list.txt" $small --count 2 -o "$work/words-{line}-{seed}.png"
tells 1 '^lazuli: line 3: this model does not know "yak"' $lazuli batch "$work/list.txt" $small -o "$work/more-{line}.png"

# A prompt that changes a picture, without one
changes='^lazuli: the prompt changes a picture, and there is none; give it with -i FILE, or in a session as $1$'
tells 1 "$changes" $lazuli make it blue $small -o "$work/x.png"
tells 0 'changes a picture' $lazuli make it blue $small -i "$work/x.png" -o "$work/y.png"

# Nobody typed a prompt: `info` and plans of pictures without one
for words in info 'info demo' 'info -m models/demo --json'; do tells 0 'names no thing' $lazuli $words; done

# The list itself
try 0 sh -c "$lazuli info -m models/demo --words | cmp - models/demo/words.txt" </dev/null
try_match 0 '^hot beverage, hot beverages = .*coffee' $lazuli info --words
try_match 0 '^hot beverage, hot beverages = .*coffee' $lazuli info -m models/demo --words Latte
try 0 sh -c "$lazuli info -m models/demo --words latte | grep -c ." <<'END'
1
END
try_match 0 '^ "words": "hot beverage, hot beverages = [^#]*"$' $lazuli info --words latte --json
coffee=$($lazuli info -m models/demo --words latte)
for words in 'a cup of coffee' '☕' "$(printf '☕\357\270\217')"; do # U+FE0F, which keyboards add
    try 0 $lazuli info -m models/demo --words "$words" <<END
$coffee
END
done
try_match 0 '^a button, a buttons' $lazuli info --words 'a button'
try_match 1 "^lazuli: the list of words has no 'w/o'; " $lazuli info --words w/o
try_match 1 '^lazuli: nowhere.gguf is not a model folder' $lazuli info --words nowhere.gguf
mkdir "$work/fox"
try_match 0 '^fox, foxes' sh -c "cd '$work' && '$PWD/build/lazuli' info -m '$PWD/models/demo' --words fox"
try_match 1 "^lazuli: the list of words has no 'wombat'; 'lazuli info --words' prints all of it" $lazuli info --words wombat
try 0 sh -c "$lazuli info models/demo --words | cmp - models/demo/words.txt" </dev/null
try_match 0 '^ "words": "# Words that' $lazuli info --words --json
try_match 1 "^lazuli: $flux/A has no list of words" $lazuli info -m $flux/A --words
finish
