"""What a service is asked to keep ready, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from pyg_incremental.delta.given import as_tensor
from pyg_incremental.sampling.read import (
    EdgeType,
    by_type,
    edge_data_of,
    ends_of,
    fanouts_of,
    per_type,
)
from pyg_incremental.sampling.strategy import checked_seed
from pyg_incremental.sampling.workers.messages import SampleQuery
from pyg_incremental.sampling.workers.owners import checked_owners
from pyg_incremental.sampling.workers.route import edges_by_type, fanouts_by_route, routes_of

EdgeData = dict[EdgeType, dict[str, Tensor]]


def registered(
    edge_index: Any,
    x: Any,
    num_neighbors: Any,
    edge_time: Any,
    edge_weight: Any,
    owners: Any,
    *,
    strategy: str,
    seed: int,
    memory: int | None,
    edges_by: Any = "target",
) -> tuple[SampleQuery, EdgeData]:
    """The query, and what the records of each edge type come with.

    Raises:
        ValueError: If an argument does not fit.
    """
    is_hetero = isinstance(edge_index, Mapping)
    kinds, rows = list(per_type(edge_index)), per_type(x)
    named = isinstance(x, Mapping)
    ends = {end for kind in kinds for end in ends_of(kind)}
    if is_hetero != named or not ends <= set(rows):
        raise ValueError(
            "x: expected features as edge_index has types: one tensor, or a dict with a tensor for "
            f"each of {sorted(map(str, ends))} (got {list(rows) if named else type(x).__name__})"
        )
    kept = edges_by_type(edges_by, kinds)
    routes = routes_of(kept)
    given = fanouts_by_route(num_neighbors, routes)
    fanouts, _ = fanouts_of(given, list(routes), is_hetero)
    if any(k < 0 for own in fanouts.values() for k in own):
        raise ValueError(
            f"num_neighbors: expected a limit for every hop, no -1 (got {num_neighbors})"
        )
    data = edge_data_of(per_type(edge_index), edge_time, edge_weight, strategy)
    parts = by_type(owners, "owners", rows, "the part of each node")
    query = SampleQuery(
        num_neighbors=fanouts,
        strategy=strategy,
        seed=checked_seed(seed),
        data={
            kind: {name: v.detach().cpu()[:0] for name, v in data[route.records].items()}
            for kind, route in routes.items()
        },
        x={kind: as_tensor(of, "x").detach().cpu()[:0] for kind, of in rows.items()},
        memory=memory,
        owners={kind: checked_owners(part, len(rows[kind])) for kind, part in parts.items()},
        edges_by=kept,
    )
    query.strategies()  # raises where there is no such
    return query, data
