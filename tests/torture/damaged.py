"""Files that are cut off or flipped: `load` refuses them, or gives the state that was saved."""

import tempfile
from pathlib import Path

import numpy as np
import torch

from pyg_incremental import StateFileError, load
from tests.trust.small import sage, wrapped


def files(say, seed, count):
    """Damage so many files; returns how many were refused."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    refused = {"cut": 0, "flipped": 0, "overwritten": 0, "of no effect": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        inc = wrapped(warm=True)
        inc.save(path)
        whole, digest = path.read_bytes(), inc.state_digest()
        for i in range(count):
            kind = ("cut", "flipped", "overwritten")[i % 3]
            at = int((i + rng.random()) / count * len(whole))  # every region has its turn
            say(f"seed {seed}: file {i}, {kind} at byte {at} of {len(whole)}")
            path.write_bytes(damaged(whole, kind, at, rng))
            try:
                loaded = load(path, sage())
            except StateFileError:
                refused[kind] += 1
                continue
            assert loaded.state_digest() == digest, "another state was loaded"
            assert loaded.check() == []
            refused["of no effect"] += 1
    return refused


def damaged(whole, kind, at, rng):
    """The bytes of a file, with something wrong from byte `at` on."""
    if kind == "cut":
        return whole[:at]
    some = bytearray(whole)
    if kind == "flipped":
        some[at] ^= 1 << int(rng.integers(8))
    else:
        more = rng.integers(256, size=int(rng.integers(1, 64))).astype(np.uint8).tobytes()
        some[at : at + len(more)] = more
    return bytes(some)
