"""Staged files become blobs and versions: once, whatever is killed meanwhile, and nothing is lost on the way."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from shoal.engine.keeping import Keeper, collect
from shoal.states import RUNNING, SUCCEEDED
from shoal.store import experiments as store
from shoal.store import files, streams
from shoal.store.database import Database
from shoal.store.tables import artifacts, experiments, models, records
from shoal.store.tables import streams as streams_table
from tests.running import until
from tests.unit.test_store import VALUES


class Home:
    """A home with a database, and scripts that hand things over."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        self.database = Database(place / "shoal.db")
        self.database.take_lease()
        self.keeper = Keeper(place, self.database, patience=0.0)
        self.count = 0

    def experiment(self, state: str = RUNNING, **more: Any) -> store.Row:
        with self.database.write() as connection:
            row = store.create(connection, {**VALUES, **more})
            finished = time.time() if state == SUCCEEDED else None
            change = update(experiments).where(experiments.c.uid == row["uid"])
            connection.execute(change.values(state=state, finished=finished))
            return store.get(connection, row["uid"])

    def stage(self, row: store.Row, content: bytes, staged: str, replica: str = "worker-0") -> Path:
        file = self.place / "experiments" / row["id"] / "attempt-0" / replica / "try-0" / "files" / staged
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def say(self, row: store.Row, kind: str, data: dict[str, Any], *, replica: str = "worker-0", **more: Any) -> str:
        """What ingest does with an event."""
        self.count += 1
        stream = f"{self.count:032x}"
        where = {"uid": row["uid"], "attempt": 0, "replica": replica, "process": 0}
        with self.database.write() as connection:
            state = {"segment": 0, "offset": 0, "seq": 1, "closed": False, "dropped": 0, "gaps": [], "header": {}}
            place = {"try": 0, "rank": 0, "restart": 0, "kind": "metric", "started": 1.0, "heard": 1.0}
            connection.execute(insert(streams_table).values(stream=stream, **where, **place, **state))
            said = {"name": data.get("name", ""), "step": None, "time": float(self.count), **more}
            connection.execute(
                insert(records).values(stream=stream, seq=0, kind=kind, **where, **said, data=data, pending=True)
            )
        return stream

    def artifact(
        self, row: store.Row, content: dict[str, bytes], *, name: str = "weights", replica: str = "worker-0"
    ) -> str:
        files_ = [self.handed_over(row, path, data, replica) for path, data in content.items()]
        said = {"name": name, "type": "checkpoint", "metadata": {"best": True}, "files": files_}
        return self.say(row, "artifact", said, replica=replica)

    def model(self, row: store.Row, content: bytes, *, name: str = "resnet", step: int | None = None) -> str:
        file = self.handed_over(row, "model.pt", content, "worker-0")
        said = {"name": name, "metrics": {"accuracy": 0.9}, "files": [file]}
        return self.say(row, "model", said, step=step)

    def handed_over(self, row: store.Row, path: str, data: bytes, replica: str) -> dict[str, Any]:
        staged = f"{self.count}-{path}"
        self.stage(row, data, staged, replica)
        return {"path": path, "size": len(data), "staged": staged}

    def record(self, stream: str) -> Any:
        with self.database.read() as connection:
            return connection.execute(select(records).where(records.c.stream == stream)).mappings().one()

    def artifacts(self, row: store.Row) -> list[dict[str, Any]]:
        with self.database.read() as connection:
            return files.artifacts_of(connection, row["uid"])

    def models(self) -> list[dict[str, Any]]:
        with self.database.read() as connection:
            return files.all_models(connection)

    def remove(self, row: store.Row) -> None:
        with self.database.write() as connection:
            files.remove(connection, row["uid"])
            streams.remove(connection, row["uid"])
            store.remove(connection, row["uid"])

    def blobs(self) -> list[str]:
        return sorted(file.name for file in (self.place / "blobs").rglob("*") if file.is_file())

    def staged(self) -> list[Path]:
        return [file for file in self.place.glob("experiments/*/attempt-*/*/try-*/files/**/*") if file.is_file()]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    yield made
    made.database.close()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", ["", "bad/../name", "a@b", "a/"])
def test_a_name_that_cannot_be_one_is_refused(home: Home, name: str) -> None:
    row = home.experiment()
    for stream in (home.artifact(row, {"a": b"1"}, name=name), home.model(row, b"2", name=name)):
        home.keeper.drain()
        assert "its name cannot be one" in home.record(stream)["data"]["error"]
        assert not home.record(stream)["pending"]
    assert (home.artifacts(row), home.models()) == ([], [])


def test_an_artifact_becomes_a_version_with_its_files_in_blobs(home: Home) -> None:
    row = home.experiment()
    stream = home.artifact(row, {"sub/b": b"two", "a": b"one"})
    assert home.keeper.drain() == 0
    (kept,) = home.artifacts(row)
    manifest = [{"path": path, "size": 3, "hash": sha(data)} for path, data in (("a", b"one"), ("sub/b", b"two"))]
    said = {"name": "weights", "version": 1, "kind": "checkpoint", "replica": "worker-0", "size": 6, "conflict": False}
    assert {key: kept[key] for key in said} == said
    assert kept["manifest"] == manifest
    assert kept["metadata"] == {"best": True}
    record = home.record(stream)
    assert not record["pending"]
    assert record["data"]["files"] == manifest
    assert record["data"]["version"] == 1
    assert home.blobs() == sorted([sha(b"one"), sha(b"two")])
    assert home.staged() == []


def test_versions_count_per_experiment_and_name_and_the_same_content_is_the_same_version(home: Home) -> None:
    row, other = home.experiment(), home.experiment()
    said = [
        home.artifact(row, {"a": b"one"}),
        home.artifact(row, {"a": b"two"}),
        home.artifact(row, {"a": b"one"}),
        home.artifact(row, {"b": b"one"}),
        home.artifact(row, {"a": b"one"}, name="other"),
        home.artifact(other, {"a": b"two"}),
    ]
    home.keeper.drain()
    assert [home.record(stream)["data"]["version"] for stream in said] == [1, 2, 1, 3, 1, 1]
    assert home.blobs() == sorted([sha(b"one"), sha(b"two")])


def test_two_replicas_that_write_the_same_path_are_both_kept_and_reported(home: Home) -> None:
    row = home.experiment()
    home.artifact(row, {"model.pt": b"mine"}, replica="worker-0")
    home.artifact(row, {"model.pt": b"theirs"}, replica="worker-1")
    home.artifact(row, {"model.pt": b"mine"}, replica="worker-2", name="nobody else writes this")
    home.keeper.drain()
    found = {(a["name"], a["version"]): a for a in home.artifacts(row)}
    both = [{"replica": "worker-0", "process": 0, "version": 1}, {"replica": "worker-1", "process": 0, "version": 2}]
    for version in (1, 2):
        assert found["weights", version]["conflict"]
        assert found["weights", version]["writers"] == both
    assert not found["nobody else writes this", 1]["conflict"]
    assert home.blobs() == sorted([sha(b"mine"), sha(b"theirs")])


@pytest.mark.parametrize(
    "second", [{"model.pt": b"mine"}, {"optimizer.pt": b"theirs"}], ids=["equal content", "another path"]
)
def test_two_replicas_do_not_disagree_about(home: Home, second: dict[str, bytes]) -> None:
    row = home.experiment()
    home.artifact(row, {"model.pt": b"mine"}, replica="worker-0")
    home.artifact(row, second, replica="worker-1")
    home.keeper.drain()
    assert not any(entry["conflict"] for entry in home.artifacts(row))


def test_models_count_per_name_over_the_whole_home(home: Home) -> None:
    first, second = home.experiment(), home.experiment()
    said = [
        home.model(first, b"one", step=1),
        home.model(first, b"one", step=1),  # another rank, the same model
        home.model(first, b"one", step=2),
        home.model(second, b"one", step=1),
        home.model(second, b"one", name="bert"),
    ]
    home.keeper.drain()
    assert [home.record(stream)["data"]["version"] for stream in said] == [1, 1, 2, 3, 1]
    newest = next(model for model in home.models() if (model["name"], model["version"]) == ("resnet", 3))
    assert newest["experiment"] == second["id"]
    assert newest["metrics"] == {"accuracy": 0.9}
    assert newest["step"] == 1


def test_the_number_of_a_removed_model_does_not_come_back(home: Home) -> None:
    row = home.experiment()
    for content in (b"one", b"two"):
        home.model(row, content)
    home.keeper.drain()
    with home.database.write() as connection:
        files.set_alias(connection, "resnet", "best", 2)
        files.remove_model(connection, "resnet", 2)
    stream = home.model(row, b"three")
    home.keeper.drain()
    assert home.record(stream)["data"]["version"] == 3
    with home.database.read() as connection:
        assert files.model(connection, "resnet", "best") is None


def test_aliases_move_and_name_versions(home: Home) -> None:
    row = home.experiment()
    for content in (b"one", b"two"):
        home.model(row, content)
    home.keeper.drain()
    with home.database.write() as connection:
        files.set_alias(connection, "resnet", "production", 1)
        files.set_alias(connection, "resnet", "production", 2)
        files.set_alias(connection, "resnet", "old", 1)
    with home.database.read() as connection:
        words = ["production", "old", "latest", "1", "v2", "9", "nothing"]
        found = [files.model(connection, "resnet", word) for word in words]
    assert [entry["version"] if entry else None for entry in found] == [2, 1, 2, 1, 2, None, None]


def test_an_image_record_names_its_blob(home: Home) -> None:
    row = home.experiment()
    file = home.handed_over(row, "sample.png", b"\x89PNG", "worker-0")
    stream = home.say(row, "image", {"name": "sample", "caption": "", "file": file, "format": "png"})
    home.keeper.drain()
    assert home.record(stream)["data"]["file"] == {"path": "sample.png", "size": 4, "hash": sha(b"\x89PNG")}
    assert collect(home.place, home.database) == (0, 0)
    home.remove(row)
    assert collect(home.place, home.database) == (1, 4)


def test_a_file_that_has_not_come_yet_is_waited_for(home: Home) -> None:
    row = home.experiment()
    stream = home.say(row, "artifact", {"name": "late", "files": [{"path": "a", "size": 4, "staged": "x/a"}]})
    other = home.artifact(row, {"a": b"one"})
    assert home.keeper.drain() == 1
    assert not home.record(other)["pending"]
    home.stage(row, b"ha", "x/a")  # half of it
    assert home.keeper.drain() == 1
    assert home.record(stream)["pending"]
    home.stage(row, b"half", "x/a")
    assert home.keeper.drain() == 0
    assert home.record(stream)["data"]["version"] == 1


def test_a_file_that_never_comes_is_an_error_of_the_record_once_the_experiment_is_over(home: Home) -> None:
    row = home.experiment(SUCCEEDED)
    stream = home.say(row, "artifact", {"name": "lost", "files": [{"path": "a", "size": 4, "staged": "x/a"}]})
    patient = Keeper(home.place, home.database)
    assert patient.drain() == 1
    assert home.record(stream)["pending"]
    assert home.keeper.drain() == 0
    record = home.record(stream)
    assert not record["pending"]
    assert record["data"]["error"] == "a: its content (4 bytes) never came"
    assert home.artifacts(row) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"name": "x"}, "files"),
        ({"name": "x", "files": [{"path": "../x", "size": 1, "staged": "a"}]}, "inside"),
        ({"name": "x", "files": [{"path": "/etc/x", "size": 1, "staged": "a"}]}, "inside"),
        ({"name": "x", "files": [{"path": "x", "size": 1, "staged": "../../secret"}]}, "inside"),
        ({"name": "x", "files": [{"path": "x", "size": "1", "staged": "a"}]}, "size"),
        ({"name": "x", "files": [{"path": "x", "size": 1, "staged": "a"}] * 2}, "twice"),
        ({"name": "", "files": []}, "name"),
        ({"name": "x", "files": "abc"}, "makes no sense"),
        ({"name": "x", "files": [{"path": 3, "size": 1, "staged": "a"}]}, "makes no sense"),
    ],
)
def test_what_makes_no_sense_is_an_error_of_the_record_and_stops_nobody(
    home: Home, data: dict[str, Any], said: str
) -> None:
    row = home.experiment()
    stream = home.say(row, "artifact", data)
    good = home.artifact(row, {"a": b"one"})
    assert home.keeper.drain() == 0
    assert said in home.record(stream)["data"]["error"]
    assert home.record(good)["data"]["version"] == 1


def test_a_staged_link_that_leads_out_is_not_followed(home: Home) -> None:
    row = home.experiment(SUCCEEDED)
    secret = home.place / "secrets.toml"
    secret.write_bytes(b"four")
    link = home.stage(row, b"", "a")
    link.unlink()
    link.symlink_to(secret)
    stream = home.say(row, "artifact", {"name": "x", "files": [{"path": "a", "size": 4, "staged": "a"}]})
    home.keeper.drain()
    assert "never came" in home.record(stream)["data"]["error"]
    assert home.blobs() == []


def test_a_removed_experiment_frees_its_blobs_and_models_survive_it(home: Home) -> None:
    row, other = home.experiment(SUCCEEDED), home.experiment()
    home.artifact(row, {"mine": b"only mine", "ours": b"shared by two"})
    home.artifact(other, {"ours": b"shared by two"})
    home.model(row, b"the model")
    home.keeper.drain()
    home.remove(row)
    assert collect(home.place, home.database) == (1, len(b"only mine"))
    assert home.blobs() == sorted([sha(b"shared by two"), sha(b"the model")])
    assert [model["experiment"] for model in home.models()] == [row["id"]]


def test_the_thread_takes_what_it_is_woken_for_and_collects_when_asked(home: Home) -> None:
    row = home.experiment()
    home.keeper.start()
    stream = home.artifact(row, {"a": b"one"})
    home.keeper.wake()
    until(lambda: not home.record(stream)["pending"], "the artifact")
    until(lambda: home.staged() == [], "the end of the staged file")
    home.remove(row)
    home.keeper.collect()
    until(lambda: not any(len(name) == 64 for name in home.blobs()), "the end of the blob")
    home.keeper.close()


@pytest.mark.slow
def test_killed_between_any_two_steps_it_is_resumed_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    """A child dies at its first, second, third, … operation on a file until one comes through."""
    for steps in range(200):
        home = Home(tmp_path / f"home-{steps}")
        row = home.experiment()
        stream = home.artifact(row, {"a": b"one", "b": b"two"})
        home.model(row, b"one")
        home.database.close()
        survived = _drain_and_die(home.place, steps)

        home.database = Database(home.place / "shoal.db")
        home.database.take_lease()
        assert Keeper(home.place, home.database).drain() == 0
        assert home.record(stream)["data"]["version"] == 1
        with home.database.read() as connection:
            assert len(connection.execute(select(artifacts.c.id)).all()) == 1
            assert len(connection.execute(select(models.c.version)).all()) == 1
        assert home.staged() == []
        collect(home.place, home.database)
        assert home.blobs() == sorted([sha(b"one"), sha(b"two")])
        home.database.close()
        if survived:
            assert steps > 10
            return
    raise AssertionError("it never came through")


def _drain_and_die(place: Path, steps: int) -> bool:
    child = os.fork()
    if child == 0:
        left = [steps]

        def count(event: str, arguments: object) -> None:
            if event == "open" or (event.startswith("os.") and event != "os.kill"):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        database = Database(place / "shoal.db")
        database.take_lease()
        keeper = Keeper(place, database)
        sys.addaudithook(count)
        keeper.drain()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == 0
