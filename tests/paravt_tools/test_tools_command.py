"""``python -m paravt_tools`` as a user runs it, and the doors of the package."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import paravt_tools
from paravt_tools.__main__ import main
from reward_fns import grammar

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    command = [sys.executable, "-m", "paravt_tools", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_sheet(plain, tmp_path):
    path = tmp_path / "sheet.png"
    result = run(plain, "--start", 1, "--end", "0:05", "-o", path, "--num-frames", 4)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{path}: 4 frames from 1.50 to 4.50 seconds\n"
    with Image.open(path) as sheet:
        assert sheet.size[0] > 2 * 128 and sheet.size[1] > 2 * 96
        # Frame 15 has its four lowest bits set: its left half is white, its right half black.
        assert sheet.getpixel((8 + 20, 8 + 20))[0] > 200 > 50 > sheet.getpixel((8 + 100, 8 + 20))[0]
        captions = sheet.crop((8, 8 + 96, 8 + 128, 8 + 96 + 18)).convert("L")
        assert captions.getextrema()[0] < 128, "no time under the first frame"


def test_a_sheet_of_the_whole_of_a_late_video(videos, tmp_path, capsys):
    assert main([str(videos["late"]), "-o", str(tmp_path / "sheet.png"), "--num-frames", "2"]) == 0
    assert "2 frames from 6.50 to 9.50 seconds" in capsys.readouterr().out


def test_probe(videos):
    result = run(videos["shown turned 90"], "--probe")
    lines = dict(line.split() for line in result.stdout.splitlines())
    assert lines == {
        "duration_seconds": "6.000",
        "num_frames": "60",
        "fps": "10.000",
        "width": "96",
        "height": "128",
        "rotation": "270",
        "codec": "h264",
        "start_seconds": "0.000",
    }


def test_help_has_examples():
    result = run("--help")
    assert result.returncode == 0 and "python -m paravt_tools talk.mp4 --start 10" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--start", "4", "--end", "3"], "after start_time"),
        (["--start", "soon"], "soon"),
        (["--num-frames", "0"], "num_frames"),
        (["-o", "none/there/sheet.png"], "No such file"),
        (["-o", "sheet.unknown"], "unknown"),
    ],
)
def test_what_the_user_can_mend_is_one_line(plain, tmp_path, monkeypatch, capsys, arguments, word):
    monkeypatch.chdir(tmp_path)
    assert main([str(plain), "-o", "sheet.png", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("error: ") and word in captured.err
    assert captured.err.count("\n") == 1


def test_a_missing_file_through_the_command(tmp_path):
    result = run(tmp_path / "none.mp4", "--probe")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"error: {tmp_path / 'none.mp4'}: No such file or directory\n"


def test_a_command_without_a_task_is_refused(plain):
    assert run(plain).returncode == 2


def test_the_grammar_is_the_one_of_reward_fns():
    for name in ("ParsedCalls", "ToolCall", "ToolCallError", "parse_tool_calls", "render_tool_call"):
        assert getattr(paravt_tools, name) is getattr(grammar, name)
    assert all(hasattr(paravt_tools, name) for name in paravt_tools.__all__)


def test_importing_stays_light():
    heavy = ["numpy", "decord", "av", "PIL", "torch", "verl"]
    code = f"import sys, paravt_tools; print([name for name in {heavy} if name in sys.modules])"
    # -S: without the environment's packages, as for a user of parse_tool_calls alone.
    result = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "[]", result.stderr
