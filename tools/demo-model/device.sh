#!/bin/sh
# On the GPU machine: starts the whole training in the background (start), or waits SECONDS and brings back what there
# is (wait "" SECONDS, ends at once when it is finished). The training runs on between the calls.
export PYTHONUNBUFFERED=1
mkdir -p /tmp/demo
case $1 in
start)
    setsid sh -c "python3 tools/demo-model/train.py --quick --work /tmp/quick > /tmp/quick.txt 2>&1" &
    setsid sh -c "python3 tools/demo-model/train.py --work /tmp/demo $2 > /tmp/demo.txt 2>&1" &
    ;;
restart)
    setsid sh -c "python3 tools/demo-model/train.py --work /tmp/demo $2 >> /tmp/demo.txt 2>&1" &
    ;;
esac
i=0
while [ $i -lt "${3:-100}" ] && ! grep -q finished /tmp/demo.txt && ! grep -q Traceback /tmp/demo.txt /tmp/quick.txt; do
    sleep 2
    i=$((i + 2))
done
sleep 3
echo "== quick"; tail -n 25 /tmp/quick.txt
echo "== demo"; tail -n 40 /tmp/demo.txt
nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader
cp /tmp/demo.txt /tmp/demo/log.jsonl $OUT/ 2>/dev/null
if [ "$4" = files ]; then  # at most 8 come back
    if [ -f /tmp/demo/final/transformer.safetensors.index.json ]; then
        mkdir -p $OUT/final && cp /tmp/demo/final/*.safetensors $OUT/final/ && cp /tmp/demo/sheet-final.jpg $OUT/
        cp "/tmp/demo/sheet-teacher.jpg" $OUT/
    else
        cp /tmp/demo/vae.safetensors /tmp/demo/base-*.safetensors $OUT/
        cp "$(ls -t /tmp/demo/sheet-base-*.jpg /tmp/demo/sheet-vae.jpg | head -1)" $OUT/
        rm -f $OUT/demo.txt
    fi
else
    for f in $(ls -t /tmp/demo/*.jpg | head -4); do cp $f $OUT/; done
fi
