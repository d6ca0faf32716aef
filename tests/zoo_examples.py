"""All examples, and how each of those is followed that are not incremental."""

from tests.example import FULL, MIXED, ROWS
from tests.zoo_examples_by_hand import BY_HAND_EXAMPLES
from tests.zoo_examples_graphs import GRAPH_EXAMPLES
from tests.zoo_examples_hetero import HETERO_EXAMPLES
from tests.zoo_examples_links import LINK_EXAMPLES
from tests.zoo_examples_nodes import NODE_EXAMPLES

EXAMPLES = [
    *NODE_EXAMPLES, *LINK_EXAMPLES, *GRAPH_EXAMPLES, *HETERO_EXAMPLES, *BY_HAND_EXAMPLES,
]  # fmt: skip

STANDS = {
    "graph-unet": (FULL, "depends on a number of rows, or on a value"),  # the largest scores of all
    "topk-pool": (FULL, "shares memory with what 'zero_' has written to"),  # of each graph the best
    "sag-pool": (FULL, "shares memory with what 'zero_' has written to"),
    # Once nodes arrive, the last of them need not be in the last graph.
    "ogb-virtual-node": (FULL, "depends on the values of a tensor"),
    "mincut": (FULL, "depends on the values of a tensor"),  # as wide as the largest graph
    "gps": (FULL, "depends on the values of a tensor"),  # all nodes of a graph attend to all
    "sort-pool": (MIXED, "pool: its result does not have one row for each input row"),
    "smoothed": (FULL, "depends on the values of a tensor"),  # scaled by sums over the mask
    "nearest": (MIXED, "cdist: its rows grow with the graph"),  # the graph is made of rows
    "han": (MIXED, "conv: HANConv has no program"),  # relations are weighed by means over all nodes
    "dense-adjacency": (FULL, "what it does depends on"),
    "above-the-mean": (MIXED, "mean: its result does not have one row for each input row"),
    "positions": (MIXED, "size_of: it reads how large the graph is"),  # every row, with a new node
    "gconv-gru": (MIXED, "of_x.0: without lambda_max it is scaled by the largest entry"),
}
"""What is not incremental, for a reason that stands, and a part of what the package says of it."""

AGAIN = dict.fromkeys(
    ("pool-set2set", "pool-median", "qm9-nnconv"),
    (ROWS, ""),
)
"""What computes rows again from all that they are made of."""

TODAY = {
    "rgcn-entities": (MIXED, "it is called without node features"),
    "label-propagation": (MIXED, "spread: LabelPropagation has no program"),
}
"""The same, for a reason that need not last."""

NOT_INCREMENTAL = {**STANDS, **AGAIN, **TODAY}
