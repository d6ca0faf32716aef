"""Python around tensors: branches, loops, functions, containers, global switches."""

from tests.fuzz.operation import blocks, family

BRANCHES = """
if isinstance Tensor | isinstance({h}, Tensor)
if type is Tensor | type({h}) is Tensor
if torch.is_tensor | torch.is_tensor({h})
if number of rows | {h}.size(0) > 40
if number of rows, small | {h}.shape[0] < 24
if number of nodes even | x.size(0) % 2 == 0
if number of edges | edge_index.size(1) > 100
if more edges than nodes | edge_index.shape[1] > 3 * x.shape[0]
if len | len({h}) > 60
if numel | {h}.numel() > 200
if rank | {h}.dim() == 2
if ndim | {h}.ndim > 1
if dtype | {h}.dtype == torch.float64
if is_floating_point | {h}.is_floating_point()
if torch.is_floating_point | torch.is_floating_point({h})
if device | {h}.device.type == "cpu"
if is_cuda | not {h}.is_cuda
if width | {h}.size(-1) == {w}
if contiguous | {h}.is_contiguous()
if requires_grad | {h}.requires_grad
if training | self.training
if torch.is_grad_enabled | torch.is_grad_enabled()
if torch.jit.is_scripting | not torch.jit.is_scripting()
if torch.compiler.is_compiling | torch.compiler.is_compiling()
if sum of values | {h}.sum() > 0.137
if mean of a column | {h}[:, {i}].mean() > 0.137
if max of values | {h}.numel() and {h}.max() > 0.913
if any of values | ({h} > 1.137).any()
if torch.all of values | torch.all({h} < 2.137)
if first value of an input | {r}.numel() and {r}[0, 0] > 0.137
if item of an input | {r}.numel() and {r}[0, -1].item() > 0.137
if torch.equal | torch.equal({h}, {h})
if torch.allclose | torch.allclose({h}, {h} + 1.0)
if isnan any | torch.isnan({h}).any()
if self-loops | pyg.contains_self_loops(edge_index)
if isolated nodes | pyg.contains_isolated_nodes(edge_index, x.size(0))
if hasattr | hasattr({h}, "relu")
if is not None | {h} is not None
if is x | {h} is x
if last target | edge_index.numel() and edge_index[1, -1] > 7
if edge_index max | edge_index.numel() and int(edge_index.max()) + 1 == x.size(0)
if callable on the class | callable(getattr(type({h}), "__torch_function__", None))
if type name | type({h}).__name__ == "Tensor"
if str of shape | str(tuple({h}.shape)).endswith("{w})")
if bool of a tensor | bool(({h}.sum() > 0.137) & ({h}.sum() < 50.137))
"""

LINES = """
== ternary on a size
{out} = {t:h} if {h}.size(0) > 30 else {t:h}

== short circuit on a size
{out} = {h} * (({h}.size(0) > 30 and 0.5) or 0.7)

== for over range
{out} = {h}
for _ in range(2):
    {out} = {t:out}

== for over a number of rows
{out} = {h}
for _ in range(min({h}.size(0) // 20, 4)):
    {out} = ({out} * 0.9).tanh()

== while on a value
{out} = {h}
while {out}.numel() and {out}.abs().max() > 1.137:
    {out} = {out} * 0.5

== while on a counter
{out}, left = {h}, 3
while left:
    {out}, left = {t:out}, left - 1

== for with break
{out} = {h}
for step in range(5):
    {out} = {out} * 0.8 + 0.1
    if {out}.size(0) > 30 * step:
        break

== lambda
act = lambda t: {t:t}
{out} = act({h})

== nested function
def inner(t, scale=0.5):
    return {t:t} * scale
{out} = inner({h})

== closure over a tensor
def inner(t):
    return t + {g}.tanh()
{out} = inner({h})

== map over a list
{out} = sum(map(torch.tanh, [{h}, {g}]))

== list comprehension
{out} = sum([t * (j + 1) * 0.3 for j, t in enumerate([{h}, {g}])])

== dict of tensors
parts = {"a": {h}, "b": {g}}
{out} = parts["a"] + sum(parts[key] for key in sorted(parts))

== unpacking
first, *rest = {h}, {g}, {h}
{out} = first + rest[-1] * 0.5

== swap
a, b = {h}, {g}
a, b = b, a
{out} = a - 0.5 * b

== functools.reduce by hand
{out} = {h}
for t in ({h}, {g}):
    {out} = torch.maximum({out}, t)

== try
try:
    {out} = {h}.no_such_method()
except AttributeError:
    {out} = {t:h}

== try that works
try:
    {out} = {t:h}
finally:
    pass

== with torch.no_grad
with torch.no_grad():
    {out} = {t:h}

== with torch.enable_grad
with torch.enable_grad():
    {out} = {t:h}

== torch.set_grad_enabled
with torch.set_grad_enabled(False):
    {out} = {h} * 0.5 + 0.1

== torch.inference_mode
with torch.inference_mode():
    {out} = {h} * 0.5 + 0.1

== module made in forward
{out} = nn.ReLU()({h}) + nn.Tanh()({h})

== nn.LayerNorm made in forward
{out} = nn.LayerNorm({w}, dtype={h}.dtype)({h})

== nn.Sequential made in forward
{out} = nn.Sequential(nn.ReLU(), nn.Softmax(dim=-1))({h})

== activation by name
{out} = getattr(torch, "tanh")({h})

== activation by dict
{out} = {"relu": F.relu, "tanh": torch.tanh}["relu"]({h})

== method by getattr
{out} = getattr({h}, "clamp")(-0.5, 0.8)

== Tensor method as a function
{out} = Tensor.relu({h}) + Tensor.mul({h}, 0.5)

== assert on a shape
assert {h}.size(1) == {w}
{out} = {t:h}

== assert on values
assert torch.isfinite({h}).all() or {h}.size(0) >= 0
{out} = {t:h}

== f-string of a size
name = f"{{h}.size(-1)} columns"
{out} = {h} * len(name) * 0.1

== two dimensions of a shape
rows, columns = {h}.shape
{out} = {h}.reshape(rows, columns) / columns

== torch.Size as an argument
{out} = {h} + torch.zeros({h}.shape, dtype={h}.dtype)

== int of a size
{out} = {h} * (int({h}.size(0)) * 0.01)

== torch.jit.annotate
{out} = torch.jit.annotate(Tensor, {h}) * 0.9

== torch.utils.checkpoint
from torch.utils.checkpoint import checkpoint
{out} = checkpoint(torch.tanh, {h}, use_reentrant=False)

== torch.func.vmap
{out} = torch.func.vmap(lambda row: row - row.mean())({h})

== torch.vmap over columns
{out} = torch.vmap(lambda column: column - column.mean(), in_dims=1, out_dims=1)({h})

== torch.manual_seed and rand
state = torch.random.get_rng_state()
torch.manual_seed(7)
{out} = {h} + torch.rand(1, {w}, dtype={h}.dtype)
torch.random.set_rng_state(state)

== seeded noise per row
noise = torch.Generator().manual_seed(5)
{out} = {h} + torch.randn({h}.size(0), {w}, dtype={h}.dtype, generator=noise) * 0.1

== rows from numpy
import numpy
{out} = torch.from_numpy(numpy.tanh({h}.numpy()))

== torch.tensor of shapes
{out} = {h} * torch.tensor({h}.shape).prod().clamp(max=100) * 0.01

== default argument
def scaled(t, by={h}.size(0)):
    return t * (by * 0.01)
{out} = scaled({h})

== generator
def parts():
    yield {h}
    yield {g} * 0.5
{out} = sum(parts())

== sorted by size
{out} = sorted([{h}, {g}], key=len)[0] * 0.9

== early value
{out} = {h}
if {h}.size(0) == 0:
    {out} = {h} + 1

== dropout module in training mode off
drop = nn.Dropout(0.5).eval()
{out} = drop({h})

== double negation by flags
flip = x.size(0) > 25
{out} = -{h} if flip else {h}

== empty tensor check
{out} = {h} if edge_index.numel() else {h} * 0.5
"""


def _branches(table):
    found = []
    for line in table.strip().splitlines():
        name, test = (part.strip() for part in line.split(" | "))
        body = f"== {name}\nif {test}:\n    {{out}} = {{t:h}}\nelse:\n    {{out}} = {{h}} * 0.7"
        found += blocks(body)
    return found


family("branches", _branches(BRANCHES))
family("python", blocks(LINES))
