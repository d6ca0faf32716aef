"""What a file says of a call, checked before anything is made of it.

A checksum tells that a file is as it was written, not who wrote it: names that are not there, ids
that are out of range, and rows that are too few, have to be found before compiled code, which looks
at no bounds, reads them.
"""

from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from pyg_incremental.call.asked import Asked, IdsForm
from pyg_incremental.call.object_state import CLASSES, DTYPES, KINDS, WAYS
from pyg_incremental.call.roles import is_everyone
from pyg_incremental.call.state import relations_of
from pyg_incremental.errors import StateFileError
from pyg_incremental.kernels.adjacency import out_of_range
from pyg_incremental.program.steps import Relation
from pyg_incremental.typing import MAX_EDGES, MAX_NODES, Format

Form = Any
"""A type, or `(form, ...)` for any of them, `[form]` for a list, `{form: form}` for a dict, and
`{"key": form, ...}` for a dict with these keys."""
KEY: Form = (str, int, [str])
OBJECT: Form = {
    "argument": str, "class": str, "stores": [[object]], "places": [[object]], "levels": {str: str},
    "keys": [[object]], "joins": [[object]], "num_graphs": (int, type(None)), "counts_graphs": bool,
}  # fmt: skip
CALL: Form = {
    "names": [str], "constants": {str: object}, "positional": [str], "objects": [OBJECT],
    "beside": [str], "counted": str,
    "unread": [str], "packed": [[object]], "relations": [[object]], "nodes": {str: str},
    "edges": {str: str}, "fixed": {str: str}, "matrices": [str],
    "leaving": [str], "num_nodes": {str: int}, "ids": {str: str}, "asked": [[object]],
}  # fmt: skip
_ADVICE = (
    "It was not written by this version of the package, or was changed since: run a full pass and "
    "save again"
)
_RELATION: tuple[Form, ...] = (str, (str, [str]), str, str, str, bool, str, bool, bool)


class Checked:
    """The content of a file, and what its errors begin with.

    Args:
        where: The file.
        error: What is raised.
        advice: What errors say to do.
    """

    def __init__(
        self, where: str, error: type[ValueError] = StateFileError, advice: str = _ADVICE
    ) -> None:
        self.where = where
        self._error, self._advice = error, advice

    def refuse(self, what: str, advice: str | None = None) -> ValueError:
        """An error to raise."""
        return self._error(f"'{self.where}': {what}. {advice or self._advice}")

    def fits(self, value: Any, form: Form, name: str) -> None:
        """See that a value has some form.

        Raises:
            StateFileError: If not, or what was chosen instead.
        """
        if isinstance(form, tuple):
            if not any(_is(value, f) for f in form):
                raise self.refuse(f"'{name}' is a {type(value).__name__}")
        elif isinstance(form, list):
            if not isinstance(value, (list, tuple)):
                raise self.refuse(f"'{name}' is a {type(value).__name__}, expected a list")
            for i, item in enumerate(value):
                self.fits(item, form[0], f"{name}[{i}]")
        elif isinstance(form, dict):
            self._dict_fits(value, form, name)
        elif not _is(value, form):
            raise self.refuse(f"'{name}' is a {type(value).__name__}, expected a {form.__name__}")

    def _dict_fits(self, value: Any, form: dict[Any, Form], name: str) -> None:
        if not isinstance(value, dict):
            raise self.refuse(f"'{name}' is a {type(value).__name__}, expected a dict")
        if all(isinstance(key, str) for key in form):
            lost = [key for key in form if key not in value]
            if lost:
                raise self.refuse(f"'{lost[0]}' is missing in {name or 'it'}")
            for key, of in form.items():
                self.fits(value[key], of, key)
            return
        ((key_form, of),) = form.items()
        for key, item in value.items():
            self.fits(key, key_form, f"a key of {name}")
            self.fits(item, of, f"{name}[{key!r}]")

    def same(self, got: Any, expected: Any, what: str) -> None:
        """See that two things that have to agree do."""
        if got != expected:
            raise self.refuse(f"{what}: got {got}, expected {expected}")

    # Calls ---------------------------------------------------------------------------------------

    def call(self, content: Mapping[str, Any]) -> tuple[Relation, ...]:
        """See that a call hangs together (see `calls.state.described`); returns its graphs.

        Raises:
            StateFileError: If not, or what was chosen instead.
        """
        self.fits(content, CALL, "")
        for count in content["num_nodes"].values():
            if not 0 <= count <= MAX_NODES:
                raise self.refuse(f"there are {count} nodes")
        for fields in content["relations"]:
            self.same(len(fields), len(_RELATION), "fields of a graph")
            for value, form in zip(fields, _RELATION, strict=True):
                self.fits(value, form, "relations")
        relations = relations_of(content)
        graphs = [r.graph for r in relations]
        self.same(len(set(graphs)), len(graphs) or -1, "graphs of different names")
        for r in relations:
            self._known(r.source, content["num_nodes"], f"the source of '{r.graph}'")
            self._known(r.target, content["num_nodes"], f"the target of '{r.graph}'")
            self._known(r.format, get_args(Format), f"the format of '{r.graph}'")
        for name, kind in content["nodes"].items():
            self._known(kind, content["num_nodes"], f"the kind of '{name}'")
        for name, graph in content["edges"].items():
            self._known(graph, graphs, f"the graph of '{name}'")
        for graph in content["matrices"]:
            self._known(graph, graphs, "a graph with values")
        for name in content["leaving"]:
            self._known(name, content["nodes"], "an input with rows of removed nodes")
        for name in (*graphs, *(n for n in content["nodes"] if not is_everyone(n))):
            self._known(name, content["names"], "an input")
        if content["counted"]:
            self._known(content["counted"], content["nodes"], "what num_nodes counts")
        for name in self._inside(content):
            self._known(name, content["names"], "a tensor")
        for entry in content["asked"]:
            self.same(len(entry), 2, "parts of arguments with ids")
            self.fits(entry[0], [str], "asked")
            self._known(entry[1], get_args(IdsForm), "the form of ids")
            self._known(Asked(tuple(entry[0]), entry[1]).name, graphs, "pairs of ids")
        return relations

    def _known(self, name: Any, names: Any, what: str) -> None:
        if name not in names:
            raise self.refuse(f"{what} is {name!r}, which is none of {list(names)}")

    def _inside(self, content: Mapping[str, Any]) -> list[str]:
        """The names of tensors that stand in dicts, pairs and `Data` objects."""
        found = [name for held in content["objects"] for name in self._held(held)]
        for entry in content["packed"]:
            self.same(len(entry), 2, "parts of an argument")
            self.fits(entry[0], str, "packed")
            self.fits(entry[1], [[(str, int, [str], type(None))]], "packed")
            found += [item[1] for item in entry[1] if len(item) == 2 and item[1] is not None]
        return found

    def _held(self, held: Mapping[str, Any]) -> list[str]:
        """The names of the tensors that stand in an object; what else it says is looked at."""
        self._known(held["class"], CLASSES, f"the class of '{held['argument']}'")
        for store in held["stores"]:
            self.same(len(store), 2, "parts of a store")
            self.fits(store[0], (*KEY, type(None)), "stores")
            self.fits(store[1], [[object]], "stores")
            for field in store[1]:
                self.same(len(field), 3, "parts of a field")
                self.fits(field[0], str, "stores")
                self._known(field[1], WAYS, f"what '{field[0]}' is")
                if field[1] == "untold":
                    self._known(field[2], KINDS, f"the class of '{field[0]}'")
                if field[1] == "unread":
                    self.same(len(field[2]), 2, "parts of a field that is not read")
                    self.fits(field[2][0], str, "stores")
                    self.fits(field[2][1], int, "stores")
                    self._known(field[2][0], DTYPES, f"the dtype of '{field[0]}'")
        for name in ("keys", "joins"):
            for entry in held[name]:
                self.same(len(entry), 2, f"parts of {name}")
                self.fits(entry[0], str, name)
                self.fits(entry[1], KEY if name == "keys" else [str], name)
        names = []
        for place in held["places"]:
            self.same(len(place), 3, "parts of a place")
            self.fits(place[0], str, "places")
            self.fits(place[1], (*KEY, type(None)), "places")
            self.fits(place[2], str, "places")
            names.append(place[0])
        return names

    # Tensors -------------------------------------------------------------------------------------

    def graph(
        self,
        relation: Relation,
        content: Mapping[str, Any],
        edges: Any,
        data: Any,
        counts: tuple[int, int],
    ) -> None:
        """See that the edges of a graph lie between its nodes, and have their data.

        Args:
            relation: The graph.
            content: The call.
            edges: int64 `[2, num_edges]`.
            data: Tensors `[num_edges, ...]` by name.
            counts: Ids of sources and targets lie below.
        """
        name = relation.graph
        self.rows(edges, 2, f"the edges of '{name}'", torch.int64)
        if edges.dim() != 2 or edges.shape[1] > MAX_EDGES:
            raise self.refuse(f"the edges of '{name}' have shape {list(edges.shape)}")
        for ids, count in zip(edges.contiguous().numpy(), counts, strict=True):
            at = out_of_range(ids, count)
            if at >= 0:
                raise self.refuse(f"'{name}' names node {ids[at]}, but ids lie in [0, {count})")
        expected = {n for n, of in content["edges"].items() if of == name}
        if name in content["matrices"]:
            expected.add(relation.values)
        self.fits(data, {str: Tensor}, f"the data of '{name}'")
        self.same(sorted(data), sorted(expected), f"data of the edges of '{name}'")
        for key, rows in data.items():
            self.rows(rows, edges.shape[1], f"'{key}'")

    def rows(self, rows: Any, count: int, what: str, dtype: torch.dtype | None = None) -> None:
        """See that something is a tensor of so many rows on the CPU."""
        self.fits(rows, Tensor, what)
        if rows.dim() < 1 or rows.shape[0] != count:
            raise self.refuse(f"{what} has shape {list(rows.shape)}, expected {count} rows")
        if dtype is not None and rows.dtype is not dtype:
            raise self.refuse(f"{what} is {rows.dtype}, expected {dtype}")


def _is(value: Any, form: Form) -> bool:
    """Whether a value is of a type; a truth value is no number."""
    if isinstance(form, list):
        return isinstance(value, (list, tuple)) and all(_is(v, form[0]) for v in value)
    return isinstance(value, form) and not (form is int and isinstance(value, bool))
