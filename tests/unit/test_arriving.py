"""Files that are carried here: how long a silent carrier is waited for."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from shoal.backends.backend import Launch
from shoal.backends.kubernetes.backend import KubernetesBackend
from shoal.backends.kubernetes.request import Content, render
from shoal.backends.kubernetes.settings import settings
from shoal.engine import arriving
from shoal.engine.ingest import Ingest
from shoal.engine.submission import policy_of
from shoal.plan import plan
from shoal.store import experiments as store
from shoal.store.database import Database
from tests.fixtures import BASE, read
from tests.unit.test_ingest import finish, log, new_experiment, writer

MINUTES = 60.0


def a_try(attempt: Path, request: Any = None) -> Path:
    place = attempt / "worker-0" / "try-0"
    place.mkdir(parents=True)
    if request is not None:
        (attempt / "request.json").write_text(request if isinstance(request, str) else json.dumps(request))
    return place


def silent_for(place: Path, seconds: float) -> None:
    when = time.time() - seconds
    os.utime(place / arriving.MARK, (when, when))


WAITED = {
    "a run outside Shoal": (None, 10),
    "a cluster that tells nothing": ({"kind": "kubernetes"}, 10),
    "a cluster whose launchers give up soon": ({"carry": 30.0}, 10),
    "a cluster whose launchers wait for half an hour": ({"carry": 1800.0}, 60),
    "a cluster whose launchers wait for a day": ({"carry": 86400}, 2 * 24 * 60),
    "a number in words": ({"carry": "5m"}, 10),
    "a torn request": ("{", 10),
}


@pytest.mark.parametrize(("request_", "minutes"), WAITED.values(), ids=WAITED)
def test_a_silent_carrier_is_waited_for_as_long_as_it_may_try(tmp_path: Path, request_: Any, minutes: float) -> None:
    place = a_try(tmp_path / "attempt-0", request_)
    assert not arriving.is_expected(place)
    arriving.expect(place)
    silent_for(place, (minutes - 1) * MINUTES)
    assert arriving.is_expected(place)
    assert not arriving.is_surely_expected(place)
    silent_for(place, (minutes + 1) * MINUTES)
    assert not arriving.is_expected(place)
    arriving.expect(place)  # it speaks again
    assert arriving.is_surely_expected(place)
    silent_for(place, (minutes - 1) * MINUTES)
    assert arriving.is_expected(place)
    arriving.end(place)
    assert not arriving.is_expected(place)


def test_a_mark_of_an_older_version_says_nothing(tmp_path: Path) -> None:
    place = a_try(tmp_path / "attempt-0", {"carry": 1800.0})
    (place / arriving.MARK).touch()
    silent_for(place, 9 * MINUTES)
    assert arriving.is_expected(place)
    silent_for(place, 11 * MINUTES)
    assert not arriving.is_expected(place)


def test_nothing_is_settled_while_a_patient_launcher_may_come(tmp_path: Path, database: Database) -> None:
    ingest = Ingest(tmp_path, database)
    row = new_experiment(database)
    file = writer(tmp_path, row)
    log(file, 0, 10)
    place = Path(file.directory).parent
    (place.parent.parent / "request.json").write_text(json.dumps({"carry": 1800.0}))
    ingest.expect(row["uid"], place)
    finish(database, row)

    def tracked() -> bool:
        ingest.catch_up(row["uid"])
        with database.read() as connection:
            return bool(store.get(connection, row["uid"])["tracked"])

    assert not tracked()
    silent_for(place, 59 * MINUTES)
    assert not tracked()
    silent_for(place, 61 * MINUTES)
    assert tracked()


def test_an_attempt_on_a_cluster_keeps_how_patient_its_launchers_are(tmp_path: Path) -> None:
    planned = plan(read(f"{BASE}framework: none\n").spec)
    launch = Launch("e7k2m9", "0" * 32, 0, planned, policy_of(planned), "/code")
    told = {"kubeconfig": str(tmp_path / "nowhere"), "sink": "https://host", "carry": 1800, "image": "x"}
    backend = KubernetesBackend(tmp_path, settings("lab", told, tmp_path / "config.toml"), archive="")
    try:
        backend.submit(render(launch, backend.settings, Content(archive=b"")))
    finally:
        backend.close()
    place = tmp_path / "experiments" / "e7k2m9" / "attempt-0" / "master-0" / "try-0"
    arriving.expect(place)
    silent_for(place, 59 * MINUTES)
    assert arriving.is_expected(place)
