"""What people search the site for, and where that has to lead: `make docs` holds it.

python docs/searched.py docs/build/html
"""

import json
import sys
from pathlib import Path

from sphinx.search.en import SearchEnglish

# The word that is typed, and a page that has it in a title.
WANTED = {
    "rollback": "how_to/what_if",
    "alert": "how_to/alerts",
    "FAQ": "faq",
    "Docker": "how_to/docker",
    "performance": "benchmarks/results",
    "Kafka": "how_to/kafka",
    "Postgres": "how_to/postgres",
    "delete": "how_to/delete",
    "label": "how_to/alerts",
    "install": "getting_started/install",
    "crash": "how_to/restart",
    "window": "how_to/window",
    "DGL": "how_to/dgl",
    "GraphStorm": "how_to/graphstorm",
    "error": "reference/errors",
    "memory": "concepts/memory",
    "apply_delta": "reference/model",
}


def found(folder: Path, word: str) -> list[str]:
    """The pages that the site's own search finds by a title, a section or a documented name."""
    text = (folder / "searchindex.js").read_text().removeprefix("Search.setIndex(")
    index = json.loads(text.strip().removesuffix(")"))
    stem = SearchEnglish({}).stem(word.lower())
    ids = index["titleterms"].get(stem, [])
    pages = set([ids] if isinstance(ids, int) else ids)
    for objects in index["objects"].values():
        pages |= {entry[0] for entry in objects if entry[4].rpartition(".")[2] == word}
    return [index["docnames"][page] for page in sorted(pages)]


def main(folder: Path) -> int:
    """The number of words that do not lead where they have to."""
    missed = {word: pages for word in WANTED if WANTED[word] not in (pages := found(folder, word))}
    for word, pages in missed.items():
        print(f"a search for {word!r} does not find {WANTED[word]!r}, but {pages}", file=sys.stderr)
    return len(missed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
