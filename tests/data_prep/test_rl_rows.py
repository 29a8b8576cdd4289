"""``python -m data_prep rl``: rows, their order and budgets, what is rejected and why, what stays on disk."""

import csv
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.__main__ import main
from data_prep.hashing import draw_frame_budget, keyed_hash
from data_prep.rl import RlSettings, make_rl_rows
from data_prep.schema import FRAME_BUDGETS, rl_schema

ROOT = Path(__file__).resolve().parents[2]
KNOWN = {"duration_seconds": 60.0, "width": 640, "height": 360, "num_frames": 1800}


def record(number, **changes):
    """A good open-ended annotation; a change to None takes a field away."""
    fields = {
        "id": f"q{number}",
        "video": f"v{number % 7}.mp4",
        "question": f"What is number {number}?",
        "answer": "a red car",
        "question_type": "oe",
        **KNOWN,
        **changes,
    }
    return {name: value for name, value in fields.items() if value is not None}


def choice(number, **changes):
    return record(number, **{"question_type": "mcq", "answer": "B", "options": ["one", "two"], **changes})


def span(number, **changes):
    return record(number, **{"question_type": "tvg", "answer": "[1.0, 2.5]", **changes})


def run(annotations, output, *arguments):
    return main(["rl", "--annotations", str(annotations), "--output", str(output), *arguments])


def rows_of(output, pattern="rl-epoch*.parquet"):
    return [row for path in sorted(output.glob(pattern)) for row in pq.read_table(path).to_pylist()]


def rejected_of(output):
    return [json.loads(line) for line in (output / "rejected.jsonl").read_text().splitlines()]


def manifest_of(output):
    return json.loads((output / "manifest.json").read_text())


def only_reason(annotate, tmp_path, *records, arguments=("--probe", "never")):
    """The (reason, detail) of the last record, the only one that is rejected."""
    status = run(annotate(records), tmp_path / "out", *arguments)
    (line,) = rejected_of(tmp_path / "out")
    assert status == (1 if len(records) == 1 else 0)
    assert line["line"] == len(records) and line["annotation"] == records[-1]
    return line["reason"], line["detail"]


def test_a_row_as_written(annotate, tmp_path):
    path = annotate([choice(3, data_source="quiz", question=" Which?\n", options=["A. red car", "B. a bus"])])
    assert run(path, tmp_path / "out", "--probe", "never", "--fixed-frame-budget", "12") == 0
    assert rows_of(tmp_path / "out") == [
        {
            "data_source": "quiz",
            "agent_name": "paravt_agent",
            "prompt": [{"role": "user", "content": "<video>\nWhich?\nA. red car\nB. a bus"}],
            "videos": [{"video": "v3.mp4", "nframes": 12, "min_pixels": 784, "max_pixels": 50176}],
            "ability": "video_qa",
            "reward_model": {"style": "rule", "ground_truth": "B"},
            "extra_info": {
                "index": 0,
                "split": "train",
                "question_id": "q3",
                "question_type": "mcq",
                "question": "Which?",
                "answer": "B",
                "options": ["red car", "a bus"],
                "duration_seconds": 60.0,
                "frame_budget": 12,
                "epoch": 0,
                "num_prompt_tokens": None,
            },
        }
    ]


def test_every_shard_has_the_schema_and_datasets_reads_it(annotate, tmp_path):
    path = annotate([record(number) for number in range(5)] + [choice(9), span(10)])
    assert run(path, tmp_path / "out", "--probe", "never", "--shard-rows", "3", "--epochs", "2") == 0
    shards = sorted((tmp_path / "out").glob("*.parquet"))
    assert [shard.name for shard in shards] == [f"rl-epoch{e}-{s:05d}.parquet" for e in (0, 1) for s in (0, 1, 2)]
    assert all(pq.read_schema(shard).equals(rl_schema()) for shard in shards)
    assert [pq.read_metadata(shard).num_rows for shard in shards] == [3, 3, 1, 3, 3, 1]
    rows = datasets.load_dataset("parquet", data_files=list(map(str, shards)), split="train", cache_dir=str(tmp_path))
    assert rows["extra_info"][:][0].keys() == rows_of(tmp_path / "out")[0]["extra_info"].keys()
    assert [row["extra_info"]["index"] for row in rows] == list(range(14))


def test_synthetic_data_are_kept_whole(shapes, lines, tmp_path):
    assert run(shapes / "annotations.jsonl", tmp_path / "out") == 0
    rows = rows_of(tmp_path / "out")
    assert {row["extra_info"]["question_id"] for row in rows} == {line["id"] for line in lines}
    assert rejected_of(tmp_path / "out") == []
    assert manifest_of(tmp_path / "out")["ignored_fields"] == {"events": len(lines)}
    assert {row["data_source"] for row in rows} == {"synthetic"}


def test_each_epoch_holds_every_question_in_an_order_and_with_budgets_of_its_own(annotate, tmp_path):
    path = annotate([record(number) for number in range(200)])
    assert run(path, tmp_path / "out", "--probe", "never", "--epochs", "3") == 0
    epochs = [rows_of(tmp_path / "out", f"rl-epoch{epoch}-*") for epoch in range(3)]
    orders = [[row["extra_info"]["question_id"] for row in rows] for rows in epochs]
    written = [f"q{number}" for number in range(200)]
    assert all(sorted(order) == sorted(written) for order in orders)
    assert len({tuple(order) for order in [*orders, written]}) == 4
    budgets = [{row["extra_info"]["question_id"]: row["extra_info"]["frame_budget"] for row in rows} for rows in epochs]
    assert sum(budgets[0][name] != budgets[1][name] for name in written) > 100
    for rows, epoch in zip(epochs, range(3), strict=True):
        assert {row["extra_info"]["epoch"] for row in rows} == {epoch}
        assert all(row["videos"][0]["nframes"] == row["extra_info"]["frame_budget"] for row in rows)


def test_order_and_budgets_do_not_depend_on_input_order_or_hash_seed(annotate, tmp_path):
    records = [record(number) for number in range(150)]
    forwards, backwards = annotate(records, "a.jsonl"), annotate(records[::-1], "b.jsonl")
    tables = []
    for name, path, hash_seed in (("1", forwards, "1"), ("2", forwards, "2"), ("3", backwards, "3")):
        arguments = ["--annotations", str(path), "--output", str(tmp_path / name), "--probe", "never"]
        command = [sys.executable, "-m", "data_prep", "rl", *arguments]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run(command, cwd=ROOT, check=True, env=environment, timeout=60)
        tables.append([{**row, "data_source": ""} for row in rows_of(tmp_path / name)])
    assert tables[0] == tables[1] == tables[2]
    run(forwards, tmp_path / "4", "--probe", "never", "--seed", "1")
    assert tables[0] != [{**row, "data_source": ""} for row in rows_of(tmp_path / "4")]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_budgets_are_uniform(seed):
    """Chi-square with 4 degrees of freedom: 13.28 is the value of p = 0.01."""
    counts = Counter(draw_frame_budget(seed, 0, f"q{number}", FRAME_BUDGETS) for number in range(100_000))
    assert sum((counts[budget] - 20_000) ** 2 / 20_000 for budget in FRAME_BUDGETS) < 13.28


def test_budgets_of_neighbours_are_independent():
    """Two epochs of a question, and two questions of a video, agree in a fifth of the cases."""
    for other in (lambda n: (1, f"q{n}"), lambda n: (0, f"q{n}b")):
        same = sum(
            draw_frame_budget(0, 0, f"q{number}", FRAME_BUDGETS) == draw_frame_budget(0, *other(number), FRAME_BUDGETS)
            for number in range(20_000)
        )
        assert 3_700 < same < 4_300


def test_a_keyed_hash_is_fixed_for_ever():
    """Another value here means that everybody's data sets change."""
    assert keyed_hash(0, "budget", 0, "q1") == 10592350855171608009
    assert keyed_hash(0, "a", "bc") != keyed_hash(0, "ab", "c") != keyed_hash(1, "ab", "c")


def test_validation_rows_have_64_frames_unless_told_otherwise(annotate, tmp_path):
    path = annotate([record(number) for number in range(9)])
    for arguments, budgets in (
        (["--split", "val"], {64}),
        (["--split", "val", "--fixed-frame-budget", "8"], {8}),
        (["--split", "val", "--frame-budgets", "3,5"], {3, 5}),
    ):
        run(path, tmp_path / "out", "--probe", "never", *arguments)
        rows = rows_of(tmp_path / "out")
        assert {row["extra_info"]["frame_budget"] for row in rows} == budgets
        assert {row["extra_info"]["split"] for row in rows} == {"val"}


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_every_format_gives_the_same_rows(suffix, tmp_path):
    records = [record(1), choice(2, question='Ünï "quoted",\nline'), span(3), record(4, answer="7")]
    path = tmp_path / f"annotations.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(records, schema=None), path)
        table = pa.Table.from_pylist([{name: r.get(name) for name in choice(0)} for r in records])
        pq.write_table(table, path)
    elif suffix == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(choice(0)))
            writer.writeheader()
            for fields in records:
                options = {"options": json.dumps(fields["options"])} if "options" in fields else {}
                writer.writerow({**fields, **options})
    elif suffix == "json":
        path.write_text(json.dumps(records, indent=1), encoding="utf-8")
    else:
        path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    assert run(path, tmp_path / "out", "--probe", "never") == 0
    rows = sorted(rows_of(tmp_path / "out"), key=lambda row: row["extra_info"]["question_id"])
    infos = [row["extra_info"] for row in rows]
    assert [info["question_id"] for info in infos] == ["q1", "q2", "q3", "q4"]
    assert [info["answer"] for info in infos] == ["a red car", "B", "[1.0, 2.5]", "7"]
    assert infos[1]["question"] == 'Ünï "quoted",\nline' and infos[1]["options"] == ["one", "two"]
    assert {info["duration_seconds"] for info in infos} == {60.0}
    assert rejected_of(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("bad", "reason", "says"),
    [
        (record(1, question=None), "missing_field", "no question; there is id, video"),
        (record(1, answer="  "), "missing_field", "no answer"),
        (["a list"], "wrong_type", "an annotation is an object"),
        (record(1, video=["a.mp4", "b.mp4"]), "several_videos", "this has 2"),
        (record(1, question="<video> or <video>?"), "several_videos", "holds <video> 2 times"),
        (record(1, video=7), "wrong_type", "video is a text, this is int 7"),
        (record(1, question_type="quiz"), "unknown_question_type", "'quiz' is none of mcq, tvg, oe"),
        (record(1, answer=True), "wrong_type", "this is bool True"),
        (record(1, duration_seconds="long"), "wrong_type", "duration_seconds is a number"),
        (record(1, duration_seconds=0), "bad_value", "it must be above 0"),
        (record(1, duration_seconds="NaN"), "bad_value", "it must be above 0"),
        (record(1, num_frames=1.5), "bad_value", "whole number"),
        (record(1, id=1.5), "wrong_type", "id is a text or a whole number"),
        (record(1, question="is <|im_end|> here?"), "special_token", "<|im_end|>"),
        (record(1, video="../v.mp4"), "video_outside_root", "is not under the video root"),
        (record(1, video="/elsewhere/v.mp4"), "video_outside_root", "is not under the video root"),
        (record(1, options=["one", "two"]), "bad_value", "type oe with options"),
        (choice(1, options=None), "missing_field", "without options"),
        (choice(1, options="one, two"), "wrong_type", "must be a JSON list"),
        (choice(1, options=["one"]), "bad_value", "1 options; 2 to 26"),
        (choice(1, options=["one", "one"]), "bad_value", "empty or equal"),
        (choice(1, options=["one", None]), "wrong_type", "options are texts"),
        (choice(1, options=["one", "<video>"]), "special_token", "<video>"),
        (choice(1, answer="C"), "gold_answer_fails", "'C' is none of ['one', 'two']"),
        (choice(1, answer="three"), "gold_answer_fails", "'three' is none of"),
        (span(1, answer="[2.5, 1.0]"), "gold_answer_fails", "names no span"),
        (span(1, answer="at noon"), "gold_answer_fails", "names no span"),
        (span(1, answer=[1.0]), "wrong_type", "a text or [start, end]"),
        (span(1, answer="[60.5, 61.0]"), "gold_answer_fails", "60"),
    ],
)
def test_what_cannot_be_used_is_rejected_with_its_reason(bad, reason, says, annotate, tmp_path):
    got, detail = only_reason(annotate, tmp_path, record(2), bad)
    assert got == reason
    assert says in detail


@pytest.mark.parametrize(
    ("good", "answer"),
    [
        (record(1, answer=3), "3"),
        (span(1, answer=[1, 2.5]), "[1.0, 2.5]"),
        (span(1, answer=[[1, 2], [5, 60]]), "[1.0, 2.0], [5.0, 60.0]"),
        (choice(1, answer="two"), "two"),
        (choice(1, options=[1, 2], answer="A"), "A"),
        (record(1, options=[]), "a red car"),
        (record(1, video=["v.mp4"]), "a red car"),
        (record(1, question="<video>\nWhat?"), "a red car"),
    ],
)
def test_what_has_another_shape_but_one_meaning_is_kept(good, answer, annotate, tmp_path):
    assert run(annotate([good]), tmp_path / "out", "--probe", "never") == 0
    (row,) = rows_of(tmp_path / "out")
    assert row["reward_model"]["ground_truth"] == row["extra_info"]["answer"] == answer
    assert row["prompt"][0]["content"].count("<video>") == 1


def test_duplicates_are_rejected_and_rejects_do_not_shadow_good_ones(annotate, tmp_path):
    records = [
        record(1, answer=True),
        record(1),
        record(2, id="q1"),
        record(1, id="other", answer="another answer"),
        record(1, id="q9", video="w.mp4"),
        record(1, id=None, video="x.mp4"),
        record(1, id=None, video="y.mp4"),
    ]
    assert run(annotate(records), tmp_path / "out", "--probe", "never") == 0
    assert [(line["line"], line["reason"]) for line in rejected_of(tmp_path / "out")] == [
        (1, "wrong_type"),
        (3, "duplicate_id"),
        (4, "duplicate_question"),
    ]
    assert len({row["extra_info"]["question_id"] for row in rows_of(tmp_path / "out")}) == 4


def test_lines_that_do_not_parse_are_rejected_where_they_stand(tmp_path):
    path = tmp_path / "annotations.jsonl"
    good = json.dumps(record(1)).encode()
    path.write_bytes(b"\xef\xbb\xbf" + good + b'\n\n{"id": 1,}\n\xff\n' + b'{"a": NaN}\n' + b"[" * 100_000 + b"\n")
    assert run(path, tmp_path / "out", "--probe", "never") == 0
    lines = [(line["line"], line["reason"], line["detail"]) for line in rejected_of(tmp_path / "out")]
    assert [line[:2] for line in lines] == [
        (3, "malformed_line"),
        (4, "malformed_line"),
        (5, "missing_field"),
        (6, "malformed_line"),
    ]
    assert "column 10" in lines[0][2] and "UTF-8 at byte 1" in lines[1][2]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", b'[{"id": 1}, {"id": ]', "is not JSON after row 1"),
        ("a.parquet", b"PAR1 but not really", "cannot be read as parquet"),
        ("a.csv", b'id,video\n1,"a', "is not CSV in UTF-8 at line"),
        ("a.csv", b"id,video\n1,\xff\n", "is not CSV in UTF-8 at line"),
        ("a.txt", b"", "it must be one of .jsonl, .json, .csv, .parquet"),
        ("missing.jsonl", None, "is not a file"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_and_leaves_what_was_there(
    name, content, says, annotate, tmp_path, capsys
):
    assert run(annotate([record(1)]), tmp_path / "out", "--probe", "never") == 0
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert run(path, tmp_path / "out", "--probe", "never") == 2
    error = capsys.readouterr().err
    assert says in error and str(path) in error
    assert sorted(found.name for found in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "rejected.jsonl",
        "rl-epoch0-00000.parquet",
    ]


def test_csv_rows_of_another_width_are_rejected(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,video,question,answer,question_type\nq1,v.mp4,What?,car,oe\nq2,v.mp4\nq3,v,w,x,oe,more\n")
    assert run(path, tmp_path / "out", "--probe", "never") == 0
    assert [(line["line"], line["reason"]) for line in rejected_of(tmp_path / "out")] == [
        (3, "malformed_line"),
        (4, "malformed_line"),
    ]


def test_a_run_replaces_the_files_of_the_one_before(annotate, tmp_path):
    path = annotate([record(number) for number in range(20)])
    run(path, tmp_path / "out", "--probe", "never", "--shard-rows", "4", "--epochs", "2")
    run(path, tmp_path / "out", "--probe", "never", "--shard-rows", "15")
    names = [found.name for found in (tmp_path / "out").glob("*.parquet")]
    assert sorted(names) == ["rl-epoch0-00000.parquet", "rl-epoch0-00001.parquet"]
    assert manifest_of(tmp_path / "out")["shards"] == {
        "rl-epoch0-00000.parquet": 15,
        "rl-epoch0-00001.parquet": 5,
    }


def test_the_table_and_the_manifest_count_what_happened(annotate, tmp_path, capsys):
    records = [
        record(1),
        choice(2),
        span(3),
        record(4, answer=None),
        record(5, answer=None),
        choice(6, answer="Z"),
    ]
    assert run(annotate(records), tmp_path / "out", "--probe", "never", "--epochs", "2") == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["kept", "3"] in printed and ["annotations", "6"] in printed
    assert ["rejected:", "missing_field", "2"] in printed
    assert ["rejected:", "gold_answer_fails", "1"] in printed
    manifest = manifest_of(tmp_path / "out")
    assert manifest["num_kept"] + manifest["num_rejected"] == manifest["num_annotations"] == 6
    assert manifest["rejected"] == {"missing_field": 2, "gold_answer_fails": 1}
    assert manifest["question_types"] == {"oe": 1, "mcq": 1, "tvg": 1}
    assert [sum(counts.values()) for counts in manifest["frame_budgets"].values()] == [3, 3]
    assert list(manifest["frame_budgets"]["0"]) == ["4", "8", "16", "32", "64"]


def test_nothing_kept_is_a_failure(annotate, tmp_path, capsys):
    assert run(annotate([record(1, answer=None)]), tmp_path / "out", "--probe", "never") == 1
    assert "nothing was kept" in capsys.readouterr().err
    assert rows_of(tmp_path / "out") == [] and len(rejected_of(tmp_path / "out")) == 1


class TestVideos:
    def facts(self, shapes, lines, **changes):
        (line, *_) = lines
        return record(1, video=line["video"], **changes), line

    def test_missing_facts_are_probed(self, shapes, lines, annotate, tmp_path):
        fields, line = self.facts(shapes, lines, duration_seconds=None)
        assert run(annotate([fields]), tmp_path / "out", "--video-root", str(shapes)) == 0
        (row,) = rows_of(tmp_path / "out")
        assert row["extra_info"]["duration_seconds"] == pytest.approx(line["duration_seconds"])
        assert row["videos"][0]["video"] == line["video"]

    def test_always_trusts_the_file_and_auto_the_annotation(self, shapes, lines, annotate, tmp_path):
        fields, line = self.facts(shapes, lines)
        for mode, seconds in (("auto", 60.0), ("never", 60.0), ("always", line["duration_seconds"])):
            run(annotate([fields]), tmp_path / mode, "--video-root", str(shapes), "--probe", mode)
            (row,) = rows_of(tmp_path / mode)
            assert row["extra_info"]["duration_seconds"] == pytest.approx(seconds)

    def test_a_missing_file_is_rejected_also_when_nothing_must_be_probed(self, annotate, tmp_path):
        for arguments in ((), ("--probe", "always")):
            reason, detail = only_reason(annotate, tmp_path, record(1), arguments=arguments)
            assert reason == "missing_video" and "v1.mp4" in detail

    def test_an_unreadable_file_is_rejected(self, annotate, tmp_path):
        (tmp_path / "v1.mp4").write_text("not a video")
        reason, detail = only_reason(annotate, tmp_path, record(1, width=None), arguments=())
        assert reason == "unreadable_video" and "v1.mp4" in detail

    def test_never_touches_no_file(self, annotate, tmp_path):
        fields = {"video": "v.mp4", "question": "What?", "answer": "car", "question_type": "oe"}
        assert run(annotate([fields]), tmp_path / "out", "--probe", "never") == 0
        assert rows_of(tmp_path / "out")[0]["extra_info"]["duration_seconds"] is None

    def test_paths_are_normalised_under_the_root(self, annotate, tmp_path):
        path = annotate([record(1, video="./a//b/../v.mp4"), record(2, video=str(tmp_path / "c" / "v.mp4"))])
        run(path, tmp_path / "out", "--probe", "never")
        assert {row["videos"][0]["video"] for row in rows_of(tmp_path / "out")} == {"a/v.mp4", "c/v.mp4"}

    def test_each_file_is_opened_once(self, shapes, lines, annotate, tmp_path, monkeypatch):
        import paravt_tools

        opened = []
        real = paravt_tools.probe_video
        monkeypatch.setattr(paravt_tools, "probe_video", lambda path: opened.append(path) or real(path))
        path = annotate([record(number, video=lines[0]["video"], width=None) for number in range(5)])
        assert run(path, tmp_path / "out", "--video-root", str(shapes)) == 0
        assert len(opened) == 1


def test_memory_stays_flat(annotate, tmp_path):
    """Twice as many annotations must not take twice the memory (indices of hashes aside: about 100 bytes each)."""
    code = (
        "import sys\n"
        "from data_prep.__main__ import main\n"
        "assert main(['rl', '--annotations', sys.argv[1], '--output', sys.argv[2], '--probe', 'never']) == 0\n"
        # Not getrusage: its peak is inherited from the process that started this one.
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    peaks = []
    for number in (60_000, 120_000):
        path = annotate((record(i, question=f"{i} " + "word " * 60) for i in range(number)), f"{number}.jsonl")
        command = [sys.executable, "-c", code, str(path), str(tmp_path / str(number))]
        result = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
        peaks.append(int(result.stdout.split()[-1]) / 1024)
    assert peaks[1] - peaks[0] < 25, peaks


def test_a_limit_without_a_tokenizer_is_an_error(annotate, tmp_path, capsys):
    assert run(annotate([record(1)]), tmp_path / "out", "--max-prompt-tokens", "10") == 2
    assert "--model" in capsys.readouterr().err


def test_the_settings_say_what_the_flags_say(annotate, tmp_path):
    path = annotate([record(1)])
    settings = RlSettings(annotations=path, output=tmp_path / "out", video_root=tmp_path, probe="never")
    assert make_rl_rows(settings).num_kept == 1
    for wrong in (
        ["--frame-budgets", "4,4"],
        ["--frame-budgets", "0"],
        ["--epochs", "0"],
        ["--shard-rows", "x"],
    ):
        with pytest.raises(SystemExit, match="2"):
            run(path, tmp_path / "out", *wrong)
    with pytest.raises(SystemExit, match="2"):
        run(path, tmp_path / "out", "--frame-budgets", "4", "--fixed-frame-budget", "4")
