"""How a benchmark that runs experiments becomes a page of the docs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.conftest import ROOT, clear


def write_page(name: str, measure: Callable[[Path], str]) -> None:
    """Measures in a home of its own, prints the text and writes it to docs/reference."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        place = Path(directory)
        os.environ["SHOAL_HOME"] = str(place / "home")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as on any installation
        try:
            text = measure(place)
        finally:
            clear(place / "home")
    print(text)
    (ROOT / "docs" / "reference" / name).write_text(text)
