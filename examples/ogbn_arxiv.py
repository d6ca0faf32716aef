"""Stream updates through a 2-layer GraphSAGE on ogbn-arxiv, or on a drawn graph of its size.

    python examples/ogbn_arxiv.py --root data        # needs `pip install ogb` and, once, a network
    python examples/ogbn_arxiv.py --synthetic        # 169,343 nodes, 1,166,243 edges, no download

A tenth of the citations is held back and streamed as additions, as many others are deleted, and as
many papers get other features, in random order. Each batch of updates is one `apply_delta`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from datasets import DataError, citations, ogb_arrays
from torch import Tensor
from torch_geometric.nn import GraphSAGE
from tqdm import tqdm

from pyg_incremental import GraphDelta, to_incremental
from pyg_incremental.kernels import warm_up

ADD, DELETE, CHANGE = 0, 1, 2


class Stream:
    """A graph without a tenth of its edges, and the updates that follow."""

    def __init__(self, x: Tensor, edge_index: Tensor, seed: int) -> None:
        """Draw the updates: as many additions as deletions as changed features."""
        generator = torch.Generator().manual_seed(seed)
        edges = edge_index[:, torch.randperm(edge_index.shape[1], generator=generator)]
        held = edges.shape[1] // 10
        self.edge_index = edges[:, held:]
        # column i of `pair` is the edge of update i, or the changed node and the node it copies
        copies = torch.randint(len(x), (2, held), generator=generator)
        pair = torch.cat([edges[:, : 2 * held], copies], dim=1)
        order = torch.randperm(3 * held, generator=generator)
        self.kind = torch.tensor([ADD, DELETE, CHANGE]).repeat_interleave(held)[order]
        self.pair = pair[:, order]
        self.x = x

    def batches(self, size: int) -> Iterator[GraphDelta]:
        """The updates in order, `size` to a delta."""
        whole = len(self.kind) - len(self.kind) % size
        for at in range(0, whole, size):
            kind, pair = self.kind[at : at + size], self.pair[:, at : at + size]
            node, other = pair[:, kind == CHANGE]
            yield GraphDelta(
                edge_index_add=pair[:, kind == ADD],
                edge_index_del=pair[:, kind == DELETE],
                x_changes=(node, self.x[other]),
            )


def train(model: GraphSAGE, x: Tensor, y: Tensor, edge_index: Tensor, epochs: int) -> None:
    """A few full-batch epochs, so that the streamed outputs are those of a trained model."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for _ in tqdm(range(epochs), desc="training", unit="epoch"):
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index), y).backward()
        optimizer.step()


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default="data", help="folder of the downloaded data sets")
    parser.add_argument("--synthetic", action="store_true", help="draw a graph, download nothing")
    parser.add_argument("--nodes", type=int, default=169_343, help="with --synthetic")
    parser.add_argument("--edges", type=int, default=1_166_243, help="with --synthetic")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--seconds", type=float, default=5, help="time limit per batch size")
    parser.add_argument("--epochs", type=int, default=5, help="training epochs on the real data")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch while streaming")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the stream; returns 0 if the output stayed exact."""
    args = parse(argv)
    torch.manual_seed(args.seed)
    try:
        if args.synthetic:
            x, edge_index = citations(args.nodes, args.edges, seed=args.seed)
            y = None
        else:
            x, y, edge_index = ogb_arrays("ogbn-arxiv", args.root)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    stream = Stream(x, edge_index, args.seed)
    print(f"{len(x):,} nodes, {stream.edge_index.shape[1]:,} edges at the start")

    model = GraphSAGE(x.shape[1], 128, num_layers=2, out_channels=40)
    if y is not None:
        train(model, x, y, stream.edge_index, args.epochs)
    model.eval()
    torch.set_num_threads(args.threads)
    print(f"kernels ready in {warm_up():.1f} s")

    exact = True
    for size in args.batch:
        inc = to_incremental(model)
        inc(x, stream.edge_index)
        took: list[float] = []
        ends = time.perf_counter() + args.seconds
        for delta in stream.batches(size):
            began = time.perf_counter()
            inc.apply_delta(delta)
            took.append(time.perf_counter() - began)
            if began > ends:
                break
        if not took:
            print(f"batch {size:>5}: the graph has only {len(stream.kind):,} updates to stream")
            continue
        ms = 1e3 * torch.tensor(took)
        p50, p99 = ms.quantile(torch.tensor([0.5, 0.99])).tolist()
        difference = inc.verify()
        exact &= difference <= 1e-4
        print(
            f"batch {size:>5}: p50 {p50:8.3f} ms, p99 {p99:8.3f} ms, "
            f"{size * len(took) / sum(took):10,.0f} updates/s, "
            f"{len(took):,} batches, off by {difference:.1e} from a full pass"
        )
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
