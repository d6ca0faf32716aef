"""torch.fx lists the operations of a model, and a probe tells the shape of every result."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch_geometric.nn import MLP, Aggregation, HeteroDictLinear, HGTConv, MessagePassing
from torch_geometric.nn.conv import hetero_conv
from torch_geometric.nn.conv.hetero_conv import group
from torch_geometric.nn.models.basic_gnn import TrimToLayer

from pyg_incremental.calls.roles import Roles
from pyg_incremental.calls.site import CallSite
from pyg_incremental.calls.traced import NotTraceable, Traced
from pyg_incremental.tracer_lock import ONE_TRACER
from pyg_incremental.tracing.probe import Probe
from pyg_incremental.tracing.writer import Writer


class _Tracer(fx.Tracer):
    """Follows control flow; convs, normalisations, aggregations and the like are leaves."""

    def __init__(self) -> None:
        super().__init__(autowrap_modules=(), param_shapes_constant=True)  # type: ignore[arg-type]
        self._thread = threading.get_ident()

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Fx patches modules for the whole process; what other threads call is not traced."""
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        if isinstance(m, TrimToLayer) and not kwargs and _is_nothing(args[1]) and args[2] is None:
            return args[3:]  # nothing was sampled, so there is nothing to trim
        result = super().call_module(m, forward, args, kwargs)
        kinds = _kinds_returned(m, *args, **kwargs) if isinstance(m, HGTConv) else None
        return result if kinds is None else {kind: result[kind] for kind in kinds}

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Likewise for the parameters that other threads read."""
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def is_leaf_module(self, module: nn.Module, qualified_name: str) -> bool:
        if isinstance(module, (MessagePassing, Aggregation, TrimToLayer, MLP)):
            return True
        if module._forward_hooks or module._forward_pre_hooks:
            return True
        if isinstance(module, HeteroDictLinear):
            return False  # one linear layer for each kind of nodes
        home = type(module).__module__
        if home.startswith(
            (
                "torch_geometric.nn.norm",
                "torch_geometric.nn.dense",
                "torch_geometric.nn.models.jumping",
            )
        ):
            return True
        return home.startswith("torch.nn") and not isinstance(
            module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)
        )


def _kinds_returned(conv: HGTConv, x_dict: Any, *_: Any, **__: Any) -> list[str] | None:
    """The keys of what a conv returns: a model may well run through them."""
    if not isinstance(x_dict, dict):
        return None
    return [k for k in conv.kqv_lin.lins if k in x_dict and k in conv.dst_node_types]


def _is_nothing(value: Any) -> bool:
    return all(map(_is_nothing, value)) if isinstance(value, tuple) else value is None


@contextlib.contextmanager
def _calls_are_seen() -> Iterator[None]:
    """Let fx see calls of aggregations, and how results of several edge types are put together.

    `Aggregation` defines its own `__call__`, which fx does not patch and which looks into its
    arguments; `group` looks into its result.
    """
    original, thread = Aggregation.__call__, threading.get_ident()

    def call(self: Aggregation, *args: Any, **kwargs: Any) -> Any:
        plain = threading.get_ident() == thread
        return (nn.Module.__call__ if plain else original)(self, *args, **kwargs)

    def grouped(xs: list[Any], aggr: str | None) -> Any:
        proxy = next((x for x in xs if isinstance(x, fx.Proxy)), None)
        if proxy is None or threading.get_ident() != thread or len(xs) < 2:
            return group(xs, aggr)
        return proxy.tracer.create_proxy("call_function", group, (tuple(xs), aggr), {})

    Aggregation.__call__, hetero_conv.group = call, grouped
    try:
        yield
    finally:
        Aggregation.__call__, hetero_conv.group = original, group


def trace(site: CallSite, roles: Roles, probe: Probe) -> Traced:
    """Write the program of a call.

    Args:
        site: The call.
        roles: What its tensors are.
        probe: A small call, to find the shape of every intermediate result.

    Raises:
        NotTraceable: If torch.fx cannot follow the model.
    """
    try:
        with ONE_TRACER, _calls_are_seen():
            graph = _Tracer().trace(_fixed_arity(site))
    except Exception as error:  # whatever a model does with a proxy: all of it means the same
        raise NotTraceable(
            f"torch.fx cannot follow {type(site.model).__name__}: {_first_line(error)}"
        ) from error
    shapes = _Shapes(fx.GraphModule(site, graph))
    try:
        arguments = probe.arguments(site, roles)
        shapes.run(*[t.clone() if isinstance(t, Tensor) else t for t in arguments])
    except Exception as error:  # the traced graph may have lost something that the model needs
        raise NotTraceable(
            f"the trace of {type(site.model).__name__} does not run: {_first_line(error)}"
        ) from error
    return Writer(site, roles, shapes.results, probe).write(graph)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _fixed_arity(site: CallSite) -> nn.Module:
    """Fx follows signatures, so give it one with a name for each tensor."""
    names = ", ".join(f"_{i}" for i in range(len(site.names)))
    scope: dict[str, Any] = {"call": CallSite.forward}
    exec(f"def forward(self, {names}):\n    return call(self, {names})", scope)
    fixed: Any = type("CallSite", (CallSite,), {"forward": scope["forward"]})
    root: nn.Module = fixed.__new__(fixed)
    root.__dict__ = site.__dict__
    return root


class _Shapes(fx.Interpreter):
    """Runs the traced graph on a probe and keeps every result."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.results: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        # A copy, because what is here may be written to later.
        self.results[n] = (
            result.clone()
            if isinstance(result, Tensor) and result.layout is torch.strided
            else result
        )
        return result
