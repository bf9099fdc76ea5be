from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import home
from shoal.errors import ShoalError, UsageError

NOBODY = 65534


@pytest.fixture
def as_a_stranger(tmp_path: Path) -> Iterator[Path]:
    """A home that whoever runs the test may not enter; as root, the test becomes nobody meanwhile."""
    place = tmp_path / "theirs"
    home.prepare(place)
    place.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    yield place
    if user == 0:
        os.seteuid(0)
    place.chmod(0o700)


def test_the_home_of_somebody_else_is_a_clear_error(as_a_stranger: Path) -> None:
    for ask in (home.read_server, home.prepare):
        with pytest.raises(ShoalError, match=r"the home .* cannot be used: Permission denied"):
            ask(as_a_stranger)


@pytest.mark.parametrize("text", ["a = 1", "[a]\nb = [1]", "[a.b]\nc = 1"])
def test_secrets_are_sections_of_plain_values(tmp_path: Path, text: str) -> None:
    (tmp_path / "secrets.toml").write_text(text)
    (tmp_path / "secrets.toml").chmod(0o600)
    with pytest.raises(UsageError, match="a is not a section of plain values"):
        home.secrets(tmp_path)


def test_settings_that_are_not_toml_are_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("a = = 1")
    with pytest.raises(UsageError, match=r"config\.toml"):
        home.config(tmp_path)
