"""Documentation that cannot be wrong: commands run, output compared, pages made from code are up to date."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from shoal.cli import VERBS
from shoal.spec import Source, interpret
from tests.conftest import ROOT
from tests.property.keys import keys_of_types

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (f"{page.relative_to(ROOT)}:{page.read_text()[: match.start()].count(chr(10)) + 1}", match.group(2))
        for page in PAGES
        for match in FENCE.finditer(page.read_text())
        if match.group(1) == language
    ]


def commands(block: str) -> list[tuple[str, str]]:
    """`$ command` and the output shown below it."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:].rstrip("\n"), ""))
        else:
            command, output = found[-1]
            found[-1] = (command, output + line)
    return found


@pytest.mark.parametrize(("place", "block"), blocks("console"), ids=[place for place, _ in blocks("console")])
def test_a_command_prints_what_the_page_shows(place: str, block: str, home: Path, tmp_path: Path) -> None:
    playground = tmp_path / "playground"
    shutil.copytree(ROOT / "docs" / "playground", playground)
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "100"}
    for command, shown in commands(block):
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=playground,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        printed = result.stdout + (f"[exit code {result.returncode}]\n" if result.returncode else "")
        assert printed == shown, command


# The error gallery's files are wrong on purpose, and the page is made by running them.
FILES = [(place, block) for place, block in blocks("yaml") if not place.startswith("docs/reference/errors.md")]


@pytest.mark.parametrize(("place", "block"), FILES, ids=[place for place, _ in FILES])
def test_a_file_in_a_guide_is_right(place: str, block: str) -> None:
    assert interpret([Source(place, block)]).warnings == ()


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", generator().PAGES_BY_NAME)
def test_pages_made_from_code_are_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == generator().PAGES_BY_NAME[name](), "run `make docs`"


def test_the_file_of_the_readme_is_the_one_its_commands_are_about() -> None:
    shown = [block for place, block in blocks("yaml") if place.startswith("README.md:")]
    assert shown == [(ROOT / "docs" / "playground" / "experiment.yml").read_text()]


def test_every_verb_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    assert [verb for verb in VERBS if f"## shoal {verb}\n" not in page] == []


def test_every_verb_says_the_same_in_the_list_and_in_its_help() -> None:
    import click

    from shoal.cli import app

    context = click.Context(app)
    for verb, (_, text) in VERBS.items():
        command = app.get_command(context, verb)
        assert command is not None
        assert (command.help or "").split("\n")[0] == f"{text}."


def test_every_key_of_the_experiment_file_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "experiment-file.md").read_text()
    assert {key for key in keys_of_types() if f"| `{key}` |" not in page} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target


def test_every_make_target_in_the_pages_exists() -> None:
    named = {target for page in PAGES for target in re.findall(r"`?make ([a-z][a-z-]+)`?", page.read_text())}
    named -= {"sure", "it", "no", "one"}
    assert named
    for target in named:
        result = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert result.returncode == 0, f"make {target}: {result.stderr}"
