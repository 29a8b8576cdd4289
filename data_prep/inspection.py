"""What a folder of rows holds: counts by source, type and budget, as a table and a plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_prep.errors import InputError

GROUPS = ("data_source", "question_type", "frame_budget")


@dataclass(frozen=True)
class Contents:
    """Rows counted by (data source, question type, frame budget)."""

    num_files: int
    counts: Counter[tuple[str, str, int]]

    @property
    def num_rows(self) -> int:
        return self.counts.total()

    def by(self, group: str) -> Counter[str | int]:
        """Rows by one of ``GROUPS``, in the order of its values."""
        place = GROUPS.index(group)
        total: Counter[str | int] = Counter()
        for key in sorted(self.counts):
            total[key[place]] += self.counts[key]
        return total


def read_contents(path: Path) -> Contents:
    """Counts the rows of a parquet file, or of every parquet file of a folder that holds such rows.

    Raises:
        InputError: nothing there, or nothing with the columns of ``rl_schema``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    counts: Counter[tuple[str, str, int]] = Counter()
    num_files = 0
    for file in files:
        try:
            with pq.ParquetFile(file) as parquet:
                if not {"data_source", "extra_info"} <= set(parquet.schema_arrow.names):
                    continue
                num_files += 1
                for batch in parquet.iter_batches(columns=["data_source", "extra_info"]):
                    counts.update(_groups(batch))
        except (pa.ArrowException, KeyError) as error:
            raise InputError(f"{file} cannot be read as rows of this project: {error}") from error
    if not num_files:
        raise InputError(f"{path} holds no parquet file of rows; python -m data_prep rl writes them")
    return Contents(num_files, counts)


def _groups(batch) -> Iterator[tuple[str, str, int]]:
    extra_info = batch.column("extra_info")
    return zip(
        batch.column("data_source").to_pylist(),
        extra_info.field("question_type").to_pylist(),
        extra_info.field("frame_budget").to_pylist(),
        strict=True,
    )


def table(contents: Contents) -> str:
    """One line for each source and type, one column for each budget."""
    budgets = list(contents.by("frame_budget"))
    header = ["data source", "type", *(f"K={budget}" for budget in budgets), "rows"]
    lines = [header]
    for source, kind in sorted({key[:2] for key in contents.counts}):
        row = [contents.counts[(source, kind, int(budget))] for budget in budgets]
        lines.append([source, kind, *map(str, row), str(sum(row))])
    totals = contents.by("frame_budget").values()
    lines.append(["all", "", *map(str, totals), str(contents.num_rows)])
    return aligned(lines)


def aligned(lines: list[list[str]]) -> str:
    """Columns of equal width; numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = []
    for line in lines:
        cells = [
            cell.rjust(width) if cell.isdigit() else cell.ljust(width) for cell, width in zip(line, widths, strict=True)
        ]
        rows.append("  ".join(cells).rstrip())
    return "\n".join(rows)


def plot(contents: Contents, path: Path) -> None:
    """Draws the counts by source, type and budget as bars into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    for axes, group in zip(figure.subplots(1, len(GROUPS)), GROUPS, strict=True):
        counts = contents.by(group)
        bars = axes.bar([str(value) for value in counts], list(counts.values()))
        axes.bar_label(bars)
        axes.margins(y=0.1)
        axes.set_xlabel(group.replace("_", " "))
        axes.tick_params(axis="x", rotation=30 if group == "data_source" else 0)
    figure.suptitle(f"{contents.num_rows} rows in {contents.num_files} files")
    FigureCanvasAgg(figure).print_png(str(path))
