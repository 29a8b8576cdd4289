"""``python -m data_prep inspect``."""

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from data_prep.__main__ import main


def test_the_table_counts_and_the_plot_is_a_picture(shapes, tmp_path, capsys):
    rows = tmp_path / "rows"
    arguments = ["--annotations", str(shapes / "annotations.jsonl"), "--output", str(rows)]
    assert main(["rl", *arguments, "--frame-budgets", "8,16", "--epochs", "2", "--shard-rows", "10"]) == 0
    capsys.readouterr()
    assert main(["inspect", str(rows)]) == 0
    printed = capsys.readouterr().out.splitlines()
    table = [line.split() for line in printed[:5]]
    assert table[0] == ["data", "source", "type", "K=8", "K=16", "rows"]
    assert [line[:2] for line in table[1:4]] == [["synthetic", kind] for kind in ("mcq", "oe", "tvg")]
    for line in table[1:4]:
        assert int(line[2]) + int(line[3]) == int(line[4]) == 12
    assert table[4][0] == "all" and table[4][-1] == "36"
    with Image.open(rows / "inspect.png") as picture:
        assert picture.format == "PNG" and picture.width > 500


def test_one_file_and_a_plot_elsewhere(shapes, tmp_path, capsys):
    rows = tmp_path / "rows"
    assert main(["rl", "--annotations", str(shapes / "annotations.jsonl"), "--output", str(rows)]) == 0
    assert main(["inspect", str(rows / "rl-epoch0-00000.parquet"), "--plot", str(tmp_path / "p.png")]) == 0
    assert (tmp_path / "p.png").stat().st_size > 1000 and not (rows / "inspect.png").exists()


def test_a_folder_without_rows_is_an_error(shapes, tmp_path, capsys):
    assert main(["inspect", str(tmp_path)]) == 2
    assert main(["inspect", str(shapes)]) == 2, "conversations are not rows"
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    assert main(["inspect", str(tmp_path)]) == 2
    (tmp_path / "bad.parquet").unlink()
    pq.write_table(pa.table({"data_source": ["a"], "extra_info": [{"other": 1}]}), tmp_path / "other.parquet")
    assert main(["inspect", str(tmp_path)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert "holds no parquet file of rows" in errors[0] and "holds no parquet file of rows" in errors[1]
    assert "bad.parquet cannot be read" in errors[2] and "other.parquet cannot be read" in errors[3]
