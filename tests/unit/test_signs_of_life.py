"""What a model says while it works: to a logger, on a bar, and in numbers."""

import contextlib
import inspect
import logging
import re

import pytest
import torch
from torch_geometric.nn import GCN, GraphSAGE

from pyg_incremental import load, to_incremental
from pyg_incremental.session.settings import Options, Settings
from pyg_incremental.telemetry import metrics, progress

NODES = 12


def small(model=None, **options):
    torch.manual_seed(3)
    inc = to_incremental((model or GCN(4, 5, 2, 2)).double().eval(), **options)
    x, edges = torch.randn(NODES, 4).double(), torch.randint(NODES, (2, 30))
    return inc, x, edges


@contextlib.contextmanager
def heard(level=logging.INFO):
    """What the loggers of the package say, as `logger: text`."""
    said = []
    logger, handler = logging.getLogger("pyg_incremental"), logging.Handler()
    handler.emit = lambda r: said.append(f"{r.name}: {r.levelname}: {r.getMessage()}")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def add(inc, k):
    return inc.apply_delta(edge_index_add=[[k % NODES], [(k * 5 + 1) % NODES]])


# The logger #######################################################################################


def test_first_passes_saves_and_loads_are_told_and_small_updates_are_not(tmp_path):
    inc, x, edges = small()
    with heard() as said:
        inc(x, edges)
        assert any("first pass of GCN: 12 nodes, 30 edges" in line for line in said), said
        del said[:]
        for k in range(3):
            add(inc, k)
        assert not [line for line in said if "kernels serve now" not in line]
        inc.save(tmp_path / "state.pyginc")
        load(tmp_path / "state.pyginc", inc.model)
        inc.refresh()
    told = "\n".join(said)
    size = (tmp_path / "state.pyginc").stat().st_size
    assert f"state.pyginc': {size} bytes" in told
    assert "saved version 3" in told
    assert "load of version 3" in told
    assert "refresh of GCN: 12 nodes, 33 edges" in told


class Whole(torch.nn.Module):
    def forward(self, x, edge_index):
        return x[edge_index[0]].sum(0) + x.sort(0).values


def test_a_fallback_is_told_with_its_reason():
    inc, x, edges = small(Whole())
    with heard() as said, pytest.warns(UserWarning, match="all rows|full pass"):
        inc(x, edges)
    assert inc.mode != "incremental"
    assert any("on all rows" in line or "full pass" in line for line in said), said
    add(inc, 1)
    assert inc.metrics()["fallbacks"] == 1


def test_an_update_far_above_the_median_is_told():
    inc, x, edges = small()
    inc(x, edges)
    tally = inc._tally
    for k in range(metrics.RECENT):
        add(inc, k)
    assert metrics.AT_LEAST <= tally.slow < float("inf")
    tally.slow = 0.0
    with heard() as said:
        update = add(inc, 1)
    (line,) = [line for line in said if "slow update" in line]
    assert f"version {update.version} took" in line
    assert f"{update.stats.rows} rows" in line
    assert inc.metrics()["slow_updates"] >= 1


def test_nothing_is_written_where_nobody_listens(capfd):
    assert any(
        isinstance(h, logging.NullHandler) for h in logging.getLogger("pyg_incremental").handlers
    )
    inc, x, edges = small(backend="reference")  # a cold machine tells of kernels that are compiled
    inc(x, edges)
    assert capfd.readouterr() == ("", "")


# Numbers ##########################################################################################


@pytest.mark.parametrize("count", [5, metrics.RECENT + 7])
def test_numbers_are_the_sums_of_what_updates_say(count):
    inc, x, edges = small(GraphSAGE(4, 5, 2, 2, aggr="max"))
    assert inc.metrics()["updates"] == 0
    assert inc.metrics()["stale"] == 1
    inc(x, edges)
    done = [add(inc, k) for k in range(count)]
    done.append(inc.apply_delta(x_changes=([1], torch.ones(1, 4).double())))
    done.append(inc.apply_delta(nodes_del=[2]))
    got = inc.metrics()
    stats = [update.stats for update in done]
    expected = {
        "version": len(done), "num_nodes": NODES, "num_edges": inc.num_edges, "stale": 0,
        "updates": len(done), "fallbacks": 0, "full_passes": 1,
        "edges_added": sum(s.edges_added for s in stats),
        "edges_deleted": sum(s.edges_deleted for s in stats),
        "rows_recomputed": sum(s.rows for s in stats),
        "rows_changed": sum(s.changed for s in stats), "edges_read": sum(s.edges for s in stats),
        "stored_bytes": inc.memory_report().total,
    }  # fmt: skip
    assert {name: got[name] for name in expected} == expected
    assert got["update_seconds"] == pytest.approx(sum(s.seconds for s in stats))
    assert got.keys() == metrics.ABOUT.keys()
    assert all(type(value) in (int, float) for value in got.values())
    inc.refresh()
    assert inc.metrics()["full_passes"] == 2


def test_drift_grows_with_what_moves_through_a_row_and_goes_with_a_fresh_sum():
    inc, x, edges = small()
    inc(x, edges)
    assert inc.metrics()["drift"] == 0
    seen = []
    for k in range(3):
        inc.apply_delta(x_changes=([0, 1], torch.full((2, 4), 10.0**k).double()))
        seen.append(inc.metrics()["drift"])
    assert 0 < seen[0] < seen[1] < seen[2] < 1
    inc.refresh()
    assert inc.metrics()["drift"] == 0


def test_prometheus_reads_them():
    inc, x, edges = small()
    inc(x, edges)
    add(inc, 1)
    text = inc.metrics().prometheus(labels={"model": 'a"b\\c\nd'})
    assert text.endswith("\n")
    sample = re.compile(r'([a-z_]+)\{model="a\\"b\\\\c\\nd"\} (\S+)')
    got, kinds = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kinds[name] = line.split()[2:3][0], line.split()[3]
        elif not line.startswith("# HELP "):
            name, value = sample.fullmatch(line).groups()
            assert name in kinds
            got[name] = float(value)
    assert got["pyg_incremental_updates_total"] == 1
    assert got["pyg_incremental_num_edges"] == 31
    assert {name.endswith("_total") for name, kind in kinds.items() if kind == "counter"} == {True}
    with pytest.raises(ValueError, match="expected names of letters"):
        inc.metrics().prometheus(labels={"a-b": "c"})


# Bars #############################################################################################


def test_all_rows_show_a_bar_which_an_argument_turns_off(monkeypatch, tmp_path):
    asked = []

    def shown(wanted, **options):
        asked.append((wanted, options["total"]))
        return real(False, **options)

    from pyg_incremental.engine import loop

    real = progress.shown
    monkeypatch.setattr(loop, "shown", shown)
    inc, x, edges = small()
    inc(x, edges)
    inc.save(tmp_path / "state.pyginc")
    load(tmp_path / "state.pyginc", inc.model, progress=False)
    steps = len(inc._session.engine.executors)
    assert asked[0] == (True, steps)
    assert asked[-1] == (False, steps)


def test_options_are_the_settings_and_are_shown_with_their_defaults():
    names = {name for name in inspect.signature(Settings).parameters if name != "storage"}
    assert names == {*Options.__annotations__}
    shown = inspect.signature(to_incremental).parameters
    assert {*shown} == {"model", "method", *names}
    assert shown["compile_after"].default == 8
    with pytest.raises(TypeError, match="progres"):
        small(progres=False)
