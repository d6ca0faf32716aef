"""What a model returns. `{a}` and `{b}` are any two variables of rows, or of one number per row."""

from tests.fuzz.operation import Operation, family

ONE = """
rows | {a}
rows, normalised | {h}.log_softmax(dim=-1)
rows of sigmoid | torch.sigmoid({h})
rows, a slice of columns | {h}[:, :1]
vector per row | {h}.sum(-1)
vector by squeeze | {h}[:, :1].squeeze()
first rows | {h}[:{size}]
last rows | {h}[{size}:]
half of the rows | {h}[: {h}.size(0) // 2]
masked rows | {h}[{r}[:, 0] > 0.137] if {h}.size(0) == {r}.size(0) else {h}
masked rows of values | {h}[{h}[:, 0] > 0.137]
one row | {h}.mean(0)
one row, kept | {h}.sum(0, keepdim=True)
one row of the largest | {h}.amax(dim=0)
one row of the smallest | torch.min({h}, 0).values
one row of several | torch.cat([{a}.mean(0), {h}.amax(0)]) if {a}.dim() == 2 else {h}.mean(0)
scalar | {h}.mean()
graph vector | gnn.global_mean_pool({h}, torch.zeros({h}.size(0), dtype=torch.long))
columns | {h}.t()
product of all pairs | ({h} @ {h}.t()).sigmoid()
scores of edges | ({n}[edge_index[0]] * {n}[edge_index[1]]).sum(-1)
rows of edges | torch.cat([{n}[edge_index[0]], {n}[edge_index[1]]], dim=-1)
one row more | torch.cat([{h}, {h}.mean(0, keepdim=True)])
twice as many rows | torch.cat([{h}, {h} * 0.5])
repeated rows | {h}.repeat_interleave(2, dim=0)
three dimensions | {h}.view({h}.size(0), -1, 1)
batch of one | {h}.unsqueeze(0)
rows in single precision | {h}.float()
comparison | {h} > 0.137
input as it is | x
detached | {h}.detach()
"""

SEVERAL = """
tuple | {a}, {b}
list | [{a}, {b}]
dict | {"first": {a}, "second": {b}}
the same twice | {a}, {a}
the same twice and a part | {h}, {h}, {h}[:, :1]
with None | {a}, None
with the input | {a}, x
with edge_index | {a}, edge_index
with a number | {a}, {h}.size(0)
with a constant | {a}, 3.5
rows and a scalar | {a}, {h}.mean()
rows and a row | {h}, {h}.mean(0)
rows and a slice | {h}, {h}[:{size}]
nested | ({a}, ({b}, [{a}]))
dict of lists | {"rows": [{a}, {b}], "none": None}
tuple of one | ({a},)
rows and scores of edges | {n}, ({n}[edge_index[0]] * {n}[edge_index[1]]).sum(-1)
NamedTuple | Result({a}, {b})
NamedTuple with the same | Result({a}, {a})
"""

RESULT = """\
class Result(NamedTuple):
    first: Tensor
    second: Tensor"""


def _returns(table):
    found = []
    for line in table.strip().splitlines():
        name, value = (part.strip() for part in line.split(" | "))
        top = RESULT if "Result(" in value else ""
        found.append(Operation(f"return {name}", f"return {value}", top=top, gives=""))
    return found


family("one output", _returns(ONE))
family("several outputs", _returns(SEVERAL))
