"""Operations on shape that leave the rows in their order."""

from dataclasses import replace

from tests.fuzz.operation import expressions, family

SAME_ROWS = """
Tensor.view | {h}.view(-1, {w})
Tensor.view sizes | {h}.view({h}.size(0), {w})
Tensor.view heads | {h}.view({h}.size(0), -1, 1).sum(-1)
Tensor.reshape | {h}.reshape({h}.shape[0], -1)
torch.reshape | torch.reshape({h}, (-1, {w}))
Tensor.flatten | {h}.unsqueeze(-1).flatten(1)
torch.flatten all | torch.flatten({h}).view(-1, {w})
Tensor.ravel | {h}.ravel().reshape(-1, {w})
Tensor.unflatten | {h}.unflatten(1, ({w}, 1)).squeeze(-1)
torch.unsqueeze | torch.unsqueeze({h}, 0).squeeze(0)
Tensor.squeeze | {h}.unsqueeze(1).squeeze(1)
operator.getitem None | {h}[:, None].mean(1)
operator.getitem ellipsis | {h}[..., {i}:{i} + 1] + {h}
Tensor.t | {h}.t().t()
Tensor.T | (2 * {h}.T).T
Tensor.mT | ({h}.mT + 1).mT
torch.transpose | torch.transpose({h}, 0, 1).transpose(0, 1)
Tensor.permute | ({h}.permute(1, 0) * 0.5).permute(1, 0)
torch.movedim | torch.movedim({h}.unsqueeze(0), 0, 1).squeeze(1)
torch.swapaxes | torch.swapaxes({h}, 0, 1).swapaxes(0, 1)
torch.swapdims | {h}.swapdims(0, 1).relu().swapdims(0, 1)
Tensor.expand | {h}.unsqueeze(0).expand(3, -1, -1).mean(0)
Tensor.expand_as | {h}[:, :1].expand_as({h}) + {h}
torch.broadcast_to | {h} + torch.broadcast_to({h}[:, {i}:{i} + 1], {h}.shape)
torch.broadcast_tensors | torch.broadcast_tensors({h}, torch.tensor(0.5))[0]
Tensor.view_as | {h}.view_as({g}) - {g}
Tensor.reshape_as | {h}.reshape_as({g})
Tensor.chunk | torch.cat({h}.chunk(2, dim=-1)[::-1], dim=-1)
torch.split | torch.cat(torch.split({h}, 1, dim=1)[::-1], dim=1)
Tensor.split sizes | sum(p.sum(1, keepdim=True) for p in {h}.split([1, {w} - 1], dim=-1)) + {h}
torch.tensor_split | torch.cat(torch.tensor_split({h}, 2, dim=1)[::-1], 1)
torch.hsplit | torch.hsplit({h}, [1])[0] - {h}
Tensor.unbind dim=1 | torch.stack({h}.unbind(1)[::-1], dim=1)
Tensor.narrow dim=1 | {h} - {h}.narrow(1, 0, 1)
Tensor.select dim=1 | {h} * {h}.select(1, {i}).tanh().unsqueeze(1)
operator.getitem column | {h} + {h}[:, {i}].view(-1, 1)
operator.getitem columns | torch.cat([{h}[:, 1:], {h}[:, :1]], dim=1)
operator.getitem step | {h} + {h}[:, ::2].sum(1, keepdim=True)
operator.getitem list | {h}[:, [0, 1]].sum(-1, keepdim=True) - {h}
operator.getitem negative column | {h} * {h}[:, -1:].tanh()
torch.index_select dim=1 | torch.index_select({h}, 1, torch.arange({w} - 1, -1, -1))
torch.gather dim=1 | torch.gather({h}, 1, torch.zeros({h}.size(0), 1, dtype=torch.long)) + {h}
torch.take_along_dim dim=1 | torch.take_along_dim({h}, {r}.argsort(1)[:, :1], dim=1) + {h}
torch.stack mean | torch.stack([{h}, {g}], dim=0).mean(0)
torch.stack dim=1 | torch.stack([{h}, {g}], dim=1).amax(1)
torch.cat columns | torch.cat([{h}, {g}], dim=1)[:, :{w}]
torch.cat last | torch.cat(({h}, {h}), -1).view(-1, 2, {w}).sum(1)
torch.concat | torch.concat([{h}[:, :1], {g}[:, 1:]], dim=-1)
torch.hstack | torch.hstack([{h}, {g}])[:, -{w}:]
torch.column_stack | torch.column_stack([{h}[:, {i}], {h}])[:, :{w}]
torch.dstack | torch.dstack([{h}, {g}]).sum(-1)
Tensor.roll dim=1 | {h}.roll(1, dims=1)
torch.flip dim=1 | torch.flip({h}, [1])
torch.fliplr | torch.fliplr({h})
Tensor.repeat columns | {h}.repeat(1, 2)[:, :{w}]
torch.tile columns | torch.tile({h}, (1, 2))[:, 1:{w} + 1]
Tensor.repeat_interleave dim=1 | {h}.repeat_interleave(2, dim=1)[:, :{w}]
Tensor.unfold dim=1 | {h}.unfold(1, 2, 1).sum((1, 2)).unsqueeze(1) + {h}
F.pad columns | F.pad({h}, (1, 0))[:, :{w}]
Tensor.as_strided | {h}.contiguous().as_strided(({h}.size(0), {w}), ({w}, 1))
F.one_hot | {h} + F.one_hot(({r}[:, 0] > 0).long(), {w})
torch.atleast_2d | torch.atleast_2d({h})
torch.atleast_3d | torch.atleast_3d({h}).squeeze(-1)
torch.meshgrid | {h} + torch.meshgrid(torch.arange({w}), indexing="ij")[0] * 0.1
torch.arange columns | {h} * torch.arange({w}) * 0.3
torch.linspace | {h} + torch.linspace(0, 1, {w})
torch.triu of weights | {h} @ torch.triu(torch.ones({w}, {w}, dtype={h}.dtype)) * 0.3
torch.tril of weights | {h} @ torch.tril(torch.ones({w}, {w}, dtype={h}.dtype)) * 0.3
torch.diag of weights | {h} @ torch.diag(torch.linspace(-1, 1, {w}, dtype={h}.dtype))
torch.eye | {h} @ torch.eye({w}, dtype={h}.dtype)
torch.diag_embed | torch.diag_embed({h}).sum(1)
torch.numel | {h} * ({h}.numel() / {h}.size(0) / {w}) if {h}.size(0) else {h}
Tensor.size | {h}.view({h}.size())
Tensor.dim | {h}.sum(-1, keepdim=True).tanh() + {h} if {h}.dim() == 2 else {h}
Tensor.ndim | {h} * {h}.ndim
"""

TO_VECTORS = """
Tensor.sum to a vector | {h}.sum(-1)
Tensor.mean to a vector | {h}.mean(dim=1)
Tensor.norm to a vector | {h}.norm(dim=-1)
operator.getitem to a vector | {h}[:, {i}]
Tensor.squeeze to a vector | {h}[:, :1].squeeze(-1)
nn.Linear to a vector | self.lin{k}({h}).squeeze(-1) | self.lin{k} = nn.Linear({w}, 1)
Tensor.mv | {h}.mv(self.weight{k}) | self.weight{k} = nn.Parameter(torch.randn({w}) / 2)
torch.unbind first | {h}.unbind(1)[0]
"""

OF_VECTORS = """
vector sigmoid | {v}.sigmoid()
vector softmax | torch.softmax({v}, -1)
vector nn.Softmax | self.act{k}({v}) | self.act{k} = nn.Softmax(-1)
vector log_softmax | F.log_softmax({v}, dim=0)
vector cumsum | {v}.tanh().cumsum(-1) * 0.05
vector mean | {v} - {v}.mean(-1)
vector sum | {v} - ({v}.sum() * 0.01).tanh()
vector layer_norm | F.layer_norm({v}, {v}.shape)
vector normalize | F.normalize({v} + 0.5, dim=-1)
vector flip | {v}.flip(-1)
vector roll | {v}.roll(1)
vector sort | {v}.sort().values
vector where | torch.where({v} > 0.137, {v}, 0.0)
vector view | {v}.view(-1, 1).view(-1)
vector max | {v} - {v}.max() if {v}.numel() else {v}
"""

BACK_TO_ROWS = """
Tensor.unsqueeze of a vector | {v}.unsqueeze(-1)
operator.getitem None of a vector | {v}[:, None] * torch.ones(1, {o})
Tensor.view of a vector | {v}.view(-1, 1).repeat(1, {o})
torch.stack of vectors | torch.stack([{v}, {v} * 0.5], dim=-1)
torch.outer | torch.outer({v}, torch.linspace(-1, 1, {o}))
F.one_hot of a vector | F.one_hot(({v} > 0.137).long(), {o}).double()
"""

WIDTHS = {"Tensor.unsqueeze of a vector": "h:1", "torch.stack of vectors": "h:2"}

COLUMNS = """
one row of means | {h}.mean(0)
one row of maxima | {h}.amax(dim=0) if {h}.size(0) else {h}.sum(0)
one row of weights | torch.linspace(-0.5, 1, {w})
one row, sum of squares | ({h} * {h}).sum(0).sqrt().tanh()
first row | {h}[0]
last row | {h}[-1]
"""

WITH_COLUMNS = """
broadcasting add of a row | {h} + {m}
broadcasting mul of a row | {h} * {m}.tanh()
broadcasting of an expanded row | {h} - {m}.expand({h}.size(0), -1)
broadcasting of a repeated row | {h} + {m}.repeat({h}.size(0), 1)
cat of a row | torch.cat([{h}, {m}.unsqueeze(0)], dim=0)[:-1]
torch.maximum with a row | torch.maximum({h}, {m})
torch.addcmul with a row | torch.addcmul({h}, {m}, {m}, value=0.1)
row times a scalar | {h} * {m}.mean().tanh()
dot with a row | {h} * ({h} @ {m}).tanh().unsqueeze(-1)
"""

family("shapes", SAME_ROWS)
family("vectors", expressions(TO_VECTORS, gives="v"), OF_VECTORS)
family(
    "back to rows",
    [replace(op, gives=WIDTHS.get(op.name, "h:o")) for op in expressions(BACK_TO_ROWS)],
)
family("columns", expressions(COLUMNS, gives="m"), WITH_COLUMNS)
