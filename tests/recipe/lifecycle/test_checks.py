"""Data files are looked at before anything starts."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf

from recipe.paravt.lifecycle.checks import ConfigurationError, check_rows

COLUMNS = ("videos", "prompt")


@pytest.fixture
def check(tmp_path):
    def check(num_rows, columns=COLUMNS, **data):
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table({name: ["x"] * num_rows for name in columns}), path)
        defaults = {"train_files": str(path), "train_batch_size": 4, "val_files": None}
        check_rows(OmegaConf.create(defaults | data), COLUMNS, "the command")

    return check


def test_a_batch_of_rows_is_enough(check):
    check(4)
    check(4, train_max_samples=4)
    check(4, train_max_samples=None)
    check(2, train_files=["{}/rows"], val_files=[])  # another format, which verl reads
    check(2, train_files="s3://bucket/rows.parquet")
    check(2, gen_batch_size=2)


@pytest.mark.parametrize(
    ("num_rows", "data", "message"),
    [
        (3, {}, r"data.train_files: there are 3 rows, and one batch takes 4 \(data.train_batch_size\).*rows.parquet"),
        (
            9,
            {"train_max_samples": 3},
            "there are 9 rows, of which data.train_max_samples uses 3, and one batch takes 4",
        ),
        (9, {"gen_batch_size": 12}, r"one batch takes 12 \(data.gen_batch_size\)"),
        (9, {"train_files": None}, "data.train_files is empty; it must name files that the command makes"),
        (9, {"train_batch_size": None}, "data.train_batch_size is None; it must be a whole number above 0"),
        (9, {"columns": ("videos",)}, "rows.parquet has no column prompt, only videos; the command makes such files"),
    ],
)
def test_what_is_too_little_or_of_another_kind_is_named(check, num_rows, data, message):
    with pytest.raises(ConfigurationError, match=message):
        check(num_rows, **data)


def test_an_empty_and_an_unreadable_file_are_named(check, tmp_path):
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no")
    with pytest.raises(ConfigurationError, match=r"data.train_files: .*broken.parquet cannot be read as parquet"):
        check(4, train_files=[str(tmp_path / "rows.parquet"), str(broken)])
    with pytest.raises(ConfigurationError, match=r"data.val_files: .*missing.parquet cannot be read"):
        check(4, val_files=str(tmp_path / "missing.parquet"))
    empty = tmp_path / "empty.parquet"
    pq.write_table(pa.table({name: pa.array([], pa.string()) for name in COLUMNS}), empty)
    with pytest.raises(ConfigurationError, match=r"data.val_files: there are no rows in .*empty.parquet"):
        check(4, val_files=str(empty))
