# Installs into a new folder and builds the examples against it as a stranger would: with pkg-config, shared and static.
. tests/cli/transcript

prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/log" 2>&1 || cat "$work/log"
for file in include/lazuli.h include/lazuli_array.h lib/liblazuli.a lib/liblazuli.so lib/pkgconfig/lazuli.pc bin/lazuli share/man/man1/lazuli.1 \
    share/bash-completion/completions/lazuli share/zsh/site-functions/_lazuli share/fish/vendor_completions.d/lazuli.fish; do
    try_match 0 . ls "$prefix/$file"
done

# trap 20: a program built as docs/embedding.md says finds the library in a folder of its own. The commands are taken
# from there; $HOME/lazuli is the folder they name.
mkdir "$work/own"
ln -s "$prefix" "$work/own/lazuli"
ln -s "$PWD/examples" "$work/own/examples"
sed -n '/^```sh$/,/^```$/p' docs/embedding.md | grep -v '^```' >"$work/own/commands"
try_match 0 'rpath' cat "$work/own/commands"
try_match 0 '^row 2: 43$' env -u LD_LIBRARY_PATH -u PKG_CONFIG_PATH HOME="$work/own" sh -ec "cd $work/own && . ./commands"

export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
export LD_LIBRARY_PATH="$prefix/lib"
cc=${CC:-cc}
warnings="-std=c17 -Wall -Wextra -Wpedantic -Werror"

cat >"$work/hello" <<'END'
row 0: 3
row 1: 15
row 2: 43
END
# The C library warns that a static program which loads a library (the NVIDIA driver) needs the same C library there.
for kind in shared static; do
    static=
    [ $kind = static ] && static=--static
    try 0 sh -c "$cc $warnings ${static:+-static -Wl,--no-warnings} examples/hello.c \$(pkg-config --cflags --libs $static lazuli) -o $work/hello-$kind" </dev/null
    try 0 sh -c "$work/hello-$kind | head -n 3" <"$work/hello"
    try_match 0 '^as expected: .*matmul' "$work/hello-$kind"
    try 0 sh -c "$cc $warnings ${static:+-static -Wl,--no-warnings} examples/generate.c \$(pkg-config --cflags --libs $static lazuli) -o $work/generate-$kind" </dev/null
    try_match 0 '^256 x 256 in' "$work/generate-$kind" tests/data/flux2/B "a red fox" "$work/$kind.png"
    try_match 1 'is not a model folder' "$work/generate-$kind" "$work" "a red fox" "$work/none.png"
done

try 0 cmp "$work/shared.png" "$work/static.png" </dev/null

# A C++ program has no warning of the headers, in either order, and makes the same picture. The whole of tests/cli may run
# where there is no C++ compiler; the simulated GPU is not built there either.
if command -v "${CXX:-c++}" >/dev/null; then
    for standard in 17 20; do
        try 0 sh -c "${CXX:-c++} -std=c++$standard -Wall -Wextra -Wpedantic -Werror examples/generate.cc \$(pkg-config --cflags --libs lazuli) -o $work/generate-plus" </dev/null
    done
    try_match 0 '^256 x 256 in' "$work/generate-plus" tests/data/flux2/B "a red fox" "$work/plus.png"
    try 0 cmp "$work/shared.png" "$work/plus.png" </dev/null
    try_match 1 'is not a model folder' "$work/generate-plus" "$work" "a red fox" "$work/none.png"
    echo '#include <lazuli_array.h>
    int main(void) { return lz_version_number() != LZ_VERSION_NUMBER; }' >"$work/either.c"
    cp "$work/either.c" "$work/either.cc"
    try 0 sh -c "$cc $warnings $work/either.c \$(pkg-config --cflags --libs lazuli) -o $work/either && $work/either" </dev/null
    try 0 sh -c "${CXX:-c++} -std=c++17 -Wall -Wextra -Wpedantic -Werror $work/either.cc \$(pkg-config --cflags --libs lazuli) -o $work/either && $work/either" </dev/null
fi

# The demo model is installed too, and found from anywhere, also when the tree is moved or staged for a package
unset LAZULI_MODEL
paint() { try 0 sh -c "cd / && $1/bin/lazuli 'a fox' -S 1 -W 32 -H 32 -q -o $work/$2.png" </dev/null; }
paint "$prefix" installed
try_match 0 "^model +$prefix/share/lazuli/models/demo\$" "$prefix/bin/lazuli" info
try 0 diff -r models/demo "$prefix/share/lazuli/models/demo" </dev/null
cp -r "$prefix" "$work/moved"
paint "$work/moved" moved
try 0 cmp "$work/installed.png" "$work/moved.png" </dev/null
try_match 0 "^model +$work/moved/share/lazuli/models/demo\$" "$work/moved/bin/lazuli" info
DESTDIR=$work/stage cmake --install "$build" --prefix /usr >"$work/log" 2>&1 || cat "$work/log"
try_match 0 "^model +$work/stage/usr/share/lazuli/models/demo\$" "$work/stage/usr/bin/lazuli" info

# The shared library exports what the header declares, all of it, and nothing else.
nm -D --defined-only "$prefix/lib/liblazuli.so" | sed 's/.* //; s/@.*//' | grep -v '^LAZULI_0$' | sort >"$work/exported"
sed -n 's/^[a-z][a-z0-9_ ]*[ *]\(lz_[a-z0-9_]*\)(.*/\1/p' include/*.h | sort -u >"$work/declared"
try 0 diff "$work/declared" "$work/exported" </dev/null
# It reads no environment variable: that is left to programs.
try 1 sh -c "nm -D --undefined-only $prefix/lib/liblazuli.so | grep -w -e getenv -e secure_getenv" </dev/null
try_match 0 'liblazuli\.so\.0\.[0-9]+ ' sh -c "ldd $work/hello-shared"

finish
