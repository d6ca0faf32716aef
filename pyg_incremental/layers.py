"""Drop-in convs that keep their own output current: the PyG conv, plus `apply_delta`."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import torch
import torch_geometric.nn.conv as pyg_conv
from torch import Tensor, fx
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, MessagePassing, SAGEConv

from pyg_incremental.call import full_pass
from pyg_incremental.errors import IncrementalError, StaleStateError, UnsupportedModelError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.update import Update

C = TypeVar("C", bound="IncrementalConv")


class IncrementalConv(MessagePassing):
    """What the incremental convs add to the PyG conv that they extend.

    In training mode, inside a tracer and inside another incremental model it is just that conv. In
    eval mode a call fills the store, and `apply_delta` updates it.
    """

    base: ClassVar[type[MessagePassing]]

    @classmethod
    def from_conv(cls: type[C], conv: MessagePassing) -> C:
        """The incremental version of a trained conv. Parameters are shared, not copied.

        Args:
            conv: An instance of the PyG class that this class extends.

        Raises:
            UnsupportedModelError: If it is of another class.
        """
        if not isinstance(conv, cls.base):
            raise UnsupportedModelError(
                f"{cls.__name__}.from_conv: expected a {cls.base.__name__} (got "
                f"{type(conv).__name__}); to_incremental takes any model"
            )
        made: C = cls.__new__(cls)
        made.__dict__ = {
            k: v for k, v in conv.__dict__.items() if k not in ("_incremental", "_settings")
        }
        made._set_jittable_templates()
        return made

    def forward(self, x: Any, edge_index: Any, *args: Any, **kwargs: Any) -> Any:
        """The forward of the conv that this class extends, with the same arguments.

        In eval mode it also fills the store, unless it is called in a way that only PyG can serve
        (two sets of nodes, a batch of feature matrices, attention weights).

        Returns:
            The output, `[num_nodes, out_channels]`. It carries gradients if they are enabled and
            parameters need them.
        """
        if self.training or full_pass.is_running() or isinstance(x, fx.Proxy):
            return super().forward(x, edge_index, *args, **kwargs)
        self.incremental.forget()
        special = (kwargs.get("return_attention_weights"), kwargs.get("size"), *args[2:3])
        plain = any(v is not None for v in special)
        needs_grad = torch.is_grad_enabled() and (
            any(p.requires_grad for p in self.parameters())
            or (isinstance(x, Tensor) and x.requires_grad)
        )
        if not plain:
            try:
                out = self.incremental(x, edge_index, *args, **kwargs)
            except IncrementalError:
                # What PyG accepts and this package cannot keep current is still computed;
                # `apply_delta` then says that nothing is stored.
                plain = True
        if plain or needs_grad:
            with full_pass.fresh_caches(self):  # of this call's graph, not of that of the first one
                return super().forward(x, edge_index, *args, **kwargs)
        return out

    forward.keeps_computation = True  # type: ignore[attr-defined]

    @property
    def incremental(self) -> IncrementalModel:
        """The incremental model behind this conv.

        It has `out`, `verify()`, `refresh()`, `save()` and the rest.
        """
        found: IncrementalModel | None = self.__dict__.get("_incremental")
        if found is None:
            found = IncrementalModel(self._plain(), **self.__dict__.get("_settings", {}))
            self.__dict__["_incremental"] = found
        return found

    def configure(self: C, **settings: Any) -> C:
        """Set any keyword of `to_incremental`, such as `backend` or `accumulate_dtype`.

        What is stored is forgotten.
        """
        IncrementalModel(self._plain(), **settings)
        self.__dict__["_settings"] = settings
        self.__dict__.pop("_incremental", None)
        return self

    def apply_delta(self, *args: Any, **kwargs: Any) -> Update:
        """Apply a group of changes and bring the output up to date.

        See `IncrementalModel.apply_delta` for the arguments.

        Raises:
            StaleStateError: Also before the first call in eval mode.
        """
        if self.training:
            raise StaleStateError(
                f"{type(self).__name__} is in training mode; call eval(), then the conv once, then "
                "apply_delta"
            )
        return self.incremental.apply_delta(*args, **kwargs)

    def _plain(self) -> MessagePassing:
        """The same conv as an instance of the PyG class, sharing everything."""
        base: Any = self.base
        plain: MessagePassing = base.__new__(base)
        plain.__dict__ = self.__dict__
        plain._set_jittable_templates()
        return plain

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_incremental"}


class IncrementalGCNConv(IncrementalConv, GCNConv):
    """`torch_geometric.nn.GCNConv` with `apply_delta`."""

    base = GCNConv


class IncrementalSAGEConv(IncrementalConv, SAGEConv):
    """`torch_geometric.nn.SAGEConv` with `apply_delta`."""

    base = SAGEConv


class IncrementalGINConv(IncrementalConv, GINConv):
    """`torch_geometric.nn.GINConv` with `apply_delta`."""

    base = GINConv


class IncrementalGATConv(IncrementalConv, GATConv):
    """`torch_geometric.nn.GATConv` with `apply_delta`."""

    base = GATConv


class IncrementalGraphConv(IncrementalConv, GraphConv):
    """`torch_geometric.nn.GraphConv` with `apply_delta`."""

    base = GraphConv


def __getattr__(name: str) -> type[IncrementalConv]:
    """`Incremental` before the name of any other conv of PyG is its drop-in version.

    Raises:
        AttributeError: If PyG has no such conv, or it is no `MessagePassing`.
    """
    base = getattr(pyg_conv, name.removeprefix("Incremental"), None)
    if (
        not name.startswith("Incremental")
        or not isinstance(base, type)
        or not issubclass(base, MessagePassing)
        or base is MessagePassing
    ):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    about = f"`torch_geometric.nn.{base.__name__}` with `apply_delta`."
    made = type(
        name, (IncrementalConv, base), {"base": base, "__doc__": about, "__module__": __name__}
    )
    globals()[name] = made  # the same class for everyone, which pickle finds by this name
    return made
