"""The table of verl's names is what the recipe touches, and what the installed verl has."""

import ast
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from recipe.paravt.lifecycle.run_marker import run_environment
from recipe.paravt.verl_adapter import TOUCHED, VERL_VERSION, VerlName

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "recipe" / "paravt"
DOOR = "verl_adapter.py"

# In a process that is marked as one of a CPU run: importing verl's trainers decides on the platform. Without our
# plug-in, which ends the process at the first name that is gone, where all of them are to be known.
LOOK = """
import importlib, inspect, json, pkgutil, re, sys
import recipe.paravt

broken = {}

def attempt(file, action):
    try:
        return action()
    except (Exception, SystemExit) as error:
        broken[file] = f"{type(error).__name__}: {error}"

def register_platform():
    from recipe.paravt.cpu.platform import CpuPlatform
    from recipe.paravt.lifecycle.run_marker import CPU_PLATFORM_NAME
    from recipe.paravt.verl_adapter import register_platform
    register_platform(CPU_PLATFORM_NAME, CpuPlatform)

def parameters(thing):
    if isinstance(thing, property):
        return "property"
    try:
        given = inspect.signature(inspect.unwrap(thing) if inspect.isfunction(thing) else thing).parameters.values()
    except (TypeError, ValueError):
        return None
    words = []
    for one in given:
        if one.name == "_ray_trace_ctx":
            continue  # Ray's own, in every method of an actor
        if one.kind is one.KEYWORD_ONLY and not any(word.startswith("*") for word in words):
            words.append("*")
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        words.append(stars + one.name + ("=" if one.default is not one.empty else ""))
    return ", ".join(words)

def of_ray(thing):
    actor = getattr(thing, "__ray_metadata__", None)
    return getattr(actor.modified_class, "__ray_actor_class__", actor.modified_class) if actor else thing

def find(name):
    module, path = name.split(":")
    found = importlib.import_module(module)
    for word in path.split("."):
        found = of_ray(getattr(found, word))
    return found

def has(thing, member):
    if hasattr(thing, member):
        return True
    bases = [base for base in getattr(thing, "__mro__", ()) if is_verls(base)]
    if any(member in vars(base).get("__annotations__", {}) for base in bases):
        return True
    return any(re.search(rf"self\\.{member}\\b(?:: [^=]+)? = ", inspect.getsource(base)) for base in bases)

def is_verls(base):
    return base.__module__.split(".")[0] in ("verl", "transfer_queue")

attempt("cpu/platform.py", register_platform)
names = {}
for name, members in json.load(sys.stdin):
    try:
        thing = find(name)
    except Exception as error:
        names[name] = {"gone": f"{type(error).__name__}: {error}"}
        continue
    known = names.setdefault(name, {"parameters": parameters(thing), "members": []})
    known["members"] += [member for member in members if has(thing, member)]

# Afterwards: our modules replace some of those names.
overrides = {}
for module in pkgutil.walk_packages(recipe.paravt.__path__, "recipe.paravt."):
    file = "/".join(module.name.split(".")[2:]) + ".py"
    loaded = attempt(file, lambda: importlib.import_module(module.name))
    for ours in vars(loaded).values() if loaded else ():
        if not inspect.isclass(ours) or ours.__module__ != module.name:
            continue
        bases = [base for base in ours.__mro__ if is_verls(base)]
        if bases:
            base = f"{bases[0].__module__}:{bases[0].__qualname__}"
            methods = overrides.setdefault(f"{file} {base}", {})
            for method in vars(ours):
                theirs = [vars(base)[method] for base in bases if method in vars(base)]
                kinds = (property, classmethod, staticmethod)
                is_code = callable(vars(ours)[method]) or isinstance(vars(ours)[method], kinds)
                if theirs and is_code:
                    methods[method] = parameters(theirs[0])
print("FOUND " + json.dumps({"names": names, "overrides": overrides, "broken": broken}))
"""


@pytest.fixture(scope="module")
def installed():
    """What the installed verl has of the names in the table, and which of its methods the recipe overrides."""
    environment = os.environ | run_environment("0123456789ab", "cpu") | {"VERL_USE_EXTERNAL_PLUGINS": "none"}
    asked = json.dumps([[entry.name, entry.members] for entry in TOUCHED])
    command = [sys.executable, "-c", LOOK]
    result = subprocess.run(command, input=asked, env=environment, capture_output=True, text=True, timeout=300, cwd="/")
    lines = [line for line in result.stdout.splitlines() if line.startswith("FOUND ")]
    assert len(lines) == 1, result.stderr[-3000:]
    return json.loads(lines[0].removeprefix("FOUND "))


def deviations(table, installed):
    """What of the table is not so in the installed verl, each with the name and the file that uses it."""
    found = [f"{file} cannot be imported: {error}" for file, error in installed["broken"].items()]
    expected = {f"{entry.used_by} {entry.name}": entry for entry in table}
    for entry in table:
        where = f"{entry.name} (used by {entry.used_by})"
        now = installed["names"].get(entry.name, {"gone": "not looked for"})
        if "gone" in now:
            found.append(f"{where} is gone: {now['gone']}")
            continue
        if entry.parameters is not None and entry.parameters != now["parameters"]:
            found.append(f"{where} takes ({now['parameters']}), not ({entry.parameters})")
        found += [f"{where} has no {member}" for member in entry.members if member not in now["members"]]
        if entry.used_by in installed["broken"]:
            continue
        methods = installed["overrides"].get(f"{entry.used_by} {entry.name}", {})
        for method, parameters in entry.overrides.items():
            if method not in methods:
                found.append(f"{where}: {method} overrides nothing")
            elif methods[method] != parameters:
                found.append(f"{where}: {method} takes ({methods[method]}), not ({parameters})")
    for key, methods in installed["overrides"].items():
        missing = set(methods) - set(expected[key].overrides if key in expected else ())
        if missing or key not in expected:
            found.append(f"{key}: the table has not {', '.join(sorted(missing)) or 'this subclass'}")
    return found


def test_the_table_is_what_the_installed_verl_has(installed):
    found = deviations(TOUCHED, installed)
    assert not found, "\n".join([f"the table is of verl {VERL_VERSION}, here is {version('verl')}:", *found])


def test_what_changes_is_named_with_its_file(installed):
    """The comparison itself, on tables that are wrong in one way each."""
    trainer = next(entry for entry in TOUCHED if entry.used_by == "training/trainer.py" and entry.overrides)
    function = next(entry for entry in TOUCHED if entry.parameters)
    others = [entry for entry in TOUCHED if entry not in (trainer, function)]

    def one_deviation(old, **changed):
        kept = [entry for entry in (trainer, function) if entry != old]
        [line] = deviations([*others, *kept, replace(old, **changed)], installed)
        return line

    gone = replace(function, name=function.name + "_renamed")
    assert deviations([*others, trainer, gone], installed) == [
        f"{gone.name} (used by {gone.used_by}) is gone: not looked for"
    ]
    assert f"takes ({function.parameters}), not (x)" in one_deviation(function, parameters="x")
    assert "training/trainer.py) has no no_such" in one_deviation(trainer, members=("no_such",))
    assert ": no_such overrides nothing" in one_deviation(trainer, overrides={**trainer.overrides, "no_such": "self"})
    changed = {**trainer.overrides, "on_step_end": "self, step"}
    assert "on_step_end takes (self), not (self, step)" in one_deviation(trainer, overrides=changed)
    fewer = {name: parameters for name, parameters in trainer.overrides.items() if name != "fit"}
    assert one_deviation(trainer, overrides=fewer).endswith("the table has not fit")

    # A release without the base class: our module cannot be imported, and its methods are not named one by one.
    base = trainer.name
    without = {
        "names": {**installed["names"], base: {"gone": "AttributeError: PPOTrainerSync"}},
        "overrides": {key: methods for key, methods in installed["overrides"].items() if not key.endswith(base)},
        "broken": {"training/trainer.py": "ImportError: PPOTrainerSync"},
    }
    assert deviations(TOUCHED, without) == [
        "training/trainer.py cannot be imported: ImportError: PPOTrainerSync",
        f"{base} (used by training/trainer.py) is gone: AttributeError: PPOTrainerSync",
    ]


def imported(path):
    """``module:Name`` of what a file imports from verl and transfer_queue."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in ("verl", "transfer_queue"):
            yield from (f"{node.module}:{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                # `import verl` itself loads the entry points.
                assert alias.name == "verl" or alias.name.split(".")[0] not in ("verl", "transfer_queue"), alias.name


FILES = [str(path.relative_to(PACKAGE)) for path in sorted(PACKAGE.rglob("*.py"))]


def first_name(entry):
    """Of ``module:Class.method`` that which is imported."""
    module, path = entry.name.split(":")
    return f"{module}:{path.split('.')[0]}"


@pytest.mark.parametrize("file", FILES)
def test_every_import_of_verl_is_in_the_table(file):
    assert set(imported(PACKAGE / file)) <= {first_name(entry) for entry in TOUCHED if entry.used_by == file}


@pytest.mark.parametrize("file", [file for file in FILES if file != DOOR])
def test_what_is_not_subclassed_comes_through_the_door(file):
    subclassed = {entry.name for entry in TOUCHED if entry.used_by == file and entry.overrides}
    assert set(imported(PACKAGE / file)) <= subclassed


@pytest.mark.parametrize("entry", TOUCHED, ids=lambda entry: f"{entry.used_by}-{entry.name}")
def test_no_entry_is_dead(entry, installed):
    # The table itself, which names everything, is cut off.
    source = (PACKAGE / entry.used_by).read_text("utf-8").split("\nTOUCHED")[0]
    is_subclassed = f"{entry.used_by} {entry.name}" in installed["overrides"]
    # What verl hands over is used without its name.
    assert is_subclassed or entry.members or re.search(rf"\b{re.split('[.:]', entry.name)[-1]}\b", source)
    for member in entry.members:
        assert re.search(rf"\.{member}\b|\b{member}=", source), member


def test_no_entry_is_there_twice():
    keys = [(entry.used_by, entry.name) for entry in TOUCHED]
    assert len(keys) == len(set(keys)) and all(isinstance(entry, VerlName) for entry in TOUCHED)
