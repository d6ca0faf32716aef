"""Events from a table of PostgreSQL (the `postgres` extra)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from pyg_incremental.sources.log import AT_ONCE, Decode, LogSource


class PostgresSource(LogSource):
    """Reads the rows of a table in the order of an ascending integer key; its position is that key.

    Each row is a mapping from columns to values. Keys are given by the database (`bigserial` or
    `GENERATED AS IDENTITY`), as rows are inserted. Writers that run side by side commit in another
    order than that of their keys, so a row is read only when all who were writing to the table as
    it came have ended: none is passed over.

    Args:
        connection: How to connect, such as `'host=localhost dbname=bank'`, or a
            `psycopg.Connection` with `autocommit=True`, which nobody else uses.
        table: The table; `'schema.table'` if it is not found without.
        key: The column of the key.
        columns: The columns that are read; all by default.
        start: The key behind which to begin.
        wait: Seconds to wait for more where there is nothing.
        decode: What becomes of a row.

    Raises:
        ImportError: If psycopg is not installed.
        ValueError: If the connection has no autocommit, or keys are given to sessions in advance
            (a sequence with a cache), so that a smaller one may come later.
        Exception: What psycopg raises where there is no such server, table or column.
    """

    def __init__(
        self,
        connection: Any,
        table: str,
        *,
        key: str = "id",
        columns: Iterable[str] | None = None,
        start: int = 0,
        wait: float = 0.01,
        decode: Decode = lambda row: row,
    ) -> None:
        try:
            import psycopg
            from psycopg import sql
        except ImportError as error:
            raise ImportError(
                "PostgresSource needs psycopg, which is not installed; "
                "pip install 'pyg-incremental[postgres]'"
            ) from error
        super().__init__(start, decode)
        self._psycopg, self._table, self._wait, self._safe = psycopg, table, wait, start
        self._how = connection if isinstance(connection, str) else None
        if self._how is None and not connection.autocommit:
            raise ValueError(
                "PostgresSource: expected a connection with autocommit, else it sees one moment of "
                "the table; psycopg.connect(..., autocommit=True)"
            )
        self._connection = connection if self._how is None else self._connect()
        chosen: sql.Composable = sql.SQL("*")
        if columns is not None:
            chosen = sql.SQL(", ").join(map(sql.Identifier, columns))
        at, name = sql.Identifier(*table.split(".")), sql.Identifier(key)
        self._called = at.as_string(self._connection)
        self._rows = sql.SQL(
            "SELECT {key}, {chosen} FROM {at} WHERE {key} > %s AND {key} <= %s ORDER BY {key} "
            f"LIMIT {AT_ONCE}"
        ).format(key=name, chosen=chosen, at=at)
        # The largest key is that of a moment before the locks are read, and a lock is taken before
        # a key is: whoever has a smaller key that is not there yet is among those who hold one.
        self._look = sql.SQL(
            "SELECT coalesce((SELECT max({key}) FROM {at}), 0), ARRAY(SELECT virtualtransaction "
            "FROM pg_locks WHERE relation = %s::regclass AND mode = 'RowExclusiveLock' AND granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
        ).format(key=name, at=at)
        self._settled, self._next, self._writing = start, start, set[str]()
        self._refuse_cache(key)

    def _connect(self) -> Any:
        return self._psycopg.connect(self._how or "", autocommit=True)

    def _refuse_cache(self, key: str) -> None:
        found = self._connection.execute(
            "SELECT seqcache FROM pg_sequence WHERE seqrelid = "
            "pg_get_serial_sequence(%s, %s)::regclass",
            (self._called, key),
        ).fetchone()
        if found is not None and found[0] > 1:
            if self._how is not None:
                self.close()
            raise ValueError(
                f"PostgresSource: the keys of {self._called} come from a sequence that gives "
                f"sessions {found[0]} at a time, so a smaller one may come after a larger one; "
                "ALTER SEQUENCE ... CACHE 1"
            )

    def open(self, position: int) -> None:
        """See `Source`."""
        super().open(position)
        self._settled = min(self._settled, position)

    def _records(self, after: int, wait: bool) -> list[tuple[int, Any]]:
        if self._how is not None and self._connection.closed:
            self._connection = self._connect()
        found = self._behind(after)
        if not found and wait and self._wait > 0:
            time.sleep(self._wait)
            found = self._behind(after)
        return found

    def _behind(self, after: int) -> list[tuple[int, Any]]:
        if after >= self._settled:
            self._settle()
        cursor = self._connection.execute(self._rows, (after, self._settled))
        names = [column.name for column in cursor.description[1:]]
        return [(key, dict(zip(names, row, strict=True))) for key, *row in cursor]

    def _settle(self) -> None:
        """See up to which key all rows are there that will ever be."""
        newest, writing = self._connection.execute(self._look, (self._called,)).fetchone()
        self._writing.intersection_update(writing)
        if self._writing:
            return
        self._settled = max(self._settled, self._next)
        if newest > self._settled:
            self._next, self._writing = newest, {*writing}
            if not writing:
                self._settled = newest

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()
