"""The tests that coverage leaves out are there, and are found as `tests/unmeasured.py` says."""

import ast
import functools
from pathlib import Path

from tests.unmeasured import lines_of_tests, repeating, seconds_of_tests, unmeasured

ROOT = Path(__file__).parents[2]
TIMES = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_one[x]" time="1.5" />
<testcase classname="tests.unit.test_a" name="test_one[y]" time="2.0" />
<testcase classname="tests.unit.test_a" name="test_two" time="0.5" />
</testsuite></testsuites>"""


class Data:
    """Stands in for what coverage has written down."""

    def measured_files(self):
        return ["a.py"]

    def contexts_by_lineno(self, file):
        one, two = "tests/unit/test_a.py::test_one", "tests/unit/test_a.py::test_two"
        return {1: ["", f"{one}[x]", two], 2: [f"{one}[y]", two], 3: [two]}


def test_every_test_of_the_table_is_there():
    functions = functools.cache(functions_of)
    for name in unmeasured():
        path, test = name.split("::")
        assert test in functions(path), name


def functions_of(path):
    tree = ast.parse((ROOT / path).read_text())
    return {f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)}


def test_the_longest_of_those_that_repeat_lines_is_left_out(tmp_path):
    report = tmp_path / "times.xml"
    report.write_text(TIMES)
    lines, seconds = lines_of_tests(Data()), seconds_of_tests(report)
    assert seconds == {"tests/unit/test_a.py::test_one": 3.5, "tests/unit/test_a.py::test_two": 0.5}
    assert repeating(lines, seconds) == ["tests/unit/test_a.py::test_one"]


def test_lines_of_one_test_alone_keep_it():
    lines = {"a": {("f.py", 1), ("f.py", 2)}, "b": {("f.py", 1)}, "c": {("f.py", 1)}}
    assert repeating(lines, {"a": 9.0, "b": 3.0, "c": 0.1}) == ["b"]
    assert repeating({"a": {("f.py", 1)}, "b": {("f.py", 1)}}, {"a": 2.0, "b": 3.0}) == ["b"]
