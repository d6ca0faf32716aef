"""Graphs for the examples: each starts small and grows, as graphs do in life.

`load(name, arrivals)` holds back that many nodes of a data set. The rest is the graph at the start;
the nodes held back are numbered on and arrive one after the other, each with its edges to the nodes
that are there by then. Importing this file needs torch and PyG only; scikit-learn and ogb are
imported where they are used.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.datasets import Planetoid
from torch_geometric.utils import coalesce, to_undirected

PLANETOID = ("Cora", "CiteSeer", "PubMed")
OGB = ("ogbn-arxiv", "ogbn-products")
NAMES = ("digits", *PLANETOID, *OGB)


class DataError(Exception):
    """The data are not here and cannot be fetched; the message says what to do."""


@dataclass(frozen=True)
class GrowingGraph:
    """An undirected graph whose last nodes are not there yet."""

    name: str
    x: Tensor  # [nodes, features], of the nodes to come too
    y: Tensor  # [nodes], their classes
    edge_index: Tensor  # [2, edges] between the nodes of the start, both directions
    neighbours: list[Tensor]  # one per node to come: the nodes it links to when it arrives

    @property
    def num_start(self) -> int:
        """How many nodes there are at the start."""
        return len(self.x) - len(self.neighbours)

    @property
    def num_classes(self) -> int:
        """How many classes the nodes fall into."""
        return int(self.y.max()) + 1


def load(name: str, arrivals: int, root: str = "data", seed: int = 0) -> GrowingGraph:
    """One of `NAMES`, with `arrivals` nodes held back (at most a quarter of all)."""
    if name == "digits":
        return digits(arrivals, seed)
    if name in PLANETOID:
        return planetoid(name, arrivals, root, seed)
    if name in OGB:
        x, y, edge_index = ogb_arrays(name, root)
        if name == "ogbn-arxiv":  # ogbn-products has both directions already
            edge_index = to_undirected(edge_index, num_nodes=len(x))
        return hold_back(name, x, y, edge_index, arrivals, seed)
    raise DataError(f"no data set is called {name!r}; there are {', '.join(NAMES)}.")


def digits(arrivals: int, seed: int = 0, k: int = 8) -> GrowingGraph:
    """The 1,797 handwritten digits of scikit-learn, each linked to the k that look most alike."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(
            "the digits come with scikit-learn: pip install scikit-learn, then try again."
        ) from error
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(seed))
    x = torch.from_numpy(data.data).float()[order] / 16
    y = torch.from_numpy(data.target).long()[order]
    start = len(x) - min(arrivals, len(x) // 4)

    distance = torch.cdist(x, x).fill_diagonal_(torch.inf)
    source = distance[:start, :start].topk(k, largest=False).indices.flatten()
    target = torch.arange(start).repeat_interleave(k)
    edge_index = to_undirected(torch.stack([source, target]), num_nodes=start)
    coming = [distance[i, :i].topk(k, largest=False).indices for i in range(start, len(x))]
    return GrowingGraph("digits", x, y, edge_index, coming)


def planetoid(name: str, arrivals: int, root: str, seed: int = 0) -> GrowingGraph:
    """Cora, CiteSeer or PubMed, by PyG's own loader."""
    try:
        data = Planetoid(root, name)[0]
    except Exception as error:  # the loader passes on whatever the network or the disk raised
        remove_if_empty(Path(root, name))
        raise DataError(
            f"{name} is not under {root!r} and could not be downloaded "
            f"({type(error).__name__}: {error}). Put its raw files (ind.{name.lower()}.x and the "
            f"others) into {Path(root, name, 'raw')}, or give the folder that has them as --root, "
            "or use --dataset digits, which needs no download."
        ) from error
    x = data.x / data.x.sum(dim=1, keepdim=True).clamp(min=1)
    return hold_back(name, x, data.y, data.edge_index, arrivals, seed)


def ogb_arrays(name: str, root: str) -> tuple[Tensor, Tensor, Tensor]:
    """Features, classes and directed edges of an OGB node graph, by ogb's own loader."""
    try:
        from ogb.nodeproppred import PygNodePropPredDataset
    except ImportError as error:
        raise DataError(f"{name} comes with ogb: pip install ogb, then try again.") from error
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    folder = Path(root, name.replace("-", "_"))
    remove_if_empty(folder)  # what a failed download leaves makes ogb ask about an update
    # ogb reads its own file by a bare torch.load, which refuses PyG's classes unless they are named
    safe = torch.serialization.safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage])
    try:
        with safe:
            data = PygNodePropPredDataset(name, root)[0]
    except EOFError as error:
        raise DataError(
            f"ogb asks before it downloads {name} (more than 1 GB), and nobody can answer here: "
            "run this in a terminal and say y."
        ) from error
    except (Exception, SystemExit) as error:  # ogb leaves by exit() when the download is declined
        remove_if_empty(folder)
        raise DataError(
            f"{name} is not under {root!r} and could not be downloaded or read "
            f"({type(error).__name__}: {error}). Download it where there is a network "
            f"and copy the folder {folder.name!r} under --root. Without any network, "
            "`examples/ogbn_arxiv.py --synthetic` runs on a graph of the same size."
        ) from error
    return data.x, data.y.view(-1), data.edge_index


def citations(
    num_nodes: int = 169_343, num_edges: int = 1_166_243, channels: int = 128, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Random features and the directed edges of a citation graph, by default of ogbn-arxiv's size.

    Papers come one after the other and cite earlier ones, the first ones far more often: paper `i`
    cites `i * u ** 2.5` for a uniform `u`. So out-degrees are alike and in-degrees follow a power
    law. Then the papers are renumbered at random.
    """
    if num_edges > num_nodes * (num_nodes - 1) // 8:
        raise DataError(f"{num_nodes} papers are too few for {num_edges} different citations.")
    generator = torch.Generator().manual_seed(seed)
    key = torch.empty(0, dtype=torch.int64)
    while len(key) < num_edges:  # draws that repeat an edge are dropped, so draw until it is enough
        source = torch.randint(1, num_nodes, (num_edges,), generator=generator)
        uniform = torch.rand(num_edges, generator=generator, dtype=torch.float64)
        target = (source * uniform**2.5).long()
        key = torch.cat([key, source * num_nodes + target]).unique()
    key = key[torch.randperm(len(key), generator=generator)[:num_edges]]
    paper = torch.randperm(num_nodes, generator=generator)
    edge_index = torch.stack([paper[key // num_nodes], paper[key % num_nodes]])
    return torch.randn(num_nodes, channels, generator=generator), edge_index


def hold_back(
    name: str, x: Tensor, y: Tensor, edge_index: Tensor, arrivals: int, seed: int
) -> GrowingGraph:
    """Renumber the nodes at random and let the last `arrivals` of them arrive later."""
    num_nodes = len(x)
    start = num_nodes - min(arrivals, num_nodes // 4)
    order = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))
    rank = torch.empty_like(order)
    rank[order] = torch.arange(num_nodes)
    source, target = coalesce(rank[edge_index], num_nodes=num_nodes)
    inside = (source < start) & (target < start)
    # both directions are stored, so a node brings the edges that lead into it from lower ids
    brings = (target >= start) & (source < target)
    source_in, target_in = source[brings], target[brings]
    by_target = target_in.argsort(stable=True)
    count = torch.bincount(target_in - start, minlength=num_nodes - start)
    coming = list(source_in[by_target].split(count.tolist()))
    return GrowingGraph(
        name, x[order], y[order], torch.stack([source[inside], target[inside]]), coming
    )


def remove_if_empty(folder: Path) -> None:
    """Remove the folders that a failed download left; a folder with any file in it stays."""
    if folder.is_dir() and not any(files for _, _, files in os.walk(folder)):
        shutil.rmtree(folder)
