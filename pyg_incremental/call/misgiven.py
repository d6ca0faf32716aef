"""Arguments that are no tensors where tensors are meant, with the lines that make them such."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn
from torch.fx import GraphModule
from torch_geometric.data.data import BaseData

_GRAPHS = ("edge_index", "adj_t", "adj")


def line_for(name: str, value: Any) -> str:
    """What a value is, and the line that makes what PyG takes of it; empty if that is not known.

    Args:
        name: The argument.
        value: What was handed in.
    """
    if isinstance(value, Mapping):
        found = ((key, line_for(f"{name}[{key!r}]", v)) for key, v in value.items())
        return next((line for _, line in found if line), "")
    kind = type(value)
    quoted, is_graph = name if "'" in name else f"'{name}'", _is_graph(name)
    said = f"{quoted} is a {kind.__module__}.{kind.__qualname__}"
    package = kind.__module__.partition(".")[0]
    if package == "networkx":
        return f"{said}; pass torch_geometric.utils.from_networkx({name}).edge_index"
    if package == "scipy" and hasattr(value, "tocoo"):
        if is_graph:
            return f"{said}; pass torch_geometric.utils.from_scipy_sparse_matrix({name})[0]"
        return f"{said}; pass torch.from_numpy({name}.toarray()).float()"
    if package in ("pandas", "polars") and hasattr(value, "to_numpy"):
        if is_graph:
            return f"{said}; pass torch.from_numpy({name}.to_numpy()).t()"
        return f"{said}; pass torch.from_numpy({name}.to_numpy()).float()"
    if isinstance(value, str) or _has_text(value):
        if not is_graph:
            return f"{quoted} holds text; pass features as numbers, [num_nodes, channels]"
        return (
            f"{quoted} holds text; pass ids, which count from 0, and names of nodes besides: "
            "inc(..., node_ids=[...])"
        )
    if isinstance(value, np.ndarray):
        cast = ".float()" if not is_graph else "" if value.dtype.kind in "iu" else ".long()"
        return f"{said}; pass torch.from_numpy({name}){cast}"
    if isinstance(value, (list, tuple)) and value:
        said = f"{quoted} is a {kind.__name__}"
        if isinstance(value[0], BaseData):
            return f"{said} of data objects; pass Batch.from_data_list({name})"
        if hasattr(value[0], "shape"):
            return f"{said} of tensors; pass torch.stack({name})"
        if isinstance(value[0], (list, tuple)):
            turned = ".t()" if is_graph and len(value) > 2 and len(value[0]) == 2 else ""
            return f"{said}; pass torch.tensor({name}){turned}"
        return f"{said}; pass torch.tensor({name})"
    if value is None:
        return f"{quoted} is None; pass a tensor"
    return ""


def misgiven(constants: Mapping[str, Any]) -> str:
    """A sentence on arguments that are no tensors, to go where a graph or features are missing.

    Args:
        constants: The arguments that are no tensors.
    """
    lines = [line for name, value in constants.items() if (line := line_for(name, value))]
    return f": {'. And '.join(lines)}" if lines else ""


def _has_text(value: Any) -> bool:
    """Whether the first entry of nested lists or of an array is text."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    if isinstance(value, np.ndarray) and value.size:
        value = value.flat[0]
    return isinstance(value, str)


def _is_graph(name: str) -> bool:
    return name.partition("[")[0].removesuffix("_dict").endswith(_GRAPHS)


def takes_dicts(model: nn.Module) -> bool:
    """Whether a model was made by `to_hetero`, whose arguments are dicts by type."""
    return isinstance(model, GraphModule) and any(
        getattr(node.target, "__name__", "") == "get_dict" for node in model.graph.nodes
    )


def types_taken(model: nn.Module) -> dict[str, list[Any]]:
    """The types of nodes and edges that a model of `to_hetero` reads, by argument."""
    found: dict[str, list[Any]] = {}
    for node in model.graph.nodes if isinstance(model, GraphModule) else ():
        if node.op == "call_method" and node.target == "get":
            found.setdefault(str(node.args[0]).removesuffix("_dict"), []).append(_key(node.args[1]))
    return found


def _key(name: Any) -> Any:
    """A type, which the graph of such a model may write with underscores."""
    return tuple(name.split("__")) if isinstance(name, str) and name.count("__") == 2 else name
