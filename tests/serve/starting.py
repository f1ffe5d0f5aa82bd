"""starting.py: options and places of a server that starts."""
import ctypes
import http.client
import os
import socket
import subprocess
import sys
import time

from pictures import SMALL
from server import Place, check, start

LANDLOCK = 444  # landlock_create_ruleset, on all processors; landlock_restrict_self is 446


def test_places():
    """Paths that are not the server's own."""
    def refused(listen, state):
        done = subprocess.run([Place.lazuli, "serve", "--listen", listen, "--state", state], capture_output=True, text=True, timeout=60)
        return done.returncode == 1 and done.stderr

    file, shared, left = f"{Place.work}/file", f"{Place.work}/shared", f"{Place.work}/left"
    with open(file, "w") as out:
        out.write("kept")
    check("cannot be listened on" in (refused("unix:" + file, f"{Place.work}/places") or ""), "a file is no socket")
    check(open(file).read() == "kept", "the file is kept")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refused(f"127.0.0.1:{taken.getsockname()[1]}", f"{Place.work}/places") or ""
        check("another server runs there" in said, "a port that is taken", said)
    os.mkdir(shared)
    os.chmod(shared, 0o1777)
    check("everybody may write" in (refused("127.0.0.1:0", shared) or ""), "a folder that everybody may write to")
    check(os.stat(shared).st_mode & 0o7777 == 0o1777, "its mode is kept")
    os.makedirs(left + "/spool")
    open(left + "/spool/pic_half.png", "w").close()
    s = start("left")
    check(not os.listdir(left + "/spool") and os.stat(left).st_mode & 0o777 == 0o700, "half a picture is removed")
    check("another server uses it" in (refused("127.0.0.1:0", left) or ""), "a state folder has one server")
    half = socket.create_connection(("127.0.0.1", s.port))
    half.sendall(f"POST /api/v1/jobs HTTP/1.1\r\nHost: {s.host}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{{".encode())
    s.call("GET", "/healthz")
    begun = time.time()
    check(s.stop() == 0 and time.time() - begun < 20, "half a request does not delay the end")


def test_addresses():
    """Several addresses, and sockets that are open already, as from systemd."""
    given = socket.socket()
    given.bind(("127.0.0.1", 0))
    given.listen(16)
    script = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"
    s = start("addresses", "--listen", f"unix:{Place.work}/socket", before=[sys.executable, "-c", script, str(given.fileno())], pass_fds=[given.fileno()])
    port = given.getsockname()[1]
    given.close()
    for address in (s.port, port):
        c = http.client.HTTPConnection("127.0.0.1", address)
        c.request("GET", "/healthz")
        check(c.getresponse().status == 200, "an address", address)
    c = http.client.HTTPConnection("localhost")
    c.sock = socket.socket(socket.AF_UNIX)
    c.sock.connect(f"{Place.work}/socket")
    c.request("GET", "/v1/models")
    check(c.getresponse().status == 200, "a socket in a folder")
    check(s.text().count("listening on") == 3, "each address is said", s.text())
    check(s.stop() == 0 and not os.path.exists(f"{Place.work}/socket"), "the socket is removed")


def test_start():
    """Wrong options are one sentence and a code, and change nothing."""
    with open(f"{Place.work}/notes", "w") as file:
        file.write("notes")
    for code, sentence, *options in [
            (2, "with a port up to 65535", "--listen", "127.0.0.1:99999"), (2, "--listen takes", "--listen", "7860"),
            (2, "--listen takes", "--listen", "127.0.0.1:http"), (2, "did you mean --listen?", "--port", "7860"),
            (2, "--public-url takes", "--public-url", "foo"), (2, "--public-url takes", "--public-url", "http://"),
            (2, "--allow-origin takes", "--allow-origin", "https://friend.example/"),
            (2, "--allow-origin takes", "--allow-origin", "*"),
            (2, "--allow-host takes", "--allow-host", "http://friend.example"), (2, "--allow-host takes", "--allow-host", ""),
            (1, "there is no such address", "--listen", "256.1.1.1:80"), (1, "there is no such address", "--listen", "no-such-name.invalid:80"),
            (1, "it is not a folder", "--listen", "127.0.0.1:0", "--state", "/dev/null"),
            (2, "--metrics-listen takes", "--metrics-listen", "9090"), (2, "--quality takes a list", "--quality", "low"),
            (2, "--quality takes a list", "--quality", "best=3"), (2, "--quality takes a list", "--quality", "low=0"),
            (2, "--keep-pictures takes", "--keep-pictures", "x"), (2, "--keep-pictures takes", "--keep-pictures", "30,5parsecs"),
            (2, "--keep-pictures takes", "--keep-pictures", "30,"), (2, "--keep-pictures takes", "--keep-pictures", "0,1GB"),
            (2, "--pin takes auto", "--pin", "seed"), (2, "--log takes text or json", "--log", "xml"),
            (2, "--previews takes small, full or off", "--previews", "on"), (2, "are given together", "--cert", "a.pem"),
            (1, "cannot be read", "--cert", f"{Place.work}/none", "--cert-key", f"{Place.work}/none", "--listen", "127.0.0.1:0"),
            (1, "a key is needed", "--listen", "0.0.0.0:0")]:
        refused = subprocess.run([Place.lazuli, "serve", "--state", f"{Place.work}/refused", *options], capture_output=True, text=True, timeout=60)
        check(refused.returncode == code and sentence in refused.stderr and refused.stderr.count("\n") == 1, "wrong options", options,
              refused.returncode, refused.stderr)
    check(not os.path.exists(f"{Place.work}/refused"), "a server that does not start makes no state folder")
    refused = subprocess.run([Place.lazuli, "serve", "--listen", "127.0.0.1:0", "--state", f"{Place.work}/refused", "-m", f"{Place.work}/notes"],
                             capture_output=True, text=True, timeout=60)
    check(refused.returncode == 1 and "no model can be opened" in refused.stderr, "a model that cannot be opened", refused.stderr)
    server = start("quick")
    check(server.port and server.stop() == 0 and "ending\n" in server.text(), "it ends without a picture", server.text())


def test_precision():
    """A worker gets the precision by the word of the option, not by the name of a type."""
    cache = f"{Place.work}/new/cache"  # the worker could not make it: it writes where it may
    s = start("narrow", "--precision", "int8", before=["env", f"LAZULI_CACHE={cache}"])
    check(s.wait(180), "it is ready")
    check(len(os.listdir(cache + "/int8")) == 2, "quantised weights are kept", os.listdir(cache))
    with open(f"/proc/{s.worker()}/cmdline", "rb") as file:
        words = file.read().split(b"\0")
    check(words[words.index(b"--precision") + 1] == b"int8", "the precision of the worker", words)
    check(s.stop() == 0, "it ends")


def test_password():
    """The password of Redis is not in the list of processes, and none is ignored."""
    long = {**os.environ, "LAZULI_STORE_PASSWORD": "secret" * 22}
    for sentence, address, environment in [("set $LAZULI_STORE_PASSWORD", "redis://ada:secret@127.0.0.1:1", None),
                                           ("set $LAZULI_STORE_PASSWORD", "redis://:secret@127.0.0.1:1", None),
                                           ("$LAZULI_STORE_PASSWORD has more than 127 bytes", "redis://ada@127.0.0.1:1", long)]:
        refused = subprocess.run([Place.lazuli, "worker", "--store", address, "--pictures", f"{Place.work}/refused"], capture_output=True, text=True, timeout=60,
                                 env=environment)
        if "built without hiredis" in refused.stderr:
            print("skipped: hiredis is missing")
            return
        check(refused.returncode == 1 and sentence in refused.stderr and refused.stderr.count("\n") == 1 and "secret" not in refused.stderr,
              "a password", address, refused.returncode, refused.stderr)


def test_confined():
    """The worker is confined even if a folder cannot be opened; where the kernel refuses, this is said."""
    if ctypes.CDLL(None).syscall(LANDLOCK, None, ctypes.c_size_t(0), 1) < 1:
        print("skipped: the kernel has no Landlock")
        return
    said = "Landlock does not confine this worker"
    with open(f"{Place.work}/file", "w") as file:
        file.write("not a folder")
    # 16 sets of rules can lie on a process, so there is no room for that of the worker. These forbid block devices only.
    full = f"""
import ctypes, os, sys
call, rights = ctypes.CDLL(None).syscall, ctypes.c_uint64(1 << 11)
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
while call({LANDLOCK + 2}, call({LANDLOCK}, ctypes.byref(rights), ctypes.c_size_t(8), 0), 0) == 0: pass
os.execv(sys.argv[1], sys.argv[1:])"""
    for confined, before in [(True, []), (False, [sys.executable, "-c", full])]:
        s = start(f"confined{confined}", before=before, env={**os.environ, "LAZULI_CACHE": f"{Place.work}/file/cache"})
        s.wait()
        check((said in s.text()) != confined, "what is said", confined, s.text())
        if confined:  # with the other sets of rules the front cannot move a picture to another folder
            check(s.call("POST", "/v1/images/generations", SMALL)[0] == 200, "a picture")
        check(s.stop() == 0, "it ends")
