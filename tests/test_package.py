"""The built wheel, in an environment of its own: what is easily lost is a namespace package or a data file."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLIS = ["data_prep", "data_prep rl", "data_prep synthetic", "data_prep inspect", "paravt_tools"]
CLIS += ["recipe.paravt.tiny", "recipe.paravt.main", "recipe.paravt.training.sft"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # A copy, so that no build folder is left in the checkout and nothing untracked gets in.
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    source = folder / "source"
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source]
    subprocess.run(command, check=True, timeout=300)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh_python(wheel, tmp_path_factory):
    """A new environment that sees the packages of this one (7 GB), but not this checkout."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    ours = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    # A path file is not read for its own path files, so the editable install stays out.
    (site / "dependencies.pth").write_text(f"{ours}\n")
    return folder / "bin" / "python"


def run(python, *arguments, cwd):
    command = [python, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


def test_the_wheel_is_seen_and_not_the_checkout(fresh_python, tmp_path):
    code = "import recipe.paravt, reward_fns, paravt_tools, data_prep; print(recipe.paravt.__file__)"
    result = run(fresh_python, "-c", code, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert str(fresh_python.parents[1]) in result.stdout


@pytest.mark.parametrize("cli", CLIS)
def test_help(cli, fresh_python, tmp_path):
    result = run(fresh_python, "-m", *cli.split(), "--help", cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    assert len(result.stdout) > 100


@pytest.mark.parametrize("name", ["para_grpo", "vanilla_grpo"])
def test_configurations_compose(name, fresh_python, tmp_path):
    overrides = ["device=cpu", "paravt.dry_run=true", f"paravt.output_dir={tmp_path}"]
    result = run(fresh_python, "-m", "recipe.paravt.main", "--config-name", name, *overrides, cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "trainer_mode: para_grpo" in result.stdout


def test_the_cold_start_configuration_composes(fresh_python, tmp_path):
    overrides = ["device=cpu", "dry_run=true", f"output_dir={tmp_path}"]
    result = run(fresh_python, "-m", "recipe.paravt.training.sft", *overrides, cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]


def test_the_tiny_models_template_is_in_the_wheel(fresh_python, tmp_path):
    result = run(fresh_python, "-m", "recipe.paravt.tiny", "--output", str(tmp_path / "m"), cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    assert (tmp_path / "m" / "chat_template.jinja").stat().st_size > 500


def test_reward_fns_passes_its_tests_with_python_alone(wheel, tmp_path):
    """No torch, no verl, no numpy: what somebody who wants the rewards alone has."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    tools = ["pytest", "pytest-asyncio", "hypothesis"]
    if subprocess.run([python, "-m", "pip", "install", "-q", *tools], capture_output=True, timeout=300).returncode != 0:
        pytest.skip("pytest cannot be installed: no package index")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True, timeout=120)
    for name in ("reward_fns", "cases"):
        shutil.copytree(ROOT / "tests" / name, tmp_path / "tests" / name)
    for name in ("conftest.py", "test_profile.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    command = [python, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:cacheprovider", "tests"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout[-3000:]
    assert run(python, "-c", "import torch", cwd=tmp_path).returncode != 0
