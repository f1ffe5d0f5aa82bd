# `lazuli` alone on a terminal, driven through a pseudo-terminal (terminal.py).
. tests/cli/transcript
unset LAZULI_MODEL
if ! command -v python3 >/dev/null || ! python3 -c 'import pty' 2>/dev/null; then
    echo "skipped: there is no python3 to drive a terminal with"
    finish
    exit
fi
root=$PWD
absolute=$(realpath $lazuli)
export TERM=dumb LC_ALL=C XDG_STATE_HOME="$work/state" # plain letters: what is printed is what is compared
mkdir "$work/home"
cd "$work/home"

same() { try 0 cmp "$1" "$2" </dev/null; }
differ() { try_match 1 differ cmp "$1" "$2"; }
printed() { try_match 0 "$1" cat "$work/session"; } # in the last session
# talk CODE [OPTIONS] <script
talk() {
    wanted=$1
    shift
    code=0
    python3 "$root/tests/cli/terminal.py" "$absolute" -m "$root/models/demo" --threads 2 "$@" >"$work/session" 2>&1 || code=$?
    good=0
    [ "$code" = "$wanted" ] || good=1
    cp "$work/session" "$work/difference"
    report $good talk "$@"
}

talk 0 -s 2 <<'END'
< lazuli> 
^D
END
if grep -q 'left out of this build' "$work/session"; then
    echo "skipped: this build has no libedit"
    finish
    exit
fi

# Two prompts, the first again, others like it, one that looks at it; settings; mistakes; a stopped one; the end
talk 0 -W 48 -H 32 -s 2 <<'END'
< Type what to see; /help lists the rest.
< lazuli> 
> /again
< there is no picture yet
< lazuli> 
> /save x.png
< there is no picture yet
< lazuli> 
> $1 in blue
< there is no picture $1: none has been made yet
< lazuli> 
> /seed 5
< lazuli> 
> a fox on a blue background
< $1  48 x 32, seed 5, 2 steps, 
< lazuli> 
> /save fox.png
< lazuli> 
> two red apples
< $2  48 x 32, seed 5, 2 steps, 
< lazuli> 
> /save apples.png
< lazuli> 
> a fox on a blue background
< $3  48 x 32, seed 5, 
< lazuli> 
> /again
< $4  48 x 32, seed 5, 
< lazuli> 
> /save again.png
< lazuli> 
> /save $3 third.png
< lazuli> 
> /vary 2
< $5  48 x 32, seed 6, 
< $6  48 x 32, seed 7, 
< lazuli> 
> /save six.png
< lazuli> 
> $1  in line style
< $7  48 x 32, seed 5, 
< lazuli> 
> /save looked.png
< lazuli> 
> /save $9 none.png
< there is no picture $9: they are $1 to $7
< lazuli> 
> /undo
< $7 is dropped
< lazuli> 
> /size 32x64
< lazuli> 
> /steps 3
< lazuli> 
> /again
< $7  32 x 64, seed 7, 3 steps, 
< lazuli> 
> /save large.png
< lazuli> 
> /sise 3
< there is no command /sise; is /size meant?
< lazuli> 
> /frobnicate
< there is no command /frobnicate; /help lists them
< lazuli> 
> /size 3
< /size takes sides from 16 to 8192 pixels, such as 512x768, not '3'
< lazuli> 
> /steps none
< /steps takes a whole number from 1 to 1000
< lazuli> 
> /seed -1
< /seed takes a whole number
< lazuli> 
> /vary 0
< /vary takes a whole number from 1 to 64
< lazuli> 
> /save fox.gif
< fox.gif: the name of a picture ends in .png, .jpg or .webp
< lazuli> 
> /save nowhere/fox.png
< make the folder first
< lazuli> 
> /save
< lazuli-7.png
< lazuli> 
> /help
< /quit
< lazuli> 
> /size 1024x1024
< lazuli> 
> a castle
< step 1
^C
< lazuli: stopped
< lazuli> 
+ half a line
^C
> /nothing
< there is no command /nothing
< lazuli> 
> /size 16x16
< lazuli> 
> a castle
< $8  16 x 16, seed 5, 3 steps, 
< lazuli> 
^D
END
printed '^lazuli: .*stopped|lazuli: stopped'
same fox.png again.png
same fox.png third.png
differ fox.png apples.png
differ fox.png six.png
differ fox.png looked.png
try_match 2 'No such file' ls x.png none.png fox.gif
cd "$root"
fox="a fox on a blue background"
one="-m models/demo -W 48 -H 32 -s 2 -q"
try 0 $lazuli "$fox" $one -S 5 -o "$work/cli.png" </dev/null # the same as by the command line, with what is known of it
same "$work/home/fox.png" "$work/cli.png"
try 0 $lazuli "$fox" $one -S 7 -o "$work/cli.png" </dev/null
same "$work/home/six.png" "$work/cli.png"
try 0 $lazuli "in line style" $one -S 5 -i "$work/home/fox.png" -o "$work/cli.png" </dev/null
same "$work/home/looked.png" "$work/cli.png"
try 0 $lazuli "$fox" -m models/demo -W 32 -H 64 -s 3 -q -S 7 -o "$work/cli.png" </dev/null
same "$work/home/large.png" "$work/cli.png"
same "$work/home/lazuli-7.png" "$work/cli.png"

# The history is there the next time
try_match 0 'a.040fox.040on' cat "$work/state/lazuli/history"
cd "$work/home"
talk 0 -S 9 -W 16 -H 16 -s 1 <<'END'
< lazuli> 
> a dog
< $1  16 x 16, seed 9, 1 step, 
< lazuli> 
> /quit
END
XDG_STATE_HOME= HOME="$work/home" talk 0 <<'END'
< lazuli> 
> /quit
END
try_match 0 quit cat "$work/home/.local/state/lazuli/history"
XDG_STATE_HOME=/proc/none talk 0 <<'END'
< lazuli> 
> /quit
END
cd "$root"

# trap 11: a session that a signal ends says so by its exit code, while it paints and while it waits
cd "$work/home"
for signal in 'TERM 143' 'HUP 129'; do
    printf '< lazuli> \n> /size 1024x1024\n< lazuli> \n> a castle\n< step 1\n! %s\n' ${signal% *} >script
    talk ${signal#* } <script
    printed 'lazuli: stopped'
    printf '< lazuli> \n! %s\n' ${signal% *} >script
    talk ${signal#* } <script
done
cd "$root"

# What is no session: options of one picture, and no terminal
try_match 2 'what shall be shown' $lazuli
try_match 2 'what shall be shown' python3 tests/cli/terminal.py $absolute -o x.png
finish
