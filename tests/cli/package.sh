# A project of a stranger finds the installed library with CMake's find_package, and so it does after the tree is moved;
# and the Debian package holds what is installed.
. tests/cli/transcript
prefix=$work/first
cmake --install "$build" --prefix "$prefix" >"$work/log" 2>&1 || cat "$work/log"
version=$(sed -n 's/^#define LZ_VERSION "\(.*\)"/\1/p' include/lazuli.h)
minor=${version%.*}

mkdir "$work/project"
cp examples/hello.c "$work/project"
cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(stranger C)
find_package(lazuli \${wanted} REQUIRED COMPONENTS static)
foreach(kind lazuli static)
    add_executable(hello_\${kind} hello.c)
    target_link_libraries(hello_\${kind} PRIVATE lazuli::\${kind})
endforeach()
END
configure() { # VERSION PREFIX
    rm -rf "$work/out"
    cmake -S "$work/project" -B "$work/out" -Dwanted="$1" -DCMAKE_PREFIX_PATH="$2"
}
mv "$prefix" "$work/moved"
try_match 0 'Build files have been written' configure "$minor" "$work/moved"
try_match 0 'Built target hello_static' cmake --build "$work/out"
for kind in lazuli static; do
    try_match 0 '^row 2: 43$' "$work/out/hello_$kind"
done
try_match 0 "$work/moved/lib/liblazuli.so" sh -c "ldd $work/out/hello_lazuli"
try_match 1 liblazuli sh -c "ldd $work/out/hello_static | grep liblazuli || { echo no liblazuli; exit 1; }"
for other in 0.0 9; do
    try_match 1 'considered but not accepted' configure $other "$work/moved"
done

if command -v dpkg-shlibdeps >/dev/null && command -v file >/dev/null && command -v cpack >/dev/null; then
    mkdir "$work/deb"
    try_match 0 "package: .*lazuli_${version}_.*\.deb generated" cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/deb"
    try_match 0 "^ Depends: .*libjansson" dpkg-deb --info "$work/deb/lazuli_${version}"_*.deb
    dpkg-deb --extract "$work/deb/lazuli_${version}"_*.deb "$work/root"
    try 0 "$work/root/usr/bin/lazuli" --version <<END
lazuli $version
END
    try_match 0 "^model +$work/root/usr/share/lazuli/models/demo\$" env -u LAZULI_MODEL "$work/root/usr/bin/lazuli" info
    for file in include/lazuli.h lib/liblazuli.so lib/cmake/lazuli/lazuli-config.cmake share/man/man1/lazuli.1; do
        try_match 0 . ls "$work/root/usr/$file"
    done
else
    echo "no dpkg-dev, file and cpack: the Debian package is not tested"
fi
finish
