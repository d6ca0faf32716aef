"""The programs that are compared, by name; each is made from a model.

| name | what it is |
|---|---|
| `pyg_incremental` | this package |
| `full-coo`, `full-edge-index`, `full-sparse-tensor` | a full pass of the PyG model |
| `k-hop` | the model on the k-hop neighbourhood of the rows that a delta can reach |
| `neighbor-loader` | the same, collected by PyG's sampler |
| `rc` | layer-wise recompute of these rows |
| `ripple` | RIPPLE, as its paper describes it |
| `inkstream` | InkStream, as its paper describes it, for a maximum |
| `neutronrt` | NeutronRT's order of operations, for GAT |

`rc-products-first` and `ripple-products-first` are the same algorithms with the linear layer in
front of the sum. Their papers do not have it; it makes them faster where messages get narrower.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from benchmarks.peers.full_pass import coo, sorted_edge_index, sparse_tensor
from benchmarks.peers.incremental import Incremental
from benchmarks.peers.inkstream import InkStream
from benchmarks.peers.k_hop import KHop
from benchmarks.peers.neighbor_loader import Loader
from benchmarks.peers.neutronrt import NeutronRT
from benchmarks.peers.protocol import Peer, Skipped
from benchmarks.peers.rc import Recompute
from benchmarks.peers.ripple import Ripple

OURS = "pyg_incremental"

PEERS: dict[str, Callable[[nn.Module], Peer]] = {
    OURS: Incremental,
    "full-coo": coo,
    "full-edge-index": sorted_edge_index,
    "full-sparse-tensor": sparse_tensor,
    "k-hop": KHop,
    "neighbor-loader": Loader,
    "rc": Recompute,
    "rc-products-first": partial(Recompute, products_first=True),
    "ripple": Ripple,
    "ripple-products-first": partial(Ripple, products_first=True),
    "inkstream": InkStream,
    "neutronrt": NeutronRT,
}

__all__ = ["OURS", "PEERS", "Peer", "Skipped"]
