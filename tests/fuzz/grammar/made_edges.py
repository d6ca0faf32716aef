"""Edges that a model makes of its own, and convs over them.

A variable of type "g" is a pair: edges `[2, k]` and their weights `[k]`, which are positive.
"""

from tests.fuzz.operation import Operation, blocks, expressions, family

TAKEN = expressions("edges as they are | (edge_index, edge_weight)", gives="g:1")

MADE = """
without loops | pyg.remove_self_loops(*{q})
with loops | pyg.add_self_loops(*{q}, {c}, x.size(0))
with loops of their mean | pyg.add_self_loops(*{q}, "mean", x.size(0))
with remaining loops | pyg.add_remaining_self_loops(*{q}, {c}, x.size(0))
loops made anew | pyg.add_self_loops(*pyg.remove_self_loops(*{q}), {c}, x.size(0))
gcn_norm | gnn.conv.gcn_conv.gcn_norm(*{q}, x.size(0))
gcn_norm without loops | gnn.conv.gcn_conv.gcn_norm(*{q}, x.size(0), add_self_loops=False)
light edges | ({q}[0][:, {q}[1] < {c}], {q}[1][{q}[1] < {c}])
edges up | ({q}[0][:, {q}[0][0] <= {q}[0][1]], {q}[1][{q}[0][0] <= {q}[0][1]])
turned | ({q}[0].flip(0), {q}[1])
both ways | (torch.cat([{q}[0], {q}[0].flip(0)], 1), torch.cat([{q}[1], {q}[1] * {c}]))
stacked by ends | (torch.stack([torch.cat([{q}[0][0], {q}[0][1]]), torch.cat([{q}[0][1], {q}[0][0]])]), torch.cat([{q}[1], {q}[1]]))
light edges again | (torch.cat([{q}[0], {q}[0][:, {q}[1] < {c}]], 1), torch.cat([{q}[1], 2 * {q}[1][{q}[1] < {c}]]))
two of one | (torch.cat([{q}[0], {p}[0].flip(0)], 1), torch.cat([{q}[1], {p}[1]]))
to_undirected | pyg.to_undirected(*{q}, x.size(0))
to_undirected, mean | pyg.to_undirected(*{q}, x.size(0), reduce="mean")
coalesce | pyg.coalesce(*{q}, x.size(0), reduce="max")
other weights | ({q}[0], ({q}[1] * {c}).sqrt())
"""

WEIGHTED = """
GCNConv | gnn.GCNConv({w}, {o})
GCNConv improved | gnn.GCNConv({w}, {o}, improved=True)
GCNConv no self-loops | gnn.GCNConv({w}, {o}, add_self_loops=False)
GCNConv not normalised | gnn.GCNConv({w}, {o}, normalize=False)
GraphConv | gnn.GraphConv({w}, {o})
GraphConv mean | gnn.GraphConv({w}, {o}, aggr="mean")
GraphConv max | gnn.GraphConv({w}, {o}, aggr="max")
TAGConv | gnn.TAGConv({w}, {o}, K=2)
SGConv | gnn.SGConv({w}, {o}, K=2)
LEConv | gnn.LEConv({w}, {o})
ARMAConv | gnn.ARMAConv({w}, {o})
GATConv of weights | gnn.GATConv({w}, {o}, edge_dim=1)
GATv2Conv of weights | gnn.GATv2Conv({w}, {o}, edge_dim=1, fill_value=0.5)
TransformerConv of weights | gnn.TransformerConv({w}, {o}, edge_dim=1)
"""

PLAIN = """
SAGEConv | gnn.SAGEConv({w}, {o})
SAGEConv max | gnn.SAGEConv({w}, {o}, aggr="max")
SAGEConv std | gnn.SAGEConv({w}, {o}, aggr=["mean", "std"])
GINConv | gnn.GINConv(nn.Linear({w}, {o}))
GATConv | gnn.GATConv({w}, {o})
GATConv no self-loops | gnn.GATConv({w}, {o}, add_self_loops=False)
GATv2Conv | gnn.GATv2Conv({w}, {o}, heads=2, concat=False)
SuperGATConv | gnn.SuperGATConv({w}, {o})
FeaStConv | gnn.FeaStConv({w}, {o}, heads=2)
ClusterGCNConv | gnn.ClusterGCNConv({w}, {o})
EdgeConv | gnn.EdgeConv(nn.Linear(2 * {w}, {o}), aggr="max")
"""

BY_HAND = """
== weighted sum
{out} = pyg.scatter({n}[{q}[0][0]] * {q}[1].view(-1, 1), {q}[0][1], 0, {n}.size(0), "sum")

== weighted maximum
{out} = pyg.scatter({n}[{q}[0][0]] * {q}[1].view(-1, 1), {q}[0][1], 0, {n}.size(0), "max")

== differences
{out} = pyg.scatter(({n}[{q}[0][0]] - {n}[{q}[0][1]]).tanh(), {q}[0][1], 0, {n}.size(0), "mean")

== softmax of weights
share = pyg.softmax({q}[1], {q}[0][1], num_nodes={n}.size(0))
{out} = pyg.scatter({n}[{q}[0][0]] * share.view(-1, 1), {q}[0][1], 0, {n}.size(0), "sum")

== softmax of ends
score = ({n}[{q}[0][0]] * {n}[{q}[0][1]]).sum(-1)
share = pyg.softmax(score, {q}[0][1], num_nodes={n}.size(0))
{out} = pyg.scatter({n}[{q}[0][0]] * share.view(-1, 1), {q}[0][1], 0, {n}.size(0), "sum")

== degrees
{out} = {n} / (1 + pyg.degree({q}[0][1], {n}.size(0), x.dtype)).view(-1, 1)

== matrix
{out} = torch.sparse_coo_tensor({q}[0], {q}[1], ({n}.size(0), {n}.size(0))) @ {n}
"""


def _layers(table, call):
    return [
        Operation(f"{name}, made edges", f"{{out}} = self.conv{{k}}({call})", init, gives="n:o")
        for name, init in (
            (name.strip(), f"self.conv{{k}} = {made.strip()}")
            for name, made in (line.split(" | ") for line in table.strip().splitlines())
        )
    ]


NEEDS = ("edge_weight",)
family("made edges", [
    Operation(f"edges {op.name}", op.lines, gives="g:1", needs=NEEDS)
    for op in (*TAKEN, *expressions(MADE, gives="g:1"))
])  # fmt: skip
family(
    "over made edges",
    _layers(WEIGHTED, "{n}, *{q}"),
    _layers(PLAIN, "{n}, {q}[0]"),
    blocks(BY_HAND),
)
