# trap 7: what files and names say never drives a terminal: no control character (C0, DEL, C1 as UTF-8 or as a byte) and no mark
# that turns the direction of writing is printed, wherever the text comes from.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
export HF_HUB_CACHE="$work/none"
absolute=$(realpath $lazuli)
flux=$PWD/tests/data/flux2
tiny="-W 16 -H 16 -s 1 --threads 1"
cd "$work"
evil=$(printf 'e\033[2J\233x\302\233y\342\200\256z\177\nw')
cp -r "$flux/A" "$evil"
cp "$flux/ref1.png" "$evil.png"
escaped='e\u001b[2J\u009by\u202ez\u007f\nw'

# clean CODE PATTERN COMMAND...: the output matches, and holds only plain ASCII in lines
plain='\n\040-\176'
clean() {
    try_match "$@"
    cp output said
    try 0 sh -c "LC_ALL=C tr -d '$plain' <said | od -c | head -1" <<'END'
0000000
END
}
shown='e\?\[2J\?x\?y\?z\?\?w'
clean 0 "^$shown-o.png  16 x 16" "$absolute" a $tiny -S 1 -o "$evil-o.png"
clean 0 "^$shown-s.png  32 x 32, a sheet" "$absolute" a $tiny -S 1 -o x.png --sheet "$evil-s.png"
clean 0 "^model     $shown: FLUX" "$absolute" a $tiny -m "$evil" -v -o x.png
clean 0 "^model      $shown\$" "$absolute" info -m "$evil"
clean 0 "complete +$shown\$" env LAZULI_MODEL="$evil" "$absolute" models
clean 0 "^no model is here|cache: $shown|demo" env HF_HUB_CACHE="$evil" "$absolute" models
clean 0 "^$shown.safetensors  " "$absolute" encode "$evil.png" -o "$evil.safetensors"
clean 1 "^lazuli: $shown.json: is not JSON|^lazuli: $shown.json: cannot" "$absolute" --settings "$evil.json"
echo '{"width": 3}' >"$evil.json"
clean 2 "^lazuli: $shown.json: --width takes" "$absolute" --settings "$evil.json" # the file before the sentence
clean 1 "$shown.gif: cannot be opened" "$absolute" a -i "$evil.gif"
printf '%s\n' "{\"prompt\": \"a\", \"output\": \"nowhere/$escaped.png\"}" >list
clean 1 'line 1: nowhere/e\?\[2J\?y\?z\?\?w.png: cannot be written' "$absolute" batch list

# JSON is ASCII; terminals ignore DEL, which may stand in it as it is
plain='\n\040-\177'
clean 0 '"file": "e' "$absolute" a $tiny -S 1 -i "$evil.png" --json -o "$evil-o.png"
printf '%s\n' "{\"prompt\": \"a\", \"output\": \"$escaped.png\"}" >list
clean 0 '"file": "e.u001[bB]\[2J.u009[bB]y.u202[eE]z.*nw.png"' "$absolute" batch list $tiny --json
clean 1 '^ "error": "e' "$absolute" a -m "$evil/none" --json
plain='\n\040-\176'

# A note: the image that a picture names
named=$(printf 'n\033[2J\302\233.png')
cp "$evil.png" "$named"
"$absolute" a $tiny -S 1 -i "$named" -q -o named.png
clean 0 '^lazuli: named.png names the image n\?\[2J\?.png$' "$absolute" --from named.png -o x.png

# Names of tensors, and of what is wrong with them
header='{"e\u001b[2J\u009bx":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"u\u009b":{"dtype":"F\u009b","shape":[1],"data_offsets":[4,8]}}'
length=$(printf '%s' "$header" | wc -c)
{ printf "\\$(printf %03o $length)\\0\\0\\0\\0\\0\\0\\0" && printf '%s' "$header" && printf '12345678'; } >t.safetensors
clean 0 '^e\?\[2J\?x' "$absolute" tensors t.safetensors
clean 0 '"name"' "$absolute" tensors t.safetensors --json

# Letters of other languages stay
try_match 0 '^狐-grün.png  16' "$absolute" a $tiny -S 1 -o 狐-grün.png
finish
