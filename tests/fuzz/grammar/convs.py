"""Convolutions of PyG, in many of their options."""

from tests.fuzz.operation import Operation, blocks, family

PLAIN = """
GCNConv | gnn.GCNConv({w}, {o})
GCNConv no bias | gnn.GCNConv({w}, {o}, bias=False)
GCNConv improved | gnn.GCNConv({w}, {o}, improved=True)
GCNConv no self-loops | gnn.GCNConv({w}, {o}, add_self_loops=False)
GCNConv not normalised | gnn.GCNConv({w}, {o}, normalize=False)
GCNConv backwards | gnn.GCNConv({w}, {o}, flow="target_to_source")
SAGEConv | gnn.SAGEConv({w}, {o})
SAGEConv max | gnn.SAGEConv({w}, {o}, aggr="max")
SAGEConv sum | gnn.SAGEConv({w}, {o}, aggr="sum")
SAGEConv min, project | gnn.SAGEConv({w}, {o}, aggr="min", project=True)
SAGEConv list | gnn.SAGEConv({w}, {o}, aggr=["mean", "max", "std"])
SAGEConv softmax | gnn.SAGEConv({w}, {o}, aggr=gnn.SoftmaxAggregation(learn=True))
SAGEConv var | gnn.SAGEConv({w}, {o}, aggr="var")
SAGEConv normalize | gnn.SAGEConv({w}, {o}, normalize=True)
SAGEConv no root | gnn.SAGEConv({w}, {o}, root_weight=False)
SAGEConv backwards | gnn.SAGEConv({w}, {o}, flow="target_to_source")
GraphConv | gnn.GraphConv({w}, {o}, aggr="mean")
GraphConv max | gnn.GraphConv({w}, {o}, aggr="max")
GINConv | gnn.GINConv(nn.Sequential(nn.Linear({w}, 5), nn.ReLU(), nn.Linear(5, {o})), train_eps=True)
GINConv of BatchNorm | gnn.GINConv(nn.Sequential(nn.Linear({w}, {o}), nn.BatchNorm1d({o}), nn.ReLU(inplace=True)))
GATConv | gnn.GATConv({w}, {o})
GATConv heads | gnn.GATConv({w}, {o}, heads=2, concat=False)
GATConv no self-loops | gnn.GATConv({w}, {o}, add_self_loops=False)
GATConv residual | gnn.GATConv({w}, {o}, residual=True)
GATv2Conv | gnn.GATv2Conv({w}, {o})
GATv2Conv heads | gnn.GATv2Conv({w}, {o}, heads=2, concat=False, share_weights=True)
TransformerConv | gnn.TransformerConv({w}, {o})
TransformerConv beta | gnn.TransformerConv({w}, {o}, heads=2, concat=False, beta=True)
SuperGATConv | gnn.SuperGATConv({w}, {o})
TAGConv | gnn.TAGConv({w}, {o}, K=2)
ChebConv | gnn.ChebConv({w}, {o}, K=3)
SGConv | gnn.SGConv({w}, {o}, K=2)
SSGConv | gnn.SSGConv({w}, {o}, alpha=0.2, K=2)
ARMAConv | gnn.ARMAConv({w}, {o}, num_stacks=2)
ClusterGCNConv | gnn.ClusterGCNConv({w}, {o})
LEConv | gnn.LEConv({w}, {o})
MFConv | gnn.MFConv({w}, {o}, max_degree=5)
EdgeConv | gnn.EdgeConv(nn.Linear(2 * {w}, {o}), aggr="max")
FeaStConv | gnn.FeaStConv({w}, {o}, heads=2)
ResGatedGraphConv | gnn.ResGatedGraphConv({w}, {o})
GENConv | gnn.GENConv({w}, {o})
GENConv power | gnn.GENConv({w}, {o}, aggr="softmax", learn_t=True)
FiLMConv | gnn.FiLMConv({w}, {o})
EGConv | gnn.EGConv({w}, 4, num_heads=2, num_bases=2)
GeneralConv | gnn.GeneralConv({w}, {o})
MixHopConv | gnn.MixHopConv({w}, 2, powers=[0, 1])
DirGNNConv | gnn.DirGNNConv(gnn.SAGEConv({w}, {o}))
PNAConv | gnn.PNAConv({w}, {o}, ["mean", "max", "std"], ["identity", "amplification"], torch.tensor([1, 3, 4, 2]))
"""

SAME_WIDTH = """
APPNP | gnn.APPNP(K=2, alpha=0.2)
LGConv | gnn.LGConv()
SimpleConv | gnn.SimpleConv(aggr="mean")
SimpleConv root | gnn.SimpleConv(aggr="max", combine_root="sum")
GatedGraphConv | gnn.GatedGraphConv({w}, num_layers=2)
CGConv | gnn.CGConv({w})
AntiSymmetricConv | gnn.AntiSymmetricConv({w})
"""

WEIGHTED = """
GCNConv of weights | gnn.GCNConv({w}, {o})
GCNConv of weights no self-loops | gnn.GCNConv({w}, {o}, add_self_loops=False)
GraphConv of weights | gnn.GraphConv({w}, {o})
TAGConv of weights | gnn.TAGConv({w}, {o}, K=2)
ChebConv of weights | gnn.ChebConv({w}, {o}, K=2)
SGConv of weights | gnn.SGConv({w}, {o}, K=2)
ARMAConv of weights | gnn.ARMAConv({w}, {o})
LEConv of weights | gnn.LEConv({w}, {o})
"""

OF_ATTRIBUTES = """
GINEConv | gnn.GINEConv(nn.Linear({w}, {o}), edge_dim=3)
GATConv of edge_attr | gnn.GATConv({w}, {o}, edge_dim=3)
GATv2Conv of edge_attr | gnn.GATv2Conv({w}, {o}, edge_dim=3, add_self_loops=False)
TransformerConv of edge_attr | gnn.TransformerConv({w}, {o}, edge_dim=3)
NNConv | gnn.NNConv({w}, {o}, nn.Linear(3, {w} * {o}), aggr="mean")
GENConv of edge_attr | gnn.GENConv({w}, {o}, edge_dim=3)
ResGatedGraphConv of edge_attr | gnn.ResGatedGraphConv({w}, {o}, edge_dim=3)
PNAConv of edge_attr | gnn.PNAConv({w}, {o}, ["mean", "min"], ["identity"], torch.tensor([1, 3, 4]), edge_dim=3)
GMMConv | gnn.GMMConv({w}, {o}, dim=3, kernel_size=2)
"""

OF_TYPES = """
RGCNConv | gnn.RGCNConv({w}, {o}, 3)
RGCNConv max | gnn.RGCNConv({w}, {o}, 3, aggr="max")
RGCNConv bases | gnn.RGCNConv({w}, {o}, 3, num_bases=2)
FastRGCNConv | gnn.FastRGCNConv({w}, {o}, 3)
RGATConv | gnn.RGATConv({w}, {o}, 3)
FiLMConv of types | gnn.FiLMConv({w}, {o}, 3)
"""

MODELS = """
gnn.GCN | gnn.GCN({w}, 5, 2, {o})
gnn.GraphSAGE | gnn.GraphSAGE({w}, 5, 2, {o}, norm="layer")
gnn.GraphSAGE jk | gnn.GraphSAGE({w}, 5, 2, {o}, jk="cat")
gnn.GIN | gnn.GIN({w}, 5, 2, {o})
gnn.GAT | gnn.GAT({w}, 4, 2, {o}, heads=2, v2=True)
gnn.PNA | gnn.PNA({w}, 4, 1, {o}, aggregators=["mean"], scalers=["identity"], deg=torch.tensor([1, 2, 3]))
gnn.EdgeCNN | gnn.EdgeCNN({w}, 4, 2, {o})
"""

SEVERAL_CALLS = """
== conv called twice
init| self.conv{k} = gnn.GCNConv({w}, {w})
{out} = self.conv{k}(self.conv{k}({n}, edge_index).relu(), edge_index)

== conv called three times
init| self.conv{k} = gnn.SAGEConv({w}, {w})
{out} = {n}
for _ in range(3):
    {out} = self.conv{k}({out}, edge_index).tanh()

== conv on two inputs
init| self.conv{k} = gnn.GraphConv({w}, {w}, aggr="mean")
{out} = self.conv{k}({n}, edge_index) - self.conv{k}({n} * 0.5, edge_index)

== conv called, result dropped
init| self.conv{k} = gnn.SAGEConv({w}, {w})
self.conv{k}({n}, edge_index)
{out} = {n} * 0.9

== one linear in two places
init| self.conv{k} = gnn.SAGEConv({w}, {w})
init| self.other{k} = self.conv{k}.lin_l
{out} = self.other{k}(self.conv{k}({n}, edge_index))

== nn.ModuleList of convs
init| self.convs{k} = nn.ModuleList([gnn.GCNConv({w}, {w}), gnn.SAGEConv({w}, {w})])
{out} = {n}
for conv in self.convs{k}:
    {out} = conv({out}, edge_index).relu()

== reversed nn.ModuleList of convs
init| self.convs{k} = nn.ModuleList([gnn.GCNConv({w}, {w}), gnn.SAGEConv({w}, {w})])
{out} = sum(conv({n}, edge_index) for conv in reversed(self.convs{k}))

== convs by enumerate with skips
init| self.convs{k} = nn.ModuleList([gnn.SAGEConv({w}, {w}), gnn.GINConv(nn.Linear({w}, {w}))])
{out} = {n}
for depth, conv in enumerate(self.convs{k}):
    {out} = conv({out}, edge_index).tanh() + ({out} if depth else 0.0)

== gnn.Sequential
init| self.seq{k} = gnn.Sequential("x, edge_index", [(gnn.GCNConv({w}, 5), "x, edge_index -> x"), nn.ReLU(), nn.Linear(5, {w})])
{out} = self.seq{k}({n}, edge_index)

== gnn.JumpingKnowledge
init| self.convs{k} = nn.ModuleList([gnn.GCNConv({w}, {w}), gnn.GCNConv({w}, {w})])
init| self.jump{k} = gnn.JumpingKnowledge("max")
first = self.convs{k}[0]({n}, edge_index).relu()
{out} = self.jump{k}([first, self.convs{k}[1](first, edge_index)])

== conv on turned edges
init| self.conv{k} = gnn.SAGEConv({w}, {w})
{out} = self.conv{k}({n}, edge_index.flip(0))

== conv on edges with loops
init| self.conv{k} = gnn.SAGEConv({w}, {w})
{out} = self.conv{k}({n}, pyg.add_self_loops(edge_index, num_nodes={n}.size(0))[0])

== conv on chosen edges
init| self.conv{k} = gnn.SAGEConv({w}, {w})
{out} = self.conv{k}({n}, edge_index[:, edge_index[0] != edge_index[1]])

== conv on the first so many edges
init| self.conv{k} = gnn.SAGEConv({w}, {w})
{out} = self.conv{k}({n}, edge_index[:, :{size}])

== conv on both directions
init| self.conv{k} = gnn.SAGEConv({w}, {w})
{out} = self.conv{k}({n}, torch.cat([edge_index, edge_index.flip(0)], dim=1))

== conv with weights from features
init| self.conv{k} = gnn.GraphConv({w}, {w})
weight = ({n}[edge_index[0]] * {n}[edge_index[1]]).sum(-1).sigmoid()
{out} = self.conv{k}({n}, edge_index, weight)

== conv with changed weights
needs| edge_weight
init| self.conv{k} = gnn.GCNConv({w}, {w})
{out} = self.conv{k}({n}, edge_index, edge_weight.abs() * 0.5 + 0.1)

== conv with weights of ones
init| self.conv{k} = gnn.GraphConv({w}, {w}, aggr="mean")
{out} = self.conv{k}({n}, edge_index, torch.ones(edge_index.size(1), dtype=x.dtype))

== conv by keywords
init| self.conv{k} = gnn.SAGEConv({w}, {w})
{out} = self.conv{k}(edge_index=edge_index, x={n})

== conv of a pair
init| self.conv{k} = gnn.SAGEConv(({w}, {w}), {w})
{out} = self.conv{k}(({n}, {n} * 0.5), edge_index)

== conv with a size
init| self.conv{k} = gnn.SAGEConv({w}, {w})
{out} = self.conv{k}({n}, edge_index, size=({n}.size(0), {n}.size(0)))

== GATConv with attention weights
init| self.conv{k} = gnn.GATConv({w}, {w})
{out}, (_, alpha) = self.conv{k}({n}, edge_index, return_attention_weights=True)
{out} = {out} * (1 + (alpha.sum() * 0.001).tanh())

== propagate by hand
init| self.conv{k} = gnn.SAGEConv({w}, {w})
{out} = self.conv{k}.propagate(edge_index, x=({n}, {n}))

== GCN2Conv
init| self.conv{k} = gnn.GCN2Conv({w}, alpha=0.2, theta=0.5, layer=2)
{out} = self.conv{k}({n}, x[:, :1].repeat(1, {w}), edge_index)

== FAConv
init| self.conv{k} = gnn.FAConv({w}, eps=0.2)
{out} = self.conv{k}({n}, x[:, :1].repeat(1, {w}), edge_index)

== gnn.DeepGCNLayer
init| self.conv{k} = gnn.DeepGCNLayer(gnn.GENConv({w}, {w}), nn.LayerNorm({w}), nn.ReLU(), block="res+")
{out} = self.conv{k}({n}, edge_index)
"""


def _layers(table, call="{n}, edge_index", gives="n:o", needs=()):
    found = []
    for line in table.strip().splitlines():
        name, made = (part.strip() for part in line.split(" | "))
        out = {"EGConv": "n:4", "MixHopConv": "n:4"}.get(name, gives)
        lines = f"{{out}} = self.conv{{k}}({call})"
        found.append(Operation(name, lines, f"self.conv{{k}} = {made}", "", out, needs))
    return found


family("convs", _layers(PLAIN), _layers(SAME_WIDTH, gives="="), _layers(MODELS))
family("convs", _layers(WEIGHTED, "{n}, edge_index, edge_weight", needs=("edge_weight",)))
family("convs", _layers(OF_ATTRIBUTES, "{n}, edge_index, edge_attr", needs=("edge_attr",)))
family("convs", _layers(OF_TYPES, "{n}, edge_index, edge_type", needs=("edge_type",)))
OF_ENDS = "({n}[edge_index[0]] - {n}[edge_index[1]])[:, :1].tanh().expand(-1, 3)"
OF_PRODUCTS = "({n}[edge_index[0]] * {n}[edge_index[1]]).sum(-1).sigmoid()"


def _of_rows(table, made):
    """The same convs with edge data that the model makes of node rows."""
    renamed = "\n".join(
        f"{name}, made of rows | {conv}"
        for name, conv in (line.split(" | ", 1) for line in table.strip().splitlines())
    )
    return _layers(renamed, f"{{n}}, edge_index, {made}")


family("convs of edge data made of rows", _of_rows(OF_ATTRIBUTES, OF_ENDS))
family("convs of edge data made of rows", _of_rows(WEIGHTED, OF_PRODUCTS))
family("convs in other ways", blocks(SEVERAL_CALLS))
