"""What every tier shares: where the documents of origin lie, and the rule that a skipped test is a failure in CI."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent
SEEDS = ROOT.parent / "shared" / "seeds"
EVERYTHING = os.environ.get("SHOAL_TESTS") == "all"

collect_ignore = [] if SEEDS.is_dir() else ["e2e/test_seeds.py"]

# Whoever starts tests in the background or under nohup has these ignored, and children inherit that: they could not be
# told to end. A process of a person at a terminal does not.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

settings.register_profile(
    "shoal",
    deadline=None,
    derandomize=EVERYTHING,  # CI tries the same inputs each time; a developer's runs and `make fuzz` explore
    max_examples=int(os.environ.get("SHOAL_EXAMPLES", "2000")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
settings.load_profile("shoal")


def at_most(examples: int) -> int:
    """So many of a property, or fewer where a run has less time: SHOAL_EXAMPLES."""
    return min(examples, settings.default.max_examples)


@contextmanager
def files_no_larger_than(length: int) -> Iterator[None]:
    """A disk that takes no more, as far as this process can tell: writes are short, then refused."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(autouse=True, scope="session")
def nobodys_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the home of whoever runs it."""
    place = tmp_path_factory.mktemp("nobody") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_HOME", str(place))
        patch.delenv("SHOAL_SERVER", raising=False)
        yield
    clear(place)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of its own for one test; its server and all processes of its experiments are ended afterwards."""
    place = tmp_path / "home"
    monkeypatch.setenv("SHOAL_HOME", str(place))
    yield place
    clear(place)


def clear(place: Path) -> None:
    """Ends the server of a home and everything its experiments left."""
    from shoal.home import read_server
    from shoal.launcher import processes

    written = read_server(place)
    if written is not None and str(place) in _command_line(written["pid"]):
        os.kill(written["pid"], signal.SIGKILL)
    for entry in place.glob("experiments/*/attempt-*/shepherd.json"):
        shepherd = json.loads(entry.read_text())
        for pid, start in ((shepherd["twin"], "twin_start_time"), (shepherd["pid"], "start_time")):
            if processes.alive(pid, shepherd[start]):
                os.kill(pid, signal.SIGKILL)
    for request in place.glob("experiments/*/attempt-*/request.json"):
        replicas = [replica for replica in json.loads(request.read_text())["replicas"] if isinstance(replica, dict)]
        processes.end(set(), [replica["uid"] for replica in replicas], 0.0)  # pods are the cluster's to end


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


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
