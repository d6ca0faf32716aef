"""Which layers of PyG are followed change by change, and which are not.

What is said here of a class holds for its usual options. `scheme_of` tells the same of a program,
and so of any model that was wrapped.
"""

from dataclasses import dataclass
from typing import Any, Literal

from pyg_incremental.conv import registry
from pyg_incremental.program.steps import Domain, Program, Value

Scheme = Literal["incremental", "constrained", "row recompute", "full pass", "refused"]
"""How a layer follows a change; see `SupportedLayer`."""


@dataclass(frozen=True)
class SupportedLayer:
    """What becomes of one conv class of PyG.

    Attributes:
        name: Its name in `torch_geometric.nn`.
        scheme: `'incremental'`: what changed of a message is taken back and added, edge by edge.
            `'constrained'`: the same, but a row whose own features changed is read again over its
            in-edges, as they are part of every message to it. `'row recompute'`: rows with a change
            in their neighbourhood are computed again. `'full pass'`: all rows are. `'refused'`: it
            cannot be wrapped, or does not run at all where PyG lacks its kernels.
        steps: What it is made of, in one line.
        note: Why, or which of its options fall back to which scheme; empty if none does.
        model: What NeutronRT calls the model of such layers in its table of models, or empty.
    """

    name: str
    scheme: Scheme
    steps: str
    note: str = ""
    model: str = ""


class SupportedLayers(tuple[SupportedLayer, ...]):
    """All entries, in the order of PyG's own list; `str` of it is a table."""

    __slots__ = ()

    def __str__(self) -> str:
        wide = max(len(layer.name) for layer in self)
        return "\n".join(
            f"{layer.name:{wide}}  {layer.scheme:13}  {layer.note or layer.steps}" for layer in self
        )


def supported_layers() -> SupportedLayers:
    """The conv classes of `torch_geometric.nn`, and how each of them follows a change.

    Returns:
        One `SupportedLayer` for each class, whether it can be wrapped or not.

    Example:
        >>> from pyg_incremental import supported_layers
        >>> layers = {layer.name: layer for layer in supported_layers()}
        >>> layers["GCNConv"].scheme
        'incremental'
        >>> layers["GATConv"].scheme, layers["GATConv"].steps
        ('constrained', 'softmax-weighted sum of `z`, then residual and bias')
    """
    told = {conv.__name__: _told(builder) for conv, builder in registry.builders().items()}
    return SupportedLayers(
        SupportedLayer(name, scheme, told.get(name) or steps, note, _MODELS.get(name, ""))
        for name, (scheme, steps, note) in _LAYERS.items()
    )


def scheme_of(program: Program) -> Scheme:
    """The scheme of a program: that of its step which saves the least.

    Args:
        program: What a wrapped model computes, `IncrementalModel.program`.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import SAGEConv
        >>> from pyg_incremental import to_incremental
        >>> from pyg_incremental.trace.supported import scheme_of
        >>> inc = to_incremental(SAGEConv(4, 2, aggr="median").eval())
        >>> _ = inc(torch.randn(3, 4), torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> scheme_of(inc.program)
        'row recompute'
    """
    features: set[Value] = set()  # and all that is computed from them
    found: set[Scheme] = set()
    for step in program.steps:
        handed_in = step.is_given and step.output.domain is Domain.NODE
        if handed_in or features.intersection(step.inputs):
            features.add(step.output)
        if step.of_all:
            found.add("full pass")
        elif step.recomputes and features.intersection(step.inputs):
            found.add("row recompute")
        elif features.intersection(step.own_part):
            found.add("constrained")
    ranked: tuple[Scheme, ...] = ("full pass", "row recompute", "constrained")
    return next((scheme for scheme in ranked if scheme in found), "incremental")


def _told(builder: Any) -> str:
    """What a builder's docstring says about steps: the first sentence behind a colon."""
    first = (builder.__doc__ or "").partition("\n")[0]
    _, _, steps = first.partition(": ")
    return str(steps).removesuffix(".")


_MODELS = {
    "GMMConv": "MoNet",
    "GCNConv": "GCN",
    "SAGEConv": "GraphSAGE",
    "RGCNConv": "RGCN",
    "GATConv": "GAT",
    "ResGatedGraphConv": "G-GCN",
    "AGNNConv": "A-GNN",
    "RGATConv": "RGAT",
}
"""CommNet and PinSAGE, the other two, are no layers of PyG; see `examples/own_convs.py`."""


_NO_KNN = "its edges are the nearest neighbours of the features, so every row may see any other"
_NO_KERNEL = "PyG runs it in compiled GPU kernels of its own, which show no messages; use"
_MIXES = "full pass where its network mixes rows"
_BEYOND = "another `aggr` than sum, mean, max, min"
_RANKED = "`aggr='median'` and `'mul'`: row recompute"
_REDUCED = f"self-loops beside {_BEYOND}: row recompute"
_ATTENDS = "another `aggr` than sum and mean: row recompute"
_FILLED = "so is `edge_attr` of self-loops, filled in by a reduction (`fill_value`)"

_LAYERS: dict[str, tuple[Scheme, str, str]] = {
    "SimpleConv": (
        "incremental", "one aggregation",
        "`combine_root='self_loop'` beside another `aggr` than sum on a matrix: full pass",
    ),
    "GCNConv": ("incremental", "", f"{_REDUCED}; another than sum on a matrix: full pass"),
    "ChebConv": (
        "incremental", "",
        f"{_BEYOND}: row recompute; no `lambda_max` but weights or `normalization=None`: full pass",
    ),
    "SAGEConv": ("incremental", "aggregated neighbours plus root term", ""),
    "CuGraphSAGEConv": ("refused", "", f"{_NO_KERNEL} `SAGEConv`"),
    "GraphConv": ("incremental", "aggregated neighbours plus root term", ""),
    "GravNetConv": ("refused", "", f"{_NO_KNN}; PyG needs pyg-lib"),
    "GatedGraphConv": ("incremental", "each layer a sum and a GRU cell", ""),
    "ResGatedGraphConv": (
        "constrained",
        "key at the target, query and value at the source; sum of gated values, plus skip and bias",
        "",
    ),
    "GATConv": ("constrained", "", f"{_ATTENDS}; {_FILLED}"),
    "CuGraphGATConv": ("refused", "", f"{_NO_KERNEL} `GATConv`"),
    "FusedGATConv": ("refused", "", f"{_NO_KERNEL} `GATConv`"),
    "GATv2Conv": ("constrained", "", f"{_ATTENDS}; {_FILLED}"),
    "TransformerConv": (
        "constrained", "attention, then the root term, added or gated",
        "`aggr='mul'`: row recompute",
    ),
    "AGNNConv": ("constrained", "attention over normalised features", _RANKED),
    "TAGConv": ("incremental", "a linear layer for each number of hops", ""),
    "GINConv": (
        "incremental", "`nn` of a node's own features and the sum of its neighbours'", _MIXES
    ),
    "GINEConv": ("incremental", "GIN with edge attributes behind a ReLU", _MIXES),
    "ARMAConv": (
        "incremental", "",
        "full pass: `aggr='softmax'`, power mean, several at once; an `act` that mixes channels",
    ),
    "SGConv": ("incremental", "K hops and a linear layer", ""),
    "SSGConv": ("incremental", "the mean of K hops, and a linear layer", ""),
    "APPNP": ("incremental", "K hops, each mixed with the features", ""),
    "MFConv": ("incremental", "", ""),
    "RGCNConv": (
        "incremental", "", f"{_BEYOND}: row recompute"
    ),
    "FastRGCNConv": ("incremental", "", ""),
    "CuGraphRGCNConv": ("refused", "", f"{_NO_KERNEL} `RGCNConv`"),
    "RGATConv": (
        "constrained", "",
        "row recompute: `mod='f-additive'`, which asks whether a weight is exactly zero",
    ),
    "SignedConv": (
        "incremental", "aggregates over two graphs, and a root term for each sign", ""
    ),
    "DNAConv": ("constrained", "", ""),
    "PointNetConv": (
        "constrained", "`local_nn` of each edge, reduced, self-loops too; then `global_nn`",
        f"{_RANKED}; {_MIXES}",
    ),
    "GMMConv": ("incremental", "a sum of kernels, weighted by Gaussians of attributes", ""),
    "SplineConv": ("incremental", "", "PyG needs pyg-lib"),
    "NNConv": ("incremental", "a matrix for each edge, made by a network", _MIXES),
    "CGConv": (
        "constrained",
        "both linear layers of each edge; sum of gated parts, plus `x`",
        "",
    ),
    "EdgeConv": ("constrained", "`nn(x_i, x_j - x_i)` of each edge, reduced", _MIXES),
    "DynamicEdgeConv": ("refused", "", f"{_NO_KNN}; PyG needs pyg-lib"),
    "XConv": ("refused", "", f"{_NO_KNN}; PyG needs pyg-lib"),
    "PPFConv": (
        "constrained", "`local_nn` of point pair features, reduced; then `global_nn`",
        f"{_RANKED}; {_MIXES}",
    ),
    "FeaStConv": ("constrained", "mean of heads weighted by a softmax over them", _RANKED),
    "PointTransformerConv": ("constrained", "attention in which every channel is a head", _MIXES),
    "HypergraphConv": (
        "incremental", "",
        "constrained: `use_attention=True`; weights beside another `aggr` than sum and mean",
    ),
    "LEConv": ("incremental", "", "another `aggr` than sum: constrained"),
    "PNAConv": (
        "incremental",
        "first layer in parts at target, source and edge; aggregators, scalers; then `post_nn`",
        "constrained: `pre_layers` above 1; softmax among its aggregators",
    ),
    "ClusterGCNConv": ("incremental", "", ""),
    "GENConv": (
        "incremental", "aggregated messages, normalised, added to the node, then the MLP", _MIXES
    ),
    "GCN2Conv": ("incremental", "normalised sum, mixed with `x_0`; the product with `M` first", ""),
    "PANConv": (
        "full pass", "", "a row sees several hops, weighted by all of them; PyG needs torch-sparse"
    ),
    "WLConv": (
        "full pass", "", "colours are numbered as they are first seen, in all calls of the model"
    ),
    "WLConvContinuous": ("incremental", "weighted mean of neighbours, and the node itself", ""),
    "FiLMConv": (
        "constrained", "",
        f"several relations beside {_BEYOND}: row recompute",
    ),
    "SuperGATConv": ("constrained", "attention, then the bias", _RANKED),
    "FAConv": ("constrained", "", ""),
    "EGConv": (
        "incremental", "one aggregation of the bases for each aggregator",
        "full pass: self-loops without 'symnorm', which PyG adds up to the largest id with an edge",
    ),
    "PDNConv": (
        "incremental", "the weight of an edge is a row map of its attributes", _MIXES
    ),
    "GeneralConv": (
        "incremental",
        "messages or attention, then the mean of heads and the node itself",
        "constrained: `attention_type='dot_product'`; `directed_msg=False`",
    ),
    "HGTConv": ("constrained", "", ""),
    "HEATConv": ("constrained", "attention over values with edge attributes", _RANKED),
    "HeteroConv": ("incremental", "the conv of each edge type, then their `aggr`", "as its convs"),
    "HANConv": ("full pass", "", "what edge types count is a mean over all nodes"),
    "LGConv": ("incremental", "normalised sum over the in-edges", ""),
    "PointGNNConv": ("constrained", "`mlp_f` of each edge, reduced; `mlp_g`, plus `x`", _MIXES),
    "GPSConv": ("full pass", "", "it attends over all nodes; its conv inside is still followed"),
    "AntiSymmetricConv": ("incremental", "`num_iters` times its `phi`", "as its `phi`"),
    "DirGNNConv": ("incremental", "its conv along the edges and against them", "as its conv"),
    "MixHopConv": ("incremental", "a linear layer for each power, side by side", ""),
    "MeshCNNConv": (
        "full pass", "", "four neighbours in a certain order: PyG fails on any other edge"
    ),
}  # fmt: skip
"""Scheme, steps where the builder does not tell them, and a note, of every class."""
