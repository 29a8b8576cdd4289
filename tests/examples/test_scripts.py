"""The shell scripts: syntax, a dry run through verl's own validation, and paths with all kinds of characters."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("run_*.sh"))
HELPER = ROOT / "examples" / "hydra_value.sh"
SCRIPTS = [*EXAMPLES, HELPER, ROOT / "tests" / "run.sh", ROOT / "requirements" / "setup_venv.sh", ROOT / ".ci" / "run"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_syntax(script):
    subprocess.run(["bash", "-n", script], check=True)


def composed(output):
    """The configuration that a dry run prints."""
    return yaml.safe_load(output[output.index("\nactor_rollout_ref:") :])


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_dry_run_prints_what_would_run(script, tmp_path):
    environment = os.environ | {"DRY_RUN": "1", "OUTPUT_DIR": str(tmp_path)}
    result = subprocess.run(
        ["bash", script, "paravt.max_turns=7"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-2000:]
    config = composed(result.stdout)
    assert config["paravt"]["max_turns"] == 7, "further arguments are Hydra overrides, the last one wins"
    assert config["paravt"]["output_dir"] == str(tmp_path)


def test_a_dry_run_names_what_is_wrong(tmp_path):
    environment = os.environ | {"DRY_RUN": "1", "OUTPUT_DIR": str(tmp_path)}
    script = ROOT / "examples" / "run_paravt_qwen3vl8b.sh"
    result = subprocess.run(
        ["bash", script, "paravt.max_turns=0"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode != 0
    assert "error: paravt: max_turns is 0" in result.stderr and "Traceback" not in result.stderr


def bash(function, *arguments, **variables):
    """What a function of the helper prints."""
    command = ["bash", "-euc", f'. "$1"; {function} "${{@:2}}"', "bash", HELPER, *arguments]
    result = subprocess.run(command, env=os.environ | variables, capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr.decode()
    return os.fsdecode(result.stdout)


def hydra_reads(value):
    return OverridesParser.create().parse_override(f"key={value}").value()


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "a'b",
        "a\\",
        "a\\\\",
        "a\\'b",
        "a\\\\'b",
        "a\\b",
        "\\",
        "'",
        "''",
        "\\'",
        'a"b',
        'a\\"b',
        '"',
        "'a'",
        '"a"',
    ]
    + [
        "a=b",
        "=",
        "a,b",
        ",",
        "a(b",
        "(a)",
        "#1",
        "a #b",
        "a b",
        " a",
        "a ",
        " ",
        "\t",
        "[x",
        "[a,b]",
        "{",
        "{a:b}",
        "}",
    ]
    + [
        "中文",
        "é",
        ":",
        "a:b",
        "%",
        "%20",
        "~",
        "~a",
        "@",
        "!",
        "*",
        "?",
        "|",
        "&",
        ";",
        "<>",
        "`a`",
        "a\nb",
        "a\n",
        "\r",
    ]
    + ["${x}", "$x", "null", "true", "12", "1e3", "inf", "sort(a)", "glob(*)", "--", "-n", "-e a", ""],
)
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_hydra_reads_what_was_quoted(text, locale):
    value = hydra_reads(bash("hydra_value", text, LC_ALL=locale))
    assert value == text and isinstance(value, str)


@pytest.mark.parametrize(
    "name",
    ["a${x}", "$HOME.parquet", "a[1]", "[a-b].parquet", "a*", "what?", "a::b", "${x} 'q' 中文"],
)
@pytest.mark.parametrize("function", ["hydra_path", "hydra_files"])
def test_a_path_that_cannot_be_handed_on_becomes_a_link(name, function, tmp_path):
    path = tmp_path / name
    path.write_text("rows")
    links = tmp_path / "links"
    links.mkdir()
    first, again = (Path(hydra_reads(bash(function, str(path), TMPDIR=str(links)))) for _ in range(2))
    assert first == again and first.is_relative_to(links) and first.readlink() == path
    assert first.suffix == (".parquet" if name.endswith(".parquet") else "")
    assert not set("$[*?:") & set(first.name)
    assert (links / f"paravt-paths-{os.getuid()}").stat().st_mode & 0o777 == 0o700


def test_a_relative_path_counts_where_it_leads(tmp_path, monkeypatch):
    folder = tmp_path / "a${x}"
    (folder / "model").mkdir(parents=True)
    monkeypatch.chdir(folder)
    assert Path(hydra_reads(bash("hydra_path", "model", TMPDIR=str(tmp_path)))).readlink() == folder / "model"
    assert hydra_reads(bash("hydra_path", "Qwen/Qwen3-VL-8B-Instruct")) == "Qwen/Qwen3-VL-8B-Instruct"
    monkeypatch.chdir(tmp_path)
    assert hydra_reads(bash("hydra_path", "a b")) == "a b"


def test_other_machines_have_no_links(tmp_path):
    command = ["bash", "-euc", '. "$1"; value=$(hydra_path "$2"); echo went on', "bash", HELPER, f"{tmp_path}/${{x}}"]
    result = subprocess.run(command, env=os.environ | {"RAY_ADDRESS": "head:6379"}, capture_output=True, text=True)
    assert result.returncode != 0 and "went on" not in result.stdout
    assert result.stderr == f"error: {tmp_path}/${{x}}: with several machines, a path must not hold any of $ * ? [ ::\n"


def test_several_files_are_a_list_in_hydras_syntax(tmp_path):
    assert hydra_reads(bash("hydra_files", "[a,'b c']")) == ["a", "b c"]
    (tmp_path / "[a]").touch()
    assert hydra_reads(bash("hydra_files", f"{tmp_path}/[a]", TMPDIR=str(tmp_path))).startswith(str(tmp_path))


NASTY = """o=u,t (#1) 'q' "d" 中文"""


@pytest.mark.parametrize("name", [f"{NASTY} \\", f"{NASTY} ${{x}}"])
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_paths_arrive_as_they_were_given(script, name, tmp_path):
    folder = tmp_path / name
    names = ("OUTPUT_DIR", "MODEL", "VIDEO_ROOT", "TRAIN_FILES", "VAL_FILES")
    given = {variable: str(folder / f"{variable}'s = {name}") for variable in names}
    result = subprocess.run(
        ["bash", script], env=os.environ | given | {"DRY_RUN": "1"}, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-2000:]
    config = composed(result.stdout)
    arrived = {
        "OUTPUT_DIR": config["paravt"]["output_dir"],
        "MODEL": config["actor_rollout_ref"]["model"]["path"],
        "VIDEO_ROOT": config["paravt"]["video_root"],
        "TRAIN_FILES": config["data"]["train_files"],
        "VAL_FILES": config["data"]["val_files"],
    }
    if "tiny" in script.name:  # makes all of it in its output folder
        output = given["OUTPUT_DIR"]
        given = {
            "OUTPUT_DIR": output,
            "MODEL": f"{output}/sft/checkpoints/global_step_170/huggingface",
            "VIDEO_ROOT": f"{output}/data/train",
            "TRAIN_FILES": f"{output}/data/train/rl/rl-epoch0-00000.parquet",
            "VAL_FILES": f"{output}/data/val/rl/rl-epoch0-00000.parquet",
        }
    if "${" in name:
        assert "${" not in "".join(arrived.values())
        arrived = {variable: os.path.realpath(path) for variable, path in arrived.items()}
    assert arrived == given
    assert Path(given["OUTPUT_DIR"], "hydra", "overrides.yaml").is_file()


@pytest.mark.long
@pytest.mark.train
def test_the_whole_road_in_a_folder_with_such_a_name(tmp_path):
    folder = tmp_path / f"{NASTY} ${{x}}"
    sizes = {"STEPS": "1", "SFT_STEPS": "2", "TRAIN_VIDEOS": "8", "VAL_VIDEOS": "2", "OUTPUT_DIR": str(folder)}
    script = ROOT / "examples" / "run_paravt_tiny_cpu.sh"
    with (tmp_path / "log").open("w+") as log:
        result = subprocess.run(["bash", script], env=os.environ | sizes, stdout=log, stderr=log, timeout=900)
        log.seek(0)
        output = log.read()
    assert result.returncode == 0, output[-3000:]
    assert "steps 1 to 1, 0 failed sessions" in output
    for name in ("metrics.jsonl", "rollouts/1.jsonl", "checkpoints/global_step_1/complete.json"):
        assert (folder / name).is_file(), name
    assert list((folder / "tensorboard").glob("events.*")) and list((folder / "sft" / "tensorboard").glob("events.*"))


def test_a_checkout_that_is_ready_may_be_read_only_and_stdout_ascii(tmp_path):
    read_only = f"mount --bind {ROOT} {ROOT} && mount -o remount,ro,bind {ROOT}"
    if subprocess.run(["unshare", "--mount", "sh", "-c", read_only], capture_output=True).returncode:
        pytest.skip("a read-only mount needs root")
    folder = tmp_path / "κ"
    environment = os.environ | {"DRY_RUN": "1", "OUTPUT_DIR": str(folder), "PYTHONIOENCODING": "ascii"}
    script = f'{read_only} && ! touch {ROOT}/x 2>&- && exec bash "$0"'
    command = ["unshare", "--mount", "sh", "-c", script, ROOT / "examples" / "run_paravt_tiny_cpu.sh"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
    assert composed(result.stdout)["paravt"]["output_dir"] == str(folder).replace("κ", "\\u03ba")
