"""Slices by constants and by sizes, and sizes as numbers."""

from tests.fuzz.operation import blocks, family

SLICES = """
slice by a constant, mean | {h} + {h}[:{size}].sum(0).tanh()
slice from a constant | {h} - {h}[{size}:].sum(0).tanh()
slice between constants | {h} + {h}[{size}:{size} + 9].sum(0).tanh()
slice from the end | {h} + {h}[-{size}:].sum(0).tanh()
slice up to the end | {h} + {h}[:-{size}].sum(0).tanh()
slice with a step | {h} + {h}[::{size}].sum(0).tanh()
slice of both | {h} * {h}[:{size}, :2].sum().tanh()
slice and the rest | torch.cat([{h}[:{size}] * 0.5, {h}[{size}:]])
slices swapped | torch.cat([{h}[{size}:], {h}[:{size}]])
slice by a size | {h}[: {h}.size(0)]
slice by half a size | torch.cat([{h}[: {h}.size(0) // 2].tanh(), {h}[{h}.size(0) // 2 :]])
slice by len | {h} - {h}[: len({h}) // 3].sum(0).tanh()
slice by edges | {h} + {h}[: edge_index.size(1)].sum(0).tanh()
slice by another's rows | {h} + {h}[: x.size(0)].sum(0).tanh()
Tensor.narrow rows | {h} + {h}.narrow(0, 0, min({size}, {h}.size(0))).sum(0).tanh()
torch.narrow half | {h} + torch.narrow({h}, 0, 0, {h}.size(0) // 2).sum(0).tanh()
Tensor.select row | {h} + {h}.select(0, 0)
operator.getitem row | {h} + {h}[0]
operator.getitem last row | {h} - {h}[-1]
operator.getitem rows by list | {h} + {h}[[0, 0]].sum(0)
operator.getitem a fixed row | {h} + {h}[min({size}, {h}.size(0) - 1)] if {h}.size(0) else {h}
operator.getitem rows by tensor | {h} + {h}[torch.arange(min({size}, {h}.size(0)))].sum(0).tanh()
torch.chunk rows | torch.cat([p * (j + 1) * 0.4 for j, p in enumerate({h}.chunk(2))])
torch.split rows | torch.cat([p - 0.1 * j for j, p in enumerate(torch.split({h}, {size}))])
Tensor.split by sizes of rows | torch.cat({h}.split([{h}.size(0) // 2, {h}.size(0) - {h}.size(0) // 2])[::-1])
torch.tensor_split rows | torch.cat(torch.tensor_split({h}, 3)[::-1])
torch.vsplit | torch.cat(torch.vsplit({h}, [{size}])[::-1])
torch.unbind rows | torch.stack({h}.unbind(0)[::-1])
Tensor.unfold rows | {h} + {h}.unfold(0, 1, 1).sum(2).sum(0).tanh()
torch.cat rows | torch.cat([{h}, {g}])[: {h}.size(0)]
torch.cat rows, second half | torch.cat([{h}, {g}])[-{h}.size(0) :]
torch.vstack | torch.vstack([{h}, {g}])[{h}.size(0) :]
torch.row_stack | torch.vstack([{h}[:1], {h}])[1:]
Tensor.repeat rows | {h}.repeat(2, 1)[: {h}.size(0)]
torch.tile rows | torch.tile({h}, (2, 1)).view(2, -1, {w}).sum(0)
Tensor.repeat_interleave rows | {h}.repeat_interleave(2, dim=0)[: {h}.size(0)]
torch.cdist to a slice | (-torch.cdist({h}.tanh(), {h}[:{size}].tanh() + 0.3)).exp().sum(1, keepdim=True).tanh() + {h}
matmul with a slice | {h} + ({h} @ {h}[:{size}].t()).sum(1, keepdim=True).tanh()
size as a number | {h} * ({h}.size(0) * 0.01)
size of edges as a number | {h} + edge_index.size(1) * 0.01
ratio of sizes | {h} * (edge_index.size(1) / (x.size(0) + 1)) * 0.2
len as a number | {h} / len({h}) if len({h}) else {h}
numel as a number | {h} + {h}.numel() * 0.001
shape as a number | {h} - {h}.shape[0] ** 0.5 * 0.05
log of a size | {h} + torch.log(torch.tensor(1.0 + {h}.size(0)))
sum divided by a size | {h} - {h}.sum(0) / max({h}.size(0), 1)
torch.arange of rows | {h} + (torch.arange({h}.size(0)) * 0.01).unsqueeze(-1)
torch.arange of rows modulo | {h} * ((torch.arange({h}.size(0)) % 3) * 0.5).view(-1, 1)
torch.linspace of rows | {h} + torch.linspace(0, 1, {h}.size(0)).unsqueeze(1)
torch.eye of rows | torch.eye({h}.size(0), dtype={h}.dtype) @ {h}
torch.tril of rows | torch.tril(torch.ones({h}.size(0), {h}.size(0), dtype={h}.dtype)) @ {h} * 0.02
torch.randperm seeded | {h}[torch.randperm({h}.size(0), generator=torch.Generator().manual_seed(3))]
operator.index by a size | {h} + {h}[{h}.size(0) // 2] if {h}.size(0) else {h}
max of a size and a constant | {h} + {h}[: max({h}.size(0) - {size}, 1)].sum(0).tanh()
min of a size and a constant | {h} - {h}[: min({h}.size(0), {size})].sum(0).tanh()
learned rows | {h} + self.rows{k}[torch.arange({h}.size(0)) % 7] | self.rows{k} = nn.Parameter(torch.randn(7, {w}))
learned first rows | {h} + F.pad(self.rows{k}, (0, 0, 0, {h}.size(0)))[: {h}.size(0)] | self.rows{k} = nn.Parameter(torch.randn(7, {w}))
nn.Embedding of positions | {h} + self.emb{k}(torch.arange({h}.size(0)).clamp(max=39)) | self.emb{k} = nn.Embedding(40, {w})
nn.Embedding of an input | {h} + self.emb{k}(({r}[:, 0] > 0.137).long()) | self.emb{k} = nn.Embedding(2, {w})
F.embedding of an input | {h} + F.embedding(({r}[:, 0] > 0.137).long(), self.emb{k}) | self.emb{k} = nn.Parameter(torch.randn(2, {w}))
F.one_hot of positions | {h} + F.one_hot(torch.arange({h}.size(0)) % {w}, {w})
padded to a constant | F.pad({h}, (0, 0, 0, max(0, {size} - {h}.size(0))))[: {h}.size(0)]
Tensor.expand of a row | {h} - {h}[:1].expand({h}.size(0), {w})
Tensor.as_strided rows | {h} + {h}.contiguous().as_strided((1, {w}), ({w}, 1))
"""

BY_BLOCKS = """
== train mask by a constant
mask = torch.zeros({h}.size(0), dtype=torch.bool)
mask[:{size}] = True
{out} = torch.where(mask.unsqueeze(-1), {h}, {h} * 0.5)

== rows of a constant number of nodes
first, rest = {h}[:{size}], {h}[{size}:]
{out} = torch.cat([first.relu(), rest.tanh()], dim=0)

== running sum by hand
total = {h}.new_zeros({w})
for at in range(min({size}, {h}.size(0))):
    total = total + {h}[at] * 0.1
{out} = {h} + total.tanh()

== batch vector made in forward
batch = torch.zeros({n}.size(0), dtype=torch.long)
{out} = {n} - gnn.global_mean_pool({n}, batch, 1)[batch]

== two graphs by halves
batch = (torch.arange({n}.size(0)) >= {n}.size(0) // 2).long()
{out} = {n} + gnn.global_add_pool({n}, batch, 2)[batch].tanh()

== chunks of a constant size
parts = [{h}[at : at + 64].tanh() for at in range(0, {h}.size(0), 64)]
{out} = torch.cat(parts) if parts else {h}
"""

family("sizes", SLICES, blocks(BY_BLOCKS))
