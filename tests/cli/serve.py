"""serve.py LAZULI WORK [TEST...]: starts `lazuli serve` with the demo model and talks to it, for tests/cli/serve.sh.

Prints a line for each failed check, and the counts at the end. Needs nothing but Python's standard library. With names
such as `models`, only those tests run, of those that start a server of their own.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
import apis
import guards
import operating
import pictures
import queues
import server
import starting
import together
import transcripts

OWN = [operating.test_transparent, operating.test_models, operating.test_loads, operating.test_layers, operating.test_admission, guards.test_keys, starting.test_places, starting.test_start,
       starting.test_precision, starting.test_password, starting.test_confined, operating.test_operator, operating.test_keeping, operating.test_rows, operating.test_idle, operating.test_uploads, guards.test_tls,
       queues.test_load, queues.test_again, queues.test_streak, queues.test_attempts, together.test_together, queues.test_flush, queues.test_broken, guards.test_limits, guards.test_bodies, guards.test_fields, guards.test_unread, guards.test_answers, starting.test_addresses]


def test_one():
    """Everything that one server can be asked for, and its deaths and restarts."""
    s = server.start("state", "--queue", "3", "--queue-timeout", "86400", "--allow-origin", "https://friend.example")
    s.wait()
    apis.test_openai(s)
    apis.test_native(s)
    apis.test_sdapi(s)
    transcripts.replay(s, pictures.fox())
    guards.test_guard(s)
    queues.test_queue(s)
    queues.test_patience(s)
    s = queues.test_deaths(s, "state")
    later = queues.test_drain(s)
    s = server.start("state")
    server.until("the job that waited", lambda: s.job(later)["status"] == "completed")
    server.check(s.stop() == 0, "it ends again")


def test_all():
    slow = guards.Slow() if len(sys.argv) < 4 or "slow" in sys.argv else None
    for test in [test_one, *OWN]:
        if len(sys.argv) < 4 or test.__name__[5:] in sys.argv[3:]:
            test()
    if slow:
        slow.end()


server.Place.lazuli, server.Place.work = sys.argv[1:3]
server.main(test_all)
