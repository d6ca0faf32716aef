"""The call of a model that is spread over ranks: traced on a sample that every rank has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pyg_incremental.call import full_pass
from pyg_incremental.call.bound_call import BoundCall, device_of
from pyg_incremental.call.learned import why_fixed
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.state import described, relations_of, site_of
from pyg_incremental.encoding.framing import record
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.program.steps import Relation
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.settings import Settings

NODES, EDGES = 48, 200
_NO_VALUES = torch.empty(0)


@record
@dataclass
class SampleRows:
    """A few rows of a call, the same on every rank; they tell shapes, dtypes and usual values.

    Attributes:
        nodes: Rows of each node input, `[n, ...]`.
        edges: For each graph rows of its edge data, `[m, ...]`.
        others: Other tensors by name.
    """

    nodes: dict[str, Tensor]
    edges: dict[str, dict[str, Tensor]]
    others: dict[str, Any]

    def to(self, device: torch.device) -> "SampleRows":
        """The same with all tensors on some device."""
        return SampleRows(
            {k: t.to(device) for k, t in self.nodes.items()},
            {g: {k: t.to(device) for k, t in d.items()} for g, d in self.edges.items()},
            {k: t.to(device) for k, t in self.others.items()},
        )


@dataclass
class SharedCall:
    """The call that is kept current: everything about it but the rows.

    Attributes:
        site: The call; it holds no tensors.
        roles: What its tensors are; without the graphs.
        sample: A few rows.
    """

    site: BoundCall
    roles: Roles
    sample: SampleRows

    def described(self) -> dict[str, Any]:
        """The call as plain values and tensors."""
        return {
            **described(self.site, self.roles),
            "num_nodes": dict(self.roles.num_nodes),
            "sample": {
                "nodes": self.sample.nodes,
                "edges": self.sample.edges,
                "others": self.sample.others,
            },
        }


def call_of(site: BoundCall, roles: Roles) -> SharedCall:
    """What has to be kept of a call that is all there; its tensors are given up."""
    tensors = site.tensors
    nodes = {name: tensors[name].detach()[:NODES].clone() for name in roles.nodes}
    edges = {
        r.graph: {k: t.detach()[:EDGES].clone() for k, t in roles.data_of(r, tensors).items()}
        for r in roles.relations
    }
    others = {name: tensors[name] for name in roles.others}
    site.tensors = {}
    return SharedCall(site, _lean(roles), SampleRows(nodes, edges, others))


def call_from(content: Mapping[str, Any], model: nn.Module) -> SharedCall:
    """The call that `SharedCall.described` has described."""
    held = content["sample"]
    sample = SampleRows(held["nodes"], held["edges"], held["others"])
    relations = relations_of(content)
    roles = Roles(
        relations, content["nodes"], content["edges"], tuple(sample.others), content["num_nodes"],
        values=dict.fromkeys(content["matrices"], _NO_VALUES), fixed=content["fixed"],
        ids=content["ids"],
    )  # fmt: skip
    small = _Small(sample, roles, roles.num_nodes, [])
    device = device_of(model, sample.nodes.values())
    site = site_of(content, model, small.tensors(roles, device))
    site.tensors = {}
    return SharedCall(site, roles, sample)


def _lean(roles: Roles) -> Roles:
    """The roles without the graphs."""
    return replace(roles, edge_index={}, values=dict.fromkeys(roles.values, _NO_VALUES))


def most_of(samples: Sequence[SampleRows]) -> SampleRows:
    """Of each input the rows of the rank that has most of them."""

    def longest(rows: list[Tensor]) -> Tensor:
        return max(rows, key=len)

    first = samples[0]
    return SampleRows(
        {k: longest([s.nodes[k] for s in samples]) for k in first.nodes},
        {
            graph: {k: longest([s.edges[graph][k] for s in samples]) for k in data}
            for graph, data in first.edges.items()
        },
        first.others,
    )


class _Small:
    """A small call made of a sample.

    Args:
        sample: The sample.
        roles: What the tensors are.
        counts: The number of nodes of each kind in the call itself.
        whole: Kinds of which all nodes are needed; the rows of the sample are repeated.
    """

    def __init__(
        self, sample: SampleRows, roles: Roles, counts: Mapping[str, int], whole: Sequence[str]
    ) -> None:
        self.sample = sample
        self.num_nodes = {kind: min(NODES, n) for kind, n in counts.items()}
        for name, kind in roles.nodes.items():
            self.num_nodes[kind] = min(self.num_nodes[kind], len(sample.nodes[name]))
        self.num_nodes |= {kind: counts[kind] for kind in whole}
        self.nodes = {
            name: _first(sample.nodes[name], self.num_nodes[kind])
            for name, kind in roles.nodes.items()
        }
        self.states = {r.graph: self._graph(r) for r in roles.relations}

    def _graph(self, relation: Relation) -> dict[str, Tensor]:
        """Distinct edges, sorted by target, and their data."""
        data = self.sample.edges[relation.graph]
        m, n = self.num_nodes[relation.source], self.num_nodes[relation.target]
        count = min(m * n, min((len(t) for t in data.values()), default=2 * max(m, n)))
        at = torch.arange(count)
        edges = torch.stack([at % max(m, 1), at // max(m, 1)])
        return {"edge_index": edges, **{k: t[:count] for k, t in data.items()}}

    def tensors(self, roles: Roles, device: torch.device) -> dict[str, Any]:
        """All tensors of the call by name."""
        given: dict[str, Any] = {**self.sample.others, **self.nodes}
        for r in roles.relations:
            state = self.states[r.graph]
            given |= {k: t for k, t in state.items() if k != "edge_index"}
            given[r.graph] = full_pass.graph_object(r, state, self.num_nodes, device)
        return given


def _first(rows: Tensor, count: int) -> Tensor:
    """So many rows; they are repeated if there are fewer."""
    return rows[:count] if count <= len(rows) else rows[torch.arange(count) % len(rows)]


def plan_of(
    call: SharedCall, counts: Mapping[str, int], settings: Settings, instead: str = "to_incremental"
) -> CallPlan:
    """Trace a call, of which only a sample is at hand.

    A model may have learned one row for each node, and then runs on no other number of them.

    Args:
        call: The call.
        counts: The number of nodes of each kind.
        settings: What the user chose.
        instead: What does it in one process, for those who are refused.

    Raises:
        UnsupportedModelError: If some step has to run on all rows.
    """
    site, roles = call.site, call.roles
    whole = list(roles.fixed)
    if not whole and why_fixed(site.model, counts.get("", -1)) is not None:
        whole = [""]
    small = _Small(call.sample, roles, counts, whole)
    local = replace(
        roles,
        num_nodes=small.num_nodes,
        edge_index={name: state["edge_index"] for name, state in small.states.items()},
        values={r.graph: small.states[r.graph][r.values] for r in roles.relations
                if r.graph in roles.values},
    )  # fmt: skip
    tensors = small.tensors(roles, device_of(site.model, small.nodes.values()))
    site.tensors = {name: tensors[name] for name in site.names}
    plan = prepare(site, local, settings)
    site.tensors = {}
    if plan.fallback:
        raise UnsupportedModelError(
            f"{type(site.model).__name__} cannot be computed on parts of the graph: "
            f"{plan.fallback}. Use {instead}, in one process"
        )
    return plan
