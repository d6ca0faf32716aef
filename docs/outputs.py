"""Write under each block of code in the documents what it printed: `make docs-outputs`.

    python docs/outputs.py                                   # all pages, and README.md
    python docs/outputs.py docs/source/concepts/numbers.md   # one

The blocks of a page run in order and share their names, as a reader would type them. What one of
them prints stands behind it, between ```output and ```. Behind a line `<!-- not shown -->` it is
left out: what a block prints there differs from run to run. `tests/examples/test_examples.py` runs
all of them and compares.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from math import isclose
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "source").rglob("*.md"))]
BLOCK = re.compile(
    r"(?P<hidden><!-- not shown -->\n)?^```python\n(?P<code>.*?)^```\n"
    r"(?:\n```output\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
TIME = re.compile(r"(?:\d[\d.,]*|\.\.\.)( us| ms| s)\b")
LINE = re.compile(r"(?<=\.(?:md|py):)\d+")
WORST = re.compile(r"node \d+\)")
FLOAT = re.compile(r"-?(?:inf|nan)|-?\d+\.\d*(?:e[-+]?\d+)?|-?\d+e[-+]?\d+")


def run(page: Path) -> Iterator[tuple[re.Match[str], str]]:
    """Each block of a page, and what it printed, without spaces at the ends of lines."""
    text = page.read_text()
    names: dict[str, object] = {"__name__": "__main__"}
    torch.manual_seed(0)
    for block in BLOCK.finditer(text):
        code = "\n" * text[: block.start("code")].count("\n") + block["code"]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, str(page), "exec"), names)
        lines = said.getvalue().rstrip().splitlines()
        yield block, "".join(f"{line.rstrip()}\n" for line in lines)


def expected(block: re.Match[str], printed: str) -> str:
    """What is to stand behind a block that printed this: all of it but times."""
    return "" if block["hidden"] else TIME.sub(r"...\1", printed)


def alike(one: str, other: str) -> bool:
    """Whether words and whole numbers agree. Times and lines may differ, floats by rounding.

    So may the node at which rounding is largest.
    """
    texts = [TIME.sub("<time>", WORST.sub("<node>)", LINE.sub("", t))) for t in (one, other)]
    texts = [" ".join(text.split()) for text in texts]
    words = [FLOAT.sub("<float>", text).replace("[ ", "[") for text in texts]
    floats = [[float(found) for found in FLOAT.findall(text)] for text in texts]
    return words[0] == words[1] and all(
        isclose(a, b, rel_tol=0.01, abs_tol=1e-4) or a != a for a, b in zip(*floats, strict=True)
    )


def written(page: Path) -> str:
    """The page with what its blocks print today; what agrees with that stays as it is."""
    text, parts, end = page.read_text(), [], 0
    for block, printed in run(page):
        wanted = expected(block, printed)
        code_ends = block.end("code") + len("```\n")
        parts.append(text[end:code_ends])
        if alike(block["output"] or "", wanted):
            parts.append(text[code_ends : block.end()])
        elif wanted:
            parts.append(f"\n```output\n{wanted}```\n")
        end = block.end()
    return "".join(parts) + text[end:]


def main(names: list[str]) -> None:
    """Write the pages of these names, or all."""
    pages = [Path(name).resolve() for name in names] or PAGES
    for page in pages:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            text = written(page)
        if text != page.read_text():
            page.write_text(text)
            print(f"written: {os.path.relpath(page, ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
