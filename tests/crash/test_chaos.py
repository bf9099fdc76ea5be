from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.chaos import chaos


def test_a_short_chaos_run_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    print(chaos(tmp_path, experiments=20, seed=1))
