"""What the rows of an evaluation depend on, by name, so that no other is given them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.roles import Roles
from pyg_incremental.encoding.likeness import Digests, attributes_of, names_called
from pyg_incremental.errors import warn
from pyg_incremental.session.options import is_unknown, options_of, said

Ids = NDArray[np.int64]
_LOOKED_AT = {
    "_parameters", "_buffers", "_modules", "tensors", "constants", "returned", "keeps", "whole",
    "why",
}  # fmt: skip
"""What of a call is compared by itself, or is known once it has run."""
_LIBRARIES = ("pyg-incremental", "torch", "torch_geometric", "numpy")


def about_call(
    plan: CallPlan,
    roles: Roles,
    wanted: Mapping[str, Ids] | None,
    taken: Mapping[str, Ids],
    num_neighbors: Any,
    seed: int,
) -> dict[str, Any]:
    """What tells a call from all others: plain values, and digests of all that is not plain.

    The model is looked at twice: as it stands, with its options, tensors and code, and as it was
    traced, with all constants that came into its program on the way.

    Args:
        plan: The program of the call.
        roles: What its tensors are, with the edges.
        wanted: Ids of the nodes whose rows are wanted by kind, int64 `[k]`; None for all.
        taken: The order in which blocks take the nodes by kind, int64 `[num_nodes]`.
        num_neighbors: How many edges each node keeps.
        seed: Of the drawn edges.
    """
    site = plan.site
    digests = Digests(names_called(site.model))
    found = {"libraries": _versions(), "default dtype": str(torch.get_default_dtype())}
    found |= options_of(site.model, digests)
    held: dict[str, Any] = {f"parameter '{n}'": t for n, t in site.model.named_parameters()}
    held |= {f"buffer '{n}'": t for n, t in site.model.named_buffers()}
    held |= {f"argument '{name}'": value for name, value in site.constants.items()}
    held |= {f"input '{n}'": site.tensors[n] for n in (*roles.nodes, *roles.edges, *roles.others)}
    held |= {f"edges '{name}'": edges for name, edges in roles.edge_index.items()}
    held |= {f"values of '{name}'": values for name, values in roles.values.items()}
    form = {name: v for name, v in attributes_of(site) if name not in _LOOKED_AT}
    held["form of the call"] = form, roles.relations, roles.num_nodes
    held["nodes"], held["order"] = dict(wanted or {}), dict(taken)
    held |= {"num_neighbors": num_neighbors, "seed": seed}
    held["program"] = plan.program, plan.traced.structure
    found |= {name: said(value, digests) for name, value in held.items()}
    unknown = [f"{name} {value}" for name, value in found.items() if is_unknown(value)]
    if unknown:
        warn(
            f"evaluate: {'; '.join(unknown[:3])}. So a later call cannot tell whether it is alike, "
            "and does not go on in this directory"
        )
    return found


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # not installed, but on the path
            continue
    return ", ".join(found)
