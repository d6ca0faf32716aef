"""Events from a table of SQLite, and a log in one to which programs append what happens."""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable
from typing import Any, Literal

from pyg_incremental.sources.log import AT_ONCE, Decode, LogSource

Durability = Literal["process", "power"]
_SYNCHRONOUS = {"process": "NORMAL", "power": "FULL"}


class SqliteSource(LogSource):
    """Reads the rows of a table in the order of an ascending integer key; its position is that key.

    Each row is a mapping from columns to values. SQLite has one writer at a time, so a key that is
    larger comes later, if keys are given by the database (`INTEGER PRIMARY KEY`).

    Args:
        database: The file, or a connection, which others may use too.
        table: The table.
        key: The column of the key.
        columns: The columns that are read; all by default.
        start: The key behind which to begin.
        wait: Seconds to wait for more where there is nothing.
        decode: What becomes of a row.

    Raises:
        ValueError: If a name holds a quotation mark.
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | sqlite3.Connection,
        table: str,
        *,
        key: str = "id",
        columns: Iterable[str] | None = None,
        start: int = 0,
        wait: float = 0.01,
        decode: Decode = lambda row: row,
    ) -> None:
        super().__init__(start, decode)
        self._connection = (
            database
            if isinstance(database, sqlite3.Connection)
            else sqlite3.connect(database, check_same_thread=False)
        )
        self._wait, self._lock = wait, threading.Lock()
        chosen = "*" if columns is None else ", ".join(map(_quoted, columns))
        self._query = (
            f"SELECT {_quoted(key)}, {chosen} FROM {_quoted(table)} "
            f"WHERE {_quoted(key)} > ? ORDER BY {_quoted(key)} LIMIT {AT_ONCE}"
        )

    def _records(self, after: int, wait: bool) -> list[tuple[int, Any]]:
        found = self._behind(after)
        if not found and wait and self._wait > 0:
            time.sleep(self._wait)
            found = self._behind(after)
        return found

    def _behind(self, after: int) -> list[tuple[int, Any]]:
        with self._lock:
            cursor = self._connection.execute(self._query, (after,))
            names = [column[0] for column in cursor.description[1:]]
            return [(key, dict(zip(names, row, strict=True))) for key, *row in cursor.fetchall()]

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


class SqliteLog(SqliteSource):
    """A log for events that are pushed, such as by requests: they are appended here, and read.

    One file in WAL mode, and one connection, which threads share. What `append` has returned for is
    in the log: it survives a `kill -9` of the process with `durability='process'`, and a loss of
    power too with `'power'`, which costs an fsync for each call; append many at a time.

    Args:
        path: The file; it is made if it is not there.
        durability: What an appended event survives.
        start: The position behind which to begin, as that of a checkpoint.
        wait: Seconds to wait for more where there is nothing.
        time_field: The field in which each event that is a dict gets the time at which it is
            appended, in seconds since 1970: the time of a stream for which events have none of
            their own.

    Example:
        >>> log = SqliteLog(":memory:")
        >>> log.append({"src": 3, "dst": 5})
        1
        >>> log.next_batch(10)
        [Event(position=1, value={'src': 3, 'dst': 5}, error=None, at=None)]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "process",
        start: int = 0,
        wait: float = 0.01,
        time_field: str | None = None,
    ) -> None:
        if durability not in _SYNCHRONOUS:
            raise ValueError(f"durability: expected 'process' or 'power' (got {durability!r})")
        connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY AUTOINCREMENT, data TEXT)"
        )
        super().__init__(
            connection, "events", columns=["data"], start=start, wait=wait, decode=_json
        )
        self._time_field = time_field

    def append(self, *events: Any) -> int:
        """Append events, which have to be plain values as in JSON; all of them or none.

        Returns:
            The position behind the last one.

        Raises:
            TypeError: If one is no plain value.
            sqlite3.Error: If they cannot be written; none is in the log then.
        """
        if self._time_field is not None:
            now = {self._time_field: time.time()}
            events = tuple({**e, **now} if isinstance(e, dict) else e for e in events)
        rows = [(json.dumps(event),) for event in events]
        with self._lock:
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany("INSERT INTO events (data) VALUES (?)", rows)
                (last,) = connection.execute("SELECT max(id) FROM events").fetchone()
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
        return int(last or 0)

    def trim(self, position: int) -> int:
        """Forget the events up to a position, as that of a checkpoint; how many they were."""
        with self._lock:
            return self._connection.execute(
                "DELETE FROM events WHERE id <= ?", (position,)
            ).rowcount


def _json(row: Any) -> Any:
    return json.loads(row["data"])


def _quoted(name: str) -> str:
    if '"' in name:
        raise ValueError(f"the name {name!r} holds a quotation mark; name a table or column as is")
    return f'"{name}"'
