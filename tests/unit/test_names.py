"""What artifacts and models may be called."""

from __future__ import annotations

import pytest

from shoal import names


@pytest.mark.parametrize("name", ["resnet", "team/resnet", "a b", "weights.pt", "größe", "...", "v1", "x" * 256])
def test_a_name(name: str) -> None:
    assert names.problem(name) == ""
    assert names.made(name, "otherwise") == name


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("", "otherwise"),
        ("..", "otherwise"),
        ("/", "otherwise"),
        (" ", "otherwise"),
        ("bad/../name", "bad/name"),
        ("/absolute", "absolute"),
        ("a//b/", "a/b"),
        ("a/b@c", "a/b_c"),
        ("a\\b\n", "a_b_"),
        (" blank ", "blank"),
        ("half \ud800", "half _"),
        ("x" * 257, "x" * 256),
        ("x" * 255 + "/y", "x" * 255),
    ],
)
def test_no_name_and_what_is_made_of_it(name: str, made: str) -> None:
    assert names.problem(name)
    assert names.made(name, "otherwise") == made
    assert names.problem(made) == ""
