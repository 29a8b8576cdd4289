"""The shell scripts: syntax, and a dry run through verl's own validation."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.sh"))
SCRIPTS = [*EXAMPLES, ROOT / "tests" / "run.sh", ROOT / "requirements" / "setup_venv.sh", ROOT / ".ci" / "run"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_syntax(script):
    subprocess.run(["bash", "-n", script], check=True)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_dry_run_prints_what_would_run(script, tmp_path):
    environment = os.environ | {"DRY_RUN": "1", "OUTPUT_DIR": str(tmp_path)}
    result = subprocess.run(
        ["bash", script, "paravt.max_turns=7"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-2000:]
    text = result.stdout
    config = yaml.safe_load(text[text.index("\nactor_rollout_ref:") :])
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
