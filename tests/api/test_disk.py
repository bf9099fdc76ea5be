"""A home that cannot be written: a clear error, and nothing is spoiled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.client import Client
from shoal.errors import ShoalError, Unavailable
from shoal.store.database import Database, check
from tests.api.speaking import Served
from tests.conftest import clear
from tests.running import nothing_left, shoal

FULL = r"full|No space left|disk I/O error"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """A small disk at `tmp_path/disk`; call with mount options to mount it again with them."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place]).returncode:
        pytest.skip("mounting needs root")
    try:
        yield lambda options: subprocess.run(["mount", "-o", f"remount,{options}", place], check=True) and None
    finally:
        clear(place / "home")
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path) -> Path:
    """Writes until nothing more fits."""
    filler = place / "filler"
    with suppress(OSError), open(filler, "ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            with suppress(OSError):
                while file.write(b"x" * size) == size:
                    pass
    return filler


def sound(home: Path) -> bool:
    database = Database(home / "shoal.db")
    try:
        return check(database)
    finally:
        database.close()


def test_a_read_only_home_is_a_clear_error_and_stays_as_it_is(disk: Callable[[str], None], tmp_path: Path) -> None:
    home = tmp_path / "disk" / "home"
    served = Served(home, Client(home))
    word = served.quick("echo hello")
    served.client.end_server()
    nothing_left(home)  # who still writes there keeps the disk from becoming read-only
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    disk("ro")
    with pytest.raises(Unavailable, match="Read-only file system"):
        Client(home)
    for arguments in (["ls"], ["show", word], ["serve"]):
        result = shoal(*arguments, SHOAL_HOME=str(home))
        assert result.returncode == 3
        assert result.stderr.startswith("error: ")
        assert "Read-only file system" in result.stderr
        assert "Traceback" not in result.stderr
    with pytest.raises(ShoalError, match="Read-only file system"):
        Client(tmp_path / "disk" / "new")
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
    disk("rw")
    again = Served(home, Client(home))
    assert [line["text"] for line in again.client.logs(word)] == ["hello"] * 3
    again.client.end_server()
    assert sound(home)


@pytest.mark.usefixtures("disk")
def test_a_disk_that_fills_up_while_the_server_runs_loses_nothing(tmp_path: Path) -> None:
    home = tmp_path / "disk" / "home"
    served = Served(home, Client(home))
    word = served.quick("echo hello")
    filler = fill(tmp_path / "disk")
    directories = sorted(path.name for path in (home / "experiments").iterdir())
    for _ in range(3):
        with pytest.raises(Unavailable, match=FULL) as refused:
            served.run("run: {cmd: 'true'}\n# " + "x" * 100_000)
        assert refused.value.problems[0].hint
    assert [experiment["id"] for experiment in served.client.experiments()] == [word]
    assert sorted(path.name for path in (home / "experiments").iterdir()) == directories
    assert [line["text"] for line in served.client.logs(word)] == ["hello"] * 3
    filler.unlink()
    second = served.quick("echo again")
    assert [experiment["state"] for experiment in served.client.experiments()] == ["succeeded"] * 2
    assert [line["text"] for line in served.client.logs(second)] == ["again"] * 3
    assert served.client.server()["engine"] == ""
    served.client.end_server()
    assert sound(home)


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("used", [False, True], ids=["a new home", "a home with experiments"])
def test_a_server_that_starts_on_a_full_disk_says_so_and_spoils_nothing(tmp_path: Path, used: bool) -> None:
    home = tmp_path / "disk" / "home"
    word = ""
    if used:
        served = Served(home, Client(home))
        word = served.quick("echo hello")
        served.client.end_server()
    filler = fill(tmp_path / "disk")
    for _ in range(2):
        with pytest.raises(ShoalError, match=FULL):
            Client(home)
    result = shoal("ls", SHOAL_HOME=str(home))
    assert result.returncode in (1, 3)
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    filler.unlink()
    again = Served(home, Client(home))
    assert [experiment["id"] for experiment in again.client.experiments()] == ([word] if used else [])
    assert again.client.show(again.quick())["state"] == "succeeded"
    again.client.end_server()
    assert sound(home)
