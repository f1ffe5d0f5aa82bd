#!/bin/sh
# On a lent GPU machine, which keeps what it holds only while it is in use: `begin` starts the training in the
# background and waits, `end` waits for it, trains the judge and brings everything back. $OUT is what comes back.
export PYTHONUNBUFFERED=1
cache=/tmp/cache work=/tmp/demo log=/tmp/demo.txt
wait_for() { # PATTERN SECONDS
    i=0
    while [ $i -lt "$2" ] && ! grep -q "$1" $log && ! grep -q Traceback $log; do sleep 2; i=$((i + 2)); done
}
case $1 in
begin)
    mkdir -p $work
    cp models/demo/text_encoder/*.safetensors $cache/base-text.safetensors
    cp models/demo/vae/*.safetensors $cache/vae.safetensors
    setsid sh -c "python3 tools/demo-model/train.py --cache $cache --work $work $2 > $log 2>&1" &
    wait_for '"finished"' 570
    ;;
end)
    wait_for '"finished"' 460
    python3 tools/demo-model/judge.py train $cache $work/judge.safetensors > /tmp/judge.txt 2>&1
    cp /tmp/judge.txt $work/
    cp $work/final/*.safetensors $work/base-transformer*.safetensors $work/judge.safetensors "$OUT"/
    tar cf "$OUT/extras.tar" -C $work log.jsonl judge.txt prompts.json sheet-teacher.jpg sheet-final.jpg
    ;;
esac
cat /tmp/judge.txt 2>/dev/null
grep -v said $log | tail -n 25
ls -la "$OUT"
