# tools/install-packages calls sudo only after it has said so. Programs of our own stand in for those that it calls.
. tests/cli/transcript
mkdir "$work/bin"
program() { # NAME BODY
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
program id 'echo 1000'
program dpkg-query 'echo "ii  doxygen"'
program apt-get 'echo "apt-get $*" >>"'$work'/called"'
program sudo 'echo "sudo $*"; shift; "$@"'
install() { PATH="$work/bin:$PATH" tools/install-packages "$@"; }

# Nothing is missing: nothing is said and nothing called
try 0 install docs </dev/null
# What is missing is named before sudo is called
try 0 install docs coverage <<'END'
calling sudo apt-get, to install lcov
sudo -n true
END
try 0 cat "$work/called" <<'END'
apt-get -q -y update
apt-get -q -y install --no-install-recommends lcov
END
# Without a password, and without sudo, one sentence says what to do
rm "$work/called"
program sudo 'exit 1'
try 1 install coverage <<'END'
calling sudo apt-get, to install lcov
install-packages: sudo asks for a password: please run, as root: apt-get install lcov
END
try_match 2 'No such file' ls "$work/called"
try_match 2 "there is no set 'everything'; there are build, " install everything
finish
