"""Files that hold what the code said when a person last read it. SHOAL_GOLDEN=write renews them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def check(name: str, value: Any) -> None:
    """Compares a value with the golden file of that name."""
    path = HERE / name
    text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("SHOAL_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text
