"""Columns of plain text, whatever stands in them."""

from __future__ import annotations

import pytest

from shoal.cli.table import table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(("name", "n"), [("a", "1"), ("longer", "")]) == "name    n\na       1\nlonger"


def test_a_very_long_cell_widens_nothing_but_its_own_row() -> None:
    long = "m" * 1000
    assert table(("name", "n"), [("a", "1"), (long, "2")]) == f"name  n\na     1\n{long}  2"


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        pytest.param("\x1b[1;32mgreen\x1b[0m", "green", id="colours are left out"),
        pytest.param("\x1b]0;title\x07", "?]0;title?", id="a terminal gets no orders"),
        pytest.param("two\nlines\r\ttab", "two?lines??tab", id="a row is one line"),
        pytest.param("\u2028\x9b2J\udc80", "??2J?", id="other ends of lines and what is no text"),
        pytest.param("naïve 学 ✓", "naïve 学 ✓", id="letters stay"),
    ],
)
def test_a_cell_is_text_and_nothing_else(cell: str, shown: str) -> None:
    assert table(("x",), [(cell,)]) == f"x\n{shown}"
