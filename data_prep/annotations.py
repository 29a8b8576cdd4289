"""Annotation files as a stream of records: JSON Lines, JSON, CSV and parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.errors import InputError

_PARQUET_BATCH_ROWS = 1024


@dataclass(frozen=True)
class Record:
    """One annotation as it stands in its file.

    Attributes:
        number: its line (JSON Lines, CSV) or its row (JSON, parquet), from 1.
        fields: a dict as a rule; whatever else stands there otherwise, the text where it does not parse.
        problem: why the line does not parse, or none.
    """

    number: int
    fields: Any
    problem: str | None = None


def read_records(path: Path) -> Iterator[Record]:
    """The annotations of a file, one after another; memory does not grow with the file.

    A line of JSON Lines or CSV that does not parse becomes a record with a ``problem``. NaN and infinities in
    JSON Lines come as strings.

    Raises:
        InputError: no such file, a suffix other than ``.jsonl``, ``.json``, ``.csv`` and ``.parquet``, or a
            file that is damaged as a whole.
    """
    if not path.is_file():
        raise InputError(f"{path} is not a file; --annotations names one of {', '.join(_READERS)}")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path} ends in {path.suffix!r}; it must be one of {', '.join(_READERS)}")
    return reader(path)


def _read_jsonl(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if text:
                    yield Record(number, json.loads(text, parse_constant=str))
            except UnicodeDecodeError as error:
                yield Record(number, repr(line), f"not UTF-8 at byte {error.start + 1} of the line")
            except json.JSONDecodeError as error:
                yield Record(number, text, f"not JSON: {error.msg} at column {error.colno}")
            except RecursionError:
                yield Record(number, text[:200], "not an annotation: nested too deep")


def _read_json(path: Path) -> Iterator[Record]:
    import ijson  # type: ignore[import-untyped]

    with path.open("rb") as file:
        first = file.read(256).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first != b"[":
        # Many publishers give JSON Lines this suffix.
        yield from _read_jsonl(path)
        return
    number = 0
    with path.open("rb") as file:
        if file.read(3) != b"\xef\xbb\xbf":
            file.seek(0)
        try:
            for number, fields in enumerate(ijson.items(file, "item", use_float=True), start=1):
                yield Record(number, fields)
        except (ijson.JSONError, UnicodeDecodeError) as error:
            where = f"after row {number}" if number else "at the first row"
            raise InputError(f"{path} is not JSON {where}: {' '.join(str(error).split())}") from error


def _read_csv(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            for row in reader:
                if None in row or None in row.values():
                    columns = len(reader.fieldnames or ())
                    yield Record(reader.line_num, list(row.values()), f"the header has {columns} columns, this row not")
                else:
                    yield Record(reader.line_num, row)
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not CSV in UTF-8 at line {reader.line_num + 1}: {error}") from error


def _read_parquet(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_PARQUET_BATCH_ROWS):
                for fields in batch.to_pylist():
                    number += 1
                    yield Record(number, fields)
    except pa.ArrowException as error:
        raise InputError(f"{path} cannot be read as parquet after row {number}: {error}") from error


_READERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
