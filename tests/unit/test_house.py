"""The package stays as small and short as it is; `python -m tests.house` prints the figures."""

import pytest

from tests.house import (
    PACKAGE,
    class_checks,
    code_lines,
    files,
    left_to_others,
    names_of_several,
    unstated_in,
    ways,
)

AT_THE_ROOT = 9
CLASS_CHECKS = 0
"""The number may only fall: a step says what it can do, so nobody has to know its class."""
LEFT_TO_OTHERS = 5
"""The number may only fall: a class stands once and whole."""
MODULES = {"plain": 10, "ordinary": 38, "partitioned": 54}


def test_the_root_holds_the_face_alone():
    assert sum("/" not in name for name in files()) <= AT_THE_ROOT


def test_docstrings_state_shapes_dtypes_and_errors():
    found = unstated_in(PACKAGE)
    assert not found, "say it, as in `[num_nodes, channels]`, int64 `[k]`, or name what says it"


def test_steps_are_seldom_asked_for_their_class():
    found = class_checks()
    assert len(found) <= CLASS_CHECKS, found


def test_a_class_is_seldom_cut_in_half():
    found = left_to_others()
    assert sum(map(len, found.values())) <= LEFT_TO_OTHERS, found


HALVES = '''
"""Halves."""

class First:
    rows: int
    edges: int = 0
    def __init__(self):
        self.kept = 0

class Second(First):
    def __init__(self):
        self.rows = 0

class Alone:
    rows: int
'''


def test_a_class_cut_in_half_is_found(tmp_path):
    (tmp_path / "file.py").write_text(HALVES)
    assert left_to_others(tmp_path) == {"First": {"rows"}}


STEPS = '''
"""Steps."""

class Step: ...

class Sum(Step):  # a step
    def of(self, other):
        return isinstance(other, Sum)
'''

ELSEWHERE = '''
"""Elsewhere."""

def kind(step, rows):
    """Its kind."""
    if isinstance(step, (Sum, int)):
        return "sum"

    return isinstance(rows, list)
'''


def test_a_check_for_the_class_of_a_step_is_found(tmp_path):
    for room, text in (("ops", STEPS), ("engine", ELSEWHERE)):
        (tmp_path / room).mkdir()
        (tmp_path / room / "file.py").write_text(text)
    assert class_checks(tmp_path) == ["engine/file.py:6 Sum"]
    assert code_lines(STEPS) == 4
    assert code_lines(ELSEWHERE) == 4


def test_a_name_stands_for_one_class(tmp_path):
    assert not names_of_several(), "a class that is another one has another name"
    for room in ("ops", "engine"):
        (tmp_path / f"{room}.py").write_text("class Sum: ...\nclass _Own: ...\n")
    assert names_of_several(tmp_path) == {"Sum": ["engine.py", "ops.py"]}


TAKES_TENSORS = '''
"""Rows are `[num_rows, channels]`."""

class Kept:
    """Kept rows.

    Args:
        rows: `[num_rows, channels]`.
    """

    def __init__(self, rows: Tensor):
        ...

    def read(self, ids: Ids) -> Tensor:
        """Rows `ids`, int64 `[k]`."""
        if len(ids):
            raise IndexError("none")

    def part(self, ids: Ids) -> Tensor:
        """As in `read`."""

    def _hidden(self, rows: Tensor): ...


def of_all(rows: list[Tensor], names: list[str]):
    """Names of `x[0]` in a list[int]; see `nowhere`."""


def of_some(index: Tensor):
    """`[k]`."""


def of_none(names: list[str]): ...


def as_there(rows: Tensor):
    """As above."""
    try:
        raise KeyError
    except KeyError:
        pass
'''


def test_what_a_docstring_leaves_unsaid_is_found(tmp_path):
    (tmp_path / "kept.py").write_text(TAKES_TENSORS)
    assert unstated_in(tmp_path) == {
        "kept.py:14 Kept.read": ["IndexError"],
        "kept.py:25 of_all": ["shape"],
        "kept.py:29 of_some": ["dtype"],
    }


@pytest.fixture(scope="module")
def visited():
    return ways()


@pytest.mark.parametrize("kind", MODULES)
def test_an_update_visits_few_modules(visited, kind):
    assert len(visited[kind]) <= MODULES[kind], visited[kind]
