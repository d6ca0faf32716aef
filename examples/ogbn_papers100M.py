"""ogbn-papers100M over several ranks: no process ever holds the whole graph.

    python examples/ogbn_papers100M.py shards --root data --out shards --parts 8
    torchrun --nproc-per-node 8 examples/ogbn_papers100M.py run --shards shards

    python examples/ogbn_papers100M.py shards --synthetic 2000 --parts 2  # of a drawn graph

`shards` reads what ogb has downloaded (`ogbn_papers100M/raw/data.npz`, 111,059,956 nodes with 128
features and 1,615,685,872 edges), unpacks its two arrays to files without reading them into memory,
chooses the owners, and writes one folder for each rank. `--method hash` needs no memory to speak of
but cuts nearly all edges; `ldg` needs 16 bytes per edge while it runs (26 GB here). `run` starts
from the folders, each rank from its own, and streams deltas.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from datasets import DataError, citations
from torch_geometric.nn import GraphSAGE

from pyg_incremental import GraphDelta
from pyg_incremental.distributed import (
    DistributedIncrementalModel,
    SingleProcess,
    TorchCommunicator,
    partition,
    write_shards,
)

CHANNELS, CLASSES = 128, 172
ARRAYS = ("node_feat", "edge_index")


def unpacked(root: Path) -> dict[str, Path]:
    """The arrays of the raw file as .npy files, which can be memory-mapped."""
    packed = root / "ogbn_papers100M" / "raw" / "data.npz"
    if not packed.exists():
        raise DataError(
            f"'{packed}' is not there. Download it once (57 GB): python -c \"from "
            f"ogb.nodeproppred import NodePropPredDataset; NodePropPredDataset('ogbn-papers100M', "
            f"'{root}')\", or use --synthetic"
        )
    files = {name: packed.with_name(f"{name}.npy") for name in ARRAYS}
    with zipfile.ZipFile(packed) as archive:
        for name, path in files.items():
            if not path.exists():
                with archive.open(f"{name}.npy") as source, path.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 24)
    return files


def shards(args: argparse.Namespace) -> int:
    """Cut the graph and write one folder for each rank."""
    if args.synthetic:
        drawn = citations(args.synthetic, 8 * args.synthetic, CHANNELS)
        x, edges = (t.numpy() for t in drawn)
    else:
        files = unpacked(Path(args.root))
        x, edges = (np.load(files[name], mmap_mode="c") for name in ARRAYS)
    chosen = partition(torch.from_numpy(edges), len(x), args.parts, args.method)
    print(chosen)
    print(f"written to {write_shards(args.out, chosen, edges, {'x': x})}")
    return 0


def run(args: argparse.Namespace) -> int:
    """Start from the shards, and stream deltas; every rank hands in its own."""
    ranks = "RANK" in os.environ
    if ranks:
        dist.init_process_group("gloo")
    comm = TorchCommunicator(timeout=600) if ranks else SingleProcess()
    torch.manual_seed(0)
    model = GraphSAGE(CHANNELS, args.hidden, num_layers=2, out_channels=CLASSES).eval()
    inc = DistributedIncrementalModel(model, comm).from_shards(args.shards)
    print(f"{inc}, {inc.num_ghosts:,} ghosts", flush=True)
    generator = torch.Generator().manual_seed(comm.rank)
    for _ in range(args.updates):
        size = max(1, args.batch // comm.size)
        pick = torch.randint(len(inc.nodes), (size,), generator=generator)
        rows = torch.randn(size, CHANNELS, generator=generator)
        pairs = torch.randint(inc.num_nodes, (2, size), generator=generator)
        up = inc.apply_delta(GraphDelta(edge_index_add=pairs, x_changes=(inc.nodes[pick], rows)))
        print(f"rank {comm.rank}: {up}, {up.stats.bytes_sent:,} bytes sent", flush=True)
    if args.verify:  # the first rank then holds the whole graph
        gap = inc.verify()
        if comm.rank == 0:
            print(f"papers100M ok: ranks={comm.size} max_abs_diff={gap:.1e}")
    if ranks:
        dist.destroy_process_group()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Either of the two commands."""
    parser = argparse.ArgumentParser(description="ogbn-papers100M over several ranks.")
    commands = parser.add_subparsers(required=True)
    cut = commands.add_parser("shards", help="write one folder for each rank")
    cut.add_argument("--root", default="data", help="where ogb keeps its data sets")
    cut.add_argument("--synthetic", type=int, metavar="NODES", help="draw a graph instead")
    cut.add_argument("--out", default="shards")
    cut.add_argument("--parts", type=int, default=2)
    cut.add_argument("--method", choices=("metis", "ldg", "hash"), default="ldg")
    cut.set_defaults(command=shards)
    go = commands.add_parser("run", help="start from the folders and stream deltas")
    go.add_argument("--shards", default="shards")
    go.add_argument("--hidden", type=int, default=64)
    go.add_argument("--batch", type=int, default=1000, help="changes in one update, of all ranks")
    go.add_argument("--updates", type=int, default=3)
    go.add_argument("--verify", action="store_true", help="hold the output against a full pass")
    go.set_defaults(command=run)
    args = parser.parse_args(arguments)
    try:
        return int(args.command(args))
    except DataError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
