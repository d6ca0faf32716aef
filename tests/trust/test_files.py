"""What a state is saved to, and what is believed of a file that is whole."""

import os
import socket
import stat

import pytest
import torch
from torch_geometric.nn import GAT, GraphSAGE

from pyg_incremental import StateFileError, load
from pyg_incremental.files import snapshot
from tests.trust.small import CHANNELS, edge, sage, wrapped

KINDS = {
    "pipe": (os.mkfifo, stat.S_ISFIFO),
    "socket": (lambda path: socket.socket(socket.AF_UNIX).bind(str(path)), stat.S_ISSOCK),
    "folder": (os.mkdir, stat.S_ISDIR),
}


@pytest.mark.filterwarnings("ignore:unclosed")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("linked", [False, True])
def test_what_is_no_file_is_not_replaced(tmp_path, monkeypatch, kind, linked):
    monkeypatch.chdir(tmp_path)  # the path of a socket has to be short
    make, is_it = KINDS[kind]
    make("there")
    if linked:
        os.symlink("there", "link")
    path, inc = "link" if linked else "there", wrapped()
    with pytest.raises(OSError, match=kind):
        inc.save(path)
    assert is_it(os.stat("there").st_mode)
    assert sorted(os.listdir()) == (["link", "there"] if linked else ["there"])
    with pytest.raises(StateFileError, match=kind):
        load(path, sage())


FORGERIES = {
    "NaN": lambda rows: torch.full_like(rows, torch.nan),
    "one NaN": lambda rows: rows.index_fill(0, torch.tensor([3]), torch.nan),
    "another row": lambda rows: rows.index_add(0, torch.tensor([3]), torch.ones_like(rows[:1])),
    "integers": torch.Tensor.long,
    "float64": torch.Tensor.double,
    "one long row": lambda rows: torch.cat([rows.flatten()] * 2),
    "too few": lambda rows: rows[:-1],
}
MODELS = {
    "sage": sage,
    "max": lambda: GraphSAGE(CHANNELS, 8, 2, 5, aggr="max").eval(),
    "gat": lambda: GAT(CHANNELS, 8, 2, 5, heads=2).eval(),
}
EDITED = [
    *(("sage", forgery) for forgery in FORGERIES),
    ("max", "another row"), ("gat", "one NaN"), ("gat", "too few"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "forgery"), EDITED, ids=map("-".join, EDITED))
def test_rows_that_were_edited_are_refused(tmp_path, model, forgery):
    """In a file that is whole: its checksum was made anew."""
    torch.manual_seed(1)
    inc = wrapped(MODELS[model]())
    inc.apply_delta(edge_index_add=edge(0, 1), x_changes=([3], torch.ones(1, CHANNELS)))
    inc.save(tmp_path / "state")
    content = snapshot.read(tmp_path / "state")
    names = sorted(content["rows"].keys() - content["nodes"].keys())
    assert len(names) >= 2
    for name in names:
        edited = {**content["rows"], name: FORGERIES[forgery](content["rows"][name])}
        snapshot.write(tmp_path / "edited", {**content, "rows": edited})
        with pytest.raises(StateFileError):
            load(tmp_path / "edited", inc.model)
    assert load(tmp_path / "state", inc.model).state_digest() == inc.state_digest()


def test_rows_that_are_nan_where_the_features_are(tmp_path):
    inc = wrapped()
    inc.apply_delta(x_changes=([3], torch.full((1, CHANNELS), torch.nan)))
    inc.save(tmp_path / "state")
    loaded = load(tmp_path / "state", inc.model)
    assert loaded.out.isnan().any()
    assert loaded.state_digest() == inc.state_digest()
