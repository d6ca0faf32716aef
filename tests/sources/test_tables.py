"""Files, tables and logs of events: the same events from every position."""

import json
import sqlite3
import threading

import pandas as pd
import pytest
import torch
from torch_geometric.data import Data, TemporalData

from pyg_incremental.sources import JsonLinesSource, SqliteLog, SqliteSource, TableSource

ROWS = [{"src": k, "dst": 2 * k, "amount": k / 4} for k in range(20)]


def json_lines(folder):
    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return lambda: JsonLinesSource(path)


def csv(folder):
    pd.DataFrame(ROWS).to_csv(folder / "events.csv", index=False)
    return lambda: TableSource(folder / "events.csv")


def parquet(folder):
    pytest.importorskip("pyarrow")
    pd.DataFrame(ROWS).to_parquet(folder / "events.parquet")
    return lambda: TableSource(folder / "events.parquet")


def frame(folder):
    return lambda: TableSource(pd.DataFrame(ROWS))


def table(folder):
    connection = sqlite3.connect(folder / "shop.db")
    connection.execute("CREATE TABLE sales (n INTEGER PRIMARY KEY, src, dst, amount)")
    rows = [(3 * k + 1, *row.values()) for k, row in enumerate(ROWS)]
    connection.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    columns = ["src", "dst", "amount"]
    return lambda: SqliteSource(
        folder / "shop.db", "sales", key="n", columns=columns, start=0, wait=0
    )


def log(folder):
    writer = SqliteLog(folder / "log.db")
    writer.append(*ROWS[:5])
    writer.append(*ROWS[5:])
    writer.close()
    return lambda: SqliteLog(folder / "log.db", wait=0)


@pytest.mark.parametrize("make", [json_lines, csv, parquet, frame, table, log])
def test_the_same_events_from_every_position(make, tmp_path):
    new = make(tmp_path)
    source, given = new(), []
    while batch := source.next_batch(3):
        assert len(batch) <= 3
        given += batch
    assert [event.value for event in given] == ROWS
    assert source.position() == given[-1].position
    other = new()
    for at in (7, 0, 19, 12):
        for again in (source, other):
            again.open(given[at].position)
            assert again.position() == given[at].position
            assert again.next_batch(100) == given[at + 1 :]
    for used in (source, other):
        getattr(used, "close", lambda: None)()


def test_a_line_that_is_being_written_is_given_when_it_is_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": ')
    source = JsonLinesSource(path, follow=True, wait=0)
    assert [event.value for event in source.next_batch(10)] == [{"a": 1}]
    assert source.next_batch(10) == []
    with path.open("ab") as file:
        file.write(b"2}\nno json\n{}")
    two, bad = source.next_batch(10)
    assert two.value == {"a": 2}
    assert bad.value == b"no json\n"
    assert isinstance(bad.error, ValueError)
    source = JsonLinesSource(path, start=bad.position)  # it ends where it ends
    assert [event.value for event in source.next_batch(10)] == [{}]


def test_columns_and_temporal_data():
    src, dst, t, msg = torch.arange(4), torch.ones(4).long(), torch.arange(4), torch.rand(4, 2)
    source = TableSource(TemporalData(src=src, dst=dst, t=t, msg=msg))
    rows = [event.value for event in source.next_batch(10)]
    assert [row["src"] for row in rows] == [0, 1, 2, 3]
    assert rows[3]["msg"].tolist() == msg[3].tolist()
    source = TableSource({"src": src, "dst": [1, 2]})
    with pytest.raises(ValueError, match="one length"):
        source.next_batch(1)


def test_the_edges_of_data():
    data = Data(
        x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1, 2], [3, 3, 3]]),
        time=torch.tensor([5, 7, 9]), edge_attr=torch.rand(3, 2),
    )  # fmt: skip
    rows = [event.value for event in TableSource(data).next_batch(10)]
    assert [(row["src"], row["dst"], row["time"]) for row in rows] == [
        (0, 3, 5),
        (1, 3, 7),
        (2, 3, 9),
    ]
    assert [row["edge_attr"].tolist() for row in rows] == data.edge_attr.tolist()
    assert {*rows[0]} == {"src", "dst", "time", "edge_attr"}
    with pytest.raises(ValueError, match="no edge_index"):
        TableSource(Data(x=data.x))


def test_a_table_of_arrow():
    pyarrow = pytest.importorskip("pyarrow")
    whole = pyarrow.table({"src": [*range(20_000)], "at": [n / 2 for n in range(20_000)]})
    for given in (whole, whole.to_batches()[0], pyarrow.concat_tables([whole[:7], whole[7:]])):
        source = TableSource(given)
        rows = [event.value for event in source.next_batch(30_000)]
        assert rows == whole.to_pylist()
        source.open(19_998)
        assert [e.value for e in source.next_batch(9)] == whole.slice(19_998).to_pylist()
        assert TableSource(given, columns=["at"]).next_batch(1)[0].value == {"at": 0.0}


@pytest.mark.parametrize("given", [3, "events.xml"])
def test_what_is_no_table_is_refused(given):
    with pytest.raises(ValueError, match="TableSource"):
        TableSource(given).next_batch(1)


@pytest.mark.parametrize("durability", ["process", "power"])
def test_many_threads_append_and_nothing_is_lost_or_out_of_order(durability, tmp_path):
    log = SqliteLog(tmp_path / "log.db", durability=durability, wait=0)
    threads = [
        threading.Thread(target=lambda k=k: [log.append([k, n], [k, n + 1]) for n in (0, 2, 4)])
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    given = log.next_batch(100)
    assert [event.position for event in given] == list(range(1, 25))
    for k in range(4):
        assert [n for of, n in (e.value for e in given) if of == k] == list(range(6))
    assert log.trim(given[9].position) == 10
    log.open(given[9].position)
    assert log.next_batch(100) == given[10:]
    with pytest.raises(TypeError):
        log.append({"a": 1}, {"b": object()})  # all or none
    assert log.next_batch(100) == []
    assert log.append({"a": 1}) == 25  # a number is not given twice
    log.close()


def test_durability_and_names_are_checked(tmp_path):
    with pytest.raises(ValueError, match="'process' or 'power'"):
        SqliteLog(tmp_path / "log.db", durability="none")
    with pytest.raises(ValueError, match="quotation mark"):
        SqliteSource(tmp_path / "log.db", 'a"b')
