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
export TERM=dumb NO_COLOR=1 LC_ALL=C XDG_STATE_HOME="$work/state" # plain letters: what is printed is what is compared
echo leak:wcsdup >"$work/lsan" # libedit frees neither the name nor the help of a function that is added to it (EL_ADDFN)
export LSAN_OPTIONS="suppressions=$work/lsan:print_suppressions=0"
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
if grep -q 'made without libedit' "$work/session"; then
    echo "skipped: this build has no libedit"
    finish
    exit
fi

# Two prompts, the first again, others like it, one that looks at it; settings; mistakes; the end
talk 0 -W 48 -H 32 -s 2 <<'END'
< Type a prompt; /help lists the commands.
< lazuli> 
> /again
< there is no picture yet
< lazuli> 
> /save x.png
< there is no picture yet
< lazuli> 
> $1 in blue
< there is no picture $1; none has been made yet
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
> $2
< words are missing that say what to do with it, as in '$2 on a red background'; '/save $2 FILE' saves it
< lazuli> 
> /save 1 first.png
< first.png
< lazuli> 
> /save 9 none.png
< there is no picture $9; there are $1 to $7
< lazuli> 
> /save $9 none.png
< there is no picture $9; there are $1 to $7
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
< there is no command /sise; did you mean /size?
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
< fox.gif: the name of a picture must end in .png, .jpg or .webp
< lazuli> 
> /save nowhere/fox.png
< create the folder first
< lazuli> 
> /save nowhere/
< create the folder first
< lazuli> 
> /save
< lazuli-7.png
< lazuli> 
> /help
< /quit
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
try 0 sh -c "grep -c 'this model was not trained for' $work/session" <<'END' # trap 4: once in a session
1
END
try 1 sh -c "tr -d '\r' <$work/session | grep -E '^  /.{78}'" </dev/null # /help fits into 80 columns
try 1 grep "$(printf '\033')" "$work/session" </dev/null # a dumb terminal gets no escape sequence, and no moving line
# A picture that is stopped; "step 1" is in the moving line, so this terminal can draw one
TERM=vt100 talk 0 -s 3 -W 1024 -H 1024 <<'END'
< lazuli> 
> a castle
< step 1
^C
< lazuli: stopped
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

# A grid of the last picture is the one of the command line, and becomes a picture; pictures are compared
cd "$work/home"
talk 0 -W 48 -H 32 -s 2 <<'END'
< lazuli> 
> /grid steps=1,2
< there is no picture yet
< lazuli> 
> /compare
< /compare needs two pictures, and there are none
< lazuli> 
> /seed 5
< lazuli> 
> a fox on a blue background
< $1  48 x 32, seed 5, 2 steps, 
< lazuli> 
> /compare
< /compare needs two pictures, and there is one
< lazuli> 
> /grid
< /grid takes one or two axes, as in /grid steps=2,4,8 sampler=euler,unipc
< lazuli> 
> /grid steps=1 seed=1 sampler=heun
< /grid takes one or two axes
< lazuli> 
> /grid stepz=1,2
< /grid: 'stepz' cannot be an axis; did you mean steps?
< lazuli> 
> /grid steps=1,x
< --steps takes a whole number from 1 to 1000, not 'x'
< lazuli> 
> /grid model=demo
< a session keeps its model open, so model cannot be an axis; lazuli grid can do that
< lazuli> 
> /grid steps=1..3  sampler=euler,heun
< $2  262 x 99, 3 x 2 pictures, 
< lazuli> 
> /save two.png
< two.png
< lazuli> 
> /grid prompt=a red fox|a dog seed=5,6
< $3  
< lazuli> 
> /save three.png
< lazuli> 
> /steps 1
< lazuli> 
> /again
< $4  48 x 32, seed 5, 1 step, 
< lazuli> 
> /save four.png
< lazuli> 
> /compare $1 $4
< PSNR 
< settings   steps: 2 and 1
< lazuli> 
> /compare
< $3 and $4
< sizes 
< lazuli> 
> /compare $1 two
< /compare takes two pictures, as in /compare $1 $3
< lazuli> 
> $1 in line style
< $5  
< lazuli> 
> /grid steps=1,2
< $6  
< lazuli> 
> /save six.png
< lazuli> 
> /save $1 one.png
< lazuli> 
> /list
< $2   262 x 99, a grid, saved: 
< lazuli> 
> /undo
< $6 is dropped
< lazuli> 
> a cat
< $6  48 x 32, seed 5, 1 step, 
< lazuli> 
^D
END
sheet="$absolute grid -m $root/models/demo -W 48 -H 32 -s 2 -S 5 -q"
equals() { # FILE: of the session, and the last grid of the command line
    try_match 0 '^equal ' "$absolute" compare "$1" grid.png
}
try 0 $sheet "$fox" --x steps=1..3 --y sampler=euler,heun -o grid.png </dev/null
equals two.png
try_match 0 '^x +steps=1,2,3$' "$absolute" info two.png
try 0 $sheet --x 'prompt=a red fox|a dog' --y seed=5,6 -o grid.png </dev/null
equals three.png
try 0 $sheet "in line style" -i one.png --x steps=1,2 -o grid.png </dev/null
equals six.png
psnr=$("$absolute" compare one.png four.png | grep PSNR)
printed "$psnr"

# trap 17: pictures that are not saved stay below the state folder, each with settings that make it again
cd "$work/home"
unsaved="$work/state/lazuli/unsaved"
rm -rf "$unsaved"
folder() { printf '%s\n' "$unsaved"/*; } # of the only session
repeats() { # it is what --from makes of it, byte for byte
    try 0 "$absolute" --from "$1" -q -o "$work/again.${1##*.}" </dev/null
    same "$1" "$work/again.${1##*.}"
}
talk 0 -W 48 -H 32 -s 2 -S 5 <<'END'
< lazuli> 
> a fox
< $1  
< lazuli> 
> $1 in blue
< $2  
< lazuli> 
> a dog
< $3  
< lazuli> 
> a cat
< $4  
< lazuli> 
> /undo
< lazuli> 
> $2 in red
< $4  
< lazuli> 
> /save $3 dog.png
< dog.png
< lazuli> 
> /save $2 blue.jpg
< blue-from-1.png  is $1, from which blue.jpg was made
< blue.jpg
< lazuli> 
^D
END
printed "^lazuli: 1 picture that was not saved is in $(folder)"
try 0 ls "$(folder)" <<'END'
1.png
2.png
4.png
END
repeats blue.jpg
repeats "$(folder)/4.png"
repeats "$(folder)/2.png"
same "$(folder)/1.png" blue-from-1.png

# trap 17: of a killed session too, and of a closed terminal; the next session says where they are
for signal in 'KILL 137' 'HUP 129' 'TERM 143'; do
    rm -rf "$unsaved"
    printf '< lazuli> \n> a fox\n< $1  \n< lazuli> \n> $1 in blue\n< $2  \n< lazuli> \n! %s\n' ${signal% *} >script
    talk ${signal#* } -W 32 -H 32 -s 1 <script
    try 0 sh -c "cd '$unsaved'/* && ls" <<'END'
1.png
2.png
END
    repeats "$(folder)/2.png"
    talk 0 <<'END'
< lazuli> 
^D
END
    printed "^lazuli: 2 pictures of a session that was cut off are in $(folder)"
    talk 0 <<'END'
< lazuli> 
^D
END
    try_match 1 '^0$' grep -c 'cut off' "$work/session" # it has been said
    try 0 sh -c "cd '$unsaved'/* && ls" <<'END'
1.png
2.png
END
done

# The oldest go, while there are more than 256; sessions that run and files of others stay
rm -rf "$unsaved"
mkdir -p "$unsaved/20200101-000000" "$unsaved/20200102-000000" "$unsaved/20200103-000000-$$" "$unsaved/20200104-000000" "$unsaved/mine"
for i in $(seq 200); do touch "$unsaved/20200104-000000/$i.png"; done
for i in $(seq 57); do touch "$unsaved/20200102-000000/$i.png"; done
touch "$unsaved/20200101-000000/1.png" "$unsaved/20200101-000000/1.png.1-1.part" "$unsaved/20200103-000000-$$/1.png" "$unsaved/20200102-000000/note" "$unsaved/20200102-000000/1.png~" "$unsaved/20200102-000000/1.png.1-1.part.bak"
talk 0 <<'END'
< lazuli> 
^D
END
try 0 ls "$unsaved" <<END
20200102-000000
20200103-000000-$$
20200104-000000
mine
END
try 0 env LC_ALL=C ls "$unsaved/20200102-000000" <<'END'
1.png.1-1.part.bak
1.png~
note
END
try 0 sh -c "ls '$unsaved/20200104-000000' | wc -l | tr -d ' '" <<'END'
200
END
rm -rf "$unsaved"

# trap 17: what is saved can be made again, whatever was saved of the pictures it was made from
mkdir -p far near
talk 0 -W 48 -H 32 -s 2 -S 5 <<'END'
< lazuli> 
> a fox
< $1  
< lazuli> 
> $1 in blue
< $2  
< lazuli> 
> $2 $1 with a hat
< $3  
< lazuli> 
> /save near/hat.png
< near/hat-from-1.png  is $1, from which near/hat-from-2.png was made
< near/hat-from-2.png  is $2, from which near/hat.png was made
< near/hat.png
< lazuli> 
> /save $3 near/twice.png
< near/twice.png
< lazuli> 
> /save $1 far/one.jpg
< far/one.jpg
< lazuli> 
> /save $2 far/two.png
< far/two-from-1.png  is $1, from which far/two.png was made
< far/two.png
< lazuli> 
> /save $3 far/two.png
< far/two-from-2.png  is $2, from which far/two.png was made
< far/two.png
< lazuli> 
^D
END
for file in near/hat.png near/hat-from-2.png near/twice.png far/two.png far/two-from-2.png; do repeats $file; done
same near/hat.png near/twice.png
try 0 ls near far <<'END'
far:
one.jpg
two-from-1.png
two-from-2.png
two.png

near:
hat-from-1.png
hat-from-2.png
hat.png
twice.png
END
try_match 2 'No such file' ls "$unsaved"/* # all were saved

# trap 17: -i starts a session with that picture; /load, /list, /strength, /guidance, Tab
cp "$root/tests/data/flux2/ref1.png" "a photo.png"
talk 0 -i "a photo.png" --strength 0.5 -W 32 -H 32 -s 4 -S 5 <<'END'
< $1  75 x 70, a photo.png
< The first prompt changes $1; later prompts name it, as in: $1 in blue
< lazuli> 
> /again
< there is no picture yet
< lazuli> 
> in blue
< $2  32 x 32, seed 5, 2 of 4 steps
< lazuli> 
> /save begun.png
< begun.png
< lazuli> 
> a fox
< $3  32 x 32, seed 5, 4 steps
< lazuli> 
> /save fox3.png
< lazuli> 
> /strength
< lazuli> 
> $1 in blue
< $4  32 x 32, seed 5, 4 steps
< lazuli> 
> /save seen.png
< lazuli> 
+ /loa
^I
+ begu
^I
> 
< $5  32 x 32, begun.png
< lazuli> 
> /strength 2
< /strength takes a number from 0.001 to 1, not '2'
< lazuli> 
> /guidance x
< /guidance takes a number from 1 to 1000, not 'x'
< lazuli> 
> /load
< /load needs the name of a picture
< lazuli> 
> /load "a photo.png"
< $6  75 x 70, a photo.png
< lazuli> 
> /load nowhere.png
< nowhere.png: cannot be opened
< lazuli> 
+ /save $
^I
+ 2 beg
^I
> 
< begun.png
< lazuli> 
+ /
^I
< /guidance
> list
< $1   75 x 70, loaded: 
< $2   32 x 32, seed 5, "$1 in blue", saved: 
< $3   32 x 32, seed 5, "a fox", saved: 
< $5   32 x 32, not saved
< lazuli> 
^D
END
printed "^lazuli: 1 picture that was not saved is in $(folder)" # $5, which was overwritten
try 0 ls "$(folder)" <<'END'
5.png
END
two="-m $root/models/demo -W 32 -H 32 -s 4 -S 5 -q"
try 0 "$absolute" in blue $two -i "a photo.png" --strength 0.5 -o x.png </dev/null
same begun.png x.png
try 0 "$absolute" a fox $two -o x.png </dev/null
same fox3.png x.png
try 0 "$absolute" in blue $two -i "a photo.png" -o x.png </dev/null
same seen.png x.png
try_match 1 'nowhere.png: cannot be opened' python3 "$root/tests/cli/terminal.py" "$absolute" -i nowhere.png
talk 0 -m "$root/tests/data/flux2/C" -W 32 -H 32 -s 2 -S 5 <<'END'
< lazuli> 
> /guidance 2.5
< lazuli> 
> a fox
< $1  
< lazuli> 
> /save guided.png
< lazuli> 
^D
END
try 0 "$absolute" a fox -m "$root/tests/data/flux2/C" -W 32 -H 32 -s 2 -S 5 -g 2.5 -q -o x.png </dev/null
same guided.png x.png
cd "$root"

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
XDG_STATE_HOME=/proc/none talk 0 -W 16 -H 16 -s 1 <<'END'
< lazuli> 
> a dog
< $1  
< lazuli: pictures that are not saved will be lost at the end: no folder could be made for them
< lazuli> 
> /quit
< lazuli: 1 picture was not saved, and lost
END
cd "$root"

# trap 11: a session that a signal ends says so by its exit code, while it paints and while it waits
cd "$work/home"
for signal in 'TERM 143' 'HUP 129'; do
    printf '< lazuli> \n> /size 1024x1024\n< lazuli> \n> a castle\n< step 1\n! %s\n' ${signal% *} >script
    TERM=vt100 talk ${signal#* } <script
    printed 'lazuli: stopped'
    printf '< lazuli> \n! %s\n' ${signal% *} >script
    talk ${signal#* } <script
done
cd "$root"

# Commands without their slash are no prompts; options that a session does not take
cd "$work/home"
talk 0 -W 16 -H 16 -s 1 <<'END'
< lazuli> 
> help
< lazuli: 'help' is a command; type /help
< lazuli> 
> exit
< lazuli: 'exit' is a command; type /quit
< lazuli> 
> ?
< lazuli: '?' is a command; type /help
< lazuli> 
> Quit
< lazuli: 'Quit' is a command; type /quit
< lazuli> 
> quit smoking
< $1  16 x 16
< lazuli> 
> /quit
END
cd "$root"
terminal() { python3 tests/cli/terminal.py $absolute "$@"; }
try_match 2 'a session takes one seed with -S; /vary 4 ' terminal -S 1,2
try_match 2 '--verbose cannot be used in a session; ' terminal -v
try_match 2 '--profile cannot be used in a session; ' terminal --profile
try_match 2 'generate does not take --check' terminal --check

# Numbers are read as those of options; an option that changes nothing is told of once
cd "$work/home"
talk 0 -W 16 -H 16 -s 1 -n dark <<'END'
< lazuli> 
> /guidance 0x10
< /guidance takes a number from 1 to 1000, not '0x10'
< lazuli> 
> /size 512
< /size takes sides from 16 to 8192 pixels, such as 512x768, not '512'
< lazuli> 
> a fox
< $1  
< lazuli> 
> a dog
< $2  
< lazuli> 
> /quit
END
try 0 grep -c -e '--negative has no effect' "$work/session" <<'END'
1
END
# Choices in a prompt are made by the seed of each picture
talk 0 -W 16 -H 16 -s 1 -S 1 <<'END'
< lazuli> 
> {red|blue} car
< $1  16 x 16, seed 1, 1 step, 
< "blue car"
< lazuli> 
> /save choice.png
< lazuli> 
> /vary 2
< "blue car"
< "red car"
< lazuli> 
> /save varied.png
< lazuli> 
> {red|blue
< the prompt has choices after a { that is never closed
< lazuli> 
> /quit
END
for seed in 1 3; do
    [ $seed = 1 ] && file=choice.png || file=varied.png
    try 0 "$absolute" -m "$root/models/demo" '{red|blue} car' -W 16 -H 16 -s 1 -S $seed -q -o one.png </dev/null
    same $file one.png
done
cd "$root"

# What is no session: options of one picture, and no terminal
try_match 2 'a prompt is needed' $lazuli
try_match 2 'a prompt is needed' python3 tests/cli/terminal.py $absolute -o x.png
finish
