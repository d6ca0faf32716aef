"""Hooks on modules, on parts of convs, on what convs do; overridden methods of convs."""

from tests.fuzz.operation import blocks, family

ON_MODULES = """
== register_forward_hook on a Linear
init| self.lin{k} = nn.Linear({w}, {w})
init| self.lin{k}.register_forward_hook(lambda module, args, out: out * 0.5)
{out} = self.lin{k}({h})

== register_forward_pre_hook on a Linear
init| self.lin{k} = nn.Linear({w}, {w})
init| self.lin{k}.register_forward_pre_hook(lambda module, args: (args[0].tanh(),))
{out} = self.lin{k}({h})

== register_forward_hook that keeps the output
init| self.lin{k} = nn.Linear({w}, {w})
init| self.lin{k}.register_forward_hook(lambda module, args, out: None)
{out} = self.lin{k}({h})

== register_forward_hook that writes
init| self.lin{k} = nn.Linear({w}, {w})
init| self.lin{k}.register_forward_hook(lambda module, args, out: out.mul_(0.5) and None if out.numel() == 1 else out.mul_(0.5))
{out} = self.lin{k}({h})

== register_forward_hook on an activation
init| self.act{k} = nn.ReLU()
init| self.act{k}.register_forward_hook(lambda module, args, out: out + 0.25)
{out} = self.act{k}({h})

== register_forward_hook that mixes rows
init| self.lin{k} = nn.Linear({w}, {w})
init| self.lin{k}.register_forward_hook(lambda module, args, out: out - out.mean(0))
{out} = self.lin{k}({h})

== nn.utils.parametrize
top| class Half{k}(nn.Module):
top|     def forward(self, weight):
top|         return weight * 0.5
init| self.lin{k} = nn.Linear({w}, {w})
init| nn.utils.parametrize.register_parametrization(self.lin{k}, "weight", Half{k}())
{out} = self.lin{k}({h})

== forward of an instance
init| self.lin{k} = nn.Linear({w}, {w})
init| self.lin{k}.forward = lambda t: t * 0.5
{out} = self.lin{k}({h})
"""

SUBCLASSES = """
== own Linear
top| class Linear{k}(nn.Linear):
top|     def forward(self, t):
top|         return super().forward(t).tanh() * 0.5
init| self.lin{k} = Linear{k}({w}, {w})
{out} = self.lin{k}({h})

== own ReLU
top| class ReLU{k}(nn.ReLU):
top|     def forward(self, t):
top|         return t.relu() + 0.3
init| self.act{k} = ReLU{k}()
{out} = self.act{k}({h})

== own module with __call__
top| class Shift{k}(nn.Module):
top|     def __call__(self, t):
top|         return super().__call__(t) + 0.3
top|     def forward(self, t):
top|         return t * 0.5
init| self.shift{k} = Shift{k}()
{out} = self.shift{k}({h})
"""

ON_CONVS = """
forward hook on GCNConv | gnn.GCNConv({w}, {w}) | conv{k}.register_forward_hook(lambda module, args, out: out * 0.5)
forward pre-hook on SAGEConv | gnn.SAGEConv({w}, {w}) | conv{k}.register_forward_pre_hook(lambda module, args: (args[0].tanh(), *args[1:]))
hook on lin of GCNConv | gnn.GCNConv({w}, {w}) | conv{k}.lin.register_forward_hook(lambda module, args, out: out * 0.5 + 0.1)
pre-hook on lin of GCNConv | gnn.GCNConv({w}, {w}) | conv{k}.lin.register_forward_pre_hook(lambda module, args: (args[0].relu(),))
hook on lin_l of SAGEConv | gnn.SAGEConv({w}, {w}) | conv{k}.lin_l.register_forward_hook(lambda module, args, out: out + 0.5)
pre-hook on lin_l of SAGEConv | gnn.SAGEConv({w}, {w}) | conv{k}.lin_l.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
hook on lin_r of SAGEConv | gnn.SAGEConv({w}, {w}) | conv{k}.lin_r.register_forward_hook(lambda module, args, out: out.tanh())
hook on aggr_module of SAGEConv | gnn.SAGEConv({w}, {w}) | conv{k}.aggr_module.register_forward_hook(lambda module, args, out: out * 0.5)
hook on aggr_module of GraphConv | gnn.GraphConv({w}, {w}, aggr="max") | conv{k}.aggr_module.register_forward_hook(lambda module, args, out: out + 0.5)
pre-hook on aggr_module | gnn.GINConv(nn.Linear({w}, {w})) | conv{k}.aggr_module.register_forward_pre_hook(lambda module, args: (args[0] * 0.5, *args[1:]))
hook on lin of GATConv | gnn.GATConv({w}, {w}) | conv{k}.lin.register_forward_hook(lambda module, args, out: out * 0.5)
hook on lin_key of TransformerConv | gnn.TransformerConv({w}, {w}) | conv{k}.lin_key.register_forward_hook(lambda module, args, out: out * 0.5)
hook on nn of GINConv | gnn.GINConv(nn.Sequential(nn.Linear({w}, {w}), nn.ReLU())) | conv{k}.nn[0].register_forward_hook(lambda module, args, out: out * 0.5)
propagate hook | gnn.SAGEConv({w}, {w}) | conv{k}.register_propagate_forward_hook(lambda module, args, out: out * 0.5)
propagate pre-hook | gnn.GCNConv({w}, {w}) | conv{k}.register_propagate_forward_pre_hook(lambda module, args: (args[0].flip(0), *args[1:]))
message hook | gnn.SAGEConv({w}, {w}) | conv{k}.register_message_forward_hook(lambda module, args, out: out.relu())
message pre-hook | gnn.GCNConv({w}, {w}) | conv{k}.register_message_forward_pre_hook(lambda module, args: (dict(args[0], x_j=args[0]["x_j"] * 0.5),))
aggregate hook | gnn.GraphConv({w}, {w}) | conv{k}.register_aggregate_forward_hook(lambda module, args, out: out.tanh())
aggregate pre-hook | gnn.SAGEConv({w}, {w}, aggr="max") | conv{k}.register_aggregate_forward_pre_hook(lambda module, args: None)
edge_update hook | gnn.GATConv({w}, {w}) | conv{k}.register_edge_update_forward_hook(lambda module, args, out: out * 0.5)
message_and_aggregate hook | gnn.GCNConv({w}, {w}) | conv{k}.register_message_and_aggregate_forward_hook(lambda module, args, out: out * 0.5)
explain switched on | gnn.SAGEConv({w}, {w}) | conv{k}.explain = None
"""

METHODS = """
GCNConv own message | GCNConv | def message(self, x_j, edge_weight): | return x_j.tanh() if edge_weight is None else edge_weight.view(-1, 1) * x_j.tanh()
GCNConv own propagate | GCNConv | def propagate(self, edge_index, size=None, **kwargs): | return super().propagate(edge_index, size=size, **kwargs) * 0.5
GCNConv own aggregate | GCNConv | def aggregate(self, inputs, index, dim_size=None): | return pyg.scatter(inputs, index, 0, dim_size, "max")
GCNConv own update | GCNConv | def update(self, inputs): | return inputs * 0.5
GCNConv own forward | GCNConv | def forward(self, x, edge_index): | return super().forward(x.tanh(), edge_index) + 0.1
SAGEConv own message | SAGEConv | def message(self, x_j): | return x_j * 0.5
SAGEConv own message of both ends | SAGEConv | def message(self, x_j, x_i): | return x_j - x_i
SAGEConv own message of index | SAGEConv | def message(self, x_j, index): | return x_j * (1 + index.view(-1, 1) * 0.01)
SAGEConv own aggregate | SAGEConv | def aggregate(self, inputs, index, dim_size=None): | return pyg.scatter(inputs, index, 0, dim_size, "min")
SAGEConv own update | SAGEConv | def update(self, inputs): | return inputs.tanh()
SAGEConv own update over all | SAGEConv | def update(self, inputs): | return inputs - inputs.mean(0)
SAGEConv own propagate | SAGEConv | def propagate(self, edge_index, size=None, **kwargs): | return super().propagate(edge_index.flip(0), size=size, **kwargs)
GATConv own message | GATConv | def message(self, x_j, alpha): | return alpha.unsqueeze(-1) * x_j.tanh()
GATConv own edge_update | GATConv | def edge_update(self, alpha_j, alpha_i, index, ptr, dim_size): | return pyg.softmax(alpha_j.tanh() + alpha_i, index, ptr, dim_size)
GraphConv own forward | GraphConv | def forward(self, x, edge_index): | return super().forward(x, edge_index.flip(0)) * 0.5
"""

WHOLE_CONVS = """
== own MessagePassing
top| class Own{k}(gnn.MessagePassing):
top|     def __init__(self, width):
top|         super().__init__(aggr="mean")
top|         self.lin = nn.Linear(2 * width, width)
top|
top|     def forward(self, x, edge_index):
top|         return self.propagate(edge_index, x=x)
top|
top|     def message(self, x_i, x_j):
top|         return self.lin(torch.cat([x_i, x_j - x_i], dim=-1)).relu()
init| self.conv{k} = Own{k}({w})
{out} = self.conv{k}({n}, edge_index)

== own MessagePassing with degrees
top| class Own{k}(gnn.MessagePassing):
top|     def __init__(self):
top|         super().__init__(aggr="add")
top|
top|     def forward(self, x, edge_index):
top|         edge_index, _ = pyg.add_self_loops(edge_index, num_nodes=x.size(0))
top|         root = pyg.degree(edge_index[1], x.size(0), dtype=x.dtype).pow(-0.5)
top|         return self.propagate(edge_index, x=x, norm=root[edge_index[0]] * root[edge_index[1]])
top|
top|     def message(self, x_j, norm):
top|         return norm.view(-1, 1) * x_j
init| self.conv{k} = Own{k}()
{out} = self.conv{k}({n}, edge_index)

== own MessagePassing that writes
top| class Own{k}(gnn.MessagePassing):
top|     def __init__(self):
top|         super().__init__(aggr="max")
top|
top|     def forward(self, x, edge_index):
top|         out = self.propagate(edge_index, x=x)
top|         out += x
top|         return out.clamp_(-0.9, 0.9)
top|
top|     def message(self, x_j):
top|         return x_j
init| self.conv{k} = Own{k}()
{out} = self.conv{k}({n}, edge_index)

== own MessagePassing that looks at all messages
top| class Own{k}(gnn.MessagePassing):
top|     def __init__(self):
top|         super().__init__(aggr="mean")
top|
top|     def forward(self, x, edge_index):
top|         return self.propagate(edge_index, x=x)
top|
top|     def message(self, x_j):
top|         return x_j - x_j.mean(0) if x_j.size(0) else x_j
init| self.conv{k} = Own{k}()
{out} = self.conv{k}({n}, edge_index)

== own block with convs
top| class Block{k}(nn.Module):
top|     def __init__(self, width):
top|         super().__init__()
top|         self.conv = gnn.SAGEConv(width, width)
top|         self.norm = nn.LayerNorm(width)
top|
top|     def forward(self, x, edge_index):
top|         return x + self.norm(self.conv(x, edge_index)).relu()
init| self.block{k} = Block{k}({w})
{out} = self.block{k}({n}, edge_index)

== own block with a hook
top| class Block{k}(nn.Module):
top|     def __init__(self, width):
top|         super().__init__()
top|         self.conv = gnn.GCNConv(width, width)
top|
top|     def forward(self, x, edge_index):
top|         return self.conv(x, edge_index).tanh()
init| self.block{k} = Block{k}({w})
init| self.block{k}.register_forward_hook(lambda module, args, out: out[:, :1] + out)
{out} = self.block{k}({n}, edge_index)

== global forward hook
init| self.lin{k} = nn.Linear({w}, {w})
handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 0.5)
try:
    {out} = self.lin{k}({h})
finally:
    handle.remove()
"""


def _hooked(table):
    found = []
    for line in table.strip().splitlines():
        name, made, hook = (part.strip() for part in line.split(" | "))
        init = f"init| self.conv{{k}} = {made}\ninit| self.{hook}\n"
        found += blocks(f"== {name}\n{init}{{out}} = self.conv{{k}}({{n}}, edge_index)")
    return found


def _overridden(table):
    found = []
    for line in table.strip().splitlines():
        name, base, head, body = (part.strip() for part in line.split(" | "))
        top = f"top| class Own{{k}}(gnn.{base}):\ntop|     {head}\ntop|         {body}\n"
        init = "init| self.conv{k} = Own{k}({w}, {w})\n"
        found += blocks(f"== {name}\n{top}{init}{{out}} = self.conv{{k}}({{n}}, edge_index)")
    return found


family("hooks", blocks(ON_MODULES), _hooked(ON_CONVS))
family("subclasses", blocks(SUBCLASSES), _overridden(METHODS), blocks(WHOLE_CONVS))
