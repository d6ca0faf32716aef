"""`evaluate`: the output of a model for a whole graph or some of its nodes, within a budget."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from pyg_incremental.blocks.about import about_call
from pyg_incremental.blocks.evaluator import Evaluator
from pyg_incremental.blocks.fanouts import Drawn, with_fanouts
from pyg_incremental.blocks.files import Files
from pyg_incremental.blocks.given import bytes_of, call_of, ids_of
from pyg_incremental.blocks.layer_store import LayerStore
from pyg_incremental.blocks.node_order import NodeOrder
from pyg_incremental.blocks.node_wise import NodeWise
from pyg_incremental.blocks.order import orders_of
from pyg_incremental.blocks.readouts import has_node_rows, with_readouts
from pyg_incremental.blocks.sample import sampled
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.method import module_of
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.torchscript import refuse_torchscript
from pyg_incremental.errors import StaleStateError, UnsupportedModelError
from pyg_incremental.program.steps import Program
from pyg_incremental.session.classified import classified
from pyg_incremental.session.parameters import refuse_autocast
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.settings import Settings
from pyg_incremental.telemetry.progress import shown
from pyg_incremental.typing import Out

Ids = NDArray[np.int64]


def evaluate(
    model: nn.Module,
    data: Data | HeteroData | Mapping[str, Any],
    *,
    nodes: Any = None,
    num_neighbors: int | Sequence[int] | None = None,
    memory: int | str = "4GB",
    directory: str | os.PathLike[str] | None = None,
    device: torch.device | str | None = None,
    out: Tensor | None = None,
    progress: bool = True,
    seed: int = 0,
    order: Any = None,
    hops: int | None = None,
) -> Out:  # type: ignore[type-var]
    """Compute what a trained model returns, layer by layer, in blocks of rows that fit in memory.

    The model is traced to its program, as in `to_incremental`, and each layer is computed for all
    nodes before the next one begins (Yin et al., "DGI: Easy and Efficient Inference for GNNs", KDD
    2023). No row is computed twice, and the result is that of the model's own forward.

    Args:
        model: A PyG model in eval mode. It is not changed.
        data: The graph: the arguments of the model's `forward` by name, or a `Data` or `HeteroData`
            object that has fields of these names. Tensors over memory maps stay on disk.
        nodes: Ids of the nodes whose rows are wanted, int64 `[k]`, or a mask, bool `[num_nodes]`;
            of several kinds of nodes a dict by kind. All by default. Only what these see is
            computed.
        num_neighbors: Let every node keep at most so many of the edges that are gathered at it,
            drawn once: the result is that of the model on this smaller graph. A list says it for
            each layer, the last one first (the first hop, as in PyG's loaders), and -1 keeps all;
            each layer then has edges of its own.
        memory: Bytes that may be taken beside what is handed in, a number or such as `'4GB'`.
        directory: Where rows and neighbour lists are kept, as `.npy` files, in place of memory.
            What was killed goes on there at its last finished block, if it is called alike: a model
            or call that is another one is refused, and so is what has been damaged since.
        device: Where blocks are computed; by default where the features are. The model has to be
            there.
        out: Where to write the rows, `[num_nodes, out_channels]` or `[k, out_channels]`.
        progress: Show on a terminal the rows per second and the time left.
        seed: Of the drawn edges.
        order: In which order blocks take the nodes; rows come back by ids all the same. `'rcm'`
            (reverse Cuthill-McKee), `'communities'` or `'degree'` bring nodes with common
            neighbours together, so that less is read; or ids, int64 `[num_nodes]`, each once, of
            several kinds a dict. It helps where there are many blocks.
        hops: For a model without a program whose full pass does not fit: within how many hops of a
            node all lies that its row depends on, and what is decided by values is the same for
            any part of the graph. It then runs on batches of nodes and what these see; without it
            such a model is refused.

    Returns:
        What the model returns, `[num_nodes, out_channels]`, or `[k, out_channels]` in the order of
        `nodes`; with `directory` a memory map of the file `out.npy` in it.

    Raises:
        InvalidDeltaError: If the arguments do not fit together, an id is out of range, or the order
            is none.
        StaleStateError: If the model is in training mode.
        StateFileError: If the directory holds another evaluation, or one that is damaged, or
            another process evaluates there.
        OSError: If the disk is full.
        MemoryError: If the in-edges of one node alone do not fit, or the graph does not in which
            communities are to be found.
        UnsupportedModelError: If `model` is no module, if `nodes` is given, but the output has no
            row for each node, or if a model without a program does not fit (see `hops`).
    """
    model = module_of(model)
    refuse_torchscript(model)
    _refuse_training(model)
    result: Out = evaluate_call(
        call_of(model, data),
        nodes=nodes,
        num_neighbors=num_neighbors,
        memory=memory,
        directory=directory,
        device=device,
        out=out,
        progress=progress,
        seed=seed,
        order=order,
        hops=hops,
    )
    return result


def evaluate_call(
    site: BoundCall,
    *,
    nodes: Any = None,
    num_neighbors: int | Sequence[int] | None = None,
    memory: int | str = "4GB",
    directory: str | os.PathLike[str] | None = None,
    device: torch.device | str | None = None,
    out: Tensor | None = None,
    progress: bool = True,
    seed: int = 0,
    order: Any = None,
    hops: int | None = None,
) -> Any:
    """Like `evaluate`, of a call."""
    refuse_autocast()
    budget = bytes_of(memory)
    with torch.inference_mode(mode=False), torch.no_grad():
        site, roles = classified(site, Settings())
        wanted = None if nodes is None else ids_of(nodes, roles.num_nodes)
        plan = prepare(site, roles, Settings(), in_one=False)
        roles = replace(roles, fixed=plan.roles.fixed)
        why = plan.fallback or why_not_in_blocks(plan.program)
        if why and wanted is not None and not plan.fallback:
            raise UnsupportedModelError(_NO_NODE_ROWS)
        drawn: dict[str, Drawn] = {}
        if num_neighbors is not None:
            plan, roles, drawn = _with_fewer_edges(plan, roles, num_neighbors, seed, why)
        with shown(progress, unit=" rows", unit_scale=True, smoothing=0) as bar:
            if why:
                some = None if wanted is None else torch.from_numpy(wanted.get("", _NOBODY))
                result = NodeWise(site, roles, budget, hops).run(why, some, bar.update)
                return _written(result, out)
            outputs = plan.program.outputs
            if wanted is not None and not has_node_rows(plan.program):
                raise UnsupportedModelError(_NO_NODE_ROWS)
            taken = orders_of(order, roles, budget)
            store = LayerStore(out if wanted is None and len(outputs) == 1 else None, outputs)
            if directory is not None:
                about = about_call(plan, roles, wanted, taken, num_neighbors, seed)
                store = Files(directory, plan.program, about, goes_on=True)
            asked = None if wanted is None else {kind: np.unique(i) for kind, i in wanted.items()}
            try:
                evaluator = evaluator_of(
                    plan, roles, budget, store, asked, device, places=NodeOrder(taken), drawn=drawn
                )
                bar.reset(evaluator.total)
                bar.initial = evaluator.finished  # what was there before says nothing of the speed
                evaluator.run(bar.update)
                return _written(evaluator.result(wanted), out)
            finally:
                store.leave()


def _with_fewer_edges(
    plan: CallPlan, roles: Roles, most: int | Sequence[int], seed: int, why: str
) -> tuple[CallPlan, Roles, dict[str, Drawn]]:
    """A plan and roles with drawn edges: the same for all layers, or each layer's own."""
    name = type(plan.site.model).__name__
    if plan.fallback:
        raise UnsupportedModelError(f"{name}: {plan.fallback}, so no edges can be drawn for it")
    if not isinstance(most, Sequence):
        return plan, sampled(plan.site, roles, plan.program, most, seed), {}
    if why:
        raise UnsupportedModelError(f"{name}: {why}, so layers cannot have edges of their own")
    plan, drawn = with_fanouts(plan, roles, most, seed)
    return plan, roles, drawn


def why_not_in_blocks(program: Program) -> str:
    """Why a program cannot be run block by block; empty if it can."""
    if any(r.every for r in program.graphs.values()):
        return "it adds up the rows of all nodes"
    return ""


_NOBODY = np.empty(0, np.int64)
_NO_NODE_ROWS = "evaluate: the output has no row for each node, so none can be chosen"


def evaluator_of(
    plan: CallPlan,
    roles: Roles,
    memory: int,
    store: LayerStore,
    asked: Mapping[str, Ids] | None = None,
    device: torch.device | str | None = None,
    rows_in_block: int | None = None,
    places: NodeOrder | None = None,
    drawn: Mapping[str, Drawn] | None = None,
) -> Evaluator:
    """The executor of a plan; see `Evaluator`. `asked` are ids, int64 `[k]`, by kind."""
    tensors = plan.site.tensors
    where = next((tensors[n].device for n in roles.nodes), torch.device("cpu"))
    on = torch.device(where if device is None else device)
    roles = with_readouts(roles, plan.roles, tensors)
    return Evaluator(plan, roles, tensors, memory, store, asked, on, rows_in_block, places, drawn)


def _written(result: Any, out: Tensor | None) -> Any:
    """The result, in `out` if there is such."""
    if out is None or result is out:
        return result
    if not isinstance(result, Tensor):
        raise UnsupportedModelError("evaluate: out takes one tensor, but the model returns several")
    return out.copy_(result)


def _refuse_training(model: nn.Module) -> None:
    if any(m.training for m in model.modules()):
        raise StaleStateError(
            f"{type(model).__name__} is in training mode, where dropout and batch statistics make "
            "outputs depend on chance; call model.eval() first"
        )
