# Manners: completions and the manual page come from the tables, colours are for terminals, errors are JSON where asked.
. tests/cli/transcript
unset LAZULI_MODEL NO_COLOR
commands=$($lazuli --help all | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
options=$($lazuli --help all | sed -n 's/^  \(-.,\|   \) --\([a-z0-9-]*\).*/\2/p')
try 0 test "$(echo $commands | wc -w)" -gt 10 </dev/null # the lists were read
try 0 test "$(echo $options | wc -w)" -gt 25 </dev/null

PATH="$(realpath $build):$PATH" # shells ask the program for names of models

# Completions
for shell in bash zsh fish; do
    $lazuli completions $shell >"$work/$shell"
    command -v $shell >/dev/null && try 0 $shell -n "$work/$shell" </dev/null
    good=0
    for word in $commands $options; do grep -q -e "$word" "$work/$shell" || { good=1 && echo "$shell: no $word"; }; done
    try 0 test $good = 0 </dev/null
done
try 2 $lazuli completions tcsh <<'END'
lazuli: there are completions for bash, zsh and fish, not for 'tcsh'
END
try_match 2 'completions needs a SHELL' $lazuli completions

if command -v bash >/dev/null; then
    cat >"$work/complete.bash" <<'END'
compopt() { :; } # of the line that is being edited, and there is none
. "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_lazuli
printf '%s\n' "${COMPREPLY[@]}"
END
    tab() { try 0 bash "$work/complete.bash" "$work/bash" lazuli "$@"; }
    tab --wi <<'END'
--width
--wildcards
END
    tab plan fox --st <<'END'
--steps
--strength
END
    tab devices --wi <<'END'

END
    tab fox --precision '' <<'END'
auto
f32
bf16
int8
fp8
END
    tab completions z <<'END'
zsh
END
    tab ba <<'END'
batch
END
    mkdir "$work/models"
    tab fox -m "$work/mod" <<END
$work/models
END
    # trap 19: names of models: those that pull knows, and those in the cache
    mkdir -p "$work/hub/models--some--thing"
    export HF_HUB_CACHE="$work/hub"
    tab fox -m qwen-image-edit-25 <<'END'
qwen-image-edit-2509
qwen-image-edit-2511
qwen-image-edit-2509-fp8
qwen-image-edit-2509-q4
qwen-image-edit-2511-fp8
qwen-image-edit-2511-q4
END
    tab pull flux2-klein-b <<'END'
flux2-klein-base-4b
flux2-klein-base-9b
END
    tab fox -m some <<'END'
some/thing
END
fi
if command -v fish >/dev/null; then
    tab() { try 0 env HOME="$work" fish -c "source $work/fish; complete -C '$1' | cut -f 1"; }
    tab 'lazuli --wi' <<'END'
--width
--wildcards
END
    tab 'lazuli devices --wi' </dev/null
    tab 'lazuli fox --precision b' <<'END'
bf16
END
    tab 'lazuli completions z' <<'END'
zsh
END
    tab "lazuli fox -m qwen-image-edit-250" <<'END'
qwen-image-edit-2509
qwen-image-edit-2509-fp8
qwen-image-edit-2509-q4
END
    tab "lazuli pull flux2-klein-4" <<'END'
flux2-klein-4b
flux2-klein-4b-comfy
flux2-klein-4b-fp8
flux2-klein-4b-q4
flux2-klein-4b-q8
END
fi
if command -v zsh >/dev/null; then # through a terminal of its own: what is typed, then a tab
    mkdir "$work/site"
    cp "$work/zsh" "$work/site/_lazuli"
    cat >"$work/complete.zsh" <<'END'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; show() { print -r -- \"<\$BUFFER>\" }; zle -N show; bindkey '^X' show; echo read''y"
zpty -r shell seen '*ready*'
zpty -w -n shell "$2"$'\t\C-X'
zpty -r shell seen '*<*>*'
print -r -- $seen
zpty -d shell
END
    try_match 0 '<lazuli --width ?>' timeout 600 zsh -f "$work/complete.zsh" "$work/site" 'lazuli --wid'
    try_match 0 '<lazuli fox --precision bf16 ?>' timeout 600 zsh -f "$work/complete.zsh" "$work/site" 'lazuli fox --precision b'
    try_match 0 '<lazuli fox -m qwen-image-edit-2509>' timeout 600 zsh -f "$work/complete.zsh" "$work/site" 'lazuli fox -m qwen-image-edit-250'
    try_match 0 '<lazuli fox -m qwen-image-edit-2509-fp8 ?>' timeout 600 zsh -f "$work/complete.zsh" "$work/site" 'lazuli fox -m qwen-image-edit-2509-f'
    try_match 0 '<lazuli pull qwen-image-2512 ?>' timeout 600 zsh -f "$work/complete.zsh" "$work/site" 'lazuli pull qwen-image-25'
    try_match 0 '<lazuli batch ?>' timeout 600 zsh -f "$work/complete.zsh" "$work/site" 'lazuli ba'
fi

# The manual page mentions all of it, and roff has nothing to say against it
$lazuli man >"$work/lazuli.1"
if command -v groff >/dev/null; then
    try 0 groff -man -Tascii -ww -z "$work/lazuli.1" </dev/null
    groff -man -Tascii -P-cbou "$work/lazuli.1" >"$work/page"
    for option in $options; do try_match 0 "^ +(-., )?--$option( |\$)" cat "$work/page"; done
    for command in $commands; do try_match 0 "^       $command( |\$)" cat "$work/page"; done
    for line in '^EXIT STATUS' '^       130 +stopped' 'NO_COLOR' 'LAZULI_MODEL' "lazuli batch prompts.txt -o 'out/"; do
        try_match 0 "$line" cat "$work/page"
    done
    # trap 19: the session with its commands, and every variable that the program reads
    for line in '^SESSION' '^       /save ' '^       /vary ' 'Ctrl-D ends the session' '^MODELS' '^       qwen-image-edit-2509'; do
        try_match 0 "$line" cat "$work/page"
    done
    variables=$(find src -name '*.[ch]' -exec grep -hoE '"((LAZULI|HF|XDG|CURL|SSL|NO|HUGGING_?FACE)_[A-Z_]+|HOME|TERM|LINES|COLUMNS)"' {} + | tr -d '"' | sort -u)
    try 0 test "$(echo $variables | wc -w)" -gt 15 </dev/null # the list was read
    for variable in $variables; do
        try_match 0 "(^ +|, )$variable(,|\$| )" cat "$work/page"
        try_match 0 "^\|.*\`$variable\`.* \|" sed -n '/^## Environment variables/,/^## Limits/p' docs/cli.md
    done
fi
if command -v man >/dev/null; then try 0 sh -c "man --warnings -l $work/lazuli.1 2>&1 >/dev/null" </dev/null; fi

# Colours
escape=$(printf '\033')
plain() { try 1 sh -c "$* 2>&1 | grep -c '$escape'" <<'END'
0
END
}
plain $lazuli --help
plain $lazuli --wdith 3
if command -v script >/dev/null; then
    try_match 2 "$escape\[1;31mlazuli:$escape" env TERM=xterm script -qec "$lazuli --wdith 3" /dev/null
    try_match 0 "$escape\[1mcommands:$escape" env TERM=xterm script -qec "$lazuli --help all" /dev/null
    for quiet in NO_COLOR=1 TERM=dumb; do plain "TERM=xterm; export TERM; env $quiet script -qec '$lazuli --help; $lazuli --wdith 3' /dev/null"; done
    try_match 2 "$escape\[1;31mlazuli:" env TERM=xterm NO_COLOR= script -qec "$lazuli --wdith 3" /dev/null # empty is unset
fi

# Errors of every command as JSON: one object on stdout, the same sentence on stderr
for command in $commands; do
    case $command in
    generate | plan) given=" fox -m $work/no" ;;
    info | tokenize) given=" -m $work/no" ;;
    encode) given=" $work/no.png -o $work/x.safetensors" ;;
    decode) given=" $work/no.safetensors -o $work/x.png" ;;
    tensors | batch) given=" $work/no" ;;
    completions) given=' tcsh' ;;
    *) given=' --nothing' ;;
    esac
    for words in "$given" ' --nothing' ' --width'; do
        $lazuli $command$words --json >"$work/json" 2>"$work/both"
        try 0 test $? != 0 </dev/null
        grep -v 'using the demo model' "$work/both" >"$work/said"
        try_match 0 '"error": "' cat "$work/json"
        try 0 sh -c "sed -n 's/.*\"error\": \"\\(.*\\)\".*/lazuli: \\1/p' $work/json | sed 's/\\\\\"/\"/g'" <"$work/said"
        if command -v python3 >/dev/null; then try 0 python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/json" </dev/null; fi
    done
done
finish
