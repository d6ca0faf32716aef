"""What people do with a wrapped model as they would with the module itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.explain.algorithm.utils import clear_masks

from pyg_incremental.errors import UnsupportedModelError

_Self = TypeVar("_Self", bound="AsModule")


class AsModule:
    """The part of an `IncrementalModel` that a module has, too; all of it is the model's own.

    What is stored notices: after another mode, dtype, device or other parameters it is stale, and
    says what to do.
    """

    model: nn.Module

    @property
    def training(self) -> bool:
        """Whether the model is in training mode, in which it cannot be called through this."""
        return self.model.training

    def train(self: _Self, mode: bool = True) -> _Self:
        """Set the mode of the model."""
        self.model.train(mode)
        return self

    def eval(self: _Self) -> _Self:
        """Set the model to evaluation mode."""
        return self.train(False)

    def to(self: _Self, *where: Any, **options: Any) -> _Self:
        """Move the model, as `nn.Module.to` does; then call it with features that are there, too.

        Args:
            *where: As for `nn.Module.to`.
            **options: Likewise.
        """
        self.model.to(*where, **options)
        return self

    def _refuse_explainer(self) -> None:
        """Refuse a call by an `Explainer`, which needs gradients.

        Raises:
            UnsupportedModelError: If one watches the model.
        """
        watched = any(getattr(m, "explain", None) is True for m in self.model.modules())
        if watched and torch.is_grad_enabled():
            clear_masks(self.model)  # which PyG leaves on a model that raises
            raise UnsupportedModelError(
                f"an Explainer calls {type(self.model).__name__}, and needs gradients, which what "
                "is stored has none of; explain the model itself on the part of the graph that "
                "matters: part = inc.subgraph(nodes); Explainer(inc.model, ...)(part.x, "
                "part.edge_index, index=part.index)"
            )

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """The parameters of the model."""
        return self.model.parameters(recurse)

    def named_parameters(self, *args: Any, **options: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters of the model by name."""
        return self.model.named_parameters(*args, **options)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of the model, of any shape."""
        return self.model.buffers(recurse)

    def modules(self) -> Iterator[nn.Module]:
        """The model and all modules in it."""
        return self.model.modules()

    def state_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
        """The parameters and buffers of the model; `save` writes graph and rows."""
        return self.model.state_dict(*args, **options)

    def load_state_dict(self, state: Any, *args: Any, **options: Any) -> Any:
        """Load parameters into the model; then call `refresh()`."""
        return self.model.load_state_dict(state, *args, **options)

    def __getattr__(self, name: str) -> Any:
        """What is not there.

        Raises:
            AttributeError: Always. Of what the model has it says how to get it.
        """
        kind, model = type(self).__name__, self.__dict__.get("model")
        more = ""
        if model is not None and not name.startswith("_") and hasattr(model, name):
            more = f"; {type(model).__name__} has one: inc.model.{name}"
            if callable(getattr(type(model), name, None)):
                more += f", or to_incremental(model.{name}) to keep what it returns current"
        raise AttributeError(f"'{kind}' object has no attribute '{name}'{more}")
