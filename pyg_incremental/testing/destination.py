"""Whether messages depend on the row that they lead to, in a conv and in its program.

A sum keeps a message until its source changes, so a message that reads its target has to say so
(NeutronRT calls such models constrained).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch_geometric.nn import MessagePassing

from pyg_incremental.ops import aggregations
from pyg_incremental.program.steps import Program
from pyg_incremental.testing.trials import TrialGraph


def reads_target(conv: nn.Module, full: Callable[[TrialGraph], Any], graph: TrialGraph) -> bool:
    """Whether the messages of a conv change with the features of their target, and only with them.

    Args:
        conv: The conv; what its `message` returns is watched.
        full: Runs it on a graph.
        graph: The graph.
    """
    if not isinstance(conv, MessagePassing):
        return False
    seen: list[Any] = []
    handle = conv.register_message_forward_hook(lambda _conv, _inputs, out: seen.append(out))
    try:
        full(graph)
        for v in range(graph.num_nodes):
            x = graph.x.clone()
            x[v] = torch.ones_like(x[v])
            full(replace(graph, x=x))
    except Exception:  # what cannot be seen is not told
        return False
    finally:
        handle.remove()
    if len(seen) != graph.num_nodes + 1 or any(len(m) != len(graph.pairs) for m in seen):
        return False  # it has edges of its own, or several kinds of message
    source, target = (0, 1) if conv.flow == "source_to_target" else (1, 0)
    found = False
    for v, messages in enumerate(seen[1:]):
        differ = (messages != seen[0]).flatten(1).any(1).tolist()
        changed = [pair for pair, d in zip(graph.pairs, differ, strict=True) if d]
        if any(v not in pair for pair in changed):
            return False  # they read far more than that
        found |= any(pair[target] == v != pair[source] for pair in changed)
    return found


def has_target(program: Program) -> bool:
    """Whether an aggregation of a program reads rows where its edges lead to."""
    held = aggregations(program.steps)
    parts = [*held, *(getattr(s, "message", None) for s in held)]
    return any(getattr(p, name, None) for p in parts for name in ("target", "targets"))
