"""Rows into parquet files of a bounded size."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from data_prep.schema import rl_schema

_ROWS_PER_GROUP = 2_000
"""Rows held in memory at a time, and in one row group."""


class ShardWriter:
    """Writes rows of ``rl_schema`` to ``<prefix>-00000.parquet``, ``<prefix>-00001.parquet`` and so on.

    A context manager: leaving it writes what is still held. Without a row no file is made.

    Attributes:
        shards: names of the files with their numbers of rows.
    """

    def __init__(self, folder: Path, prefix: str, shard_rows: int):
        self.shards: dict[str, int] = {}
        self._folder = folder
        self._prefix = prefix
        self._shard_rows = shard_rows
        self._rows: list[dict[str, Any]] = []
        self._name = ""
        self._file: Any = None

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._flush()
        self._close()

    def write(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) + self.shards.get(self._name, 0) == self._shard_rows:
            self._flush()
            self._close()
        elif len(self._rows) == _ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._rows:
            return
        if self._file is None:
            self._name = f"{self._prefix}-{len(self.shards):05d}.parquet"
            self._file = pq.ParquetWriter(self._folder / self._name, rl_schema())
        self._file.write_table(pa.Table.from_pylist(self._rows, schema=rl_schema()))
        self.shards[self._name] = self.shards.get(self._name, 0) + len(self._rows)
        self._rows.clear()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file, self._name = None, ""
