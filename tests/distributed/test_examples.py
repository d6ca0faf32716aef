"""The examples that may run as one process do; `test_processes.py` runs ranks."""

import re
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def script(monkeypatch, tmp_path):
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delenv("RANK", raising=False)

    def run(name, *arguments):
        return runpy.run_path(str(EXAMPLES / name))["main"](list(arguments))

    yield run
    torch.set_num_threads(threads)


def test_distributed(script, capsys):
    assert script("distributed.py", "--nodes", "2000", "--updates", "2", "--method", "ldg") == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert re.fullmatch(r"distributed ok: ranks=1 max_abs_diff=\S+", last)


def test_papers_from_shards(script, capsys):
    name = "ogbn_papers100M.py"
    assert script(name, "shards", "--synthetic", "500", "--parts", "1") == 0
    assert script(name, "run", "--batch", "20", "--updates", "2", "--verify") == 0
    assert "papers100M ok: ranks=1" in capsys.readouterr().out
    assert script(name, "shards", "--root", "nothing") == 1
    assert "Download it once" in capsys.readouterr().err
