"""Arguments whose role neither a name nor a number of rows forces: the model tells, or the user.

Every reading of such arguments that their numbers of rows allow is tried on a probe, on which
nodes, edges and ids are of different numbers. One that runs, and in which integers do what they are
taken for, is what the model means; where several do, the user is asked.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.call.asked import Asked, grouped
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.graphs import graphs_of
from pyg_incremental.call.learned import heights, learned_count, learned_counts
from pyg_incremental.call.roles import classify, counts_nodes, is_label
from pyg_incremental.call.said import Role
from pyg_incremental.errors import InvalidDeltaError, UnsupportedModelError
from pyg_incremental.trace.reading import reads_of

_OF_NODES = ("x", "batch", "pos", "z", "node_type", "node_id", "n_id")
"""Names under which PyG's own models and examples take a row for each node."""
_OF_IDS = Role("edge", ("ids",))
"""A row for each of the rows that are asked for."""
_MOST = 64
"""Readings that are tried at most."""


@dataclass(frozen=True)
class Choice:
    """What is known of the arguments of a call before their shapes are looked at.

    Attributes:
        site: The call, with pairs in the place of arguments with ids.
        roles: The roles of arguments.
        pairs: The kinds of nodes that such pairs join, where the user says it.
        why: How each of these became known, in words.
    """

    site: BoundCall
    roles: dict[str, Role]
    pairs: dict[str, tuple[str, str]] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)


def decided(site: BoundCall, said: Mapping[str, Role]) -> Choice:
    """The roles of the arguments that do not show theirs.

    Args:
        site: The call.
        said: What the user says.

    Raises:
        UnsupportedModelError: If the user speaks of an argument that is not there.
        InvalidDeltaError: If an argument may be several things.
    """
    said = _on_names(site, said)
    return _Undecided(site, said).decided()


def _on_names(site: BoundCall, said: Mapping[str, Role]) -> dict[str, Role]:
    """What is said, by the names of the tensors of a call."""
    found: dict[str, Role] = {}
    for name, role in said.items():
        meant = [n for n in site.names if name in (n, n.rpartition("/")[2])]
        held = {f for h in site.objects.values() for (_, f), _ in h.plain}
        if not meant and name not in site.constants and name not in held:
            raise UnsupportedModelError(
                f"roles: {type(site.model).__name__} is not called with '{name}' (got "
                f"{site.names}); give roles by the names of its arguments"
            )
        found |= dict.fromkeys(meant, role)
    return found


class _Undecided:
    """The readings of the arguments of a call.

    Args:
        site: The call.
        said: What the user says of some.
    """

    def __init__(self, site: BoundCall, said: dict[str, Role]) -> None:
        self._site, self._said = site, said
        self._where = f"call of {type(site.model).__name__}"
        self._graphs = graphs_of(site, said)
        self._rest = [n for n in site.names if n not in self._graphs]
        self._rows = {n: _rows(site.tensors[n]) for n in self._rest}
        self._edges = {_num_edges(site.tensors[n]) for n in self._graphs if not is_label(n)}
        self._typed = any(isinstance(key, str) for key in site.keys.values())
        self._shifted: set[str] = set()
        self._of_kinds: dict[str, Role] = {}

    def decided(self) -> Choice:
        """The reading that the model means."""
        said = {n: Role("constant") if n not in self._graphs and r.what == "graph" else r
                for n, r in self._said.items()}  # fmt: skip
        is_hyper = any("hyper" in name for name in self._site.names)
        if self._graphs and not is_hyper and not self._typed:
            self._site.learned = self._learned()
        if is_hyper or not self._graphs or not self._is_open():
            return self._built(said)
        self._of_kinds = self._kinds_of_ids() if self._typed else {}
        ran: list[Choice] = []
        weak: list[Choice] = []  # integers would count nothing, and pick no rows of nodes
        for reading in self._readings():
            found = self._tried(reading, True)
            if found is not None and self._is_weak(found):
                weak.append(found)
            elif found is not None and not any(found.roles == one.roles for one in ran):
                ran.append(found)
                if not self._tied(reading):
                    break
        ran = ran or weak[:1]
        if not ran:
            aside = (self._tried(reading, True) for reading in self._readings(aside=True))
            ran = [*islice(filter(None, aside), 1)]
        if not ran:
            ran = [found for reading in self._readings() if (found := self._tried(reading, False))]
            ran = ran if any(map(self._tied, [one.roles for one in ran])) else ran[:1]
        if len(ran) > 1:
            self._ask(ran)
        return ran[0] if ran else self._as_it_looks(said)

    def _as_it_looks(self, said: dict[str, Role]) -> Choice:
        """The call as its shapes have it, as no reading runs.

        Raises:
            InvalidDeltaError: If that does not fit either, and integers may be what does not.
        """
        choice, ids = self._built(said), [
            n for n in self._unnamed() if _may_be_ids(self._site.tensors[n])
        ]  # fmt: skip
        try:
            classify(choice.site, choice.pairs, choice.roles)
        except InvalidDeltaError as error:
            if not ids:
                raise
            raise InvalidDeltaError(
                f"{error}; if {' and '.join(map(repr, ids))} are ids of nodes whose rows are asked "
                f"for, or stay as they are, say so: to_incremental(model, roles="
                f"{{{ids[0]!r}: 'ids'}}) or to_incremental(model, roles={{{ids[0]!r}: 'constant'}})"
            ) from error
        except UnsupportedModelError:
            pass  # which is said where its pairs are known
        return choice

    # Readings ------------------------------------------------------------------------------------

    def _is_open(self) -> bool:
        """Whether any argument does not show what it is."""
        counts = {self._rows["x"]} if "x" in self._rest else self._edges
        return any(
            _may_be_ids(self._site.tensors[n]) or self._rows[n] in self._edges & counts
            for n in self._unnamed()
        ) or bool(self._unnamed_graphs())

    def _unnamed(self) -> list[str]:
        """The tensors with rows whose names tell nothing."""
        named = (*self._said, *self._site.keys, "x", "weight", "weights")
        return [
            n
            for n in self._rest
            if n not in named
            and not n.startswith("edge")
            and self._rows[n] is not None
            and (not self._site.levels.get(n) or _may_be_ids(self._site.tensors[n]))
            and not (n in _OF_NODES and self._rows.get("x", self._rows[n]) == self._rows[n])
        ]

    def _unnamed_graphs(self) -> list[str]:
        """The arguments that are graphs by their shapes alone, beside others."""
        several = len(self._graphs) > 1
        return [n for n in self._graphs if several and _may_be_pairs(n, self._site)]

    def _open(self, count: int | None, aside: bool) -> dict[str, list[Role]]:
        """What the arguments that do not show it may be, if there are so many nodes.

        Args:
            count: The number of nodes.
            aside: Whether integers may as well be none of these.
        """
        found = {name: [Role("graph")] for name in self._unnamed_graphs()}
        ids = [n for n in self._unnamed() if _may_be_ids(self._site.tensors[n])]
        for name in self._unnamed():
            rows = self._rows[name]
            whats = ["node"] if rows == count else []
            whats += ["edge"] if rows in self._edges else []
            whats += ["ids"] if _may_be_ids(self._site.tensors[name]) else []
            options = [self._of_kinds.get(name, Role(what)) for what in whats]
            if any(n != name and self._rows[n] == rows for n in ids):
                options.append(_OF_IDS)  # such as the relation of a triple
            if aside and Role("ids") in options:
                options.append(Role("constant"))
            found[name] = options or [Role("constant")]
        return found

    def _counts(self) -> Iterator[int | None]:
        """The numbers of nodes that there may be; None where the parameters of the model tell."""
        told = [n for n, role in self._said.items() if role.what == "node" and n in self._rest]
        plain = [n for n in (*told, "x") if n in self._rest]
        free = [n for n in self._rest if n not in self._said and counts_nodes(self._site, n)]
        floats = [n for n in free if not _may_be_ids(self._site.tensors[n])]
        plain = plain or [n for n in floats if n in _OF_NODES or self._rows[n] not in self._edges]
        if plain:
            yield self._rows[plain[0]]
            return
        with contextlib.suppress(UnsupportedModelError):
            yield learned_count(self._site, self._graphs, self._where)
        yield from dict.fromkeys(self._rows[n] for n in (*floats, *free))

    def _readings(self, aside: bool = False) -> Iterator[dict[str, Role]]:
        """What all open arguments together may be, the most usual first; see `_open`."""
        for count in (None,) if self._typed else self._counts():
            free = self._open(count, aside)
            for roles in islice(product(*free.values()), _MOST):
                yield dict(zip(free, roles, strict=True))

    def _is_weak(self, choice: Choice) -> bool:
        """Whether nodes are counted by parameters, though there are integers without a use."""
        roles = choice.roles
        counted = any(r.what == "node" for r in roles.values()) or "x" in self._rest
        return not counted and not self._typed and any(
            r.what == "constant" and n not in self._said and _may_be_ids(self._site.tensors[n])
            for n, r in roles.items()
        )  # fmt: skip

    def _tied(self, reading: Mapping[str, Role]) -> bool:
        """Whether an argument has as many rows as there are nodes, and as there are edges."""
        counts = {self._rows[n] for n, role in reading.items() if role.what == "node"}
        counts |= {self._rows.get("x")}
        return any(
            role.what in ("node", "edge") and self._rows.get(n) in self._edges & counts
            for n, role in reading.items()
        )

    def _learned(self) -> int:
        """The number of rows along the edges, where several tables may be those of nodes; else 0.

        Relations have tables, too.
        """
        site, said = self._site, self._said
        has_rows = "x" in self._rest or any(r.what == "node" for r in said.values())
        found = set() if has_rows else learned_counts(site, self._graphs)
        if has_rows or len(found) == 1:
            return 0
        found = found or heights(site, self._graphs)
        rest, fits = {n: Role("constant") for n in self._unnamed()}, []
        for count in sorted(found):
            site.learned = count
            try:
                roles = classify(site, None, {**rest, **said})
            except (InvalidDeltaError, UnsupportedModelError):
                continue
            ran = (reads_of(site, roles, on_probe) for on_probe in (True, False))
            reads = next((reads for reads in ran if reads is not None), None)
            if reads is not None and reads.picked.keys() & set(self._graphs):
                fits.append(count)
        return fits[0] if len(fits) == 1 else 0

    def _kinds_of_ids(self) -> dict[str, Role]:
        """Of which kind of nodes the model picks rows by the integers that it is given.

        Found by running it on the call, where no two kinds have as many nodes.
        """
        ids = [n for n in self._unnamed() if _may_be_ids(self._site.tensors[n])]
        choice = self._built({**self._said, **dict.fromkeys(ids, Role("constant"))})
        try:
            roles = classify(choice.site, choice.pairs, choice.roles)
        except (InvalidDeltaError, UnsupportedModelError):
            return {}
        counts = roles.num_nodes.values()
        reads = reads_of(choice.site, roles, False) if len({*counts}) == len(counts) else None
        picked = {} if reads is None else reads.picked
        return {n: Role("ids", tuple(picked[n])) for n in ids if len(picked.get(n, ())) == 1}

    # Trying --------------------------------------------------------------------------------------

    def _tried(self, reading: Mapping[str, Role], on_probe: bool) -> Choice | None:
        """A reading, with what the model does with integers; None if it does not run so."""
        reading = dict(reading)
        turned: set[str] = set()
        for _ in range(5):
            choice = self._built({**self._said, **reading}, turned)
            try:
                roles = classify(choice.site, choice.pairs, choice.roles)
            except (InvalidDeltaError, UnsupportedModelError):
                return None
            reads = reads_of(choice.site, roles, on_probe)
            if reads is None:
                wide = {a.names[0] for a in choice.site.asked.values() if self._may_turn(a)}
                if not wide:
                    return None
                turned |= wide
                continue
            again = {n: self._as_read(n, role, reads, choice) for n, role in reading.items()}
            groups = [a for a in choice.site.asked.values() if not a.is_table]
            shifted = {n for a in groups if a.name in reads.shifted for n in a.names}
            shifted |= reads.shifted & reading.keys()
            if again == reading and shifted <= self._shifted:
                return choice
            reading, self._shifted = again, self._shifted | shifted
        return None

    def _as_read(self, name: str, role: Role, reads: Any, choice: Choice) -> Role:
        """What an argument is after what the model did with it."""
        if not _may_be_ids(self._site.tensors[name]):
            return role
        groups = (a for a in choice.site.asked.values() if not a.is_table)
        asked = next((a.name for a in groups if name in a.names), name)
        if asked in reads.picked and asked not in reads.sorted:
            return role if role.what == "ids" else Role("ids")
        return Role("constant") if role.what == "ids" else role

    def _may_turn(self, asked: Asked) -> bool:
        """Whether a table may have a column for each row that is asked for."""
        alone = asked.form == "table" and len(asked.names) == 1
        return alone and self._site.tensors[asked.names[0]].dim() == 2

    def _built(self, roles: dict[str, Role], turned: Collection[str] = ()) -> Choice:
        """The call with pairs in the place of ids, of which some are turned."""
        ids = [n for n, role in roles.items() if role.what == "ids"]
        plain = [n for n in ids if n not in self._site.keys]
        groups = grouped(plain, self._site.tensors, self._shifted, turned)
        inside = {n for a in groups for n in a.names}
        pairs = {a.name: ends for a in groups if (ends := _ends(a, roles))}
        site = self._site.asking(groups) if groups else self._site
        left = {n: r for n, r in roles.items() if n not in inside}
        left |= {n: Role("edge", (a.name,)) for a in groups if a.is_table for n in a.names}
        for name in [n for n, r in left.items() if r is _OF_IDS]:
            over = [a for a in groups if site.tensors[a.name].shape[1] == self._rows[name]]
            left[name] = Role("edge", (over[0].name,)) if over else Role("constant")
        return Choice(site, left, pairs, {n: self._reason(n, role) for n, role in roles.items()})

    def _reason(self, name: str, role: Role) -> str:
        """How it is known that an argument is that."""
        if name in self._said:
            return "it is said, or given beside the call"
        if role.what == "ids":
            return "the model picks rows of nodes by it"
        if role.what == "constant":
            return "it has as many rows as neither nodes nor edges, and picks none"
        return "the model runs with that on a graph of other numbers of nodes and edges"

    def _ask(self, ran: list[Choice]) -> None:
        """Ask which of several readings is meant.

        Raises:
            InvalidDeltaError: Always.
        """
        first, second = ran[0].roles, ran[1].roles
        name = next(n for n in first if first[n] != second.get(n))
        whats = list(dict.fromkeys(str(one.roles[name]) for one in ran if name in one.roles))
        lines = " or ".join(f"to_incremental(model, roles={{{name!r}: {w!r}}})" for w in whats)
        raise InvalidDeltaError(
            f"{self._where}: '{name}' has {self._rows[name]} rows, and there are as many nodes as "
            f"edges: it may be {' or '.join(whats)} data, and the model runs with either; say "
            f"which, {lines}"
        )


def _ends(asked: Asked, roles: Mapping[str, Role]) -> tuple[str, str] | None:
    """The kinds of nodes of pairs, where the user says it."""
    kinds = [kind for name in asked.names for kind in roles[name].of]
    return (kinds[0], kinds[0 if asked.is_table else -1]) if kinds else None


def _may_be_ids(value: Any) -> bool:
    """Whether a tensor may hold ids: integers that are not negative, `[k]` or `[k, m]`."""
    return (
        isinstance(value, Tensor)
        and value.layout is torch.strided
        and value.dtype in (torch.int64, torch.int32)
        and value.dim() in (1, 2)
        and value.numel() > 0
        and int(value.min()) >= 0
    )


def _may_be_pairs(name: str, site: BoundCall) -> bool:
    """Whether a graph is one by its shape alone, and may as well be pairs to be looked at."""
    value, argument = site.tensors[name], name.rpartition("/")[2].removesuffix("_dict")
    named = argument.endswith("edge_index") or argument in ("adj", "adj_t") or is_label(name)
    return not named and name not in site.keys and type(value) is Tensor and _may_be_ids(value)


def _rows(value: Any) -> int | None:
    return value.shape[0] if isinstance(value, Tensor) and value.dim() > 0 else None


def _num_edges(graph: Any) -> int:
    plain = isinstance(graph, Tensor) and graph.layout is torch.strided
    return int(graph.shape[1]) if plain and graph.dim() == 2 else -1
