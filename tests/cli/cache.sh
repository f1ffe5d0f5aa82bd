# --cache, --guidance-range and --guidance-every: on the command line, in a batch, in a session, in a picture and in a plan.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
klein="-m $PWD/tests/data/flux2/A"
guided="-m $PWD/tests/data/flux2/C -g 4"
small="-W 32 -H 32 -s 10 -S 7"

# Each makes another picture, --from makes it again, byte for byte, and the number of threads changes nothing
try 0 $lazuli a fox $klein $small --full-paths -q -o "$work/plain.png" </dev/null
try 0 $lazuli a fox $klein $small --full-paths --cache off -q -o "$work/off.png" </dev/null
try 0 cmp "$work/plain.png" "$work/off.png" </dev/null
try 0 $lazuli a fox $klein $small --full-paths --cache 0 -q -o "$work/off.png" </dev/null
try 0 cmp "$work/plain.png" "$work/off.png" </dev/null
n=0
while read -r model settings; do
    n=$((n + 1))
    eval "model=\$$model"
    try 0 $lazuli a fox $model $small --full-paths $settings --threads $threads -q -o "$work/$n.png" </dev/null
    try 0 $lazuli --from "$work/$n.png" --full-paths --threads 1 -q -o "$work/again.png" </dev/null
    try 0 cmp "$work/$n.png" "$work/again.png" </dev/null
done <<END
klein --cache 0.5
klein --cache auto --sampler heun
klein --cache 0.3 --sampler lcm
guided --cache 0.4
guided --guidance-range 0.2..0.7
guided --guidance-every 3
guided --cache 0.5 --guidance-range 0..0.8 --guidance-every 2 --sampler unipc
klein --cache 0.8 -s 37
END
rm "$work/again.png" "$work/off.png"
try 0 sh -c "md5sum $work/*.png | cut -d' ' -f1 | sort | uniq -d | wc -l" <<END
0
END

# What a picture says of itself
try_match 0 '"cache": 0.5' strings "$work/1.png"
try_match 0 '5 computed, 5 forecast' strings "$work/1.png"
try_match 0 '"guidance-range": "0.2..0.7"' strings "$work/5.png"
try_match 0 '"guidance-every": 3' strings "$work/6.png"
try 1 sh -c "strings $work/plain.png | grep -E 'forecast|.cache.:'" </dev/null

# A plan and the output for programs; the operations are those of the evaluations
try_match 0 '^32 x 32 pixels, 10 steps .5 passes computed, 5 forecast., ' $lazuli plan a fox $klein $small --cache 0.5
for line in '"passes": 10,' '"forecast": 6,' '"evaluations": 8,' '"cache": 0.6,'; do
    try_match 0 "^ $line" $lazuli plan a fox $guided $small --cache 0.6 --json
    try_match 0 "^ $line" $lazuli a fox $guided $small --cache 0.6 --json -o "$work/json.png"
done
try_match 0 '^ "evaluations": 15,' $lazuli plan a fox $guided $small --guidance-range 0.2..0.7 --json

# Wrong values, and options without effect
try_match 2 '.--cache takes auto, off or a share of the passes from 0 to 0.8, not .1' $lazuli a fox $klein --cache 1
try_match 2 '.--cache takes auto, off or' $lazuli a fox $klein --cache on
for range in 0.5 0.5..0.5 0.8..0.2 a..b ..1 0..2 -1..1 0.1..0.2..0.3; do
    try_match 2 '.--guidance-range takes two shares of the steps from 0 to 1, such as 0.1..0.8' $lazuli a fox $guided --guidance-range $range
done
try_match 2 '.--guidance-every takes a whole number' $lazuli a fox $guided --guidance-every 0
try_match 0 'cache has no effect with so few steps' $lazuli a fox $klein -W 32 -H 32 -s 3 --cache auto -o "$work/few.png"
try_match 0 'guidance-every has no effect without guidance' $lazuli a fox $klein -W 32 -H 32 -s 3 --guidance-every 2 -o "$work/few.png"

# A batch and a session
echo '{"prompt": "a fox", "cache": 0.5, "output": "number.png"}' >"$work/list.jsonl"
echo '{"prompt": "a fox", "steps": 20, "cache": "auto", "output": "auto.png"}' >>"$work/list.jsonl"
try 0 sh -c "cd $work && $(realpath $lazuli) batch list.jsonl $klein $small --full-paths -q" </dev/null
try 0 cmp "$work/number.png" "$work/1.png" </dev/null
try_match 0 '12 computed, 8 forecast' strings "$work/auto.png"
if command -v python3 >/dev/null && python3 -c 'import pty' 2>/dev/null; then
    cat >"$work/script" <<END
< lazuli> 
> /cache maybe
< /cache takes auto, off or a share of the passes from 0 to 0.8, not 'maybe'
< lazuli> 
> /cache 0.5
< lazuli> 
> a fox
< seed 7, 10 steps
< lazuli> 
> /cache
< lazuli> 
> /again
< seed 7, 10 steps
< lazuli> 
> /save \$1 $work/session.png
< session.png
< lazuli> 
> /save \$2 $work/second.png
< second.png
< lazuli> 
> /quit
END
    export TERM=dumb NO_COLOR=1 LC_ALL=C XDG_STATE_HOME="$work/state"
    python3 tests/cli/terminal.py $lazuli $klein $small <"$work/script" >"$work/talk" 2>&1
    try_match 0 'seed 7, 10 steps' cat "$work/talk"
    try_match 0 '5 computed, 5 forecast' strings "$work/session.png"
    try 1 sh -c "strings $work/second.png | grep forecast" </dev/null
fi
finish
