"""What the package is tried on: a `Case` names a model, its inputs and what to expect of it."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.oracle import call_plain

EDGES = ("coo", "edge_index_by_col")
CHANNELS = 5
WEIGHT = (("edge_weight", None),)
ATTR = (("edge_attr", 3),)

INCREMENTAL = ("incremental",)
MIXED = ("mixed",)
FULL = ("full pass",)
ANY = INCREMENTAL + MIXED + FULL
PARTLY = INCREMENTAL + MIXED
WHOLE = MIXED + FULL


@dataclass(frozen=True)
class Case:
    """One model of the zoo.

    Args:
        name: The id of the test.
        make: Makes the module (parameters are set by `build`).
        data: Edge data that the model is called with: (name, width), width None for a weight.
        formats: Formats of `edge_index` that PyG accepts for it.
        mode: Values that `inc.mode` may have.
        scheme: What `scheme_of` says of its program, where the case holds it. The mode alone is
            incremental as well where a conv has lost its program, and its rows are recomputed.
        csr_mode: The same for a CSR adjacency, where it differs.
        signed: Whether weights may be negative.
        finite: Leave NaN and infinities out.
        call: How model and wrapper are called.
        twin: Makes the plain PyG module of a model that is built of incremental convs.
        picky: PyG itself fails on some graphs, which are then left out.
        keeps_nodes: No node leaves: it would leave a readout, and the oracle here knows no way to
            say so (`tests/contract/test_readouts.py` has one that does).
    """

    name: str
    make: Callable[[], torch.nn.Module]
    data: tuple = ()
    formats: tuple = EDGES
    mode: tuple = INCREMENTAL
    scheme: str = ""
    csr_mode: tuple = ()
    signed: bool = False
    finite: bool = False
    call: Callable[..., Any] = call_plain
    twin: Callable[[], torch.nn.Module] | None = None
    picky: bool = False
    keeps_nodes: bool = False

    def __str__(self):
        return self.name

    def modes(self, fmt):
        return self.csr_mode if fmt == "csr" and self.csr_mode else self.mode

    def build(self, seed=0, dtype=torch.float64):
        """The model in eval mode, and an independent copy of it for the oracle."""
        torch.default_generator.manual_seed(seed)
        model = randomise(self.make(), seed).to(dtype).eval()
        if self.twin is None:
            return model, copy.deepcopy(model)
        twin = self.twin().to(dtype).eval()
        twin.load_state_dict(model.state_dict())
        return model, twin

    def compiled_from(self, fmt):
        """`compile_after` of its walk: in some formats compiled code serves from the first update.

        In the others, which hold the same edges, it takes over in the middle.
        """
        return 1 if fmt in ("edge_index", "edge_index_by_col") else 8

    def data_for(self, fmt):
        """Edge data of a world in format `fmt`: matrices hold their weight as values."""
        if fmt in ("csr", "csc"):
            return WEIGHT
        if fmt == "sparse_tensor":
            return WEIGHT if "edge_weight" in dict(self.data) else ()
        return self.data


def randomise(model, seed):
    """Make parameters and running statistics random, so that no term is zero by chance."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if getattr(module, "running_mean", None) is not None:
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)
    for name, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            continue
        if parameter.dim() < 2 and not name.endswith("eps"):
            with torch.no_grad():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model
