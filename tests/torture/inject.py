"""An exception at the n-th event of the package's own Python code.

Every line, call and return of the package is an event. Compiled code is none: Python raises what
comes meanwhile (Ctrl-C, say) when it is back. Nor is the way out of a `with`: between the last line
of its block and `__exit__` Python looks for no signal and raises nothing.
"""

import contextlib
import dis
import functools
import sys

PACKAGES = ("pyg_incremental.",)


class Injected(Exception):
    """What a model might raise."""


@contextlib.contextmanager
def injecting(raised, at, packages=PACKAGES):
    """Raise once, at the event of number `at`; yields a counter of the events that went by."""
    count = Count()
    before = sys.gettrace()

    def is_ours(frame):
        return frame.f_globals.get("__name__", "").startswith(packages)

    def local(frame, event, arg):
        if event == "return" or (event == "line" and frame.f_lasti not in ways_out(frame.f_code)):
            return happened(frame)
        return local

    def happened(frame):
        now = count.events
        count.events += 1
        if now == at and not count.done:
            count.done = True
            sys.settrace(None)
            raise raised(f"injected at event {at}, line {frame.f_lineno} of {name_of(frame)}")
        return local

    def tracer(frame, event, arg):
        return happened(frame) if event == "call" and is_ours(frame) else None

    sys.settrace(tracer)
    try:
        yield count
    finally:
        sys.settrace(before)


class Count:
    """How many events went by, and whether the exception was raised."""

    def __init__(self):
        self.events = 0
        self.done = False


def name_of(frame):
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"


@functools.cache
def ways_out(code):
    """Where the ways out of a `with` begin, each of which calls `__exit__` without an error."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    found = set()
    for i, step in enumerate(steps):
        names = [(s.opname, s.argval) for s in steps[i : i + 3]]
        if names == [("LOAD_CONST", None)] * 3:
            before = steps[i - 1]
            found.add(before.offset if before.opname == "SWAP" else step.offset)
    return found
