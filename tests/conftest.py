"""What every tier shares: where the documents of origin lie, and the rule that a skipped test is a failure in CI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent
SEEDS = ROOT.parent / "shared" / "seeds"
EVERYTHING = os.environ.get("SHOAL_TESTS") == "all"

collect_ignore = [] if SEEDS.is_dir() else ["e2e/test_seeds.py"]

settings.register_profile(
    "shoal",
    deadline=None,
    derandomize=EVERYTHING,  # CI tries the same inputs each time; a developer's runs and `make fuzz` explore
    max_examples=int(os.environ.get("SHOAL_EXAMPLES", "2000")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
settings.load_profile("shoal")


def pytest_report_header() -> str:
    if SEEDS.is_dir():
        return "documents of origin: read"
    return "documents of origin: not here; tests/fixtures covers the same forms"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", [])) if reporter else 0
    if EVERYTHING and skipped and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"{skipped} skipped, and SHOAL_TESTS=all allows none", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
