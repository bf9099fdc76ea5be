"""How Shoal looks at a cluster: one watch for all experiments, which goes on where it was; and a cluster that is away.

It speaks to an API server of the test's own, which counts what it is asked and can be killed.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.backends.kubernetes.api import Api, Expired
from shoal.backends.kubernetes.settings import Settings
from shoal.home import read_server
from tests.clusters.kubernetes.cluster import Cluster
from tests.clusters.kubernetes.conftest import Namespace, new_namespace
from tests.clusters.kubernetes.second import Second, second_api_server
from tests.conftest import clear
from tests.running import finished, lines_of, running, show, submit, until

FILE = """
framework: none
run:
  cmd: |
    echo before
    until [ -e /gate/%s ]; do sleep 0.1; done
    seq 1000
    [ $SHOAL_INDEX = 0 ] || exit %d
environment: {replicas: {n_workers: 2, master: false}}
"""
PRINTED = ["before", *map(str, range(1, 1001))]


class Lab:
    """A home whose cluster is seen through a wire; replicas wait at gates."""

    def __init__(self, namespace: Namespace, second: Second, home: Path, place: Path) -> None:
        self.namespace = namespace
        self.second = second
        self.home = home
        self.place = place
        self.api = Api(Settings("lab", kubeconfig=str(namespace.kubeconfig), namespace=namespace.name))

    def start(self, gate: str, code: int = 0) -> str:
        directory = self.place / gate
        directory.mkdir(parents=True)
        return submit(directory, FILE % (gate, code), "--on", "lab")

    def open(self, gate: str) -> None:
        (self.place / "gates" / gate).touch()

    def states(self, word: str) -> list[str]:
        """Of the experiment, one after the other, as the store has them."""
        written = read_server(self.home)
        assert written is not None
        headers = {"Authorization": f"Bearer {written['token']}"}
        request = urllib.request.Request(f"{written['url']}/api/experiments/{word}/events", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            events = json.loads(answer.read())
        found: list[str] = []
        for event in events:
            if not event.get("replica") and [event["to_state"]] != found[-1:]:
                found.append(event["to_state"])
        return found


@pytest.fixture(scope="module")
def lab(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    place = tmp_path_factory.mktemp("watch")
    home, gates = place / "home", place / "gates"
    for directory in (home, gates):
        directory.mkdir()
    with (
        pytest.MonkeyPatch.context() as patch,
        second_api_server(cluster) as second,
        new_namespace(cluster, place) as namespace,
    ):
        patch.setenv("SHOAL_HOME", str(home))
        second.lead(namespace.kubeconfig)
        mount = f'mounts = [{{host_path = "{gates}", at = "/gate"}}]\n'
        (home / "config.toml").write_text(namespace.config() + mount)
        yield Lab(namespace, second, home, place)
        clear(home)


def test_one_watch_serves_all_experiments_and_goes_on_where_it_was_cut(lab: Lab) -> None:
    words = [lab.start(gate) for gate in ("one", "two", "three")]
    for word in words:
        running(word)
        until(lambda word=word: len(lines_of(word)) == 2, "the first lines")
    assert lab.second.watches() == 1
    assert lab.second.asked_for_pods("LIST") == 1
    lab.second.wire.cut()
    lab.open("one")
    lab.second.wire.cut()
    assert finished(words[0])["state"] == "succeeded"
    lab.second.wire.cut()
    lab.open("two")
    lab.open("three")
    for word in words:
        assert finished(word)["state"] == "succeeded"
        assert lab.states(word)[-3:] == ["starting", "running", "succeeded"]
        assert [lines_of(word, name) for name in ("worker-0", "worker-1")] == [PRINTED] * 2
    assert lab.second.asked_for_pods("LIST") == 1, "what a watch goes on from needs no list"
    assert lab.second.asked_for_pods("WATCH") >= 2


def test_an_api_server_that_restarts_loses_and_fails_nothing(lab: Lab) -> None:
    """It is `lost` while it is away, and what has happened meanwhile is seen when it is back.

    A new API server cannot go on from where the old one was: everything has to be listed again.
    """
    good, bad = lab.start("four"), lab.start("five", code=7)
    for word in (good, bad):
        running(word)
        until(lambda word=word: len(lines_of(word)) == 2, "the first lines")
    _, version = lab.api.list("Pod")
    lab.second.kill()
    for word in (good, bad):
        found = until(lambda word=word: (told := show(word))["state"] == "lost" and told, "a cluster that is lost")
        assert "does not answer" in found["reason"]
        assert {replica["state"] for replica in found["replicas"]} == {"running"}
    lab.open("four")
    lab.open("five")
    until(lambda: phases(lab, good) == {"Succeeded"}, "the end of one")
    until(lambda: phases(lab, bad) == {"Succeeded", "Failed"}, "the end of the other")
    assert show(good)["state"] == show(bad)["state"] == "lost"
    lab.second.wire.close()
    lab.second.start()
    lab.second.wire.open()
    with pytest.raises(Expired):
        first_event(lab.api, version)
    assert finished(good)["state"] == "succeeded"
    end = finished(bad)
    assert (end["state"], end["reason"]) == ("failed", "worker-1 failed: exit code 7")
    assert lab.states(good)[-4:] == ["running", "lost", "running", "succeeded"]
    assert lab.states(bad)[-4:] == ["running", "lost", "running", "failed"]
    for word in (good, bad):
        assert [lines_of(word, name) for name in ("worker-0", "worker-1")] == [PRINTED] * 2
    assert lab.second.asked_for_pods("LIST") == 1


def test_what_is_started_while_the_cluster_is_away_starts_when_it_is_back(lab: Lab) -> None:
    lab.second.wire.close()
    lab.open("six")
    word = lab.start("six")
    until(lambda: show(word)["state"] == "lost", "a cluster that is lost")
    lab.second.wire.open()
    assert finished(word)["state"] == "succeeded"
    assert "failed" not in lab.states(word)
    lab.namespace.becomes_empty()


def first_event(api: Api, version: str) -> Any:
    return api.event(next(api.watch("Pod", "", version, 5).lines()))


def phases(lab: Lab, word: str) -> set[Any]:
    return {pod["status"].get("phase") for pod in lab.namespace.items("pods", f"shoal/experiment={word}")}
