"""Walks of the zoo with everything on one device, held against the original model on the CPU.

`python -m tests.device.walk cuda 10 gcn-plain gat-plain`: ten deltas each, a line for each case.
"""

import sys
import warnings
import zlib

import torch

from pyg_incremental import to_incremental
from tests.closeness import assert_close, tensors_of
from tests.oracle import full
from tests.strategies import DELTAS, generator, journey, make_world
from tests.zoo_all import PLAIN


def moved(value, device):
    """The same with all tensors on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: moved(part, device) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(moved(part, device) for part in value)
    return value


def walk(case, device, deltas):
    """Hold every output of one case against the original; returns the mode."""
    rng = generator([5, zlib.crc32(str(case).encode())])
    world = make_world(rng, data=case.data_for("coo"), signed=case.signed, dtype=torch.float64)
    model, twin = case.build()
    inc = to_incremental(model.to(device))
    case.call(inc, moved(world.inputs(), device))
    names = [name for name in journey(rng, finite=case.finite) if "remove" not in name]
    for name in ("first pass", *names[:deltas]):
        if name != "first pass":
            delta = DELTAS[name](world, rng)
            world.apply(**delta)
            inc.apply_delta(**moved(delta, device))
        want = full(twin, world, case.call)
        for got, right in zip(tensors_of(inc.out), tensors_of(want), strict=True):
            assert got.device.type == torch.device(device).type, f"{case}: {got.device}"
            assert_close(got.cpu(), right, what=f"{case}: {name}")
    return inc.mode


def main(device, deltas, *names):
    if device == "standin":
        import tests.device.stand_in  # noqa: F401 (makes the device)
    warnings.simplefilter("ignore")
    for case in PLAIN:
        if case.name in names:
            print(f"{case.name}: {walk(case, device, int(deltas))}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
