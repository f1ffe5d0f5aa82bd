# `lazuli pull` against a hub on localhost that breaks connections, lies, redirects and refuses (hub.py); then the model
# by its name, and `lazuli models`.
. tests/cli/transcript
unset LAZULI_MODEL HF_TOKEN HUGGING_FACE_HUB_TOKEN HF_TOKEN_PATH HF_HOME HF_ENDPOINT HF_HUB_CACHE HUGGINGFACE_HUB_CACHE
unset XDG_CACHE_HOME CURL_CA_BUNDLE SSL_CERT_FILE http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
flux=$PWD/tests/data/flux2
export HOME="$work/home" LAZULI_PULL_PAUSE=0.001
cache=$HOME/.cache/huggingface/hub
commit=c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeebeef
mkdir "$HOME"

# A model that is not here: what would fetch it
try_match 2 'models does not take --to' $lazuli models --to x
for name in flux2-klein-4b FLUX.2-klein-4B black-forest-labs/FLUX.2-klein-4B; do
    try 1 $lazuli fox -m $name <<END
lazuli: no model at $name; 'lazuli pull flux2-klein-4b' downloads 14.9 GiB
END
done
try_match 1 "no model at qwen-imag; did you mean qwen-image" $lazuli fox -m qwen-imag
try_match 1 "no model at models/klein: .* 'lazuli pull models/klein' would look for it on the hub" $lazuli fox -m models/klein
try_match 1 "downloads 14.9 GiB; .LAZULI_MODEL names it" env LAZULI_MODEL=flux2-klein-4b $lazuli tokenize fox
try_match 1 "is not a model folder.*'lazuli pull flux2-klein-4b' downloads" $lazuli info -m "$work/nowhere"

if $lazuli pull fox 2>&1 </dev/null | grep -q 'built without download support'; then
    echo "skipped: pull is not built in"
    finish
    exit
fi

# Names, before anybody is asked
try_match 2 "^lazuli: pull needs a NAME" $lazuli pull
try_match 2 "'fox' is neither OWNER/REPO nor a short name like flux2-klein-4b" $lazuli pull fox
try_match 2 "there is no model 'flux2-klein-4'; did you mean flux2-klein-4b" $lazuli pull flux2-klein-4
for name in a/b/c ../b a/.. a/b..c /b a/ 'a/b c' 'a/b?c' -- 'a/%2e%2e' 'a/b--c'; do
    try_match 2 "^lazuli: " $lazuli pull -- "$name"
done
for address in '' x ftp://x file:///x 'http://a b' http:// 'http://me:secret@x' 'http://x?y'; do
    [ -z "$address" ] || try_match 2 "is not the address of a hub" $lazuli pull a/b --endpoint "$address"
done
for revision in '' .. a/../b /a 'a b' 'a?b'; do
    try_match 2 "is not a branch, tag or commit" $lazuli pull a/b --revision "$revision"
done

if ! command -v python3 >/dev/null; then
    echo "skipped: pull needs python3 for its hub"
    finish
    exit
fi
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
        -keyout "$work/key.pem" -out "$work/certificate.pem" 2>"$work/openssl" || cat "$work/openssl"
    cat "$work/key.pem" "$work/certificate.pem" >"$work/tls.pem"
fi
python3 tests/cli/hub.py "$flux" "$work" 2>"$work/hub-errors" &
hub=$!
trap 'kill $hub 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 200); do [ -e "$work/ports" ] || sleep 0.05; done
read -r port _ tls <"$work/ports"
export HF_ENDPOINT="http://127.0.0.1:$port/"

pull() { $lazuli pull "$@"; }
quiet() { try 0 pull "$@" -q </dev/null; }
asked() { grep -c -e "$1" "$work/log"; }
bytes() { awk '/resolve/ { sub(/.*sent=/, ""); n += $0 } END { print n + 0 }' "$work/log"; }
forget() { : >"$work/log"; }

# same FOLDER [MODEL]: exactly the files of the model, nothing else, the same bytes
same() { try 0 diff -r "$flux/${2:-B}" "$1" </dev/null; }
# refused PATTERN ARGUMENTS...: fails in a sentence, and no file has a name that it should not have
refused() {
    pattern=$1
    shift
    rm -rf "$work/to"
    try_match 1 "^lazuli: .*$pattern" pull "$@" --to "$work/to" -q
    cp "$work/output" "$work/said"
    try 0 grep -c '^' "$work/said" <<'END'
1
END
    try 1 grep -e hf_secret "$work/said" </dev/null
    if [ -d "$work/to" ]; then
        (cd "$work/to" && find . -type f ! -name '*.incomplete') >"$work/left"
        while read -r file; do try 0 cmp "$work/to/$file" "$flux/B/$file" </dev/null; done <"$work/left"
    fi
}

# Into a folder: what is needed, and that only; a second time nothing is fetched
forget
try_match 0 "^$work/plain  1[0-9] files, [0-9.]+ [KM]iB, checked\$" pull plain/B --to "$work/plain"
same "$work/plain"
try 1 grep -e README -e teaser -e flux-2 -e onnx -e bin -e fp16 -e old -e other "$work/log" </dev/null
try 1 test -e "$work/plain/.lazuli-pull" </dev/null
forget
quiet plain/B --to "$work/plain"
try 0 test "$(asked resolve)" = 1 </dev/null # model_index.json alone
printf x | dd of="$work/plain/vae/config.json" conv=notrunc 2>/dev/null # the same size, other bytes
quiet plain/B --to "$work/plain"
same "$work/plain"
quiet plain/A --to "$work/shards"
same "$work/shards" A
try_match 0 '^ "received": [1-9][0-9]+' pull plain/B --json --to "$work/json"
try_match 0 "^ \"commit\": \"$commit\"" pull plain/B --json --to "$work/json" --revision v1
quiet plain/B --to "$work/json" --revision refs/pr/1
for owner in paged twins pointers; do quiet $owner/B --to "$work/$owner"; done
same "$work/paged"
same "$work/pointers"
try 0 cmp "$work/twins/processor/preprocessor_config.json" "$flux/B/scheduler/scheduler_config.json" </dev/null

# The index of a modular pipeline has another name
try_match 0 "^$work/modular  1[0-9] files, [0-9.]+ [KM]iB, checked\$" pull modular/B --to "$work/modular"
try 0 cmp "$work/modular/transformer/config.json" "$flux/B/transformer/config.json" </dev/null
try 0 test -e "$work/modular/modular_model_index.json" </dev/null
try_match 0 'LAZULI_MODEL .* complete ' env LAZULI_MODEL="$work/modular" $lazuli models

# It breaks, and goes on
forget
try_match 0 'the connection broke .*; trying again in 1 ms' pull breaks/B --to "$work/breaks"
same "$work/breaks"
try_match 0 'range=bytes=60000- ' cat "$work/log"
try_match 0 'range=bytes=120000- ' cat "$work/log"
whole=$(bytes)
for owner in noranges shifts once busy moved; do
    quiet $owner/B --to "$work/$owner"
    same "$work/$owner"
done
try 0 test "$(grep -c ' 429 ' "$work/log")" -gt 5 </dev/null
if command -v script >/dev/null; then
    try_match 0 'pull [#.]{24} +[0-9]+% .* of .*, .*/s' env TERM=xterm script -qec "stty cols 100; $lazuli pull breaks/B --to $work/seen" /dev/null
    same "$work/seen"
fi
refused 'the hub answered 500, 6 times in a row; run the same command again to continue' down/B
refused "differs from the hub's SHA-256, twice" wrong/B
refused 'is longer than the .* that the hub lists' short/B
refused 'the answer ended early, 6 times in a row|the hub has no such range' long/B

# trap 12: a byte now and then does not hold it for ever, though each try brings some
forget
export LAZULI_PULL_STALL=0.1
refused 'less than 1.0 KiB a second arrived for 100 ms, 6 times in a row; run the same command again to continue' drips/B
unset LAZULI_PULL_STALL
try_match 0 'range=bytes=[1-9]' cat "$work/log" # each of them from where the last one was

# trap 12: a host that is not there is named, after two tries, since more do not help; this label is too long for any network
long=$(printf 'nowhere%.0s' 1 2 3 4 5 6 7 8 9 10)
refused "the host $long.test was not found .*, 2 times in a row" plain/B --endpoint "http://$long.test"

# trap 12: a pipeline that Lazuli does not run is refused by its name, and nothing else of it is fetched
forget
refused 'is a StableDiffusionXLPipeline, which Lazuli does not run \(it runs Flux2KleinPipeline, .*\); nothing was downloaded' foreign/B
try 0 test "$(asked resolve)" = 1 </dev/null
try 1 test -e "$work/to" </dev/null

# trap 12: no name in the folder is followed elsewhere, to write there or to remove something
mkdir "$work/linked" "$work/others"
touch "$work/others/$(printf '0%.0s' 1 2 3).incomplete" "$work/others/kept"
ln -s ../others "$work/linked/.lazuli-pull"
try_match 1 '.lazuli-pull/.*: cannot be written: a name in it is a link' pull plain/B --to "$work/linked" -q
try 0 ls "$work/others" <<'END'
000.incomplete
kept
END
rm "$work/linked/.lazuli-pull"
ln -s ../others "$work/linked/vae"
try_match 1 'linked/vae/.*: cannot be written: a name in it is a link' pull plain/B --to "$work/linked" -q
rm "$work/linked/vae"
quiet plain/B --to "$work/linked"
ln -s ../others "$work/linked/.lazuli-pull" # nothing is to fetch, so nothing is to remove
quiet plain/B --to "$work/linked"
try 0 ls "$work/others" <<'END'
000.incomplete
kept
END

# A token goes to the hub, and to nobody else
forget
refused 'answered 401: there is no such model, or it is not public; accept its terms on the hub, then set HF_TOKEN' private/B
refused 'answered 404: ' plain/B --revision nowhere
export HF_TOKEN=hf_secret_but_wrong
refused 'answered 403: the token may not read the model' private/B
export HF_TOKEN=' hf_secret
'
quiet private/B --to "$work/private"
same "$work/private"
rm -rf "$work/moved"
forget
quiet moved/B --to "$work/moved"
same "$work/moved"
try 0 test "$(asked '^cdn .*token=- 200')" -gt 9 </dev/null
try 1 grep -e '^cdn .*hf_secret' "$work/log" </dev/null
try 0 test "$(asked '^hub .*token=Bearer hf_secret 302')" -gt 9 </dev/null
HF_TOKEN=$(printf 'a\nX-Evil: b')
refused 'contains invalid characters' plain/B
unset HF_TOKEN
try 0 env HUGGING_FACE_HUB_TOKEN=hf_secret $lazuli pull private/B --to "$work/private" -q </dev/null
mkdir -p "$work/hf" "$HOME/.cache/huggingface"
echo hf_secret >"$work/hf/token"
try 0 env HF_HOME="$work/hf" $lazuli pull private/B --to "$work/private" -q </dev/null
echo hf_secret >"$HOME/.cache/huggingface/token"
quiet private/B --to "$work/private"
rm "$HOME/.cache/huggingface/token"

# What a hub may not say
for owner in escapes climbs roots dots nothing controls; do refused 'lists a path outside the model' $owner/B; done
refused 'invalid characters in its name' odd/B
refused 'with an invalid size or hash' hashes/B
for owner in negative vast; do refused 'with an invalid size or hash' $owner/B; done
refused 'lists vae/config.json twice' doubles/B
refused 'lists vae/config.json twice' twosizes/B # trap 12: with two sizes
refused 'the disk has .* free, and 8.0 TiB are needed' huge/B
refused 'answered 404' bare/B
refused 'does not answer like a hub' garbage/B
refused 'is longer than the 2.0 MiB' endless/B
refused 'lists more than 2000 files' crowd/B # trap 8: limits of lists
refused 'list of files has more than 20 pages' fat/B
python3 - "$lazuli" "$work/to" <<'END' >"$work/memory" # trap 8: pages are not kept; all of these would take 600 MB
import os, resource, subprocess, sys
small = dict(os.environ, ASAN_OPTIONS="quarantine_size_mb=8")
subprocess.run([sys.argv[1], "pull", "fat/B", "--to", sys.argv[2], "-q"], env=small, stderr=subprocess.DEVNULL)
most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
print("little" if most < 350 else f"{most} MiB")
END
try_match 0 '^little$' cat "$work/memory"
refused 'names no commit' nameless/B
refused 'continues on another host' astray/B
refused 'redirects more than [0-9]+ times' loops/B
refused 'not http or https' local/B
try 2 ls "$work/evil.json" "$work/../evil.json" /tmp/evil.json 2>/dev/null >/dev/null <<END
ls: cannot access '$work/evil.json': No such file or directory
ls: cannot access '$work/../evil.json': No such file or directory
ls: cannot access '/tmp/evil.json': No such file or directory
END

# https: an unknown certificate is no hub, and nothing leads back to http
if [ -e "$work/tls.pem" ]; then
    refused 'SSL peer certificate' plain/B --endpoint "https://127.0.0.1:$tls"
    export CURL_CA_BUNDLE="$work/certificate.pem"
    quiet plain/B --endpoint "https://127.0.0.1:$tls" --to "$work/tls"
    same "$work/tls"
    refused 'redirects from https to http' moved/B --endpoint "https://127.0.0.1:$tls"
    unset CURL_CA_BUNDLE
fi

# Killed in the middle, then stopped by Ctrl-C, it goes on from there; the cache has the layout that others know
folder=$cache/models--stalls--B
wait_for_bytes() { # until two files have stopped in the middle and what was sent of them has arrived
    for _ in $(seq 3000); do
        [ "$(asked 'sent=60000')" -ge 2 ] &&
            [ "$(find "$folder/blobs" -name '*.incomplete' -size +20k 2>/dev/null | wc -l)" -ge 2 ] && return
        sleep 0.02
    done
}
forget
$lazuli pull stalls/B -q &
killed=$!
wait_for_bytes
try 0 test "$(asked 'sent=60000')" -ge 2 </dev/null # several at once: none of them ends
try_match 1 'another pull is running there' pull stalls/B
kill -KILL $killed
wait $killed 2>/dev/null
try_match 0 '^stalls/B +[0-9.]+ KiB  incomplete ' $lazuli models
try_match 0 ' is missing.*; lazuli pull stalls/B continues$|are missing.*; lazuli pull stalls/B continues$' $lazuli models
try_match 1 "; 'lazuli models' lists missing files, 'lazuli pull stalls/B' downloads them\$" $lazuli info -m stalls/B
try 1 test -e "$folder/refs/main" </dev/null
forget
python3 - "$lazuli" "$work/log" <<'END' >"$work/stopped" 2>&1 # a background job of sh would ignore Ctrl-C
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
run = subprocess.Popen([sys.argv[1], "pull", "stalls/B", "-q"], stderr=subprocess.PIPE)
while "sent=60000" not in open(sys.argv[2]).read() and run.poll() is None:
    time.sleep(0.02)
run.send_signal(signal.SIGINT)
print(run.communicate()[1].decode(), run.returncode)
END
try_match 0 'stopped; run the same command again to continue' cat "$work/stopped"
try_match 0 '130$' cat "$work/stopped"
touch "$work/go"
forget
try_match 0 "^$folder/snapshots/$commit  [0-9]+ files?, .*, checked; [0-9]+ files?, .* were there before" pull stalls/B
try_match 0 'range=bytes=[1-9][0-9]*- ' cat "$work/log"
try 0 test "$(bytes)" -lt "$whole" </dev/null
same "$folder/snapshots/$commit"
try 0 test "$(cat "$folder/refs/main")" = $commit </dev/null
vae=$(sha256sum <"$flux/B/vae/diffusion_pytorch_model.safetensors" | cut -d ' ' -f 1)
try 0 readlink "$folder/snapshots/$commit/vae/diffusion_pytorch_model.safetensors" <<END
../../../blobs/$vae
END
try 1 sh -c "ls $folder/blobs | grep incomplete" </dev/null
try 0 env HF_HUB_CACHE="$work/hub" $lazuli pull twins/B -q </dev/null
try 0 cmp "$work/hub/models--twins--B/snapshots/$commit/vae/twin.json" "$flux/B/scheduler/scheduler_config.json" </dev/null
try 0 env HF_HUB_CACHE="$work/hub" $lazuli pull plain/B -q </dev/null
same "$work/hub/models--plain--B/snapshots/$commit"
try 0 env HF_HOME="$work/hf" $lazuli pull plain/B -q --revision $commit </dev/null
same "$work/hf/hub/models--plain--B/snapshots/$commit"
try 1 test -e "$work/hf/hub/models--plain--B/refs" </dev/null

# trap 12: "checked" is said of files that were hashed in this run; --check hashes those of earlier runs too
try_match 0 "$commit  1[0-9] files, [0-9.]+ [KM]iB, were there before and were not checked \\(--check does\\)\$" pull stalls/B
try_match 0 '^ "checked": 0' pull stalls/B --json
chmod u+w "$folder/blobs/$vae"
printf x | dd of="$folder/blobs/$vae" bs=1 seek=1000 conv=notrunc 2>/dev/null # the same size, other bytes
try 0 sh -c "$lazuli pull stalls/B | grep -c ', checked'; true" <<'END'
0
END
rm "$folder/snapshots/$commit/vae/config.json" "$folder/blobs/"*"$(printf 'blob %d\0' "$(wc -c <"$flux/B/vae/config.json")" | cat - "$flux/B/vae/config.json" | sha1sum | cut -d ' ' -f 1)"
try_match 0 "$commit  1 file, [0-9.]+ .*, checked; 1[0-9] files, .* were there before and were not checked" pull stalls/B
try_match 0 "$commit  1[0-9] files, [0-9.]+ [KM]iB, checked\$" pull stalls/B --check
same "$folder/snapshots/$commit"

# By name: a folder wins, then the cache
paint() { try 0 $lazuli fox -S 1 -W 64 -H 64 -s 1 -q "$@" </dev/null; }
quiet flux2-klein-4b
paint -m "$flux/B" -o "$work/folder.png"
for name in flux2-klein-4b Flux.2-Klein-4b black-forest-labs/FLUX.2-klein-4B stalls/B; do
    paint -m $name -o "$work/name.png" --dump "$work/name.safetensors"
done
paint -m flux2-klein-4b -o "$work/short.png" --steps-dir "$work/by-name" # steps have no text, which names the model
paint -m "$flux/B" -o "$work/folder.png" --steps-dir "$work/by-folder"
try 0 diff -r "$work/by-folder" "$work/by-name" </dev/null
try_match 0 'stalls/B' grep -a -o 'stalls/B' "$work/name.png"
LAZULI_MODEL=flux2-klein-4b
export LAZULI_MODEL
paint -o "$work/short.png"
unset LAZULI_MODEL
try_match 0 '^\{"ids": ' $lazuli tokenize -m stalls/B fox
mkdir "$work/here"
ln -s "$flux/A" "$work/here/flux2-klein-4b"
try_match 0 '^model +flux2-klein-4b$' sh -c "cd $work/here && $(realpath $lazuli) info -m flux2-klein-4b"

# What is here; a model that others pulled has several snapshots, or no links
mkdir -p "$cache/models--other--tool/snapshots" "$cache/models--a--language/snapshots/1" "$cache/datasets--a--b"
cp -r "$flux/A" "$cache/models--other--tool/snapshots/some"
chmod -R u+w "$cache"
demo=$(realpath models/demo)
$lazuli models >"$work/models"
try 0 sed 's/ \+[0-9.]* [KM]iB / SIZE/' "$work/models" <<END
demo SIZE complete    $demo
black-forest-labs/FLUX.2-klein-4B SIZE complete    $cache/models--black-forest-labs--FLUX.2-klein-4B/snapshots/$commit
other/tool SIZE complete    $cache/models--other--tool/snapshots/some
stalls/B SIZE complete    $cache/models--stalls--B/snapshots/$commit
END
tool=$cache/models--other--tool/snapshots/some
sed -i.kept s/Flux2KleinPipeline/StableDiffusionXLPipeline/ "$tool/model_index.json" # trap 12: whole, and of no use
try_match 0 '^other/tool +[0-9.]+ MiB  not run +' $lazuli models
try_match 0 '^    Lazuli does not run a StableDiffusionXLPipeline; it runs Flux2KleinPipeline, .* and [A-Za-z0-9]*Pipeline$' $lazuli models
try_match 0 '"runs": false' $lazuli models --json
mv "$tool/model_index.json.kept" "$tool/model_index.json"
rm "$tool/transformer/diffusion_pytorch_model-00002-of-00004.safetensors" "$tool/scheduler/scheduler_config.json"
head -c 5000 "$flux/A/vae/diffusion_pytorch_model.safetensors" >"$tool/vae/diffusion_pytorch_model.safetensors"
try_match 0 '^    scheduler/scheduler_config.json is missing, and 2 more problems; lazuli pull other/tool continues$' $lazuli models
for line in '"complete": false' '"transformer/diffusion_pytorch_model-00002-of-00004.safetensors is missing"' \
    '"vae/diffusion_pytorch_model.safetensors is damaged"' '"class": "Flux2KleinPipeline"' "\"cache\": \"$cache\""; do
    try_match 0 "$line" $lazuli models --json
done
try_match 0 "^.LAZULI_MODEL +[0-9.]+ MiB  complete +$flux/A\$" env LAZULI_MODEL="$flux/A" $lazuli models
try_match 0 "^.LAZULI_MODEL +[0-9.]+ MiB  complete +models/demo\$" env LAZULI_MODEL=models/demo $lazuli models # looks like a name
try_match 0 '^    model_index.json is missing or damaged$' env LAZULI_MODEL="$work/nowhere" $lazuli models
try 0 cat "$work/hub-errors" </dev/null
finish
