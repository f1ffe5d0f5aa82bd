# `lazuli tensors` on good and bad files.
. tests/cli/transcript
data=tests/data

try 0 $lazuli tensors $data/python-shards <<'END'
a.bias    bf16  [4, 3]                          24
a.weight  bf16  [4, 3]                          24
b.weight  bf16  [4, 3]                          24
3 tensors, 36 elements, 72 bytes
END
try 0 $lazuli tensors --json $data/python-shards/model-00002-of-00002.safetensors <<'END'
{
 "tensors": [
  {
   "name": "b.weight",
   "type": "bf16",
   "shape": [
    4,
    3
   ],
   "bytes": 24
  }
 ],
 "elements": 12,
 "bytes": 24
}
END
try_match 0 '^scalar.f64 +f64   \[\] +8$' $lazuli tensors $data/python.safetensors
try_match 0 '^unknown.i16 .*unreadable: .* has the type I16' $lazuli tensors $data/python.safetensors
try_match 0 '^odd "name"\?' $lazuli tensors $data/python.safetensors
try_match 0 '^42 tensors, ' $lazuli tensors $data/python.safetensors
try_match 0 '"error": ".* has the type I16' $lazuli tensors $data/python.safetensors --json
try_match 0 '^Q4_K +q4_k    \[2, 256\] +288$' $lazuli tensors $data/gguf/types.gguf
try_match 0 '"type": "iq4_nl"' $lazuli tensors $data/gguf/types.gguf --json
try_match 0 '^5 tensors, 40 elements, 160 bytes$' $lazuli tensors $data/gguf/split-00002-of-00003.gguf
try_match 0 '^types +1 i32 .*2 q8_0' $lazuli info $data/gguf/types.gguf
try_match 0 ' tokenizer.ggml.tokens: \[4 texts\]$' $lazuli info $data/gguf/types.gguf

try 1 $lazuli tensors nowhere.safetensors <<'END'
lazuli: nowhere.safetensors: cannot be opened: No such file or directory
END
head -c 200 $data/python-shards/model-00001-of-00002.safetensors >"$work/cut.safetensors"
try 1 $lazuli tensors "$work/cut.safetensors" <<END
lazuli: $work/cut.safetensors: tensor 'a.weight' ends at byte 216 but the file holds 200: the file is truncated, download it again
END
mkdir "$work/empty"
try 1 $lazuli tensors "$work/empty" <<END
lazuli: $work/empty: the folder holds no .safetensors file and no *.safetensors.index.json
END
touch "$work/-dashed.safetensors"
try_match 1 'dashed.safetensors: holds 0 bytes' sh -c "lazuli=\$(realpath $lazuli) && cd $work && \$lazuli tensors -- -dashed.safetensors"
finish
