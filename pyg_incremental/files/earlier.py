"""States of earlier formats, as the present one holds them: all but the rows that were computed.

| format | what is different | what is made of it |
|---|---|---|
| 1, at first | a zip archive; one graph, whose arguments are not described | the description |
| 1, at last | several graphs; outputs are not named | names of outputs, from the program |
| 2, 3 | objects among the arguments are described otherwise | refused, where there are such |
| 4, at first | no names of nodes, nothing beside the call, no `extra` | nothing of each |

Formats 2 to 4 differ in what rows aggregations keep. Rows of another format than the present one
are not taken over: a first pass computes them, and its output is held against the saved one.
"""

import copy
import os
import re
from typing import Any

import torch

from pyg_incremental.errors import StateFileError

ZIP = b"PK\x03\x04"
"""How a file of format 1 begins."""
_ADDED: tuple[dict[str, Any], ...] = (
    {"positional": [], "packed": [], "matrices": [], "fixed": {}, "store": "fast"},
    {"options": {}, "outputs": None, "whole_outputs": {}},
    {"deltas": {}},
    {"removed": {}},
    {"leaving": []},
    {"objects": [], "unread": [], "asked": [], "ids": {}},
    {"node_ids": {}},
    {"extra": None},
    {"beside": [], "counted": ""},
    {"numbered": [], "edge_ids": {}},
)
"""What was added, one after the other, and what it means that it is not there.

A file has all of the first so many, and nothing of the others. One that lacks something else is no
earlier one, but damaged.
"""
OBJECTS = ("data_fields", "hyper_data", "hetero")
"""How arguments that are objects were described up to format 3."""


def from_zip(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file of format 1 holds. No code from it is executed.

    Raises:
        StateFileError: If it is cut off or damaged, or an archive of something else.
    """
    try:
        body = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever is wrong with the archive
        raise StateFileError(
            f"'{path}' cannot be read as a saved state ({type(error).__name__}: "
            f"{str(error).splitlines()[0]}); it may be cut off, or what torch.save has written"
        ) from error
    content = body.get("content") if isinstance(body, dict) and body.get("format") == 1 else None
    if not isinstance(content, dict):
        raise StateFileError(f"'{path}' is not a saved state, but something that torch.save wrote")
    return content


def as_today(path: str | os.PathLike[str], content: dict[str, Any]) -> dict[str, Any]:
    """The content of an earlier format, or an earlier one of the same, in today's words.

    Args:
        path: The file.
        content: What it holds.

    Raises:
        StateFileError: If the model was called with objects, which are described otherwise today.
    """
    content = dict(content)
    begins = next((n for n, added in enumerate(_ADDED) if added.keys() - content.keys()), None)
    later: dict[str, Any] = {}
    for added in _ADDED[begins:] if begins is not None else ():
        later |= copy.deepcopy(added)
    if not later.keys() & content.keys():
        content |= later
    for name in OBJECTS:
        if content.pop(name, None):
            raise StateFileError(
                f"'{path}' is of an earlier format, and the model was called with an object "
                "(Data, HeteroData), which that format describes in another way. What it holds is "
                f"there: saved = read_state({str(path)!r}); make the object of saved.nodes and "
                "saved.edge_index, call the model with it, and save again"
            )
    if "graph" in content:
        content = _one_graph(content)
    if content.get("outputs", ()) is None:
        returned = content["program"].rpartition("\nreturn ")[2]
        content["outputs"] = re.findall(r"[\w.]+", returned)
    return content


def _one_graph(content: dict[str, Any]) -> dict[str, Any]:
    """The description of a call with one graph, from what was said of it at first."""
    content = dict(content)
    state, form = content.pop("graph"), content.pop("program_format", "coo")
    nodes = [name for name in content["names"] if name in content["rows"]]
    edges = [name for name in content["names"] if name in state and name != "edge_index"]
    known = {*nodes, *edges, *content["others"]}
    graph = next((name for name in content["names"] if name not in known), "edge_index")
    return {
        **content,
        "relations": [[graph, graph, "", "", form, False, "edge_weight", False, False]],
        "nodes": dict.fromkeys(nodes, ""),
        "edges": dict.fromkeys(edges, graph),
        "num_nodes": {"": content["num_nodes"]},
        "graphs": {graph: state},
    }
