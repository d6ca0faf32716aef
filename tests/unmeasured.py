"""Which tests run no line of the package that others do not run, too: coverage leaves them out.

Tracing makes a test last half as long again and more. The table is made afresh, from a run that
notes for each line which tests ran it, by

    COVERAGE_OF_EACH_TEST=1 coverage run -m pytest -n 2 -m "not bench" --junitxml times.xml
    python -m tests.unmeasured times.xml

The tests run all the same, and a line that only they come to run later is missed in the report.
"""

import collections
import functools
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

TABLE = Path(__file__).with_name("unmeasured.txt")
HEAD = "# Tests all of whose lines others run, too: see tests/unmeasured.py"
LEAST = 0.25  # seconds; what takes less is not worth a line in the table


@functools.cache
def unmeasured() -> frozenset[str]:
    """The tests of the table, without their arguments."""
    return frozenset(TABLE.read_text().splitlines()[1:])


def without_arguments(test: str) -> str:
    return test.split("[")[0]


def lines_of_tests(data) -> dict[str, set]:
    """The lines that each test ran; what ran outside of them all is that of the test ""."""
    found = collections.defaultdict(set)
    for file in data.measured_files():
        for line, tests in data.contexts_by_lineno(file).items():
            for test in tests:
                found[without_arguments(test)].add((file, line))
    return found


def seconds_of_tests(report: Path) -> dict[str, float]:
    """How long all cases of each test took together, from pytest's report in XML."""
    found = collections.Counter()
    for case in ET.parse(report).iter("testcase"):
        name = without_arguments(case.get("name"))
        found[case.get("classname").replace(".", "/") + f".py::{name}"] += float(case.get("time"))
    return found


def repeating(lines: dict[str, set], seconds: dict[str, float]) -> list[str]:
    """Tests that can be left out together, the longest first."""
    times_run = collections.Counter(line for ran in lines.values() for line in ran)
    found = []
    for test in sorted(seconds, key=seconds.get, reverse=True):
        is_worth_it = seconds[test] > LEAST and test in lines
        if is_worth_it and all(times_run[line] > 1 for line in lines[test]):
            times_run.subtract(lines[test])
            found.append(test)
    return sorted(found)


def main(report: str) -> None:
    import coverage

    measured = coverage.Coverage()
    measured.combine(keep=True)
    lines = lines_of_tests(measured.get_data())
    TABLE.write_text("\n".join([HEAD, *repeating(lines, seconds_of_tests(Path(report))), ""]))


if __name__ == "__main__":
    main(*sys.argv[1:])
