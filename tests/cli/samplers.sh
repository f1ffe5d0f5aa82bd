# --sampler, --schedule and --shift: on the command line, in a batch, in a session, in a picture and in a plan.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
klein="-m $PWD/tests/data/flux2/A"
small="-W 32 -H 32 -s 3 -S 7"
samplers='euler heun dpm++2m unipc res_multistep res_2s euler_a lcm'
schedules='auto simple beta beta57 sgm_uniform normal karras exponential kl_optimal linear_quadratic bong_tangent'

# Each makes another picture, and --from makes it again, byte for byte
for sampler in $samplers; do
    try 0 $lazuli a fox $klein $small --full-paths --sampler $sampler -q -o "$work/$sampler.png" </dev/null
    try 0 $lazuli --from "$work/$sampler.png" --full-paths -q -o "$work/again.png" </dev/null
    try 0 cmp "$work/$sampler.png" "$work/again.png" </dev/null
done
for schedule in $schedules; do
    try 0 $lazuli a fox $klein $small --full-paths --schedule $schedule --shift 2.5 -q -o "$work/$schedule.png" </dev/null
    try 0 $lazuli --from "$work/$schedule.png" --full-paths -q -o "$work/again.png" </dev/null
    try 0 cmp "$work/$schedule.png" "$work/again.png" </dev/null
done
# The last one and its copy are the only equal ones
try 0 sh -c "md5sum $work/*.png | cut -d' ' -f1 | sort | uniq -d | wc -l" <<END
1
END

# Names that other programs use
try 0 $lazuli a fox $klein $small --full-paths --sampler dpmpp_2m -q -o "$work/other.png" </dev/null
try 0 cmp "$work/dpm++2m.png" "$work/other.png" </dev/null

# What a picture says of itself
try_match 0 'Sampler: Euler a, CFG' strings "$work/euler_a.png"
try_match 0 'Sampler: Euler, Schedule type: karras, CFG' strings "$work/karras.png"
try_match 0 '"sampler": "euler", "schedule": "karras", "shift": 2.5,' strings "$work/karras.png"

# Passes in a plan and in the output for programs; the operations are those of the passes
try_match 0 '^32 x 32 pixels, 3 steps of res_2s in 5 passes, schedule beta, ' $lazuli plan a fox $klein $small --sampler res_2s --schedule beta
for line in '"steps": 3,' '"passes": 5,' '"sampler": "heun",' '"schedule": "auto",'; do
    try_match 0 "^ $line" $lazuli plan a fox $klein $small --sampler heun --json
    try_match 0 "^ $line" $lazuli a fox $klein $small --sampler heun --json -o "$work/json.png"
done

# Wrong names and values, and models that cannot
try_match 2 "there is no sampler 'eular'; there are euler heun" $lazuli a fox $klein --sampler eular
try_match 2 "there is no schedule 'bet'; there are auto simple beta" $lazuli a fox $klein --schedule bet
try_match 2 '.--shift takes a number from 0.01 to 100, not .0' $lazuli a fox $klein --shift 0
try_match 1 'distilled for the sampler euler, and cannot use unipc$' $lazuli a fox -m tests/data/flux3/D --sampler unipc -W 32 -H 32 -o "$work/none.png"
try_match 1 'has 8 fixed sigmas, so it takes no other schedule or shift$' $lazuli a fox -m tests/data/qwen21/T --shift 3 -W 32 -H 32 -o "$work/none.png"

# --fast: what it sets, what it says, and that given options come first
base="-m $PWD/tests/data/flux2/C"
try_match 0 '^lazuli: --fast: 20 steps of euler, schedule auto$' $lazuli plan a fox $base -W 32 -H 32 --fast
try_match 0 '^32 x 32 pixels, 20 steps, ' $lazuli plan a fox $base -W 32 -H 32 --fast
try_match 0 '^32 x 32 pixels, 3 steps of unipc, ' $lazuli plan a fox $base $small --sampler unipc --fast
try_match 0 '^lazuli: --fast has no effect; no faster settings are recommended for this model$' $lazuli plan a fox $klein -W 32 -H 32 --fast
# A picture records what was set, so --from repeats it; --fast is typed, and comes before what a picture says
try 0 $lazuli a fox $base -W 32 -H 32 -S 7 -g 1 --full-paths --fast -q -o "$work/fast.png" </dev/null
try_match 0 '"steps": 20, "guidance": 1.0, "sampler": "euler", "schedule": "auto",' strings "$work/fast.png"
try 0 $lazuli --from "$work/fast.png" --full-paths -q -o "$work/again.png" </dev/null
try 0 cmp "$work/fast.png" "$work/again.png" </dev/null
try 0 $lazuli a fox $base $small -g 1 --full-paths --sampler heun --schedule beta -q -o "$work/slow.png" </dev/null
try 0 $lazuli --from "$work/slow.png" --full-paths --fast -q -o "$work/again.png" </dev/null
try 0 cmp "$work/fast.png" "$work/again.png" </dev/null
echo '{"prompt": "a fox", "steps": 3, "output": "line.png"}' >"$work/list.jsonl"
try 0 sh -c "cd $work && $(realpath $lazuli) batch list.jsonl $base -W 32 -H 32 -S 7 -g 1 --fast -q" </dev/null
try_match 0 '"steps": 3, "guidance": 1.0, "sampler": "euler",' strings "$work/line.png"

# A batch and a session
echo '{"prompt": "a fox", "sampler": "unipc", "schedule": "beta", "shift": 2, "output": "line.png"}' >"$work/list.jsonl"
try 0 $lazuli a fox $klein $small --sampler unipc --schedule beta --shift 2 -q -o "$work/typed.png" </dev/null
try 0 sh -c "cd $work && $(realpath $lazuli) batch list.jsonl $klein $small -q" </dev/null
try 0 cmp "$work/line.png" "$work/typed.png" </dev/null
if command -v python3 >/dev/null && python3 -c 'import pty' 2>/dev/null; then
    cat >"$work/script" <<END
< lazuli> 
> /sampler eular
< there is no sampler 'eular'; there are euler
< lazuli> 
> /sampler uni_pc
< lazuli> 
> /schedule beta
< lazuli> 
> /shift 2
< lazuli> 
> a fox
< seed 7, 3 steps
< lazuli> 
> /sampler
< lazuli> 
> /again
< seed 7, 3 steps
< lazuli> 
> /fast on
< /fast takes nothing, or off, not 'on'
< lazuli> 
> /fast
< lazuli> 
> /steps
< lazuli> 
> /schedule
< lazuli> 
> /again
< --fast has no effect; no faster settings are recommended for this model
< lazuli> 
> /fast off
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
    try_match 0 'seed 7, 3 steps' cat "$work/talk"
    try_match 0 '"sampler": "unipc", "schedule": "beta", "shift": 2.0,' strings "$work/session.png"
    try_match 0 '"sampler": "euler", "schedule": "beta", "shift": 2.0,' strings "$work/second.png"
fi
finish
