"""Writes: in place, through views and aliases, by index, with `out=`."""

from tests.fuzz.operation import blocks, family

IN_PLACE = """
Tensor.relu_ | {h}.relu_()
Tensor.clamp_ | {h}.clamp_(-0.7, 1.3)
Tensor.clamp_min_ | {h}.clamp_min_(-0.5)
Tensor.tanh_ | {h}.tanh_()
Tensor.sigmoid_ | {h}.sigmoid_()
Tensor.abs_ | {h}.abs_()
Tensor.neg_ | {h}.neg_()
Tensor.exp_ | {h}.clamp_(max=1.0).exp_()
Tensor.mul_ | {h}.mul_(0.7)
Tensor.mul_ by a tensor | {h}.mul_({g}.tanh())
Tensor.add_ | {h}.add_(0.3)
Tensor.add_ alpha | {h}.add_({g}, alpha=0.5)
Tensor.sub_ | {h}.sub_({g}.mean(-1, keepdim=True))
Tensor.div_ | {h}.div_(1.7)
Tensor.pow_ | {h}.clamp_(-2, 2).pow_(2)
Tensor.floor_ | {h}.mul_(1.37).add_(0.123).floor_()
Tensor.fill_ a column | {h}[:, {i}].fill_(0.5)
Tensor.zero_ columns | {h}[:, :2].zero_()
Tensor.masked_fill_ | {h}.masked_fill_({h} > 0.613, 0.25)
Tensor.copy_ | {h}.copy_({g} * 0.5)
Tensor.lerp_ | {h}.lerp_({g}, 0.3)
Tensor.addcmul_ | {h}.addcmul_({g}.tanh(), {g}.tanh(), value=0.5)
Tensor.transpose_ twice | {h}.t_().mul_(0.5).t_()
Tensor.unsqueeze_ | {h}.unsqueeze_(0).squeeze_(0)
Tensor.index_fill_ | {h}.index_fill_(1, torch.tensor([{i}]), 0.3)
Tensor.index_add_ columns | {h}.index_add_(1, torch.tensor([{i}]), {g}[:, :1].clone())
Tensor.index_copy_ | {h}.index_copy_(1, torch.tensor([{i}]), {g}[:, :1] * 0.5)
Tensor.scatter_ | {h}.scatter_(1, torch.zeros({h}.size(0), 1, dtype=torch.long), 0.4)
Tensor.scatter_add_ columns | {h}.scatter_add_(1, torch.zeros({h}.size(0), 1, dtype=torch.long), {g}[:, -1:].clone())
Tensor.masked_scatter_ | {h}.masked_scatter_({h} > 0.137, {h} * 0.5)
Tensor.put of where | {h}.copy_(torch.where({h} > 0.137, {h}, {h} * 0.3))
Tensor.nan_to_num_ | {h}.nan_to_num_(0.5, 9.0, -9.0)
torch.nan_to_num_ | torch.nan_to_num_({h}, 0.5, 9.0, -9.0)
torch.relu_ | torch.relu_({h})
torch.clamp_ | torch.clamp_({h}, -0.7, 1.3)
F.relu inplace | F.relu({h}, inplace=True)
F.relu_ | F.relu_({h})
F.elu inplace | F.elu({h}, inplace=True)
F.leaky_relu_ | F.leaky_relu_({h}, 0.2)
F.hardtanh inplace | F.hardtanh({h}, -0.6, 0.8, inplace=True)
F.silu inplace | F.silu({h}, inplace=True)
F.dropout inplace | F.dropout({h}, 0.5, training=self.training, inplace=True)
F.threshold_ | F.threshold_({h}, 0.137, 0.2)
nn.ReLU inplace | self.act{k}({h}) | self.act{k} = nn.ReLU(inplace=True)
nn.ELU inplace | self.act{k}({h}) | self.act{k} = nn.ELU(inplace=True)
nn.Dropout inplace | self.drop{k}({h}) | self.drop{k} = nn.Dropout(0.5, inplace=True)
nn.init in forward | nn.init.constant_({h}[:, {i}], 0.3)
torch.clamp out= | torch.clamp({h}, -0.7, 1.3, out={h})
torch.mul out= | torch.mul({h}, 0.5, out={h})
torch.add out= | torch.add({h}, {g}, out={h})
torch.tanh out= | torch.tanh({h}, out={h})
torch.where out= | torch.where({h} > 0.137, {h}, {g}, out={h})
operator.iadd | {h} += 0.3
operator.iadd of rows | {h} += {g}.tanh()
operator.isub | {h} -= {h}.mean(-1, keepdim=True)
operator.imul | {h} *= 0.7
operator.imul columns | {h}[:, :2] *= 0.5
operator.iadd of a column | {h}[:, {i}] += 1.0
operator.itruediv | {h} /= 1.7
operator.ipow | {h} **= 2 if {h}.numel() == 0 else 1
operator.setitem column | {h}[:, {i}] = 0.5
operator.setitem column of rows | {h}[:, 0] = {g}[:, -1]
operator.setitem columns | {h}[:, 1:] = {g}[:, :-1].clone()
operator.setitem mask | {h}[{h} > 0.613] = 0.25
operator.setitem mask of rows | {h}[{h}[:, 0] > 0.137] = 0.1
operator.setitem rows | {h}[:{size}] = 0.3
operator.setitem row | {h}[0] = 0.5
operator.setitem last rows | {h}[-{size}:] *= 0.5
operator.setitem all | {h}[:] = {g} * 0.5
operator.setitem ellipsis | {h}[..., {i}] = -0.2
operator.setitem by tensor | {h}[torch.tensor([0])] = 0.4
Tensor.data write | {h}.data.mul_(0.5)
Tensor.detach write | {h}.detach().add_(0.2)
Tensor.set_ | {h}.set_(({h} * 0.5).contiguous())
Tensor.resize of a clone | {h}.copy_({h}.clone().resize_({h}.shape))
Tensor.apply by numpy | {h}.numpy()[:] *= 0.5
torch._foreach_mul_ | torch._foreach_mul_([{h}], 0.7)
"""

ALIASES = """
view of columns | v{k} = {h}[:, :2] ; v{k}.mul_(0.5)
view of a column | v{k} = {h}[:, {i}] ; v{k}.add_(0.3)
view of rows | v{k} = {h}[:{size}] ; v{k}.mul_(0.5)
view by view | v{k} = {h}.view(-1) ; v{k}.clamp_(-0.5, 0.9)
view by reshape | v{k} = {h}.contiguous().reshape(-1) ; v{k}.add_(0.2)
view by t | v{k} = {h}.t() ; v{k}[0].fill_(0.3)
view by transpose | v{k} = {h}.transpose(0, 1) ; v{k}.tanh_()
view by unsqueeze | v{k} = {h}.unsqueeze(0) ; v{k}.sub_(0.3)
view by squeeze | v{k} = {h}.squeeze(-1) ; v{k}.mul_(0.9)
view by chunk | v{k}, u{k} = {h}.chunk(2, dim=1) ; v{k}.mul_(0.5)
view by split | v{k} = {h}.split(1, dim=-1) ; v{k}[0].zero_()
view by unbind | v{k} = {h}.unbind(1) ; v{k}[1].add_(1.0)
view by narrow | v{k} = {h}.narrow(1, 0, 1) ; v{k}.fill_(0.7)
view by select | v{k} = {h}.select(1, 0) ; v{k}.neg_()
view by expand | v{k} = {h}[:, :1].expand(-1, 1) ; v{k}.add_(0.1)
view by permute | v{k} = {h}.permute(1, 0) ; v{k}.relu_()
view by flatten | v{k} = {h}.flatten() ; v{k}.mul_(0.8)
view by diagonal | v{k} = {h}.diagonal() ; v{k}.fill_(0.2)
view by as_strided | v{k} = {h}.as_strided(({h}.size(0), 1), {h}.stride()) ; v{k}.zero_()
view by unfold | v{k} = {h}.unfold(1, 1, 1) ; v{k}.mul_(0.6)
view by detach | v{k} = {h}.detach() ; v{k}.mul_(0.5)
view by data | v{k} = {h}.data ; v{k}.add_(0.3)
view by T | v{k} = {h}.T ; v{k}.mul_(0.5)
view by movedim | v{k} = {h}.movedim(0, 1) ; v{k}.mul_(0.5)
view by view_as | v{k} = {h}.view_as({g}) ; v{k}.add_(0.25)
view by expand_as | v{k} = {h}.expand_as({g}) ; v{k}.mul_(0.5)
view by ravel | v{k} = {h}.ravel() ; v{k}.sub_(0.1)
view by real | v{k} = torch.real({h}) ; v{k}.mul_(0.5)
view by hsplit | v{k} = torch.hsplit({h}, [1])[0] ; v{k}.zero_()
view of a view | v{k} = {h}[:, 1:] ; u{k} = v{k}.t() ; u{k}.mul_(0.5)
alias by name | v{k} = {h} ; v{k} += 0.4
alias by type_as | v{k} = {h}.type_as(x) ; v{k}.clamp_(-0.5, 0.5)
alias by to | v{k} = {h}.to(x.dtype) ; v{k}.mul_(0.5)
alias by to other | v{k} = {h}.to({g}) ; v{k}.add_(0.3)
alias by double | v{k} = {h}.double() ; v{k}.mul_(0.5)
alias by contiguous | v{k} = {h}.contiguous() ; v{k}.relu_()
alias by cpu | v{k} = {h}.cpu() ; v{k}.add_(0.5)
alias by dropout | v{k} = F.dropout({h}, 0.5, training=False) ; v{k}.mul_(0.5)
alias by Identity | v{k} = nn.Identity()({h}) ; v{k}.mul_(0.5)
alias by requires_grad_ | v{k} = {h}.requires_grad_(False) ; v{k}.mul_(0.5)
alias by a list | v{k} = [{h}, {g}] ; v{k}[0].mul_(0.5)
alias by a dict | v{k} = dict(a={h}) ; v{k}["a"] += 0.5
alias by a tuple | v{k} = ({h},) ; v{k}[0][:, 0] = 0.2
alias by broadcast_tensors | v{k} = torch.broadcast_tensors({h}, {g})[0] ; v{k}.mul_(0.5)
alias by atleast_2d | v{k} = torch.atleast_2d({h}) ; v{k}.mul_(0.5)
alias by clone, no alias | v{k} = {h}.clone() ; v{k}.zero_()
alias of an input | v{k} = x ; v{k} = v{k} * 2 ; v{k}.add_(1.0)
write through a function | v{k} = lambda t: t.mul_(0.5) ; v{k}({h})
write in a loop over views | v{k} = [part.mul_(0.1 * j) for j, part in enumerate({h}.unbind(1))]
write through zip | v{k} = [a.add_(b) for a, b in zip([{h}], [{g} * 0.5])]
"""

MADE_AND_FILLED = """
== zeros filled by columns
made = torch.zeros({h}.size(0), {w}, dtype={h}.dtype)
made[:, 0] = {h}[:, 0]
made[:, 1:] = {h}[:, 1:] * 0.5
{out} = made

== empty_like filled
made = torch.empty_like({h})
made.copy_({h})
{out} = made * 0.9

== new_zeros filled by a slice
made = {h}.new_zeros({h}.size(0), {w} + 1)
made[:, :{w}] = {h}
{out} = made[:, 1:]

== zeros_like filled by mask
made = torch.zeros_like({h})
mask = {h}[:, 0] > 0.137
made[mask] = {h}[mask]
{out} = made

== out= of a buffer made in forward
made = torch.empty_like({h})
torch.add({h}, 0.5, out=made)
{out} = made

== out= of a column
torch.mul({h}[:, 0], 0.5, out={h}[:, 0])
{out} = {h}

== alias kept, then changed
kept = {h}
{h}.mul_(0.5)
{out} = kept + {h}

== copy kept, then changed
kept = {h}.clone()
{h}.mul_(0.5)
{out} = kept + {h}

== view kept, then base changed
part = {h}[:, :1]
{h}.add_(0.5)
{out} = {h} * part.tanh()

== list of layers changed afterwards
layers = [{h}]
other = {h}.tanh()
layers.append(other)
other.mul_(0.5)
{out} = sum(layers)

== input changed in place
x.mul_(0.5)
{out} = {h} + 0.1

== input's column changed
x[:, 0] = 0.3
{out} = {h} - 0.1

== edge weight changed in place
edge_weight.mul_(0.5)
needs| edge_weight
{out} = {h} + 0.1

== own edge_index changed
edges = edge_index.clone()
edges[0] = edge_index[1]
{out} = {n} + pyg.scatter({n}[edges[0]], edges[1], 0, {n}.size(0), "mean")
"""


def _statements(table):
    """Lines `name | statement ; statement`, none of which binds `{out}`."""
    found = []
    for line in table.strip().splitlines():
        name, code, *init = (part.strip() for part in line.split(" | "))
        lines = [f"init| {text}" for text in init] + code.split(" ; ")
        found += blocks(f"== {name}\n" + "\n".join(lines), gives="")
    return found


family("in place", _statements(IN_PLACE))
family("aliases", _statements(ALIASES))
family("made and filled", blocks(MADE_AND_FILLED))
