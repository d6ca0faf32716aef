"""Messages by hand: rows per edge, scatter, index_add_, degree, softmax over in-edges, pooling."""

from tests.fuzz.operation import blocks, expressions, family

TO_EDGES = """
operator.getitem by source | {n}[edge_index[0]]
operator.getitem by target | {n}[edge_index[1]]
Tensor.index_select by source | {n}.index_select(0, edge_index[0])
torch.index_select by target | torch.index_select({n}, 0, edge_index[1])
torch.gather by source | torch.gather({n}, 0, edge_index[0].view(-1, 1).expand(-1, {w}))
F.embedding by source | F.embedding(edge_index[0], {n})
torch.take_along_dim by target | torch.take_along_dim({n}, edge_index[1].unsqueeze(1), 0)
difference of ends | {n}[edge_index[0]] - {n}[edge_index[1]]
product of ends | ({n}[edge_index[0]] * {n}[edge_index[1]]).tanh()
maximum of ends | torch.maximum({n}[edge_index[0]], {n}[edge_index[1]])
both ends by one gather | {n}[edge_index.t()].sum(1)
both ends by one gather, flat | {n}[edge_index.view(-1)].view(2, -1, {w}).mean(0)
both ends by unbind | sum({n}[end] for end in edge_index.unbind(0))
cdist of ends | torch.cdist({n}[edge_index[0]].unsqueeze(1), {n}[edge_index[1]].unsqueeze(1) + 0.3).view(-1, 1) + {n}[edge_index[0]]
"""

TO_NODES = """
pyg.scatter sum | pyg.scatter({e}, edge_index[1], 0, x.size(0))
pyg.scatter mean | pyg.scatter({e}, edge_index[1], dim=0, dim_size=x.size(0), reduce="mean")
pyg.scatter max | pyg.scatter({e}, edge_index[1], 0, x.size(0), "max")
pyg.scatter min at sources | pyg.scatter({e}, edge_index[0], 0, x.size(0), reduce="min")
pyg.scatter without dim_size | F.pad(pyg.scatter({e}, edge_index[1], 0), (0, 0, 0, x.size(0)))[: x.size(0)]
Tensor.index_add_ | x.new_zeros(x.size(0), {w}).index_add_(0, edge_index[1], {e})
torch.index_add | torch.index_add(torch.zeros(x.size(0), {w}, dtype=x.dtype), 0, edge_index[1], {e})
Tensor.index_add at sources | torch.zeros_like(x[:, :1]).repeat(1, {w}).index_add(0, edge_index[0], {e})
Tensor.scatter_add_ | x.new_zeros(x.size(0), {w}).scatter_add_(0, edge_index[1].view(-1, 1).expand(-1, {w}), {e})
torch.scatter_add | torch.scatter_add(x.new_zeros(x.size(0), {w}), 0, edge_index[1].unsqueeze(-1).expand_as({e}), {e})
torch.scatter_reduce amax | torch.scatter_reduce(x.new_zeros(x.size(0), {w}), 0, edge_index[1].view(-1, 1).expand(-1, {w}), {e}, "amax")
Tensor.scatter_reduce_ mean | x.new_zeros(x.size(0), {w}).scatter_reduce_(0, edge_index[1][:, None].expand(-1, {w}), {e}, reduce="mean", include_self=False)
Tensor.index_reduce_ | x.new_zeros(x.size(0), {w}).index_reduce_(0, edge_index[1], {e}, "amin")
Tensor.index_put_ accumulate | x.new_zeros(x.size(0), {w}).index_put_((edge_index[1],), {e}, accumulate=True)
gnn.SumAggregation | self.aggr{k}({e}, edge_index[1], dim_size=x.size(0)) | self.aggr{k} = gnn.SumAggregation()
gnn.MeanAggregation | self.aggr{k}({e}, edge_index[1], dim_size=x.size(0)) | self.aggr{k} = gnn.MeanAggregation()
gnn.MaxAggregation | self.aggr{k}({e}, edge_index[1], dim_size=x.size(0)) | self.aggr{k} = gnn.MaxAggregation()
gnn.SoftmaxAggregation | self.aggr{k}({e}, edge_index[1], dim_size=x.size(0)) | self.aggr{k} = gnn.SoftmaxAggregation()
gnn.StdAggregation | self.aggr{k}({e}, edge_index[1], dim_size=x.size(0)) | self.aggr{k} = gnn.StdAggregation()
gnn.MulAggregation | self.aggr{k}({e}.tanh(), edge_index[1], dim_size=x.size(0)) | self.aggr{k} = gnn.MulAggregation()
gnn.PowerMeanAggregation | self.aggr{k}({e}.abs() + 0.3, edge_index[1], dim_size=x.size(0)) | self.aggr{k} = gnn.PowerMeanAggregation()
gnn.MultiAggregation | self.aggr{k}({e}, edge_index[1], dim_size=x.size(0))[:, :{w}] | self.aggr{k} = gnn.MultiAggregation(["mean", "max"])
gnn.global_add_pool by targets | gnn.global_add_pool({e}, edge_index[1], x.size(0))
gnn.global_mean_pool by targets | gnn.global_mean_pool({e}, edge_index[1], x.size(0))
gnn.global_max_pool by sources | gnn.global_max_pool({e}, edge_index[0], x.size(0))
torch.sparse.mm | torch.sparse.mm(torch.sparse_coo_tensor(edge_index.flip(0), {e}[:, 0], (x.size(0), x.size(0))), x[:, :1]).repeat(1, {w})
"""

ON_NODES = """
gather and scatter, sum | pyg.scatter({n}[edge_index[0]], edge_index[1], 0, {n}.size(0), "sum") * 0.3
gather and scatter, max | pyg.scatter({n}[edge_index[0]], edge_index[1], 0, {n}.size(0), "max")
gather and scatter, mul | pyg.scatter({n}[edge_index[0]].tanh(), edge_index[1], 0, {n}.size(0), "mul")
gather and index_add | {n}.index_add(0, edge_index[1], {n}[edge_index[0]], alpha=0.2)
gather and index_add_ on a clone | {n}.clone().index_add_(0, edge_index[0], {n}[edge_index[1]] * 0.3)
gather and scatter_reduce prod | {n}.scatter_reduce(0, edge_index[1].view(-1, 1).expand(-1, {w}), {n}[edge_index[0]].tanh(), "prod")
gather twice | pyg.scatter({n}[edge_index[0]][edge_index[1] % 3 == 0], edge_index[1][edge_index[1] % 3 == 0], 0, {n}.size(0))
pyg.degree | {n} / (1 + pyg.degree(edge_index[1], {n}.size(0), dtype=x.dtype).unsqueeze(-1))
pyg.degree of sources | {n} * torch.log1p(pyg.degree(edge_index[0], num_nodes={n}.size(0))).view(-1, 1).double()
pyg.degree of dtype long | {n} + pyg.degree(edge_index[1], {n}.size(0), torch.long).unsqueeze(1) * 0.1
torch.bincount | {n} / (1 + torch.bincount(edge_index[1], minlength={n}.size(0)).unsqueeze(1))
zeros and scatter_add of ones | {n} + torch.zeros({n}.size(0)).scatter_add_(0, edge_index[1], torch.ones(edge_index.size(1))).view(-1, 1) * 0.1
pyg.softmax over in-edges | pyg.scatter(pyg.softmax({n}[edge_index[0]], edge_index[1], num_nodes={n}.size(0)) * {n}[edge_index[0]], edge_index[1], 0, {n}.size(0))
pyg.softmax over out-edges | pyg.scatter(pyg.softmax({n}[edge_index[1]], edge_index[0], num_nodes={n}.size(0)), edge_index[1], 0, {n}.size(0))
pyg.spmm by csr | pyg.spmm(pyg.to_torch_csr_tensor(edge_index.flip(0), size=({n}.size(0), {n}.size(0))).to(x.dtype), {n}, "sum").tanh() if edge_index.size(1) else {n}
pyg.to_dense_adj | (pyg.to_dense_adj(edge_index, max_num_nodes={n}.size(0))[0].t().to({n}.dtype) @ {n}).tanh()
dense matrix by setitem | torch.zeros({n}.size(0), {n}.size(0), dtype=x.dtype).index_put((edge_index[1], edge_index[0]), torch.tensor(1.0, dtype=x.dtype)) @ {n} * 0.2
torch.sparse_coo_tensor | torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(edge_index.size(1), dtype=x.dtype), ({n}.size(0), {n}.size(0))) @ {n} * 0.3
pyg.remove_self_loops | pyg.scatter({n}[pyg.remove_self_loops(edge_index)[0][0]], pyg.remove_self_loops(edge_index)[0][1], 0, {n}.size(0)) * 0.5
pyg.add_self_loops | pyg.scatter({n}[pyg.add_self_loops(edge_index, num_nodes={n}.size(0))[0][0]], pyg.add_self_loops(edge_index, num_nodes={n}.size(0))[0][1], 0, {n}.size(0), "mean")
pyg.to_undirected | pyg.scatter({n}[pyg.to_undirected(edge_index, num_nodes={n}.size(0))[0]], pyg.to_undirected(edge_index, num_nodes={n}.size(0))[1], 0, {n}.size(0), "mean")
gnn.global_add_pool of all | {n} + (gnn.global_add_pool({n}, None) * 0.01).tanh()
gnn.global_mean_pool of all | {n} - gnn.global_mean_pool({n}, None)
gnn.global_max_pool of all | {n} - gnn.global_max_pool({n}, torch.zeros({n}.size(0), dtype=torch.long), 1) if {n}.size(0) else {n}
"""

BY_BLOCKS = """
== edge network by hand
init| self.edge{k} = nn.Sequential(nn.Linear(2 * {w}, 5), nn.Tanh(), nn.Linear(5, {w}))
source, target = edge_index
message = self.edge{k}(torch.cat([{n}[source], {n}[target]], dim=-1))
{out} = pyg.scatter(message, target, dim=0, dim_size={n}.size(0), reduce="mean")

== attention by hand
init| self.logit{k} = nn.Linear(2 * {w}, 1)
source, target = edge_index[0], edge_index[1]
logit = self.logit{k}(torch.cat([{n}[source], {n}[target]], -1)).squeeze(-1)
weight = pyg.softmax(logit, target, num_nodes={n}.size(0))
{out} = x.new_zeros({n}.size(0), {w}).index_add_(0, target, weight.unsqueeze(-1) * {n}[source])

== weighted sum by hand
needs| edge_weight
{out} = {n}.new_zeros({n}.shape).index_add(0, edge_index[1], edge_weight.view(-1, 1) * {n}[edge_index[0]]) * 0.3

== weights normalised by hand
needs| edge_weight
total = pyg.scatter(edge_weight.abs() + 0.1, edge_index[1], 0, {n}.size(0))
share = (edge_weight / total[edge_index[1]]).unsqueeze(-1)
{out} = pyg.scatter(share * {n}[edge_index[0]], edge_index[1], 0, {n}.size(0))

== messages of edge_attr
needs| edge_attr
init| self.edge{k} = nn.Linear({w} + 3, {w})
message = self.edge{k}(torch.cat([{n}[edge_index[0]], edge_attr], dim=-1)).relu()
{out} = pyg.scatter(message, edge_index[1], 0, {n}.size(0), "max")

== messages chosen by edge_type
needs| edge_type
init| self.kinds{k} = nn.Parameter(torch.randn(3, {w}))
{out} = pyg.scatter({n}[edge_index[0]] * self.kinds{k}[edge_type], edge_index[1], 0, {n}.size(0), "mean")

== loop over edge types
needs| edge_type
total = torch.zeros_like({n})
for kind in range(3):
    chosen = edge_index[:, edge_type == kind]
    total = total + pyg.scatter({n}[chosen[0]], chosen[1], 0, {n}.size(0), "mean") * (kind + 1) * 0.3
{out} = total

== edges chosen by weight
needs| edge_weight
chosen = edge_index[:, edge_weight > 0.63]
{out} = pyg.scatter({n}[chosen[0]], chosen[1], 0, {n}.size(0), "mean")

== edges of the first so many nodes
chosen = edge_index[:, edge_index[0] < {size}]
{out} = pyg.scatter({n}[chosen[0]], chosen[1], 0, {n}.size(0), "mean")

== first so many edges
{out} = pyg.scatter({n}[edge_index[0, :{size}]], edge_index[1, :{size}], 0, {n}.size(0), "mean")

== edge_index turned around
turned = edge_index.flip(0)
{out} = pyg.scatter({n}[turned[0]], turned[1], 0, {n}.size(0), "mean")

== edge_index sorted
order = edge_index[1].argsort(stable=True)
{out} = pyg.scatter({n}[edge_index[0][order]], edge_index[1][order], 0, {n}.size(0), "max")

== edge_index in both directions
both = torch.cat([edge_index, edge_index.flip(0)], dim=1)
{out} = pyg.scatter({n}[both[0]], both[1], 0, {n}.size(0), "mean")

== two hops by hand
hop = {n}
for _ in range(2):
    hop = pyg.scatter(hop[edge_index[0]], edge_index[1], 0, {n}.size(0), "mean")
{out} = hop

== coalesced edges
merged = pyg.coalesce(edge_index, num_nodes={n}.size(0))
{out} = pyg.scatter({n}[merged[0]], merged[1], 0, {n}.size(0), "mean")

== gcn_norm by hand
loops = torch.arange({n}.size(0)).expand(2, -1)
edges = torch.cat([edge_index, loops], dim=1)
root = pyg.degree(edges[1], {n}.size(0), x.dtype).pow(-0.5)
norm = root[edges[0]] * root[edges[1]]
{out} = x.new_zeros({n}.shape).index_add_(0, edges[1], norm.view(-1, 1) * {n}[edges[0]])

== pyg.add_remaining_self_loops
edges, _ = pyg.add_remaining_self_loops(edge_index, num_nodes={n}.size(0))
{out} = pyg.scatter({n}[edges[0]], edges[1], 0, {n}.size(0), "mean")

== pyg.get_laplacian
edges, value = pyg.get_laplacian(edge_index, normalization="sym", num_nodes={n}.size(0), dtype=x.dtype)
{out} = pyg.scatter(value.view(-1, 1) * {n}[edges[0]], edges[1], 0, {n}.size(0)) * 0.5

== pyg.subgraph
keep = torch.arange({n}.size(0)) % 2 == 0
edges, _ = pyg.subgraph(keep, edge_index)
{out} = pyg.scatter({n}[edges[0]], edges[1], 0, {n}.size(0), "mean")

== pyg.dropout_edge
edges, _ = pyg.dropout_edge(edge_index, p=0.5, training=self.training)
{out} = pyg.scatter({n}[edges[0]], edges[1], 0, {n}.size(0), "mean")
"""

OF_EDGES = """
== rows per edge of both ends
gives| e:2w
{out} = torch.cat([{n}[edge_index[0]], {n}[edge_index[1]]], dim=-1)

== rows per edge with edge_attr
gives| e:o
needs| edge_attr
init| self.edge{k} = nn.Linear(2 * {w} + 3, {o})
{out} = self.edge{k}(torch.cat([{n}[edge_index[0]], {n}[edge_index[1]], edge_attr], dim=-1))

== rows per edge with edge_weight
gives| e:w
needs| edge_weight
{out} = {n}[edge_index[0]] * edge_weight.unsqueeze(-1)

== dot product of ends
gives| e:1
{out} = ({n}[edge_index[0]] * {n}[edge_index[1]]).sum(dim=-1, keepdim=True).tanh()

== softmax per edge
gives| e:w
{out} = pyg.softmax({n}[edge_index[0]], edge_index[1], num_nodes={n}.size(0))
"""

family("to edges", expressions(TO_EDGES, gives="e:w"), blocks(OF_EDGES))
family("to nodes", expressions(TO_NODES, gives="n:w"))
family("by hand", ON_NODES, blocks(BY_BLOCKS))
