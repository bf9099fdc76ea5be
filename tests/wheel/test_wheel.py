"""What is in the wheel, that it works where there is no Node, and what happens when the console is not built."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT, clear
from tests.packaging import build, installed, outside, wheel

NEEDED = ["shoal", "deploy", "examples", "pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE"]


@pytest.fixture(scope="module")
def names() -> list[str]:
    with zipfile.ZipFile(wheel()) as archive:
        return archive.namelist()


def test_the_console_is_in_the_wheel(names: list[str]) -> None:
    console = [name.removeprefix("shoal/server/console/") for name in names if name.startswith("shoal/server/console/")]
    assert {"index.html", "index.html.gz"} <= set(console)
    scripts = [name for name in console if name.startswith("assets/") and name.endswith(".js")]
    assert scripts
    assert {f"{name}.gz" for name in scripts} <= set(console)


def test_nothing_is_in_the_wheel_that_does_not_belong_there(names: list[str]) -> None:
    parts = [set(Path(name).parts) for name in names]
    assert not [name for name, found in zip(names, parts, strict=True) if found & {"node_modules", "web", "tests"}]
    assert not [name for name in names if name.endswith((".ts", ".tsx", ".map", ".pyc"))]
    assert "shoal/examples/quickstart/experiment.yml" in names, "a template of the console"
    assert "shoal/deploy/kubernetes.yaml" in names, "what `shoal cluster role` prints"


def without_node(place: Path) -> str:
    """A PATH on which there is everything but Node."""
    place.mkdir()
    for directory in reversed(os.environ["PATH"].split(":")):
        for program in Path(directory).iterdir() if os.path.isdir(directory) else ():
            link = place / program.name
            if program.name not in ("node", "nodejs", "npm", "npx", "shoal"):
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(place)


def test_the_wheel_works_in_an_empty_environment_without_node(tmp_path: Path) -> None:
    place, home = installed(), tmp_path / "home"
    env = outside(PATH=without_node(tmp_path / "bin"), SHOAL_HOME=str(home))
    assert shutil.which("node", path=env["PATH"]) is None
    command = str(place / "bin" / "shoal")
    try:
        ran = subprocess.run(
            [command, "run", "--", "echo", "hello"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )
        assert (ran.returncode, ran.stdout.partition(" | ")[2]) == (0, "hello\n"), ran.stderr
        opened = subprocess.run([command, "open", "--print"], env=env, capture_output=True, text=True, timeout=60)
        assert opened.stderr == "", "the console is there"
        code = "import json, shoal; from shoal.client import Client; c = Client(); print(json.dumps([shoal.__file__, "
        code += "c.server()['console'], [t['name'] for t in c._ask('GET', '/api/templates')]]))"
        asked = subprocess.run([place / "bin" / "python", "-c", code], cwd="/", env=env, capture_output=True, text=True)
        file, console, templates = json.loads(asked.stdout)
        assert file.startswith(str(place))
        assert console is True
        assert "quickstart" in templates
    finally:
        clear(home)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What is needed to build, without a built console and without its source."""
    for name in NEEDED:
        source, target = ROOT / name, tmp_path / "tree" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("console", "__pycache__"))
        else:
            shutil.copy(source, target)
    return tmp_path / "tree"


def test_a_wheel_without_a_console_is_made_only_on_request(tree: Path, tmp_path: Path) -> None:
    env = dict(os.environ)
    env.pop("SHOAL_NO_CONSOLE", None)
    refused = build(tree, tmp_path / "a", **env)
    assert refused.returncode != 0
    assert (
        "error: the web console is not built and npm is not here: install Node 20.19 or newer, or set" in refused.stdout
    )
    assert "Traceback" not in refused.stdout
    made = build(tree, tmp_path / "b", **env, SHOAL_NO_CONSOLE="1")
    assert made.returncode == 0, made.stdout
    (found,) = (tmp_path / "b").glob("*.whl")
    with zipfile.ZipFile(found) as archive:
        assert not [name for name in archive.namelist() if "console" in Path(name).parts]


def test_an_editable_install_needs_no_console(tree: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", tree], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    where = subprocess.run(
        [python, "-c", "import shoal; print(shoal.__file__)"], capture_output=True, text=True, cwd="/"
    )
    assert where.stdout.strip() == str(tree / "shoal" / "__init__.py")
