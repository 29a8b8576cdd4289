"""Lines in a keyed random order, through files on disk, so that memory stays flat."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from data_prep.hashing import HASH_BITS

LINES_PER_BUCKET = 10_000
_MAX_OPEN_FILES = 256


def sorted_by_key(
    keyed_lines: Iterable[tuple[int, str]],
    num_lines: int,
    folder: Path,
    lines_per_bucket: int = LINES_PER_BUCKET,
) -> Iterator[str]:
    """The lines in the order of their keys; equal keys in the order of the lines' text.

    The lines are spread over bucket files by the leading bits of the key, and one bucket at a time is sorted.

    Args:
        keyed_lines: key in ``[0, 2**64)``, evenly spread as hashes are, and a line without a line end.
        num_lines: about how many there are; it decides the number of buckets, not the result.
        folder: an empty folder for the bucket files, which are removed as they are read.
    """
    num_buckets = min(_MAX_OPEN_FILES, max(1, math.ceil(num_lines / lines_per_bucket)))
    paths = [folder / f"bucket-{number:03d}" for number in range(num_buckets)]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths]
        for key, line in keyed_lines:
            files[key * num_buckets >> HASH_BITS].write(f"{key:016x}{line}\n")
    for path in paths:
        with path.open(encoding="utf-8", newline="\n") as file:
            lines = sorted(file)
        path.unlink()
        for line in lines:
            yield line[16:-1]
