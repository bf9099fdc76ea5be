"""The tree is the architecture: imports point down, and what travels into replicas stays small."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.launcher import archive
from tests.conftest import ROOT

PACKAGE = ROOT / "shoal"

# part -> the parts it may import. Nothing may import cli but cli itself.
ARROWS: dict[str, set[str]] = {
    "__init__": {"sdk", "client", "errors"},  # when a name is first used
    "errors": set(),
    "states": {"errors"},
    "logformat": set(),
    "names": set(),
    "journal": set(),
    "journalfile": {"journal"},
    "sdk": {"journalfile", "journal", "names", "errors", "__init__"},
    "integrations": {"sdk", "__init__"},
    "frameworks": {"errors"},
    "sources": {"errors"},
    "home": {"errors"},
    "data": {"errors"},
    "spec": {"sources", "frameworks", "errors"},
    "plan": {"spec", "frameworks", "errors"},
    "launcher": {"journalfile", "journal", "logformat", "states", "frameworks", "errors", "__init__"},
    "backends": {"plan", "launcher", "logformat", "states", "frameworks", "errors"},
    "store": {"journal", "logformat", "states", "errors"},
    "engine": {
        "backends",
        "store",
        "plan",
        "spec",
        "states",
        "frameworks",
        "journal",
        "names",
        "launcher",
        "errors",
        "data",
        "__init__",
    },
    "server": {
        "engine",
        "plan",
        "backends",
        "store",
        "launcher",
        "spec",
        "states",
        "home",
        "errors",
        "__init__",
        "data",
    },
    "points": {"errors"},
    "client": {"points", "home", "errors"},
    "importing": {"journalfile", "journal", "launcher", "errors"},
    "cli": {
        "importing",
        "client",
        "home",
        "launcher",
        "plan",
        "spec",
        "sources",
        "frameworks",
        "names",
        "errors",
        "__init__",
        "data",
    },
    "__main__": {"cli"},
}

TRAVELS = [f"shoal/{part}" for part in archive.TRAVELS]


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """The parts of shoal that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrows"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "shoal" else [module]
        for name in names:
            if name == "shoal" or name == "shoal.__version__":
                found.add("__init__")
            elif name.startswith("shoal."):
                found.add(name.split(".")[1])
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    part = part_of(path)
    assert part in ARROWS, f"{part} is a new part: draw its arrows in ARCHITECTURE.md and here"
    assert imports_of(path) <= ARROWS[part] | {part}


@pytest.mark.parametrize(
    "module", ["shoal", "shoal.errors", "shoal.frameworks", "shoal.launcher.replica", "shoal.backends.local.shepherd"]
)
def test_what_travels_loads_the_standard_library_only(module: str) -> None:
    code = f"import sys; before = set(sys.modules); import {module}; print(*(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    foreign = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"shoal"}
    assert foreign == set()


def test_what_travels_runs_on_python_3_8() -> None:
    command = [str(Path(sys.executable).with_name("vermin")), "--target=3.8-", "--no-tips", "--violations", *TRAVELS]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_help_loads_no_verb_and_no_pydantic() -> None:
    code = (
        "import sys; sys.argv = ['shoal', '--help']; import shoal.cli\ntry: shoal.cli.main()\nexcept SystemExit: pass\n"
    )
    code += "print('LOADED', *sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    loaded = set(output.rpartition("LOADED")[2].split())
    assert not {"pydantic", "ruamel.yaml", "jinja2", "shoal.spec", "shoal.cli.check", "numpy", "rich"} & loaded


def test_no_file_is_named_after_nothing() -> None:
    vague = {"utils", "util", "common", "core", "base", "helpers", "managers", "misc"}
    assert not {path.stem for path in PACKAGE.rglob("*.py")} & vague
