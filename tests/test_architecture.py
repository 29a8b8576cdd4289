"""The directions of imports, and that importing a package pulls in nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"recipe", "paravt_tools", "reward_fns", "data_prep"}
ALLOWED = {
    "reward_fns": set(),
    "paravt_tools": {"reward_fns"},
    "data_prep": {"reward_fns", "paravt_tools"},
    "recipe": {"reward_fns", "paravt_tools", "data_prep"},
}
# The tokenizer's corpus holds the sentences of the synthetic data; training itself reads the schema only.
DATA_PREP_FROM_RECIPE = {"data_prep.schema", "data_prep.synthetic"}


def imported_modules(path):
    """Dotted names that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


def sources(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"no sources in {package}"
    return files


@pytest.mark.parametrize("package", sorted(OURS))
def test_imports_go_one_way(package):
    allowed = ALLOWED[package] | {package}
    for path in sources(package):
        for name in imported_modules(path):
            top = name.split(".")[0]
            if top in OURS:
                assert top in allowed, f"{path.relative_to(ROOT)} imports {name}"
            if package == "recipe" and top == "data_prep":
                assert name in DATA_PREP_FROM_RECIPE, f"{path.relative_to(ROOT)} imports {name}"
            if package != "recipe":
                assert top not in {"verl", "vllm", "ray"}, f"{path.relative_to(ROOT)} imports {name}"


def test_reward_fns_needs_the_standard_library_only():
    for path in sources("reward_fns"):
        for name in imported_modules(path):
            top = name.split(".")[0]
            allowed = {"reward_fns", "__future__"} | ({"openai"} if path.name == "judge.py" else set())
            assert top in sys.stdlib_module_names or top in allowed, f"{path}: {name}"


def test_recipe_is_a_namespace_package():
    assert not (ROOT / "recipe" / "__init__.py").exists(), "verl-recipe installs folders beside ours"
    assert (ROOT / "recipe" / "paravt" / "__init__.py").exists()


@pytest.mark.parametrize("package", ["reward_fns", "paravt_tools", "data_prep", "recipe.paravt"])
def test_import_is_light(package):
    heavy = ["torch", "verl", "vllm", "ray", "decord", "av", "numpy", "transformers", "pandas", "pyarrow", "openai"]
    code = f"import sys, {package}; print([name for name in {heavy} if name in sys.modules])"
    # -S keeps .pth files of the environment from importing things before us.
    result = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"


PACKAGE = ROOT / "recipe" / "paravt"
EVERYWHERE = {"settings", "verl_adapter"}
MAY_IMPORT = {
    "settings": set(),
    "verl_adapter": set(),
    "rollout": EVERYWHERE,
    "lifecycle": EVERYWHERE,
    "training": EVERYWHERE | {"rollout", "lifecycle"},
    "cpu": EVERYWHERE | {"training"},
    "tiny": EVERYWHERE | {"rollout"},
}
# The doors: nothing imports them.
MAY_IMPORT["main"] = MAY_IMPORT["plugin"] = set(MAY_IMPORT)


def parts_imported(path):
    """Rooms and modules of ``recipe.paravt`` that a file imports."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "recipe.paravt":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (name.split(".")[2] for name in names if name.startswith("recipe.paravt."))


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_rooms_are_entered_one_way(part):
    files = sorted((PACKAGE / part).rglob("*.py")) or [PACKAGE / f"{part}.py"]
    for path in files:
        strangers = set(parts_imported(path)) - MAY_IMPORT[part] - {part}
        assert not strangers, f"{path.relative_to(ROOT)} imports {', '.join(sorted(strangers))}"


def test_every_part_has_its_place_and_every_room_says_what_it_may_import():
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__"} == set(MAY_IMPORT)
    rooms = {part for part in MAY_IMPORT if (PACKAGE / part).is_dir()}
    for room in rooms:
        _, may_import = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8"))).split("; ")
        named = {part for part in rooms | EVERYWHERE if f"``{part}``" in may_import}
        assert named == MAY_IMPORT[room], room
