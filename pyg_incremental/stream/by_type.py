"""The nodes of a model by their types, of which there may be one without a name."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from pyg_incremental.delta.given import Ids
from pyg_incremental.errors import IncrementalError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.stream.schema import AnySchema, Schema, Type, ends_of


class ByType:
    """What the model says of nodes, by type.

    Args:
        inc: The model.
        schema: Whether it has types, and which.
    """

    def __init__(self, inc: IncrementalModel, schema: AnySchema) -> None:
        self._inc, self._schema = inc, schema
        self._is_plain = isinstance(schema, Schema)

    def counts(self) -> Mapping[Type, int]:
        """How many nodes there are of each type."""
        return {None: self._inc.num_nodes} if self._is_plain else self._inc.num_nodes_dict

    def rows(self) -> Mapping[Type, Mapping[Any, int]]:
        """The row of each name, for the types of nodes that have names."""
        rows = self._inc.node_rows
        if rows is None:
            return {}
        return {None: rows} if self._is_plain else rows

    def x(self, of: Type) -> Tensor | None:
        """The features of the nodes of a type, `[num_nodes, in_channels]`; None for none."""
        x: Any = self._inc.x
        if isinstance(x, Mapping):
            return x.get(of)
        return x if isinstance(x, Tensor) and of in (None, *self._inc.num_nodes_dict) else None

    def out_degrees(self) -> Mapping[Type, Sequence[Ids]]:
        """How many edges lead away from each node, int32 `[capacity]`, for each type of edges.

        Where sources and targets have no types, and are not of one kind, none lead on.
        """
        graph, kinds = self._inc.graph, self._inc.num_nodes_dict
        graphs = graph if isinstance(graph, Mapping) else {self._inc.edge_types[0]: graph}
        if self._is_plain:
            return {None: [g.out.degree for g in graphs.values()] if len(kinds) == 1 else []}
        found: dict[Type, list[Ids]] = {of: [] for of in kinds}
        for of, edges in graphs.items():
            found[of[0]].append(edges.out.degree)
        return found

    def check(self) -> None:
        """See that the model has the types of the schema.

        Raises:
            IncrementalError: If it does not.
        """
        inc = self._inc
        if self._is_plain:
            if len(kinds := inc.num_nodes_dict) > 1 and "" not in kinds and len(inc.edge_types) > 1:
                raise IncrementalError(
                    f"Stream: the model has several types, of nodes {[*kinds]} and of edges "
                    f"{inc.edge_types}; say how events of each are read, HeteroSchema({{type: "
                    "Schema(...)})"
                )
            return
        nodes, edges = [*inc.num_nodes_dict], inc.edge_types
        for of in self._schema.types:
            known = nodes if isinstance(of, str) else edges
            if of not in known or not {*ends_of(of)} <= {*nodes}:
                raise IncrementalError(
                    f"HeteroSchema: the model has no type {of!r} (expected types of nodes among "
                    f"{nodes}, and of edges among {edges})"
                )
