"""The call of a model that is spread over ranks: traced on a sample that every rank has."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from pyg_incremental import full_pass
from pyg_incremental.call_plan import CallPlan
from pyg_incremental.call_site import CallSite, bind
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.prepare import prepare
from pyg_incremental.roles import Roles, classify
from pyg_incremental.settings import Settings

_NODES, _EDGES = 48, 200


@dataclass
class Sample:
    """A few rows of a call, the same on every rank; they tell shapes, dtypes and usual values.

    Attributes:
        nodes: Rows of each node input, `[n, ...]`.
        edges: Rows of each edge input, `[m, ...]`, where `m` differs from `n`.
        others: Other tensors by name.
        constants: Other arguments by name.
        positional: Arguments that have to be passed by position.
        data_fields: For each argument that is a `Data` object, the tensors that it holds.
    """

    nodes: dict[str, Tensor]
    edges: dict[str, Tensor]
    others: dict[str, Any]
    constants: dict[str, Any]
    positional: list[str]
    data_fields: dict[str, tuple[str, ...]]


def rows_for_sample(
    nodes: Mapping[str, Tensor], edges: Mapping[str, Tensor], num_edges: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The first rows of node and edge inputs, in numbers that tell one from the other."""
    n = min(_NODES, next(len(t) for t in nodes.values()))
    m = min(_EDGES, num_edges, n * n)
    if m == n:
        m = max(0, m - 1)
    return {k: t[:n].clone() for k, t in nodes.items()}, {
        k: t[:m].clone() for k, t in edges.items()
    }


def sample_pairs(sample: Sample) -> Tensor:
    """The edges of a sample, int64 `[2, m]`: distinct pairs, sorted by target."""
    n = next(len(t) for t in sample.nodes.values())
    sizes = [len(t) for t in sample.edges.values()]
    m = sizes[0] if sizes else max(0, min(2 * n, n * n) - (n == 1))
    at = torch.arange(m)
    return torch.stack([at % max(n, 1), at // max(n, 1)])


def site_of_sample(model: nn.Module, sample: Sample, graph: str = "edge_index") -> CallSite:
    """The call of a model on a sample with an `edge_index`."""
    tensors: dict[str, Any] = {
        **sample.nodes, graph: sample_pairs(sample), **sample.edges, **sample.others,
    }  # fmt: skip
    arguments: dict[str, Any] = dict(sample.constants)
    inside: set[str] = set()
    for key, names in sample.data_fields.items():
        arguments[key] = Data(**{n: tensors[n] for n in names})
        inside |= set(names)
    arguments |= {n: t for n, t in tensors.items() if n not in inside}
    if sample.positional or sample.data_fields:
        return CallSite(model, arguments, sample.positional)
    return bind(model, (), arguments)


def plain_roles(site: CallSite) -> Roles:
    """What the tensors of a call are, if the graph can be cut into parts.

    Raises:
        UnsupportedModelError: If there are several kinds of nodes or several graphs, or no node
            features.
    """
    roles = classify(site)
    if not roles.is_plain or not roles.nodes:
        raise UnsupportedModelError(
            f"{type(site.model).__name__}: the partitioned mode takes one graph on one kind of "
            f"nodes with features (got {len(roles.relations)} graphs on {len(roles.num_nodes)} "
            f"kinds, {len(roles.nodes)} node inputs); use to_incremental, in one process"
        )
    return roles


def plan_of(
    site: CallSite, roles: Roles, sample: Sample, by_target: bool, settings: Settings
) -> CallPlan:
    """Trace a call, of which only a sample is at hand.

    Args:
        site: The call; its tensors are replaced by the sample.
        roles: What they are.
        sample: The sample.
        by_target: Whether the edges of the whole graph came sorted by target.
        settings: What the user chose.

    Raises:
        UnsupportedModelError: If some step has to run on all rows.
    """
    n = next(len(t) for t in sample.nodes.values())
    pairs = sample_pairs(sample)
    values = {r.graph: sample.edges[r.values] for r in roles.relations if r.graph in roles.values}
    relation = replace(roles.relations[0], by_target=by_target)
    if values:
        relation = replace(relation, unit_values=roles.relations[0].unit_values)
    local = replace(
        roles, relations=(relation,), num_nodes=dict.fromkeys(roles.num_nodes, n),
        edge_index={relation.graph: pairs}, values=values,
    )  # fmt: skip
    state = {"edge_index": pairs, **sample.edges}
    tensors = full_pass.arguments(
        site, local, sample.nodes, {relation.graph: state}, local.num_nodes, sample.others
    )
    site.tensors = dict(zip(site.names, tensors, strict=True))
    plan = prepare(site, local, settings)
    site.tensors = {}
    if plan.fallback:
        raise UnsupportedModelError(
            f"{type(site.model).__name__} cannot be computed on parts of the graph: "
            f"{plan.fallback}. Use to_incremental, in one process"
        )
    return plan
