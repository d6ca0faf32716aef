"""Faults injected everywhere: exceptions, kills, damaged files; see `__main__`."""
