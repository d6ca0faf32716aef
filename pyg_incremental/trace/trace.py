"""From a call to the program of its model: recorded on a copy, and then written as steps."""

import contextlib
import inspect
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks
from torch_geometric.nn import (  # fmt: skip
    MLP,
    Aggregation,
    HeteroDictLinear,
    MaskLabel,
    MessagePassing,
    aggr,
    norm,
)
from torch_geometric.nn.aggr.fused import FusedAggregation
from torch_geometric.nn.conv import hetero_conv
from torch_geometric.nn.conv.hetero_conv import group

from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.full_pass import plainly
from pyg_incremental.call.members import may_name_graphs, membership
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.traced import NotTraceable, Traced
from pyg_incremental.conv import has_program
from pyg_incremental.conv.watched import why_watched
from pyg_incremental.conv.with_weights import adds_loops_to_weights
from pyg_incremental.kernels.locks import ONE_TRACER
from pyg_incremental.program.derivations import asks_for_order
from pyg_incremental.program.origin import in_brackets
from pyg_incremental.program.row_wise import why_not_row_wise
from pyg_incremental.program.steps import Relation
from pyg_incremental.trace.copies import ModelCopy, rng_state
from pyg_incremental.trace.counting import counted_by
from pyg_incremental.trace.ends import READOUTS
from pyg_incremental.trace.listener import (
    Listener,
    Observer,
    opened_modules,
    recorded_modules,
)
from pyg_incremental.trace.made_matrices import matrices_seen_by
from pyg_incremental.trace.merging import merging_seen_by
from pyg_incremental.trace.names import name_of_module, shown
from pyg_incremental.trace.nested import tensors_as
from pyg_incremental.trace.probe import Probe
from pyg_incremental.trace.recorder import Recorder
from pyg_incremental.trace.repeated import repeats_seen_by
from pyg_incremental.trace.sealed import is_matrix, opened
from pyg_incremental.trace.series import is_over_series, sizes_of_series
from pyg_incremental.trace.sizes import SYMBOLIC, Sizes, is_fake
from pyg_incremental.trace.where import raised_at
from pyg_incremental.trace.writer import Writer

_WHOLE_FAMILIES = (
    "torch_geometric.nn.norm",
    "torch_geometric.nn.dense",
    "torch_geometric.nn.models.jumping",
)

_OPENED = (
    aggr.SumAggregation,
    aggr.MeanAggregation,
    aggr.MaxAggregation,
    aggr.MinAggregation,
    aggr.VarAggregation,
    aggr.StdAggregation,
    aggr.SoftmaxAggregation,
    aggr.PowerMeanAggregation,
    aggr.AttentionalAggregation,
    aggr.MultiAggregation,
    aggr.DeepSetsAggregation,
    FusedAggregation,
    norm.GraphNorm,
    norm.GraphSizeNorm,
    norm.InstanceNorm,
    norm.MeanSubtractionNorm,
)
"""Modules that add up and compare the rows of graphs; what they do inside is recorded."""
Opens = Literal["", "without a program", "all"]
"""Which convs count as what they do: none, those without a program, or all."""


@dataclass(frozen=True)
class Trial:
    """A call of a copy of the model on a probe.

    Attributes:
        probe: What it was called with.
        copied: The copy.
        output: What it returned.
        calls: What it called that gave tensors, in order.
        opens: Which convs count as what they do, and not as one call.
        least_edges: So many edges every graph is taken to have at least, from here on.
        closed: The paths of convs that count as one call all the same.
    """

    probe: Probe
    copied: ModelCopy
    output: Any
    calls: list[str]
    opens: Opens = ""
    least_edges: int = 0
    closed: frozenset[str] = frozenset()


def tried_on(
    site: BoundCall,
    roles: Roles,
    probe: Probe,
    copied: ModelCopy,
    opens: Opens = "",
    least_edges: int = 0,
    closed: frozenset[str] = frozenset(),
) -> Trial:
    """Call a copy of the model on a probe; see `Trial` for the arguments.

    Raises:
        Exception: Whatever the model raises.
    """
    listener, on_copy = Listener(), site.on(copied.model)
    on_copy.takes_dense = True
    given = [t.clone() if isinstance(t, Tensor) else t for t in probe.arguments(site, roles)]
    if opens:
        given = list(map(opened, given))
    with _calls_seen_by(listener, on_copy, opens, closed):
        output = on_copy(*given)
    return Trial(probe, copied, output, listener.calls, opens, least_edges, closed)


def trace(site: BoundCall, roles: Roles, trial: Trial, in_one: bool = False) -> Traced:
    """Write the program of a call.

    Args:
        site: The call; its model is not touched.
        roles: What its tensors are.
        trial: What a copy of the model does.
        in_one: Whether nodes that are read out together become one graph, and edges that the model
            makes a table of their own. The former only where no step runs on all rows, which would
            see other nodes than these once some are removed.

    Raises:
        NotTraceable: If what the model does depends on sizes or values, or cannot be seen.
    """
    recorder = _recorded(site, roles, trial)
    if recorder.calls != trial.calls:
        raise NotTraceable("it does something else with tensors of a class of their own")
    try:
        for derives in (True, False):
            traced = Writer(site, roles, recorder, trial.probe, in_one, derives).write(
                recorder.graph
            )
            if traced.program.read_out and traced.program.whole_steps:
                traced = Writer(site, roles, recorder, trial.probe, False, derives).write(
                    recorder.graph
                )
            tables = any(r.derived is not None for r in traced.program.graphs.values())
            if not asks_for_order(traced.program) and (in_one or not tables):
                break
    except GuardOnDataDependentSymNode as error:  # a size that nothing is known of was compared
        raise NotTraceable(_ASKS) from error
    traced.program.least_edges = trial.least_edges
    return traced


_ASKS = "what it does depends on a number of rows, or on a value, that a delta may change"


def _recorded(site: BoundCall, roles: Roles, trial: Trial) -> Recorder:
    """Call the copy once more, and write down what it does."""
    if any(isinstance(m, torch.jit.ScriptModule) for m in site.model.modules()):
        raise NotTraceable("it is scripted, so that its Python code is not there any more")
    if _global_forward_hooks or _global_forward_pre_hooks:
        raise NotTraceable("hooks on all modules watch it")
    on_copy, probe = site.on(trial.copied.model), trial.probe
    on_copy.takes_dense = True
    sizes, modules = Sizes(roles, probe, trial.least_edges), dict(site.named_modules())
    leaf_sizes = _LeafSizes(modules, sizes, probe, roles.kinds)
    recorder = Recorder(sizes, leaf_sizes, trial.copied.originals())
    leaf_sizes.members_of = recorder.members_of
    _tell_attributes(recorder, on_copy)
    given: list[Any] = []
    for name, real in zip(site.names, probe.arguments(site, roles), strict=True):
        own = real.clone() if isinstance(real, Tensor) else real
        relation = next((r for r in roles.given if r.graph == name), None)
        if trial.opens and relation is not None and is_matrix(own):
            counts = [sizes.nodes[relation.target], sizes.nodes[relation.source]]
            given.append(recorder.matrix(name, own, sizes.edges[name], counts))
            continue
        given.append(recorder.placeholder(name, own, sizes_of(sizes, roles, name, own)))
        if name in roles.nodes and may_name_graphs(own):
            recorder.members(given[-1], membership(roles, name))
    drawn = rng_state()
    try:
        counted = counted_by(recorder.count, on_copy.modules())
        with _calls_seen_by(recorder, on_copy, trial.opens, trial.closed), counted:
            result = on_copy(*given)
        recorder.returns(result)
    except MemoryError:
        raise
    except Exception as error:  # whatever a model does with a tensor without values
        what = _ASKS if isinstance(error, GuardOnDataDependentSymNode) else _first_line(error)
        place = recorder.place or raised_at(error)
        raise NotTraceable(recorder.why or what + in_brackets(place), place) from error
    if recorder.why:
        raise NotTraceable(recorder.why, recorder.place)
    if rng_state() != drawn:
        raise NotTraceable("it draws random numbers")
    _name_after_modules(recorder, modules)
    return recorder


def _name_after_modules(recorder: Recorder, modules: dict[str, nn.Module]) -> None:
    """Let the names of nodes, and so of steps, begin with the module that makes them."""
    counts = Counter[str]()
    for node in recorder.graph.nodes:
        if node.op == "call_module":
            path = str(node.target)
            node.name = name_of_module(path, modules[path])
        elif node in recorder.makers:
            path = recorder.makers[node]
            name = f"{name_of_module(path, modules[path])}.{shown(node.target)}"
            node.name = f"{name}_{counts[name]}" if counts[name] else name
            counts[name] += 1


@contextlib.contextmanager
def _calls_seen_by(
    observer: Observer, site: BoundCall, opens: Opens, closed: frozenset[str]
) -> Iterator[None]:
    """Let calls of torch and of whole modules be seen."""
    names = {
        path: m for path, m in site.named_modules() if path in closed or _is_one_call(m, opens)
    }
    convs = {
        path: m
        for path, m in site.named_modules()
        if isinstance(m, MessagePassing) and path not in names
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # the first pass itself will say it
        for context in (
            torch.no_grad(), plainly(site.model), _grouping_seen_by(observer),
            merging_seen_by(observer, site.modules()),
            recorded_modules(observer, names, _asks_for_weights if opens else _never),
            opened_modules(observer, convs), matrices_seen_by(observer, site.modules()),
            repeats_seen_by(observer, site.modules()), observer,
        ):  # fmt: skip
            stack.enter_context(context)
        yield


def sizes_of(sizes: Sizes, roles: Roles, name: str, real: Any) -> list[Any] | None:
    """The sizes of an argument; None for a graph that is no plain tensor."""
    relation = next((r for r in roles.given if r.graph == name), None)
    if relation is not None:
        return [2, sizes.edges[name]] if relation.format == "coo" else None
    if not isinstance(real, Tensor):
        return None
    if name in roles.nodes:
        return [sizes.nodes[roles.nodes[name]], *real.shape[1:]]
    if name in roles.edges:
        return [sizes.edges[roles.edges[name]], *real.shape[1:]]
    return list(real.shape)


def _tell_attributes(recorder: Recorder, module: nn.Module) -> None:
    """Tell which tensors the model holds where."""
    for path, m in module.named_modules():
        held = {**vars(m), **m._buffers, **m._parameters}
        for name, value in held.items():
            if isinstance(value, Tensor):
                recorder.attribute(f"{path}.{name}" if path else name, value)


class _LeafSizes:
    """The sizes of what a module returns whose kind tells them.

    A conv of PyG, or one with a program, returns one row for each node; a module that is row-wise,
    one for each row that it is given; a readout, one for each graph.

    Attributes:
        members_of: Which edges an argument stands for that names graphs; see `Recorder`.
    """

    members_of: Callable[[Any], Relation | None]

    def __init__(
        self, modules: dict[str, nn.Module], sizes: Sizes, probe: Probe, kinds: list[str]
    ) -> None:
        self._modules, self._sizes = modules, sizes
        self._kinds = {probe.num_nodes[kind]: kind for kind in kinds}

    def __call__(self, path: str, given: Sequence[Any], real: Any) -> Any:
        module = self._modules[path]
        if isinstance(module, MessagePassing):
            return self._of_conv(module, real)
        rows = [v for v in given if is_fake(v)]
        if type(module) in READOUTS:
            relation = self.members_of(rows[1]) if len(given) == len(rows) == 2 else None
            if relation is None:
                return self._of_messages(given, real)
            count = self._sizes.of_members(relation, real.shape[0])
            return tensors_as(lambda t, _: [count, *t.shape[1:]], real, real)
        if isinstance(module, Aggregation):
            return self._of_messages(given, real)
        if rows and is_over_series(module, rows[0].dim()):
            return sizes_of_series(rows[0].shape[0], real)
        if rows and _is_over_steps(module, rows[0]):
            count = rows[0].shape[1]
            return tensors_as(lambda t, _: [t.shape[0], count, *t.shape[2:]], real, real)
        if not rows or why_not_row_wise(module, rows[0].dim()):
            return None
        first = rows[0].shape[0] if rows[0].dim() else None
        return None if first is None else tensors_as(
            lambda t, _: [first, *t.shape[1:]], real, real
        )  # fmt: skip

    def _of_messages(self, given: Sequence[Any], real: Tensor) -> list[Any] | None:
        """That of messages `[num_edges, channels]` that are aggregated for so many nodes."""
        sizes = [s for s in given if isinstance(s, SYMBOLIC)]
        known = len(sizes) == 1 and self._sizes.number(sizes[0]) == real.shape[0]
        return [sizes[0], *real.shape[1:]] if known and real.dim() == 2 else None

    def _of_conv(self, conv: MessagePassing, real: Any) -> Any:
        weighed = isinstance(real, tuple) and adds_loops_to_weights(conv)
        parts = list(real.values()) if isinstance(real, dict) else [real[0] if weighed else real]
        of_pyg = type(conv).__module__.startswith("torch_geometric.nn.conv.")
        if not (of_pyg or has_program(conv)) or not all(
            isinstance(t, Tensor) and t.dim() and t.shape[0] in self._kinds for t in parts
        ):
            return None

        def of_rows(rows: Tensor, _: Any) -> list[Any]:
            return [self._sizes.nodes[self._kinds[rows.shape[0]]], *rows.shape[1:]]

        if not weighed:
            return tensors_as(of_rows, real, real)
        rows, more = real
        if not isinstance(more, tuple) or not all(type(t) is Tensor for t in more):
            return None  # a sparse matrix
        count = self._sizes.symbol(more[1].shape[0])
        return of_rows(rows, None), ([2, count], [count, *more[1].shape[1:]])


def _is_over_steps(module: nn.Module, rows: Tensor) -> bool:
    """Whether a recurrent layer runs over steps of each row, `[steps, num_rows, channels]`."""
    over_rows = isinstance(module, nn.RNNBase) and not module.batch_first
    return over_rows and rows.dim() == 3 and isinstance(rows.shape[0], int)


def _is_one_call(module: nn.Module, opens: Opens) -> bool:
    """Whether a module is written down as one call, and not what it does inside."""
    if isinstance(module, BoundCall):
        return False
    if isinstance(module, MessagePassing):
        closed = not opens or (has_program(module) and opens != "all")
        return closed or bool(why_watched(module))
    if isinstance(module, MLP):
        return not opens  # its first layer may stand in front of a sum
    if isinstance(module, MaskLabel):
        return True
    if isinstance(module, Aggregation) and type(module) not in _OPENED:
        return True
    hooked = module._forward_hooks or module._forward_pre_hooks
    if isinstance(module, HeteroDictLinear):
        return False  # one linear layer for each kind of nodes
    home = type(module).__module__
    if home.startswith(_WHOLE_FAMILIES):
        return type(module) not in _OPENED
    # What hooks do with what goes in and out of a module is recorded like anything else.
    return (
        home.startswith("torch.nn")
        and not isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict))
        and not hooked
    )


def _asks_for_weights(module: nn.Module, args: Any, kwargs: Any) -> bool:
    """Whether a conv is to return its attention weights, of which its program knows nothing."""
    if not isinstance(module, MessagePassing) or adds_loops_to_weights(module):
        return False
    given = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    return bool(given.get("return_attention_weights"))


def _never(*_: Any) -> bool:
    return False


@contextlib.contextmanager
def _grouping_seen_by(observer: Observer) -> Iterator[None]:
    """Let it be seen as one call how results of several edge types are put together."""
    thread = threading.get_ident()

    def grouped(xs: list[Any], aggr: str | None) -> Any:
        if threading.get_ident() != thread or observer.is_busy or len(xs) < 2:
            return group(xs, aggr)
        return observer.function(group, tuple(xs), aggr)

    with ONE_TRACER:
        hetero_conv.group = grouped
        try:
            yield
        finally:
            hetero_conv.group = group


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
