"""One model over several processes with torch.distributed: each rank owns a part of the graph.

    torchrun --nproc-per-node 2 examples/distributed.py
    python examples/distributed.py                       # the same in one process

Every rank draws the same citation-like graph, METIS (or `--method ldg`) cuts it, and the first rank
streams deltas: it hands them in, all others call `apply_delta()` and take what is theirs. At the
end the output is held against a full pass of the original model.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import torch
import torch.distributed as dist
from datasets import citations
from torch_geometric.nn import GraphSAGE

from pyg_incremental import GraphDelta
from pyg_incremental.distributed import (
    Communicator,
    DistributedIncrementalModel,
    SingleProcess,
    TorchCommunicator,
)

CHANNELS = 32


def delta(x: torch.Tensor, edge_index: torch.Tensor, size: int, seed: int) -> GraphDelta:
    """Some edges come, some go (they may have gone before), and some features change."""
    generator = torch.Generator().manual_seed(seed)
    third = size // 3
    at = torch.randint(edge_index.shape[1], (third,), generator=generator)
    nodes = torch.randperm(len(x), generator=generator)[:third]
    return GraphDelta(
        edge_index_add=torch.randint(len(x), (2, third), generator=generator),
        edge_index_del=edge_index[:, at],
        x_changes=(nodes, torch.randn(len(nodes), CHANNELS, generator=generator)),
        missing="ignore",
    )


def run(comm: Communicator, args: argparse.Namespace) -> float:
    """What every rank does; returns the largest difference to a full pass."""
    x, edge_index = citations(args.nodes, 6 * args.nodes, CHANNELS)
    torch.manual_seed(0)
    model = GraphSAGE(CHANNELS, 64, num_layers=2, out_channels=8).eval()  # train yours
    inc = DistributedIncrementalModel(model, comm)
    inc(x, edge_index, partition_by=args.method)
    print(f"{inc}, {inc.num_ghosts:,} ghosts", flush=True)
    for step in range(args.updates):
        leads = comm.rank == 0
        up = inc.apply_delta(delta(x, edge_index, args.batch, step) if leads else None)
        s = up.stats
        print(
            f"rank {comm.rank}, update {up.version}: {len(up.changed):,} rows changed, "
            f"{s.bytes_sent:,} bytes sent, {1e3 * s.seconds:.1f} ms, of which waiting "
            f"{1e3 * s.seconds_waiting:.1f} and sending {1e3 * s.seconds_sending:.1f}",
            flush=True,
        )
    gap = inc.verify()
    if comm.rank == 0:
        print(f"distributed ok: ranks={comm.size} max_abs_diff={gap:.1e}")
    return gap


def parser() -> argparse.ArgumentParser:
    """The options of this example and of `mpi.py`."""
    options = argparse.ArgumentParser(description="One model over several processes.")
    options.add_argument("--nodes", type=int, default=20_000)
    options.add_argument("--batch", type=int, default=300, help="changes in one update")
    options.add_argument("--updates", type=int, default=5)
    options.add_argument("--method", choices=("metis", "ldg", "hash"), default="metis")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as one of the processes of torchrun, or alone."""
    args = parser().parse_args(arguments)
    torch.set_num_threads(1)
    if "RANK" not in os.environ:
        return 0 if run(SingleProcess(), args) < 1e-3 else 1
    dist.init_process_group("gloo")
    try:
        return 0 if run(TorchCommunicator(), args) < 1e-3 else 1
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
