"""The source of the console: its style, its types, its unit tests, and that it knows the API as it is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.browser.browsing import WEB, modules
from tests.conftest import ROOT
from tests.environments import CannotMake


@pytest.fixture(autouse=True, scope="session")
def node() -> None:
    try:
        modules()
    except CannotMake as error:
        pytest.fail(str(error), pytrace=False)


def npx(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """A program of node_modules, run in web/."""
    return subprocess.run(
        [WEB / "node_modules" / ".bin" / command[0], *command[1:]],
        cwd=WEB,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    "command",
    [("biome", "check", "src", "vite.config.ts"), ("tsc", "--noEmit"), ("vitest", "run")],
    ids=["style and lint", "types", "unit tests"],
)
def test_the_source_is_right(command: tuple[str, ...]) -> None:
    done = npx(*command)
    assert done.returncode == 0, done.stdout[-6000:]


def test_the_types_of_the_api_are_those_of_the_server(tmp_path: Path) -> None:
    """`make types` writes them anew."""
    from shoal.server.document import document

    (tmp_path / "openapi.json").write_text(json.dumps(document()))
    done = npx("openapi-typescript", tmp_path / "openapi.json", "-o", tmp_path / "schema.d.ts")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "schema.d.ts").read_text() == (WEB / "src" / "api" / "schema.d.ts").read_text()


def test_the_lock_names_every_platform_and_no_host() -> None:
    """npm leaves out what its registry did not have; `npm ci` of a fresh clone then fails."""
    lock = json.loads((WEB / "package-lock.json").read_text())["packages"]
    wanted = {name for entry in lock.values() for name in entry.get("optionalDependencies", {})}
    held = {path.rpartition("node_modules/")[2] for path in lock}
    assert wanted - held == set()
    assert not [path for path, entry in lock.items() if "resolved" in entry]


def test_no_file_is_too_long() -> None:
    written = [file for file in (WEB / "src").rglob("*.ts*") if file.name != "schema.d.ts"]
    lines = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in written}
    assert {file: count for file, count in lines.items() if count >= 500} == {}
