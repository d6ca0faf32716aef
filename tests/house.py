"""Figures of the package as a house: its size, its longest rooms, and the way of an update.

python -m tests.house
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from functools import partial
from pathlib import Path

import torch
from torch_geometric.nn import GCN

from pyg_incremental import to_incremental
from pyg_incremental.distributed import DistributedIncrementalModel

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pyg_incremental"
FILES = sorted(PACKAGE.rglob("*.py"))
TENSORS = {"Tensor", "NDArray", "Ids", "Array"}
INTEGERS = {"ids", "slots", "indices", "index", "edge_index"}
"""Tensors of these names hold integers; so does what is annotated `Ids`."""
SHAPE = re.compile(r"(?<![\w)\]])\[[\w., *+/-]*\]|any shape")
ERROR = re.compile(r"Error$|^NotIncremental$")
DTYPE = re.compile(r"\bu?int\d+\b|\bbool\b|integer")
NAMES_ANOTHER = re.compile(r"\b(?:see|as in|as for|like|of) `([\w.]+)`", re.IGNORECASE)


def length(node: ast.AST) -> int:
    """The lines of a function or class without its docstring."""
    first = node.body[0]
    has_words = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    words = first.end_lineno - first.lineno + 1 if has_words else 0
    return node.end_lineno - node.lineno + 1 - words


def files() -> dict[str, int]:
    """The lines of each file of the package."""
    return {f.relative_to(PACKAGE).as_posix(): len(f.read_text().splitlines()) for f in FILES}


SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(text: str) -> int:
    """The lines of a file that hold code: neither comments nor docstrings nor nothing."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        words = node.value if isinstance(node, ast.Expr) else None
        if isinstance(words, ast.Constant) and isinstance(words.value, str):
            lines.difference_update(range(words.lineno, words.end_lineno + 1))
    return len(lines)


def room_of(file: Path, package: Path = PACKAGE) -> str:
    """The room that a file stands in; a file at the root is a room of its own."""
    return file.relative_to(package).parts[0].removesuffix(".py")


def code_by_room() -> Counter[str]:
    """The lines of code of each room."""
    found: Counter[str] = Counter()
    for file in FILES:
        found[room_of(file)] += code_lines(file.read_text())
    return found


STEPS = {"Step", "Operator", "Aggregator"}
"""What all classes of steps, and of what runs them, are derived from."""


def class_checks(package: Path = PACKAGE) -> list[str]:
    """Where a step, or what runs one, is asked for its class outside the room of that class.

    Each class named in an `isinstance` counts.
    """
    trees = {f: ast.parse(f.read_text()) for f in sorted(package.rglob("*.py"))}
    bases, rooms = {}, {}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = set().union(*map(named, node.bases))
                rooms[node.name] = room_of(file, package)
    steps = set(STEPS)
    while more := {name for name, of in bases.items() if of & steps} - steps:
        steps |= more
    found = []
    for file, tree in trees.items():
        for node in ast.walk(tree):
            is_check = isinstance(node, ast.Call) and named(node.func) == {"isinstance"}
            if is_check and len(node.args) == 2:
                asked = sorted(named(node.args[1]) & steps)
                where = f"{file.relative_to(package).as_posix()}:{node.lineno}"
                found += [f"{where} {c}" for c in asked if rooms.get(c) != room_of(file, package)]
    return found


def names_of_several(package: Path = PACKAGE) -> dict[str, list[str]]:
    """The files of each name that stands for more than one class; private ones are of one file."""
    homes: dict[str, list[str]] = {}
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(file.relative_to(package).as_posix())
    return {name: files for name, files in homes.items() if len(files) > 1}


RECORDS = {"dataclass", "NamedTuple", "TypedDict", "Protocol"}
"""What sets the attributes of a class that says it has them."""


def left_to_others(package: Path = PACKAGE) -> dict[str, set[str]]:
    """The attributes that a class says it has, and that only classes derived from it set."""
    classes = [
        node
        for file in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
        and not RECORDS & set().union(*map(named, [*node.bases, *node.decorator_list]))
    ]
    derived_from = set().union(*(named(base) for node in classes for base in node.bases))
    found = {}
    for node in classes:
        said = {s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and s.value is None}
        stored = {
            part.attr
            for part in ast.walk(node)
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
        }
        if node.name in derived_from and said - stored:
            found[node.name] = said - stored
    return found


def functions() -> dict[str, int]:
    """The lines of each function, without its docstring; the longest of those of one name."""
    found: dict[str, int] = {}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{file.relative_to(PACKAGE).as_posix()} {node.name}"
                found[name] = max(length(node), found.get(name, 0))
    return found


Documented = dict[str, tuple[ast.AST, str]]


def documented(file: Path) -> Documented:
    """The functions, classes and methods of a file, with their docstrings.

    That of a class serves its `__init__` and its `__call__` as well.
    """
    tree = ast.parse(file.read_text())
    found: Documented = {"": (tree, ast.get_docstring(tree) or "")}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for owner in (tree, *classes):
        prefix, about = "", ""
        if owner is not tree:
            prefix, about = f"{owner.name}.", ast.get_docstring(owner) or ""
            found[owner.name] = (owner, about)
        for node in owner.body:
            if isinstance(node, ast.FunctionDef):
                served = about if node.name in ("__init__", "__call__") else ""
                words = f"{ast.get_docstring(node) or ''} {served}"
                found[f"{prefix}{node.name}"] = (node, " ".join(words.split()))
    return found


def named(of: ast.AST | None) -> set[str]:
    """The names in an expression, such as an annotation."""
    nodes = list(ast.walk(of)) if of is not None else []
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def with_others(name: str, room: Documented, seen: tuple[str, ...] = ()) -> str:
    """The docstring of a function and those of its class or file that it names, such as `other`.

    One that says "as above" names the docstring of the file.
    """
    words, seen = room[name][1], (*seen, name)
    if "as above" in words.lower():
        words += room[""][1]
    owner = name.rpartition(".")[0]
    for other in NAMES_ANOTHER.findall(words):
        there = [k for k in (f"{owner}.{other}", other) if k in room and k not in seen]
        words += "".join(with_others(known, room, seen) for known in there[:1])
    return words


def unstated(node: ast.FunctionDef, words: str) -> list[str]:
    """What a docstring leaves unsaid of the tensors that a function takes, and of its errors."""
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    tensors = {a.arg: names for a in every if (names := named(a.annotation)) & TENSORS}
    if not tensors:
        return []
    missing = [] if SHAPE.search(words) else ["shape"]
    integers = any(name in INTEGERS or "Ids" in names for name, names in tensors.items())
    if integers and not DTYPE.search(words):
        missing.append("dtype")
    raised, caught = set(), set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Raise):
            raised |= named(inner.exc)
        elif isinstance(inner, ast.ExceptHandler):
            caught |= named(inner.type)
    errors = {name for name in raised - caught if ERROR.search(name)}
    return missing + sorted(name for name in errors if name not in words)


def unstated_in(folder: Path) -> dict[str, list[str]]:
    """What public functions that take tensors leave unsaid: shape, dtype of integers, errors.

    A docstring may name another one of its class or file that says it, as in "see `other`".
    """
    found = {}
    for file in sorted(folder.rglob("*.py")):
        room = documented(file)
        for name, (node, _) in room.items():
            parts = [p for p in name.split(".") if p not in ("__init__", "__call__")]
            is_public = not any(p.startswith("_") for p in parts)
            if not isinstance(node, ast.FunctionDef) or not is_public:
                continue
            if missing := unstated(node, with_others(name, room)):
                found[f"{file.relative_to(folder).as_posix()}:{node.lineno} {name}"] = missing
    return found


def visited(run) -> list[str]:
    """The modules of the package whose functions run, in the order in which they are first met."""
    met: dict[str, None] = {}
    within = f"{PACKAGE}/"

    def note(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(within):
            met[file.removeprefix(within).removesuffix(".py")] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return list(met)


def ways() -> dict[str, list[str]]:
    """The modules that the third update of a kind visits, in a GCN of two layers.

    A plain one takes an edge in by compiled code; an ordinary one takes an edge in and another one
    out, and gives a node features, step by step; a partitioned one does that on one rank.
    """
    torch.manual_seed(0)
    x, edges = torch.randn(40, 8), torch.randint(40, (2, 160))
    model = GCN(8, 16, num_layers=2, out_channels=4).eval()
    made = {
        "plain": to_incremental(model, compile_after=1),
        "ordinary": to_incremental(model, compile_after=None),
        "partitioned": DistributedIncrementalModel(model),
    }
    found = {}
    for name, inc in made.items():
        inc(x, edges)
        for k in range(3):
            delta = {"edge_index_add": torch.tensor([[3], [5]])}
            if name != "plain":
                delta |= {"edge_index_del": edges[:, [k]], "x_changes": (torch.tensor([7]), x[[k]])}
            found[name] = visited(partial(inc.apply_delta, **delta))
    return found


def longest(lengths: dict[str, int]) -> str:
    """The largest one, with its name."""
    name = max(lengths, key=lengths.__getitem__)
    return f"{lengths[name]} ({name})"


def main() -> None:
    """Print all figures."""
    torch.set_num_threads(1)  # as in tests; two modules more decide what several threads share
    by_file = files()
    print(f"modules: {len(by_file)}")
    print(f"lines: {sum(by_file.values())}")
    by_room = code_by_room()
    print(f"lines of code: {by_room.total()}")
    print("lines of code by room: " + ", ".join(f"{r} {n}" for r, n in sorted(by_room.items())))
    checks = class_checks()
    by_file_too = Counter(c.partition(":")[0] for c in checks)
    print(f"steps asked for their class elsewhere: {len(checks)}, in {len(by_file_too)} files")
    print(f"files at the root: {sum('/' not in name for name in by_file)}")
    print(f"longest file: {longest(by_file)}")
    print(f"longest function: {longest(functions())}")
    for name, modules in ways().items():
        print(f"modules that one {name} update visits: {len(modules)} ({', '.join(modules)})")


if __name__ == "__main__":
    main()
