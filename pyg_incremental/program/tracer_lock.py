"""One tracer of PyTorch at a time.

`torch.fx` patches `nn.Module` for the whole process while it traces, and puts back what it found.
If two threads trace at the same time, what one of them found is the patch of the other; that stays,
and hands the modules of a later thread to a tracer that is long through.
"""

import threading

ONE_TRACER = threading.Lock()
"""To be held by whoever runs a tracer, `make_fx` included."""
