"""Two convs as a user would write them, and how they become incremental.

    python examples/own_convs.py

CommNet and PinSAGE are not part of PyG, so here they are plain `MessagePassing` classes. They work
as they are: rows are computed again where something in their neighbourhood changed. With a program
of a few lines, registered beside the class, only changed messages are exchanged. `check_conv` holds
each program against its class on small random graphs and deltas; the table says what came of it.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from pyg_incremental import register_conv, to_incremental
from pyg_incremental.conv import ConvCall
from pyg_incremental.program.steps import Value
from pyg_incremental.testing import check_conv


class CommNet(MessagePassing):
    """One step of CommNet (Sukhbaatar, Szlam and Fergus, 2016, Eq. 1 and 2) on a graph.

    Every node hears the mean of what its in-neighbours say: `tanh(H h_i + C mean_j h_j)`.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        """Make the two matrices."""
        super().__init__(aggr="mean")
        self.own = nn.Linear(in_channels, out_channels)
        self.heard = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """New states of all nodes, `[num_nodes, out_channels]`."""
        return torch.tanh(self.own(x) + self.heard(self.propagate(edge_index, x=x)))

    def message(self, x_j: Tensor) -> Tensor:
        """What a neighbour says is its state."""
        return x_j


@register_conv(CommNet)
def commnet(call: ConvCall) -> Value:
    """The matrix of a mean is the mean of the matrix, so it moves to the nodes that speak."""
    conv = call.conv
    call.only("x")
    x = call.node("x")
    said = call.map("said", conv.heard.forward, x, costly=True)
    own = call.map("own", conv.own.forward, x, costly=True)
    return call.map("out", lambda own, mean: torch.tanh(own + mean), own, call.reduce(said))


class PinSAGE(MessagePassing):
    """The convolution of PinSAGE (Ying et al., 2018, Algorithm 1).

    Neighbours count as often as random walks came by, at least once: `edge_weight`. The
    neighbourhood is `n_i = sum_j w_ji relu(Q h_j) / max(1, sum_j w_ji)`, and the new row is
    `relu(W [h_i, n_i])`, scaled to length one.
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        """Make the two layers."""
        super().__init__(aggr="sum")
        self.in_channels = in_channels
        self.q = nn.Linear(in_channels, hidden_channels)
        self.w = nn.Linear(in_channels + hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """New rows of all nodes, `[num_nodes, out_channels]`."""
        visits = edge_weight.view(-1, 1)
        total = self.propagate(edge_index, h=self.q(x).relu(), visits=visits)
        mass = self.propagate(edge_index, h=torch.ones_like(x[:, :1]), visits=visits)
        return self.combine(x, total, mass)

    def message(self, h_j: Tensor, visits: Tensor) -> Tensor:
        """A row, as often as it was visited."""
        return visits * h_j

    def combine(self, x: Tensor, total: Tensor, mass: Tensor) -> Tensor:
        """Rows of nodes from their own features and what they have gathered."""
        mean = total / mass.clamp(min=1.0)
        return F.normalize(self.w(torch.cat([x, mean], dim=1)).relu(), dim=1)


@register_conv(PinSAGE)
def pinsage(call: ConvCall) -> Value:
    """A weighted sum, the sum of the weights, and the rest row by row."""
    conv = call.conv
    call.only("x", "edge_weight")
    x, visits = call.node("x"), call.weight("edge_weight")
    h = call.map("h", lambda x: conv.q(x).relu(), x, costly=True)
    return call.map("out", conv.combine, x, call.sum(h, visits), call.degree(visits), costly=True)


class TwoLayers(nn.Module):
    """A model of both."""

    def __init__(self, channels: int) -> None:
        """Make both convs."""
        super().__init__()
        self.first = CommNet(channels, 16)
        self.second = PinSAGE(16, 16, 8)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """Rows of length one, `[num_nodes, 8]`."""
        return self.second(self.first(x, edge_index), edge_index, edge_weight)


def main(argv: list[str] | None = None) -> int:
    """Check both convs, then update a model of them; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deltas", type=int, default=40, help="random deltas per check")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)

    torch.manual_seed(args.seed)
    checks = {"num_deltas": args.deltas, "seed": args.seed}
    reports = {
        "CommNet": check_conv(CommNet(4, 3), channels=4, **checks),
        "PinSAGE": check_conv(PinSAGE(4, 6, 3), edge_weight=True, **checks),
    }
    print(f"{'conv':10}{'mode':14}{'deltas':>8}{'largest difference':>22}")
    for name, report in reports.items():
        print(f"{name:10}{report.mode:14}{report.num_deltas:8}{report.max_difference:22.1e}")

    num_nodes, num_edges = 2_000, 12_000
    inc = to_incremental(TwoLayers(8).eval())
    edge_index = torch.randint(num_nodes, (2, num_edges))
    inc(torch.randn(num_nodes, 8), edge_index, edge_weight=1 + torch.rand(num_edges))
    up = inc.apply_delta(
        edge_index_add=torch.tensor([[0], [1]]), edge_weight_add=torch.tensor([3.0])
    )
    print(f"\none edge came, {len(up.changed)} of {num_nodes:,} rows changed:\n{up.stats}")
    difference = inc.verify()
    print(f"off by {difference:.1e} from a full pass")
    return 0 if difference <= 1e-4 else 1


if __name__ == "__main__":
    raise SystemExit(main())
