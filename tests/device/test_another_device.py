"""On another device than the CPU no step mixes the two, and none falls to a slower mode."""

import subprocess
import sys

import pytest
import torch.utils.backend_registration as backends

CASES = (
    "gcn-plain", "sage-mean", "GIN", "gat-plain", "graph-mean-weights", "sage-max",
    "own-median", "multi-aggregation-attention",
)  # fmt: skip


@pytest.mark.unmeasured
@pytest.mark.skipif(
    not hasattr(backends, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch has no backends written in Python",
)
def test_stand_in_for_a_gpu():
    command = [sys.executable, "-m", "tests.device.walk", "standin", "6", *CASES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.split("\n")[:-1]) == sorted(f"{c}: incremental" for c in CASES)
