"""Files of a saved state: whose they are, what is in them, and how they come to be."""

import copy
import os
import stat
import time

import numpy as np
import pytest
import torch
from torch_geometric.nn import GAT, GCN, GCNConv, SAGEConv

from pyg_incremental import StateFileError, load, to_incremental
from pyg_incremental.encoding.framing import FrameError, frame_of, packed, unpacked
from pyg_incremental.files import snapshot
from tests.processes import FRESH

NODES, EDGES = 30, 90


def make(model=None, weight=True):
    torch.manual_seed(0)
    model = GCN(4, 6, 2, 3).double().eval() if model is None else model.double().eval()
    x, edge_index = torch.randn(NODES, 4).double(), torch.randint(NODES, (2, EDGES))
    inc = to_incremental(model)
    inc(x, edge_index, **({"edge_weight": torch.rand(EDGES).double()} if weight else {}))
    inc.apply_delta(x_changes=([3, 5], torch.ones(2, 4).double()))
    return inc, model


# Whose a file is ##################################################################################


class Scaled(torch.nn.Module):
    """A model with an option of its own."""

    def __init__(self):
        super().__init__()
        self.conv, self.factor = GCNConv(4, 3), 2.0

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).relu() * self.factor


class Elsewhere(Scaled):
    """The same name, parameters and options; another forward."""

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).sigmoid() * self.factor


Elsewhere.__name__ = Elsewhere.__qualname__ = "Scaled"


def set_slope(model):
    model.convs[0].negative_slope = 0.9


def set_normalize(model):
    for conv in model.convs:
        conv.normalize = False


def set_factor(model):
    model.factor = 3.0


def set_forward(model):
    model.__class__ = Elsewhere


@pytest.mark.parametrize(
    ("model", "change", "named"),
    [
        (GAT(4, 6, 2, 3), set_slope, "convs.0.negative_slope was 0.2, is 0.9"),
        (GCN(4, 6, 2, 3), set_normalize, "convs.0.normalize was True, is False"),
        (Scaled(), set_factor, "factor was 2.0, is 3.0"),
        (Scaled(), set_forward, r"forward\(\) has other code"),
    ],
    ids=["slope", "normalize", "factor", "forward"],
)
@pytest.mark.parametrize("store", ["fast", "minimal"])
def test_a_model_that_computes_something_else_is_refused(tmp_path, model, change, named, store):
    inc, model = make(copy.deepcopy(model), weight=False)
    inc.save(tmp_path / "state")
    want = inc.out.clone()
    other = copy.deepcopy(model)
    change(other)
    with pytest.raises(StateFileError, match=f"another model.*largest difference.*{named}"):
        load(tmp_path / "state", other, store=store)
    assert torch.allclose(load(tmp_path / "state", model, store=store).out, want, atol=1e-12)


def test_an_option_that_changes_less_than_rounding_is_taken_as_it_is_now(tmp_path):
    inc, model = make(Scaled(), weight=False)
    inc.save(tmp_path / "state")
    model.factor = 2.0 + 1e-10
    again = load(tmp_path / "state", model)
    assert again.verify() < 1e-14


def test_outputs_without_a_row_per_node_are_compared_too(tmp_path):
    class Pooled(Scaled):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index).mean(0)

    inc, model = make(Pooled(), weight=False)
    inc.save(tmp_path / "state")
    assert torch.equal(load(tmp_path / "state", model).out, inc.out)
    model.factor = 3.0
    with pytest.raises(StateFileError, match="another model"):
        load(tmp_path / "state", model)


# What is in it ####################################################################################


def forged(path, change):
    """A file with other content and a valid checksum."""
    content = snapshot.read(path)
    change(content)
    snapshot.write(path, content)


def with_id(value):
    def change(content):
        content["graphs"]["edge_index"]["edge_index"][0, 7] = value

    return change


def put(*path):
    *path, key, value = path

    def change(content):
        for step in path:
            content = content[step]
        content[key] = value(content[key]) if callable(value) else value

    return change


FORGERIES = {
    "id 10^9": with_id(10**9),
    "id -5": with_id(-5),
    "id 2^32 + 7": with_id(2**32 + 7),
    "id num_nodes": with_id(NODES),
    "too few nodes": put("num_nodes", "", 4),
    "too many nodes": put("num_nodes", "", 10**6),
    "no number of nodes": put("num_nodes", "", -1),
    "a number as text": put("num_nodes", "", "30"),
    "nodes of no kind": put("num_nodes", {}),
    "short ids": put("graphs", "edge_index", "edge_index", lambda e: e.int()),
    "ids that are no integers": put("graphs", "edge_index", "edge_index", lambda e: e.double()),
    "three ends": put("graphs", "edge_index", "edge_index", lambda e: torch.cat([e, e[:1]])),
    "no pairs": put("graphs", "edge_index", "edge_index", lambda e: e[0]),
    "no tensor": put("graphs", "edge_index", "edge_index", lambda e: e.tolist()),
    "few weights": put("graphs", "edge_index", "edge_weight", lambda w: w[:5]),
    "more data": put("graphs", "edge_index", "more", torch.ones(EDGES)),
    "few features": put("rows", "x", lambda x: x[:5]),
    "features without rows": put("rows", "x", torch.tensor(1.0)),
    "features of one dtype": put("rows", "x", lambda x: x.int()),
    "features of one width": put("rows", "x", lambda x: x[:, :3]),
    "another graph": put("graphs", lambda g: {**g, "other": g["edge_index"]}),
    "an unknown kind": put("nodes", "x", "film"),
    "an unknown graph": put("edges", "edge_weight", "adj"),
    "an unknown tensor": put("names", lambda n: [*n, "batch"]),
    "an unknown input that nodes leave": put("leaving", ["batch"]),
    "an unknown format": put("relations", lambda r: [[*r[0][:4], "zip", *r[0][5:]]]),
    "an unknown source": put("relations", lambda r: [[*r[0][:2], "film", *r[0][3:]]]),
    "half a graph": put("relations", lambda r: [r[0][:3]]),
    "no graph": put("relations", []),
    "a version before the first": put("version", -1),
    "no version": put("version", 1.5),
    "an unknown dtype": put("accumulate_dtype", "torch.float16"),
    "an unknown store": put("store", "none"),
    "rows of another shape": put(
        "rows", lambda r: {k: v if k == "x" else v[:3] for k, v in r.items()}
    ),
    "no aggregations": put("aggregators", {}),
    "aggregations of another shape": put(
        "aggregators", lambda a: {k: {n: t[:1] for n, t in v.items()} for k, v in a.items()}
    ),
    "other outputs": put("rows", lambda r: {k: v if k == "x" else v + 1 for k, v in r.items()}),
}  # fmt: skip


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_what_does_not_fit_is_refused_before_it_is_used(tmp_path, change):
    inc, model = make()
    inc.save(tmp_path / "state")
    forged(tmp_path / "state", change)
    with pytest.raises(StateFileError, match="state"):
        load(tmp_path / "state", model)


def test_a_key_that_is_missing_is_named(tmp_path):
    inc, model = make()
    inc.save(tmp_path / "state")
    content = snapshot.read(tmp_path / "state")
    for key in content:
        less = {k: v for k, v in content.items() if k != key}
        snapshot.write(tmp_path / "less", less)
        with pytest.raises(StateFileError, match=key):
            load(tmp_path / "less", model)


def test_contents_that_differ_have_digests_that_differ():
    contents = [
        [[1], 2], [[1, 2]], [[1, [2]]], [1, 2], [[1], [2]], {"a": {"b": 1}, "c": 2},
        {"a": {"b": 1, "c": 2}}, {"a": [{"b": 1}], "c": 2}, {"a": {}, "b": {"c": 1}},
        {"a": {"b": {"c": 1}}}, ["1", 2], ["int=1;", 2], {"a": None}, {"a": "None"}, {"1": 2},
        {1: 2}, {"a:str": 1}, [[], []], [[[]]], [torch.tensor([1])], [torch.tensor([[1]])],
        [torch.tensor([1], dtype=torch.int32)], torch.tensor([1]),
    ]  # fmt: skip
    assert len({snapshot.digest_of(c) for c in contents}) == len(contents)
    assert snapshot.digest_of({"a": 1, "b": (2,)}) == snapshot.digest_of({"b": [2], "a": 1})


def test_every_byte_counts(tmp_path):
    """Cut off or flipped anywhere, a file is refused; none of its bytes is padding."""
    inc, model = make()
    path = tmp_path / "state"
    inc.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    places = {*range(64), *range(len(whole) - 64, len(whole)), *rng.integers(len(whole), size=200)}
    for at in sorted(map(int, places)):
        path.write_bytes(whole[:at])
        with pytest.raises(StateFileError):
            load(path, model)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(StateFileError):
            load(path, model)
    path.write_bytes(whole + b"\0")
    with pytest.raises(StateFileError):
        load(path, model)


def test_files_of_earlier_formats_are_named_as_such(tmp_path):
    _, model = make()
    torch.save({"format": 1}, tmp_path / "state")
    with pytest.raises(StateFileError, match=r"something that torch\.save wrote"):
        load(tmp_path / "state", model)


def test_values_that_cannot_be_read_are_refused():
    def piece(text):
        room = text + b" " * (-len(text) % 8)
        return np.frombuffer(len(room).to_bytes(8, "little") + room, np.uint8)

    for text in (
        b"", b"[]", b"[[],{}]", b"[[],[9]]", b'[[],[4,"Popen","x"]]', b"[[],[3,0]]", b"[[],[2,1]]",
        b'[[["t","float32",[1]]],[3,0]]', b'[[["t","float32",[-1]]],[3,0]]', b'[[["x"]],0]',
        b'[[["t","object",[0]]],[3,0]]', b'[[["n","object",[0]]],[3,0]]', b"[[],[2,1,2,1,3]]",
        b'[[["t","float32",[0]]],[0,[3,0],[3,0]]]', b"[[],[5]]", b'[[],[5,"SystemExit","x"]]',
        b"[[]," + b"[0," * 5000 + b"]" * 5000 + b"]", b"\xff\xfe", b"[[],[2,[0],1]]",
        b'[[["t","float32",[1152921504606846976,64]]],[3,0]]', b'[[["t","float32",[true]]],[3,0]]',
    ):  # fmt: skip
        with pytest.raises(FrameError):
            unpacked(piece(text))
    for data in (b"", b"1234567", b"\xff" * 8, (2**40).to_bytes(8, "little")):
        with pytest.raises(FrameError):
            unpacked(np.frombuffer(data, np.uint8))
    for value in (object(), {1j: 2}, np.array(["a"]), torch.eye(2).to_sparse(), print):
        with pytest.raises(FrameError):
            frame_of(value)
    assert unpacked(packed([1, (2.5, {"a": None})], lambda n: np.empty(n, np.uint8))) == [
        1, (2.5, {"a": None}),
    ]  # fmt: skip


# How it comes to be ###############################################################################


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_the_mode_of_a_file_is_the_usual_one_and_is_kept(tmp_path):
    inc, _ = make()
    inc.save(tmp_path / "state")
    assert mode_of(tmp_path / "state") == 0o644
    (tmp_path / "state").chmod(0o640)
    inc.save(tmp_path / "state")
    assert mode_of(tmp_path / "state") == 0o640
    os.umask(0o077)
    inc.save(tmp_path / "mine")
    assert mode_of(tmp_path / "mine") == 0o600


def test_a_symbolic_link_stays_one(tmp_path):
    inc, model = make()
    (tmp_path / "disk").mkdir()
    link = tmp_path / "state"
    link.symlink_to(tmp_path / "disk" / "real")
    for _ in range(2):  # to what is not there yet, and to what is
        inc.save(link)
        assert link.is_symlink()
        assert [p.name for p in (tmp_path / "disk").iterdir()] == ["real"]
        assert torch.equal(load(link, model).out, inc.out)


def test_file_and_folder_are_on_the_disk(tmp_path, monkeypatch):
    done, plain, replace = [], os.fsync, os.replace

    def fsync(handle):
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        plain(handle)

    def noted(*names):
        done.append("replace")
        replace(*names)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", noted)
    make()[0].save(tmp_path / "state")
    assert done == ["file", "replace", "folder"]


@pytest.mark.parametrize("when", ["written", "flushed", "replaced"])
def test_a_save_that_fails_leaves_what_was_there(tmp_path, monkeypatch, when):
    inc, model = make()
    inc.save(tmp_path / "state")
    before = inc.out.clone()

    def full(*_):
        raise OSError(28, "No space left on device")

    inc.apply_delta(x_changes=([1], torch.ones(1, 4).double()))
    with monkeypatch.context() as patch:
        name = {"written": "fdopen", "flushed": "fsync", "replaced": "replace"}[when]
        patch.setattr(os, name, full)
        with pytest.raises(OSError, match="No space"):
            inc.save(tmp_path / "state")
    assert [p.name for p in tmp_path.iterdir()] == ["state"]
    assert torch.equal(load(tmp_path / "state", model).out, before)


def _save_for_ever(path, started):
    inc, _ = make()
    inc.save(path)
    started.set()
    while True:
        inc.apply_delta(x_changes=([1], torch.ones(1, 4).double()))
        inc.save(path)


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_a_whole_file_and_its_parts_are_removed(tmp_path):
    inc, model = make()
    path = tmp_path / "state"
    for pause in (0.0, 0.013, 0.037):
        started = FRESH.Event()
        process = FRESH.Process(target=_save_for_ever, args=(path, started))
        process.start()
        assert started.wait(120)
        time.sleep(pause)
        process.kill()
        process.join()
        assert load(path, model).verify() < 1e-12
    (tmp_path / f"state.{'0a' * 8}.part").write_bytes(b"left over")
    (tmp_path / "state.mine.part").write_bytes(b"of somebody else")
    inc.save(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state", "state.mine.part"]


def test_a_part_that_is_being_written_is_left_alone(tmp_path, monkeypatch):
    one, model = make()
    two, _ = make(SAGEConv(4, 3), weight=False)
    plain = os.fsync

    def meanwhile(handle):
        monkeypatch.setattr(os, "fsync", plain)
        two.save(tmp_path / "state")
        assert len(list(tmp_path.iterdir())) == 2
        plain(handle)

    monkeypatch.setattr(os, "fsync", meanwhile)
    one.save(tmp_path / "state")
    assert [p.name for p in tmp_path.iterdir()] == ["state"]
    assert torch.equal(load(tmp_path / "state", model).out, one.out)
