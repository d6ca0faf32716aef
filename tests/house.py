"""Figures of the package as a house: its size, its longest rooms, and the way of an update.

python -m tests.house
"""

import ast
import sys
from functools import partial
from pathlib import Path

import torch
from torch_geometric.nn import GCN

from pyg_incremental import to_incremental
from pyg_incremental.distributed import DistributedIncrementalModel

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pyg_incremental"
FILES = sorted(PACKAGE.rglob("*.py"))


def length(node: ast.AST) -> int:
    """The lines of a function or class without its docstring."""
    first = node.body[0]
    has_words = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    words = first.end_lineno - first.lineno + 1 if has_words else 0
    return node.end_lineno - node.lineno + 1 - words


def files() -> dict[str, int]:
    """The lines of each file of the package."""
    return {f.relative_to(PACKAGE).as_posix(): len(f.read_text().splitlines()) for f in FILES}


def functions() -> dict[str, int]:
    """The lines of each function, without its docstring; the longest of those of one name."""
    found: dict[str, int] = {}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{file.relative_to(PACKAGE).as_posix()} {node.name}"
                found[name] = max(length(node), found.get(name, 0))
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
    by_file = files()
    print(f"modules: {len(by_file)}")
    print(f"lines: {sum(by_file.values())}")
    print(f"files at the root: {sum('/' not in name for name in by_file)}")
    print(f"longest file: {longest(by_file)}")
    print(f"longest function: {longest(functions())}")
    for name, modules in ways().items():
        print(f"modules that one {name} update visits: {len(modules)} ({', '.join(modules)})")


if __name__ == "__main__":
    main()
