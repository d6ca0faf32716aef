"""What a model keeps from call to call: caches, counters, fits, buffers written in forward."""

from tests.fuzz.operation import blocks, family

KEPT = """
== GCNConv cached
init| self.conv{k} = gnn.GCNConv({w}, {w}, cached=True)
{out} = self.conv{k}({n}, edge_index)

== SGConv cached
init| self.conv{k} = gnn.SGConv({w}, {w}, K=2, cached=True)
{out} = self.conv{k}({n}, edge_index)

== APPNP cached
init| self.conv{k} = gnn.APPNP(K=2, alpha=0.1, cached=True)
{out} = self.conv{k}({n}, edge_index)

== own cache of edge_index
init| self.seen{k} = None
if self.seen{k} is None:
    self.seen{k} = edge_index
{out} = pyg.scatter({n}[self.seen{k}[0]], self.seen{k}[1], 0, {n}.size(0), "mean")

== own cache of degrees
init| self.degrees{k} = None
if self.degrees{k} is None:
    self.degrees{k} = pyg.degree(edge_index[1], {n}.size(0), x.dtype)
{out} = {n} / (1 + self.degrees{k}.view(-1, 1))

== own cache of a number
init| self.count{k} = None
if self.count{k} is None:
    self.count{k} = {n}.size(0)
{out} = {n} * (self.count{k} * 0.01)

== fitted on first sight
init| self.mean{k} = None
if self.mean{k} is None:
    self.mean{k} = {h}.mean(0)
{out} = {h} - self.mean{k}

== fitted buffer on first sight
init| self.register_buffer("mean{k}", torch.zeros({w}))
init| self.register_buffer("fitted{k}", torch.tensor(False))
if not self.fitted{k}:
    self.mean{k}.copy_({h}.mean(0))
    self.fitted{k}.fill_(True)
{out} = {h} - self.mean{k}

== buffer assigned in forward
init| self.register_buffer("last{k}", torch.zeros({w}))
self.last{k} = {h}.sum(0).tanh()
{out} = {h} + self.last{k}

== buffer written in forward
init| self.register_buffer("last{k}", torch.zeros({w}))
self.last{k}.mul_(0.5).add_({h}.mean(0))
{out} = {h} - self.last{k}

== attribute assigned in forward
self.kept{k} = {h}
{out} = {h} + self.kept{k}.tanh()

== attribute assigned, then read by a submodule
top| class Reader{k}(nn.Module):
top|     def forward(self, t):
top|         return t + self.row
init| self.reader{k} = Reader{k}()
self.reader{k}.row = {h}.mean(0)
{out} = self.reader{k}({h})

== counter, unused
init| self.calls{k} = 0
self.calls{k} += 1
{out} = {h} * 0.9

== counter, used
init| self.calls{k} = 0
self.calls{k} += 1
{out} = {h} * (0.5 * self.calls{k})

== counter in a buffer
init| self.register_buffer("calls{k}", torch.zeros(()))
self.calls{k} += 1
{out} = {h} * self.calls{k} * 0.5

== list that grows
init| self.history{k} = []
self.history{k}.append({h})
{out} = {h} + 0.1 * len(self.history{k})

== dict by size
init| self.table{k} = {}
if {h}.size(0) not in self.table{k}:
    self.table{k}[{h}.size(0)] = {h}.sum(0).tanh()
{out} = {h} + self.table{k}[{h}.size(0)]

== alternating
init| self.odd{k} = False
self.odd{k} = not self.odd{k}
{out} = {h}.tanh() if self.odd{k} else {h}

== moving average
init| self.register_buffer("mean{k}", torch.zeros(1, {w}))
with torch.no_grad():
    self.mean{k} = 0.9 * self.mean{k} + 0.1 * {h}.mean(0, keepdim=True)
{out} = {h} - self.mean{k}

== forward hook that keeps
top| def keep{k}(module, args, out):
top|     module.kept = out
init| self.lin{k} = nn.Linear({w}, {w})
init| self.lin{k}.register_forward_hook(keep{k})
{out} = self.lin{k}({h}) + self.lin{k}.kept.tanh()

== forward hook that counts
top| def count{k}(module, args, out):
top|     module.calls = getattr(module, "calls", 0) + 1
top|     return out * (0.5 * module.calls)
init| self.lin{k} = nn.Linear({w}, {w})
init| self.lin{k}.register_forward_hook(count{k})
{out} = self.lin{k}({h})

== attribute deleted
self.made{k} = {h}.tanh()
{out} = {h} + self.made{k}
del self.made{k}

== attribute set by setattr
setattr(self, "made{k}", {h} * 0.5)
{out} = {h} + getattr(self, "made{k}")

== parameter's data written
init| self.scale{k} = nn.Parameter(torch.ones({w}))
self.scale{k}.data.clamp_(0.1, 0.9)
{out} = {h} * self.scale{k}

== set of sizes that grows
init| self.sizes{k} = set()
self.sizes{k}.add(edge_index.size(1))
{out} = {h} + 0.05 * len(self.sizes{k})
"""

family("memory", blocks(KEPT))
