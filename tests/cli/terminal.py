"""Drives a program on a pseudo-terminal: python3 terminal.py PROGRAM ARGUMENT... <script

A line of the script is '> text' (typed, with Enter), '+ text' (typed, without), '^C', '^D' or '^I' (the key), '! TERM' (a signal is
sent), or '< text' (waited for in what the program printed since the last wait). The exit code is the program's, or 128 and
the signal that ended it; what it printed is printed. A wait ends after ten minutes at the latest, with code 99."""
import fcntl, os, pty, select, signal, struct, sys, termios, time

child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
seen, place = b"", 0


def pump(seconds):
    """Reads what there is; False at the end."""
    global seen
    if not select.select([terminal], [], [], seconds)[0]:
        return True
    try:
        data = os.read(terminal, 65536)
    except OSError:  # the other side is closed
        return False
    seen += data
    return bool(data)


def give_up(why):
    sys.stdout.buffer.write(seen + b"\nterminal.py: " + why + b"\n")
    os.kill(child, 9)
    sys.exit(99)


def wait_for(text):
    global place
    end = time.monotonic() + 600
    while (at := seen.find(text, place)) < 0:
        if time.monotonic() > end or not pump(0.2):
            give_up(b"never came: " + text)
    place = at + len(text)
    while text == b"lazuli> " and termios.tcgetattr(terminal)[3] & termios.ICANON:
        if time.monotonic() > end or not pump(0.01):  # shown, but keys are not read one by one yet
            give_up(b"no editing")


for line in sys.stdin:
    line = line.rstrip("\n")
    if line.startswith("> "):
        os.write(terminal, line[2:].encode() + b"\r")
    elif line.startswith("+ "):
        os.write(terminal, line[2:].encode())
    elif line in ("^C", "^D", "^I"):
        os.write(terminal, bytes([ord(line[1]) & 31]))
    elif line.startswith("! "):
        os.kill(child, signal.Signals["SIG" + line[2:]])
    elif line.startswith("< "):
        wait_for(line[2:].encode())
end = time.monotonic() + 600
while pump(0.2):
    if time.monotonic() > end:
        give_up(b"it does not end")
sys.stdout.buffer.write(seen)
sys.stdout.flush()
_, status = os.waitpid(child, 0)
code = os.waitstatus_to_exitcode(status)
sys.exit(code if code >= 0 else 128 - code)
