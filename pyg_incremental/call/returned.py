"""Objects that a model returns: of PyG, such as a batch in and the same batch out; dataclasses.

While such a model runs, a dict of the tensors that it has put into the object stands for it, so
they are outputs like any others. Tensors of a batch that were handed in, and are passed on as they
were, are none: where the object is handed out, these are the current inputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree
from torch_geometric.data.data import BaseData

from pyg_incremental.call.objects import name_in, stores_of
from pyg_incremental.errors import UnsupportedModelError


@dataclass(frozen=True)
class ReturnedObject:
    """An object that a model returns.

    Attributes:
        template: The object without tensors.
        made: The type and field of each tensor that the model has made, by the name of the output.
        passed: The name of the input that is passed on at a type and field.
    """

    template: BaseData
    made: dict[str, tuple[Any, str]]
    passed: dict[tuple[Any, str], str]

    @classmethod
    def of(cls, data: BaseData, given: Mapping[str, Any], plain: Collection[Any]) -> Any:
        """What is to be kept of an object.

        Args:
            data: The object, as the model returned it.
            given: The tensors of the call by name, none of which had been written to before.
            plain: What else was handed in: its type and field, and the value.

        Raises:
            UnsupportedModelError: If it holds something new that is no tensor.
        """
        names = {id(t): n for n, t in given.items() if not getattr(t, "_version", 0)}
        template, made, passed = copy.copy(data), {}, {}
        for key, store in stores_of(template).items():
            for field, value in list(store._mapping.items()):
                if id(value) in names:
                    passed[key, field] = names[id(value)]
                elif isinstance(value, Tensor):
                    made[field if key is None else name_in(field, key)] = key, field
                elif field == "num_nodes" or any(
                    (key, field) == place and value is held for place, held in plain
                ):
                    continue
                else:
                    raise UnsupportedModelError(
                        f"the model returns an object with '{field}', a {type(value).__name__} "
                        "that it has made, which cannot be kept current; make it a tensor"
                    )
                store._mapping[field] = None
        return cls(template, made, passed)

    def tensors(self, data: BaseData) -> dict[str, Any]:
        """The tensors that the model has made, by the names of outputs."""
        stores = stores_of(data)
        return {name: stores[key]._mapping[field] for name, (key, field) in self.made.items()}

    def filled(self, made: Mapping[str, Any], inputs: Callable[[], Mapping[str, Any]]) -> BaseData:
        """The object with the current outputs, `[num_nodes, ...]` and others, and inputs."""
        data = copy.copy(self.template)
        stores = stores_of(data)
        for name, (key, field) in self.made.items():
            stores[key]._mapping[field] = made[name]
        for (key, field), name in self.passed.items():
            stores[key]._mapping[field] = inputs()[name]
        for store in stores.values():
            rows = store._mapping.get("x")
            if "num_nodes" in store._mapping and isinstance(rows, Tensor):
                store._mapping["num_nodes"] = rows.shape[0]
        return data


@dataclass(frozen=True)
class ReturnedDataclass:
    """An instance of a dataclass that a model returns; its fields are tensors, or None.

    Attributes:
        kind: The dataclass.
        made: The fields that hold tensors, or tuples, lists and dicts of some.
    """

    kind: Any
    made: Sequence[str]

    @classmethod
    def of(cls, instance: Any) -> Any:
        """What is to be kept of an instance.

        Raises:
            UnsupportedModelError: If a field holds something that is neither tensors nor None.
        """
        made = []
        for field in fields(instance):
            leaves = pytree.tree_leaves(getattr(instance, field.name))
            if not all(leaf is None or isinstance(leaf, Tensor) for leaf in leaves):
                raise UnsupportedModelError(
                    f"the model returns {type(instance).__name__} with '{field.name}', which holds "
                    "more than tensors and cannot be kept current; make it a tensor"
                )
            if field.init and any(leaf is not None for leaf in leaves):
                made.append(field.name)
        return cls(type(instance), made)

    def tensors(self, instance: Any) -> dict[str, Any]:
        """What the model has made, by field."""
        return {name: getattr(instance, name) for name in self.made}

    def filled(self, made: Mapping[str, Any], inputs: object) -> Any:
        """An instance with the current outputs, `[num_nodes, ...]` and others."""
        return self.kind(**{f.name: made.get(f.name) for f in fields(self.kind) if f.init})


KeptObject = ReturnedObject | ReturnedDataclass


def objects_in(result: Any, kept: Callable[[BaseData], ReturnedObject]) -> Any:
    """A result with what is kept of objects in the place of these; None if there are none."""
    if isinstance(result, BaseData):
        return kept(result)
    if is_dataclass(result):
        return ReturnedDataclass.of(result)
    if isinstance(result, Mapping):
        parts = {k: objects_in(v, kept) for k, v in result.items()}
        return parts if any(v is not None for v in parts.values()) else None
    if isinstance(result, (tuple, list)):
        found = [objects_in(v, kept) for v in result]
        return found if any(v is not None for v in found) else None
    return None


def with_objects(value: Any, kept: Any, put: Callable[[KeptObject, Any], Any]) -> Any:
    """A result with `put(what is kept, what stands there)` in the place of each object."""
    if kept is None:
        return value
    if isinstance(kept, KeptObject):
        return put(kept, value)
    if isinstance(kept, dict):
        return {k: with_objects(v, kept[k], put) for k, v in value.items()}
    parts = [with_objects(v, k, put) for v, k in zip(value, kept, strict=True)]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
