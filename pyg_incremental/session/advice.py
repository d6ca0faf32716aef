"""What to write instead of what is not followed change by change."""

_TWO_SIDES = (
    "if edges lead from nodes of one type to those of another, say which argument has which: "
    "roles={'x_src': 'node(src)', 'x_dst': 'node(dst)'}"
)
_ADVICE = (
    # The whole model.
    ("draws random numbers", "draw them before the call, and hand them in as node features"),
    ("(Linear) from call to call", "torch.nn.utils.prune.remove(layer, 'weight') makes it last"),
    ("from call to call", "keep it outside of the model, or hand it in as an argument"),
    ("cannot be copied", "keep what can't be copied (files, locks, loaders) outside of the model"),
    ("scripted", "wrap the model as it was before torch.jit.script"),
    ("hooks on all modules", "take the global hooks off while the wrapped model is called"),
    ("torch.autocast", "call model.to(dtype) once, and leave autocast out of forward"),
    ("beside tensors", "return tensors alone, in tuples, lists or dicts"),
    ("shares memory with", "write to a copy: h = h.clone() before h[...] = ... or h.add_(...)"),
    ("makes a tensor in a way", "make it with functions of torch, such as torch.zeros_like(h)"),
    (
        "must match the size of tensor",
        "hold rows of edges by self.register_buffer('w', w)",
    ),
    ("invalid 'dim_size'", _TWO_SIDES),
    ("does not run on a probe", "let the model take a graph of any size with any ids in range"),
    ("edges left, with which the model does something else", "call the model again on more edges"),
    ("fails on a probe", "let no step rely on how many rows there are"),
    ("differs from the model", "hand in what the model reads from elsewhere as an argument"),
    ("depends on the values", "compute with tensors (torch.where, masks), without .item() and if"),
    ("depends on a number of rows", "hand the number in as an argument, or compute with tensors"),
    ("depends on sizes", "take sizes from arguments that no delta changes"),
    # One conv.
    ("largest entry of its Laplacian", "pass lambda_max, such as 2.0 for a normalised Laplacian"),
    ("hooks", "take the hook off, and write what it does into forward"),
    ("has no program", "use a layer of 'Supported layers', or register one with register_conv"),
    ("without node features", "let it read learned rows: conv(embedding.weight, edge_index, ...)"),
    ("computed from node rows", "compute it in message() of a MessagePassing of your own"),
    ("edges are computed by the model", "make them before the call, and change them by deltas"),
    ("were turned around", "turn all of the graphs around, or hand the other direction in"),
    ("is not computed node by node", f"mend the step that it reads; {_TWO_SIDES}"),
    ("is not computed", "mend the step that it reads; see the line above"),
    ("computed from all rows", "mend the step that it reads; see the line above"),
    # One operation.
    ("how large the graph is", "leave the number out: torch.zeros_like(h) and scatter need none"),
    ("combines edge rows with something", "scale rows by what is fixed, or by rows of their nodes"),
    ("rows gathered along edges with", "bring the other tensor in before the gather, on node rows"),
    ("mixes rows in this call", "name the channels: squeeze(-1), sum(-1), softmax(dim=-1)"),
    ("rows of different kinds", "gather both at the edges between them, or return each by itself"),
    ("node rows and edge rows", "gather node rows at the edges first: h[edge_index[0]]"),
    ("edges are turned around", "hand them in by direction, or use flow='target_to_source'"),
    ("keep the rows", "leave the first dimension alone: h.view(h.size(0), ...)"),
    ("rows grow with the graph", "score the pairs of an edge_label_index, not all of them"),
    ("for each input row", "ask by vectors of ids, h[src], h[dst]; by masks h[mask] = f(h[mask])"),
    ("Norm", "normalise each node by itself: BatchNorm, or LayerNorm(mode='node')"),
    ("mixes", "let each row be computed from the same row of what it reads"),
    ("known to be row-wise", "write it with elementwise operations and linear layers"),
    ("does not work on rows", "derive it from node rows, as torch.zeros_like(h) does"),
    ("reads the graph", "use x[edge_index[0]] and scatter, or a MessagePassing of your own"),
)  # fmt: skip


def advice_on(reason: str) -> str:
    """What to write instead, for a reason that a step gives; empty if nothing is known."""
    return next((advice for part, advice in _ADVICE if part in reason), "")
