"""The calls of convs in a traced model, as steps of their programs."""

import inspect
from typing import Any

from torch import fx
from torch_geometric.nn import MeshCNNConv, MessagePassing

from pyg_incremental.conv import ConvCall
from pyg_incremental.conv.with_weights import WithWeights
from pyg_incremental.program.messages import reads_nodes
from pyg_incremental.program.steps import Domain, NotIncremental, Program, Value
from pyg_incremental.trace.looped import Looped, listed
from pyg_incremental.trace.own_forward import builder_of
from pyg_incremental.trace.written import Written, parts_of

_OF_NODES = "its edge data is computed from node rows, and is more than a part of its messages"


def steps_of_conv(
    written: Written, weights: dict[str, Value], conv: MessagePassing, name: str, node: fx.Node
) -> Any:
    """The program of a conv: its value, or one value for each kind of nodes.

    Args:
        written: What is written so far.
        weights: The values of matrices, by the name of the graph.
        conv: The conv.
        name: What its steps are called.
        node: The call.

    Raises:
        NotIncremental: If it has none, or none for this call.
    """
    program, turned_of = written.program, written.turned
    builder = builder_of(conv)
    bound = inspect.signature(conv.forward).bind(*node.args, **node.kwargs)
    args = {k: _filled(written, v) for k, v in bound.arguments.items()}
    graphs = _graphs_among(written, args)
    if not graphs:
        raise NotIncremental("its edges are computed by the model")
    names = {program.graphs[turned_of.get(g, g)].graph for g in graphs}
    rows = [p for a in args.values() for p in parts_of(a) if isinstance(p, Value)]
    if any(v.domain is Domain.EDGE and v.kind not in names for v in rows):
        raise NotIncremental("its edge data is of other edges than its graph")
    of_nodes = reads_nodes(program).intersection(p for a in args.values() for p in parts_of(a))
    turned = [g in turned_of for g in graphs]
    if any(turned) and not all(turned):
        raise NotIncremental("some of its graphs were turned around, and others were not")
    relation = program.graphs[turned_of.get(graphs[0], graphs[0])]
    steps = len(program.steps)
    try:
        made = builder(
            ConvCall(
                program, conv, name, {k: _as_given(written, v) for k, v in args.items()},
                weights.get(relation.graph), written.examples, relation, turned=turned[0],
            )
        )  # fmt: skip
        if of_nodes:
            _refuse_stored(program, steps)
        if relation.derived is not None:
            _refuse_order(program, steps, conv)
        written.by_hand.update(s.output for s in program.steps[steps:])
        if isinstance(made, WithWeights):
            return _with_weights(written, made, graphs[0], name, node)
        if isinstance(made, dict) != isinstance(written.recorded.real[node], dict):
            raise NotIncremental("it returns a dict, and its program does not")
        return made
    except NotIncremental as error:
        program.forget(steps)
        if of_nodes:
            raise NotIncremental(_OF_NODES) from error
        raise


def _with_weights(
    written: Written, made: WithWeights, graph: Value, name: str, node: fx.Node
) -> Any:
    """Rows, edges and attention weights in the structure in which a conv returns them."""
    rows, (_, weights) = written.recorded.real[node]
    for value, example in ((made.edges, weights), (made.loops, weights), (made.rows, rows)):
        written.examples.setdefault(value, example)
    edges = listed(written.program, f"{name}_edges", None, graph, made.loops)
    return made.rows, (edges, Looped(made.edges, made.loops, drops=True))


def _refuse_stored(program: Program, first: int) -> None:
    """See that edge rows made of node rows are part of messages, as nothing stores them.

    Args:
        program: The program.
        first: Where the steps of the conv begin.
    """
    made = reads_nodes(program)
    if any(made.intersection(s.inputs) and s.output not in made for s in program.steps[first:]):
        raise NotIncremental(_OF_NODES)


def _refuse_order(program: Program, first: int, conv: MessagePassing) -> None:
    """See that rows made of whole neighbourhoods do not depend on the order of the edges.

    Edges that the model makes keep none. PyG's own convs ask for none, but for a few.

    Args:
        program: The program.
        first: Where the steps of the conv begin.
        conv: The conv.
    """
    made = [s for s in program.steps[first:] if s.recomputes]
    ours = all(
        type(m).__module__.startswith(("torch_geometric.", "torch.")) for m in conv.modules()
    )
    if any(s.takes_all for s in made) or isinstance(conv, MeshCNNConv):
        ours = False
    if made and not ours:
        raise NotIncremental("it may depend on the order of edges, which these have none of")


def _graphs_among(written: Written, args: dict[str, Any]) -> list[Value]:
    """The graphs that a conv is given, by themselves or in dicts."""
    found: list[Value] = []
    for argument in args.values():
        parts = argument.values() if isinstance(argument, dict) else [argument]
        found += [part for part in parts if written.is_graph(part)]
    return found


def _as_given(written: Written, argument: Any) -> Any:
    """An argument with graphs as they were handed in, before they were turned around."""
    if isinstance(argument, dict):
        return {key: _as_given(written, part) for key, part in argument.items()}
    return written.turned.get(argument, argument) if isinstance(argument, Value) else argument


def _filled(written: Written, argument: Any) -> Any:
    """An argument with values in place of nodes."""
    if isinstance(argument, fx.Node):
        return written.env[argument]
    if isinstance(argument, (tuple, list)):
        return tuple(_filled(written, part) for part in argument)
    if isinstance(argument, dict):
        return {key: _filled(written, part) for key, part in argument.items()}
    return argument
