"""Every command that the console offers is one that the command line takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from shoal.errors import ShoalError
from tests.commands import parsed
from tests.conftest import ROOT

SOURCE = ROOT / "web" / "src"
COMMENT = re.compile(r"^\s*/\*.*?\*/", re.DOTALL | re.MULTILINE)
BEGIN = re.compile(r"""["'`](shoal )""")


def offered() -> Iterator[tuple[str, str]]:
    """(file, command): every text that begins with `shoal `, with words in the place of what is filled in."""
    for file in sorted(SOURCE.rglob("*.ts*")):
        if ".test." in file.name or file.name == "schema.d.ts":
            continue
        text = COMMENT.sub("", file.read_text())
        for match in BEGIN.finditer(text):
            yield str(file.relative_to(SOURCE)), filled(text[match.start(1) :], text[match.start()])


def filled(text: str, quote: str) -> str:
    """`shoal show ${id}` -> `shoal show e7k2m9`, up to the closing quote; what is itself made of texts is left out."""
    said, place = "", 0
    while text[place] != quote:
        if quote == "`" and text.startswith("${", place):
            end, depth = place + 2, 1
            while depth:
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
            inside = text[place + 2 : end - 1]
            said += "" if "`" in inside else "e7k2m9 e8k2m9" if 'join(" ")' in inside else "e7k2m9"
            place = end
        else:
            said += text[place]
            place += 1
    return said


OFFERED = [*offered()]


def test_they_are_found() -> None:
    files = {file for file, _ in OFFERED}
    assert {"experiment/tabs.tsx", "artifacts/ArtifactsTab.tsx", "compare/ComparePage.tsx"} <= files
    assert len(OFFERED) > 20


@pytest.mark.parametrize(("file", "command"), OFFERED, ids=[f"{file}: {command}" for file, command in OFFERED])
def test_the_command_line_takes_it(file: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "PATH").touch()  # what stands for a file of the reader's
    monkeypatch.chdir(tmp_path)
    assert parsed(command.replace(" examples/", f" {ROOT}/examples/"))


@pytest.mark.parametrize("command", ["shoal outputs ls e7k2m9", "shoal ls -x", "shoal nothing", "shoal why"])
def test_what_it_does_not_take_is_seen(command: str) -> None:
    with pytest.raises((click.UsageError, ShoalError)):
        parsed(command)
