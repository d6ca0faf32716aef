"""Events from the rows of a table: a data frame, a CSV or Parquet file, columns, edges."""

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from torch import Tensor
from torch_geometric.data import Data, TemporalData

from pyg_incremental.sources.event import Events

_ROWS = 8192
"""Rows of a file that are in memory at a time."""


class TableSource:
    """Reads a table row by row, each a mapping from columns to values; its position is a number.

    Args:
        table: A CSV file (by pandas) or a Parquet file (by pyarrow), named by its ending; a
            data frame; a table or batch of Arrow; columns by name, as tensors, arrays or lists
            `[k, ...]`; `TemporalData`, whose columns are `src`, `dst`, `t` and what else it holds;
            or `Data`, whose columns are `src`, `dst` and what else it has of edges, such as their
            `time`, in the order of `edge_index` (see `Data.sort_by_time`).
        columns: Which of the columns are read; all by default.

    Raises:
        ValueError: If it is none of these, or columns are not equally long.
        ImportError: If what reads such a file is not installed.
        OSError: If the file cannot be read.
    """

    def __init__(self, table: Any, *, columns: list[str] | None = None) -> None:
        if isinstance(table, TemporalData):
            table = dict(table.items())
        elif isinstance(table, Data):
            table = _edges_of(table)
        self._table, self._columns = table, columns
        self._given = 0
        self._rows = self._behind(0)

    def _behind(self, first: int) -> Iterator[dict[str, Any]]:
        """The rows from one on."""
        for columns in self._pieces():
            lengths = {len(values) for values in columns.values()}
            if len(lengths) != 1:
                sizes = {name: len(values) for name, values in columns.items()}
                raise ValueError(f"TableSource: columns of one length were expected (got {sizes})")
            (length,) = lengths
            if first >= length:
                first -= length
                continue
            lists = [_listed(values[first:]) for values in columns.values()]
            first = 0
            for row in zip(*lists, strict=True):
                yield dict(zip(columns, row, strict=True))

    def _pieces(self) -> Iterator[Mapping[str, Any]]:
        """The table, some rows at a time, as columns by name."""
        table, chosen = self._table, self._columns
        if isinstance(table, (str, os.PathLike)):
            yield from _pieces_of_file(os.fspath(table), chosen)
        elif hasattr(table, "to_pydict"):  # of Arrow
            some = table.select(chosen or table.column_names)
            for first in range(0, len(some), _ROWS):
                yield some.slice(first, _ROWS).to_pydict()
        elif isinstance(table, Mapping) or hasattr(table, "columns"):
            names = [*table] if isinstance(table, Mapping) else list(table.columns)
            yield {name: table[name] for name in chosen or names}
        else:
            raise ValueError(
                "TableSource: expected the name of a file, a data frame, a table of Arrow, columns "
                f"by name, TemporalData or Data (got {type(table).__name__})"
            )

    def next_batch(self, max_events: int) -> Events:
        """See `Source`."""
        rows, first = [*islice(self._rows, max_events)], self._given + 1
        self._given += len(rows)
        return Events(range(first, first + len(rows)), rows)

    def position(self) -> int:
        """See `Source`."""
        return self._given

    def open(self, position: int) -> None:
        """See `Source`."""
        self._given, self._rows = position, self._behind(position)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(at {self._given})"


def _edges_of(data: Data) -> dict[str, Any]:
    """What an object has of edges, as columns."""
    if data.edge_index is None:
        raise ValueError("TableSource: the Data object has no edge_index")
    src, dst = data.edge_index
    of_edges = {k: data[k] for k in data.edge_attrs() if k != "edge_index"}
    return {"src": src, "dst": dst, **of_edges}


def _pieces_of_file(path: str, columns: list[str] | None) -> Iterator[Mapping[str, Any]]:
    ending = os.path.splitext(path)[1].lower()
    if ending == ".parquet":
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise ImportError(
                "TableSource needs pyarrow for Parquet files, which is not installed; pip install "
                "'pyg-incremental[tables]'"
            ) from error
        with parquet.ParquetFile(path) as file:
            for piece in file.iter_batches(_ROWS, columns=columns):
                yield piece.to_pydict()
    elif ending in (".csv", ".tsv", ".gz"):
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "TableSource needs pandas for CSV files, which is not installed; pip install "
                "'pyg-incremental[tables]'"
            ) from error
        separator = "\t" if ".tsv" in path.lower() else ","
        with pd.read_csv(path, usecols=columns, sep=separator, chunksize=_ROWS) as pieces:
            for piece in pieces:
                yield {name: piece[name] for name in piece.columns}
    else:
        raise ValueError(
            f"TableSource: '{path}' ends in '{ending}'; expected .csv, .tsv, .csv.gz or .parquet"
        )


def _listed(values: Any) -> list[Any]:
    """The values of a column, or of its rows where it has more than one dimension."""
    if isinstance(values, Tensor):
        values = values.numpy(force=True)
    if isinstance(values, np.ndarray):
        return values.tolist() if values.ndim == 1 else list(values)
    return values.tolist() if hasattr(values, "tolist") else list(values)
