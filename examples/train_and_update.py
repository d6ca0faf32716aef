"""Train while the graph changes: optimizer steps, `refresh()` and `apply_delta` in turn.

    python examples/train_and_update.py

Every round trains the model a little on the graph as it is now, then lets images arrive. After an
optimizer step the stored rows belong to parameters that are gone. `apply_delta` notices and refuses
with a `StaleStateError`; `refresh()` computes all rows anew, and updates are cheap again.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from datasets import GrowingGraph, digits
from torch_geometric.nn import GraphSAGE

from pyg_incremental import GraphDelta, IncrementalModel, StaleStateError, to_incremental


def arrival(graph: GrowingGraph, node: int) -> GraphDelta:
    """The delta by which a held-back node joins the graph."""
    old = graph.neighbours[node - graph.num_start]
    edges = torch.stack([old, torch.full_like(old, node)])
    return GraphDelta(x_add=graph.x[node : node + 1], edge_index_add=edges, undirected=True)


def train(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    inc: IncrementalModel,
    labels: torch.Tensor,
    epochs: int,
) -> float:
    """Train on the graph the incremental model holds now; returns the last loss."""
    x, edge_index = inc.x.clone(), inc.graph.to_edge_index()
    model.train()
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edge_index), labels)
        loss.backward()
        optimizer.step()
    model.eval()
    return loss.item()


def main(argv: list[str] | None = None) -> None:
    """Train, refresh and update in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=10, help="training epochs per round")
    parser.add_argument("--arrivals", type=int, default=30, help="new images per round")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)

    torch.manual_seed(args.seed)
    graph = digits(args.rounds * args.arrivals, seed=args.seed)
    arriving = list(range(graph.num_start, len(graph.x)))
    model = GraphSAGE(graph.x.shape[1], 64, num_layers=2, out_channels=graph.num_classes).eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    inc = to_incremental(model)
    inc(graph.x[: graph.num_start], graph.edge_index)
    for round_ in range(args.rounds):
        loss = train(model, optimizer, inc, graph.y[: inc.num_nodes], args.epochs)
        joining = arriving[round_ * args.arrivals : (round_ + 1) * args.arrivals]
        try:
            inc.apply_delta(arrival(graph, joining[0]))  # the rows are those of the old parameters
            raise AssertionError("a stale state must refuse a delta")
        except StaleStateError as error:
            if round_ == 0:
                print(f"as expected: {error}\n")
        inc.refresh()
        changed = sum(len(inc.apply_delta(arrival(graph, node)).changed) for node in joining)

        new = slice(joining[0], joining[-1] + 1)
        right = (inc.out[new].argmax(dim=1) == graph.y[new]).float().mean()
        print(
            f"round {round_ + 1}: loss {loss:.3f}, {len(joining)} images arrived, "
            f"{changed / len(joining):.0f} of {inc.num_nodes:,} rows changed per arrival, "
            f"{float(right):.2f} of the new ones are read right, off by {inc.verify():.1e}"
        )


if __name__ == "__main__":
    main()
