# What the command line says about itself, and to those who mistype.
. tests/cli/transcript

version=$(sed -n 's/#define LZ_VERSION "\(.*\)"/\1/p' include/lazuli.h)
try 0 $lazuli --version <<END
lazuli $version
END
try_match 0 '^usage: lazuli COMMAND' $lazuli --help
try_match 0 '^  tensors PATH +what ' $lazuli --help
try_match 0 '^  --json +' $lazuli --help
try_match 0 '^usage: lazuli COMMAND' $lazuli tensors --help
try 2 $lazuli <<'END'
lazuli: what shall be done? 'lazuli --help' lists the commands
END
try 2 $lazuli paint <<'END'
lazuli: there is no command 'paint'; 'lazuli --help' lists them
END
try 2 $lazuli devices --fast <<'END'
lazuli: there is no option --fast; 'lazuli --help' lists them
END
try 2 $lazuli devices here <<'END'
lazuli: devices takes no 'here'; 'lazuli --help' shows how it is used
END
try 2 $lazuli tensors <<'END'
lazuli: tensors needs a PATH
END
try 2 $lazuli tensors a b <<'END'
lazuli: 'b' is one word too many; 'lazuli --help' shows how commands are used
END
if [ -e /dev/full ]; then
    try_match 1 'cannot write the output' sh -c "$lazuli --help >/dev/full"
fi

try_match 0 '^default +cpu \(.*thread' $lazuli devices
try_match 0 '^cpu +baseline +cpu \(baseline' $lazuli devices
try_match 0 '^ref +ref' $lazuli devices
finish
