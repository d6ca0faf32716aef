"""On another device than the CPU no step mixes the two, and none falls to a slower mode."""

import pytest
import torch.utils.backend_registration as backends

from tests.processes import ROOT, run_script

CASES = (
    "gcn-plain", "sage-mean", "GIN", "gat-plain", "graph-mean-weights", "sage-max",
    "own-median", "multi-aggregation-attention",
)  # fmt: skip


@pytest.mark.unmeasured
@pytest.mark.skipif(
    not hasattr(backends, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch has no backends written in Python",
)
def test_stand_in_for_a_gpu(tmp_path):
    walk = "import runpy; runpy.run_module('tests.device.walk', run_name='__main__')"
    printed, _ = run_script(walk, ROOT, tmp_path, "standin", 6, *CASES)
    assert sorted(printed.split("\n")[:-1]) == sorted(f"{c}: incremental" for c in CASES)
