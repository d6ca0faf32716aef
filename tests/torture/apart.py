"""A piece of work in a process of its own, which may die or hang without taking anybody along."""

import faulthandler
import json
import os
import select
import signal
import sys
import time


class Lost(Exception):
    """The process has died or hung; says how, and what it was doing."""


def apart(work, limit, *arguments):
    """What `work(say, *arguments)` returns in a forked process, as JSON; `say` names what it does.

    Raises:
        Lost: If it dies, says nothing for `limit` seconds, or raises.
    """
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        _in_child(work, into, arguments)
    os.close(into)
    lines, end = _read(out, child, limit)
    _, status = os.waitpid(child, 0)
    os.close(out)
    code = os.waitstatus_to_exitcode(status)
    doing = next((x["doing"] for x in reversed(lines) if "doing" in x), "nothing yet")
    done = next((x["done"] for x in lines if "done" in x), None)
    if end:
        raise Lost(f"hung for {limit} s in: {doing}")
    if code or done is None:
        why = next((x["raised"] for x in lines if "raised" in x), f"exit code {code}")
        raise Lost(f"{why} in: {doing}")
    return done


def _in_child(work, into, arguments):
    faulthandler.enable(sys.stderr)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.unraisablehook = lambda _: None  # a fault in a generator that is being closed goes nowhere
    code = 1
    try:
        done = work(lambda doing: _write(into, doing=doing), *arguments)
        _write(into, done=done)
        code = 0
    except BaseException as error:
        _write(into, raised=f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def _write(into, **line):
    os.write(into, (json.dumps(line) + "\n").encode())


def _read(out, child, limit):
    """All lines until the process ends, and whether it had to be killed."""
    rest, lines, end = b"", [], time.monotonic() + limit
    while True:
        ready, _, _ = select.select([out], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            return lines, True
        some = os.read(out, 1 << 16)
        if not some:
            return lines, False
        end = time.monotonic() + limit
        *whole, rest = (rest + some).split(b"\n")
        lines = [*lines[-3:], *map(json.loads, whole)]
