"""Every row sees all rows: statistics over nodes or edges, attention, orders of rows."""

from tests.fuzz.operation import blocks, family

STATISTICS = """
Tensor.mean dim=0 | {h} - {h}.mean(0)
Tensor.mean dim=0 keepdim | {h} - {h}.mean(dim=0, keepdim=True)
Tensor.mean dim=-2 | {h} - {h}.mean(-2, keepdim=True)
Tensor.mean all | {h} - {h}.mean()
torch.sum dim=0 | {h} + (torch.sum({h}, 0) * 0.01).tanh()
Tensor.sum all | {h} * torch.sigmoid({h}.sum() * 0.1)
Tensor.sum (0, 1) | {h} + ({h}.sum((0, 1)) * 0.1).tanh()
Tensor.std dim=0 | {h} / ({h}.std(0, unbiased=False) + 0.5)
Tensor.var dim=0 | {h} / (1 + {h}.var(0, keepdim=True, correction=0))
torch.var_mean | {h} - torch.var_mean({h}, 0, correction=0)[1]
torch.norm all | {h} / (torch.norm({h}) + 0.5)
Tensor.norm dim=0 | {h} / ({h}.norm(dim=0) + 0.5)
torch.softmax dim=0 | torch.softmax({h}, 0)
torch.softmax dim=-2 | torch.softmax({h}, dim=-2) + {h}
F.log_softmax dim=0 | F.log_softmax({h}, dim=0) * 0.3
nn.Softmax dim=0 | self.act{k}({h}) + {h} | self.act{k} = nn.Softmax(0)
F.normalize dim=0 | F.normalize({h} + 0.5, dim=0)
torch.cumsum dim=0 | torch.cumsum({h}.tanh(), 0) * 0.05
torch.cumprod dim=0 | torch.cumprod({h}.tanh() * 0.1 + 1, dim=0).clamp(-9, 9)
torch.cummax dim=0 | torch.cummax({h}, 0)[0]
torch.logcumsumexp dim=0 | torch.logcumsumexp({h}, dim=0)
torch.sort dim=0 | torch.sort({h}, dim=0)[0]
Tensor.sort dim=0 descending | {h}.sort(0, descending=True).values
torch.median dim=0 | {h} - torch.median({h}, dim=0).values if {h}.size(0) else {h}
torch.median all | {h} - {h}.median() if {h}.numel() else {h}
torch.quantile dim=0 | {h} - torch.quantile({h}, 0.6, dim=0) if {h}.size(0) else {h}
torch.max dim=0 | {h} - {h}.max(0).values if {h}.size(0) else {h}
torch.amax all | {h} / (1 + {h}.abs().amax()) if {h}.numel() else {h}
torch.min dim=0 | {h} - {h}.min(dim=0, keepdim=True)[0] if {h}.size(0) else {h}
torch.logsumexp dim=0 | {h} - torch.logsumexp({h}, dim=0)
torch.prod dim=0 | {h} + ({h}.tanh() * 0.1 + 1).prod(0).clamp(-9, 9)
torch.argmax dim=0 of an input | {h} + {h}[{r}[:, 0].argmax()]
torch.argsort dim=0 of an input | {h}[{r}[:, 0].argsort()] if {h}.size(0) == {r}.size(0) else {h}
torch.topk dim=0 of an input | {h} + {h}[{r}[:, -1].topk(1).indices].sum(0)
torch.roll dim=0 | {h} - torch.roll({h}, 1, 0)
Tensor.roll over all | {h}.roll(1)
torch.flip dim=0 | {h} + torch.flip({h}, [0])
torch.flipud | torch.flipud({h})
torch.rot90 | torch.rot90({h}, 2)
F.pad rows | F.pad({h}, (0, 0, 1, 0))[:-1]
torch.diff dim=0 | torch.diff({h}, dim=0, prepend={h}[:1])
torch.index_select random order | torch.index_select({h}, 0, torch.arange({h}.size(0) - 1, -1, -1))
torch.gather dim=0 | torch.gather({h}, 0, torch.zeros(1, {w}, dtype=torch.long)) + {h}
torch.take_along_dim dim=0 | torch.take_along_dim({h}, torch.zeros(1, 1, dtype=torch.long), 0) - {h}
torch.view over rows | {h}.reshape({w}, -1).t().reshape(-1, {w})
torch.t reshaped | {h}.t().reshape(-1, {w})
F.layer_norm all | F.layer_norm({h}, {h}.shape, eps=0.1)
F.instance_norm | F.instance_norm({h}.t().unsqueeze(0), eps=0.1)[0].t() if {h}.size(0) > 1 else {h}
F.batch_norm training | F.batch_norm({h}, None, None, training=True, eps=0.1) if {h}.size(0) > 1 else {h}
F.avg_pool1d | F.avg_pool1d({h}.t().unsqueeze(0), 3, 1, 1)[0].t()
nn.Conv1d over rows | self.conv1d{k}({h}.t().unsqueeze(0))[0].t() | self.conv1d{k} = nn.Conv1d({w}, {w}, 3, padding=1)
nn.GRU over rows | self.rnn{k}({h}.unsqueeze(0))[0].squeeze(0) | self.rnn{k} = nn.GRU({w}, {w}, batch_first=True)
nn.MultiheadAttention over rows | {h} + self.heads{k}(*[{h}.unsqueeze(0)] * 3, need_weights=False)[0].squeeze(0) | self.heads{k} = nn.MultiheadAttention({w}, 1, batch_first=True)
F.scaled_dot_product_attention | F.scaled_dot_product_attention(*[{h}.unsqueeze(0)] * 3)[0]
torch.softmax of products | torch.softmax({h} @ {h}.t(), dim=-1) @ {h}
torch.cdist | (-torch.cdist({h}.tanh() + 0.1, {g}.tanh() - 0.2)).exp().mean(1, keepdim=True) + {h}
torch.einsum of all rows | torch.einsum("ni,nj->ij", {h}.tanh(), {g}.tanh()).mean(0) * 0.1 + {h}
torch.mm of the transpose | {h} @ ({h}.tanh().t() @ {h}.tanh() * 0.02).tanh()
torch.cov | {h} + torch.cov({h}.t(), correction=0)[0].tanh()
torch.linalg.solve | torch.linalg.solve({h}.t() @ {h} * 0.1 + torch.eye({w}), {h}.t()).t()
torch.linalg.inv | {h} @ torch.linalg.inv({h}.t() @ {h} * 0.1 + torch.eye({w}))
torch.linalg.det | {h} * torch.linalg.det({h}.tanh().t() @ {h}.tanh() * 0.01 + torch.eye({w})).tanh()
torch.trace | {h} + ({h}.t() @ {h} * 0.01).trace().tanh()
torch.nonzero of an input | {h} + {h}[({r}[:, 0] > 0.137).nonzero().view(-1) % {h}.size(0)].sum(0).tanh() if {h}.size(0) else {h}
torch.histc of an input | {h} + torch.histc({r}[:, 0].float(), 4, -2, 2).double().sum() * 0.01
torch.unique of an input | {h} * (torch.unique({r}[:, 0].round()).numel() * 0.1)
torch.bincount of an input | {h} + torch.bincount(({r}[:, 0] > 0.137).long(), minlength=2)[1] * 0.01
torch.searchsorted of an input | {h} + torch.searchsorted({r}[:, 0].contiguous().sort().values, torch.tensor(0.137, dtype=x.dtype)) * 0.01
Tensor.tolist of an input | {h} + sum({r}[:3, 0].tolist())
Tensor.item | {h} * torch.tanh(torch.tensor({h}.mean().item())) if {h}.numel() else {h}
float of a tensor | {h} + float({h}.sum().tanh())
"""

MASKS = """
boolean mask of an input, sum | {h} + ({h}[{r}[:, 0] < 0.137].sum(0) * 0.05).tanh() if {h}.size(0) == {r}.size(0) else {h}
boolean mask of values, sum | {h} + ({h}[{h}[:, {i}] > 0.137].sum(0) * 0.05).tanh()
boolean mask of values, all columns | {h} - ({h}[{h} > 0.137].sum() * 0.01).tanh()
torch.masked_select | {h} + (torch.masked_select({h}, {h} < 0.513).sum() * 0.01).tanh()
torch.repeat_interleave by counts | {h} + ({h}.repeat_interleave(({h}[:, 0] > 0.137).long() + 1, dim=0).sum(0) * 0.03).tanh()
torch.where of one argument | {h} + ({h}[torch.where({h}[:, 0] > 0.137)[0]].sum(0) * 0.05).tanh()
number of masked rows | {h} * (({h}[:, 0] > 0.137).sum() * 0.1).tanh()
"""

ROUNDABOUT = """
== softmax by hand over all rows
top = {h}.exp().clamp(max=20.0)
{out} = top / top.sum(0, keepdim=True)

== standardised by hand
mean = {h}.mean(0)
{out} = ({h} - mean) / (({h} - mean).pow(2).mean(0) + 0.3).sqrt()

== virtual node
hub = {h}.mean(0, keepdim=True)
{out} = torch.cat([{h}, hub.expand({h}.size(0), -1)], -1)[:, 1:{w} + 1]

== loop over rows
rows = []
for row in {h}[:3]:
    rows.append(row)
{out} = {h} + sum(rows)

== list of columns
{out} = torch.stack([{h}[:, j] - {h}[:, j].mean() for j in range({w})], dim=1)
"""

family("graph-wide", STATISTICS, blocks(ROUNDABOUT))
family("masks", MASKS)
