"""How a model is wrapped, and how a saved one goes on."""

import os
from collections.abc import Callable
from typing import Any

from torch import nn
from typing_extensions import Unpack

from pyg_incremental.call.method import module_of
from pyg_incremental.model import IncrementalModel
from pyg_incremental.session.settings import Options, shows_options
from pyg_incremental.typing import Out


@shows_options
def to_incremental(
    model: nn.Module | Callable[..., Any], *, method: str | None = None, **options: Unpack[Options]
) -> IncrementalModel[Out]:
    """Wrap a trained model so that its output stays exact while the graph changes.

    Args:
        model: A PyG model in eval mode, float32 or float64, or a method of one (`model.encode`). It
            is not changed; its parameters are shared, not copied. Of a model that `torch.compile`
            has made it is the one inside.
        method: The name of the method that is meant, if it is not `forward`: `method='encode'` is
            the same as `model.encode` in the place of `model`.
        strict: Refuse a model of which any step has to run on all rows, by the names of these
            steps.
        backend: `'auto'` takes compiled kernels (Numba) for float32 and float64 on the CPU, and
            plain torch elsewhere. It never waits for a compiler: on a machine where the kernels
            have still to be made, plain ones serve until they are. `'compiled'` waits for them at
            the first call; `'reference'` is plain torch for all rows, on any device.
        accumulate_dtype: In which dtype sums are kept, such as `torch.float64`; by default that of
            the messages.
        scrub_rows: How many rows every update makes afresh besides, taking turns through all nodes.
        compile_after: After how many updates the plan of the model is laid out for one call of
            compiled code, which makes updates several times faster and takes some hundredths of a
            second; on graphs of 10,000 edges or more the first pass does that; None for never.
        store: What is kept between updates. `'fast'` keeps every row that is read where it did not
            change itself. `'minimal'` keeps the graph, inputs, aggregates and the output, and
            computes other rows again when they are read: about half the memory, and updates that
            take several times longer (they go step by step, whatever `compile_after` says).
        check: Hold the first pass on your graph against the original model: all rows if some step
            runs on all rows or computes rows again from their neighbourhoods, which costs a full
            pass; else 16 nodes of each kind on what they see. Where that does not fit in some
            256 MB, program and model are compared on a part of the graph. Where they differ, every
            update runs a full pass, and a warning names the step; where the model itself fails,
            a warning says that nothing was compared.
        roles: What arguments are whose names and shapes do not show it, such as `{'users': 'ids',
            't': 'edge'}`; see `Role`.
        progress: Show a bar on a terminal while all rows are computed, if that takes a second.
        lazy: Compute rows when they are asked for. Deltas change graph and features, and only mark
            what they reach; `read(nodes)` computes what these nodes need of it, and keeps that;
            `settle`, and whatever reads everything (`out`, `save`, `preview`, `verify`, ...),
            computes the rest first. An update then does not know what it has changed, unless it is
            asked for OLD rows. For many changes and few questions.

    Returns:
        The wrapped model. Call it once like the model itself, then call `apply_delta`.

    Raises:
        UnsupportedModelError: If `model` is neither a module nor a method of one, or a role is
            none.
    """
    return IncrementalModel(module_of(model, method), **options)


@shows_options
def load(
    path: str | os.PathLike[str],
    model: nn.Module | Callable[..., Any],
    *,
    method: str | None = None,
    **options: Unpack[Options],
) -> IncrementalModel[Out]:
    """Continue from a state written by `IncrementalModel.save`; see `IncrementalModel.load`.

    The options are those of `to_incremental`; `accumulate_dtype` and `store` are those of the saved
    state by default.
    """
    return IncrementalModel.load(path, module_of(model, method), **options)
