"""What happens while it happens: changes of states with cursors, and logs as they are written."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from shoal.server.types import EventView, ExperimentView
from shoal.store import logs
from tests.api.speaking import THREE, Gate, Served, events
from tests.running import until


def take_until_over(answer: http.client.HTTPResponse, word: str) -> Iterator[dict[str, Any]]:
    """Events up to the one that tells the end of this experiment."""
    for event in events(answer):
        yield event
        if event["data"]["id"] == word and not event["data"]["replica"] and event["data"]["to_state"] == "succeeded":
            return


@pytest.fixture(scope="module")
def two(served: Served) -> tuple[str, str]:
    """Two experiments that are over: their events are all there are."""
    return served.quick(), served.quick()


@pytest.fixture(scope="module")
def told(served: Served, two: tuple[str, str]) -> list[dict[str, Any]]:
    """Every event there is, from the beginning."""
    with served.open("GET", "/api/events?after=0") as answer:
        return list(take_until_over(answer, two[1]))


def test_events_are_told_from_the_beginning(told: list[dict[str, Any]], two: tuple[str, str]) -> None:
    numbers = [event["data"]["number"] for event in told]
    assert numbers == sorted(set(numbers))
    assert [str(number) for number in numbers] == [event["id"] for event in told]
    assert {event["event"] for event in told} == {"change"}
    for event in told:
        EventView.model_validate(event["data"])
    for word in two:
        own = [e["data"] for e in told if e["data"]["id"] == word and e["data"]["replica"] is None]
        assert own[0]["from_state"] == "created"
        assert [before["to_state"] for before in own[:-1]] == [after["from_state"] for after in own[1:]]
        replicas = {e["data"]["replica"] for e in told if e["data"]["id"] == word} - {None}
        assert replicas == {"master-0", "worker-0", "worker-1"}


def test_a_connection_that_breaks_goes_on_without_loss_or_repetition(
    served: Served, told: list[dict[str, Any]], two: tuple[str, str]
) -> None:
    for count in (1, 2, 5, len(told) - 1):
        with served.open("GET", "/api/events?after=0") as answer:
            before = list(islice(events(answer), count))
        with served.open("GET", "/api/events?after=0", last_event_id=before[-1]["id"]) as answer:
            after = list(take_until_over(answer, two[1]))
        assert before + after == told, f"broken after {count}"


def test_events_of_one_experiment(served: Served, told: list[dict[str, Any]], two: tuple[str, str]) -> None:
    for word in two:
        with served.open("GET", f"/api/events?after=0&experiment={word}") as answer:
            assert list(take_until_over(answer, word)) == [e for e in told if e["data"]["id"] == word]


@pytest.mark.parametrize("cursor", ["abc", "-1", "1.5", "9" * 40, "٣", "", "0x1"])
def test_a_cursor_that_is_none_is_passed_over(served: Served, told: list[dict[str, Any]], cursor: str) -> None:
    sent = cursor.encode().decode("latin-1")
    with served.open("GET", f"/api/events?after={told[-2]['id']}", last_event_id=sent) as answer:
        assert next(events(answer)) == told[-1]


def test_events_come_as_they_happen_to_everybody_who_listens(alone: Served, tmp_path: Path) -> None:
    """Each listener breaks its connection after every event, while the experiment runs."""
    alone.finished(alone.quick())
    gate = Gate(tmp_path / "gate")

    def listen(_: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        last: str | None = None
        while True:
            with alone.open("GET", f"/api/events?after={newest}", last_event_id=last) as answer:
                ready.wait()
                event = next(events(answer))
            found.append(event)
            last = event["id"]
            if event["data"]["replica"] is None and event["data"]["to_state"] == "succeeded":
                return found

    with alone.open("GET", "/api/events?after=0") as answer:
        newest = [event["id"] for event in take_until_over(answer, alone.client.experiments()[0]["id"])][-1]
    ready = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        listeners = pool.map(listen, range(4))
        ready.set()
        word = alone.run(THREE.format(command=gate.wait), oversubscribe=True)
        until(lambda: [r for r in alone.client.show(word)["replicas"] if r["state"] == "running"], "the start")
        gate.open(3)
        heard = list(listeners)
    with alone.open("GET", f"/api/events?after={newest}") as answer:
        assert heard == [list(take_until_over(answer, word))] * 4


def test_without_a_cursor_only_what_is_new_is_told(alone: Served) -> None:
    alone.quick()
    with alone.open("GET", "/api/events") as answer:
        word = alone.quick()
        assert {event["data"]["id"] for event in take_until_over(answer, word)} == {word}


def followed(served: Served, word: str, replica: str = "*") -> list[dict[str, Any]]:
    with served.open("GET", f"/api/experiments/{word}/follow?replica={replica}") as answer:
        return [json.loads(line) for line in answer]


def texts(frames: list[dict[str, Any]]) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for entry in (frame["log"] for frame in frames if "log" in frame):
        key = (entry["replica"], entry["stream"])
        found[key] = found.get(key, "") + entry["text"]
    return found


SPEAKS = {
    "many lines": "seq 1 30000; {wait}; seq 30001 60000",
    "both streams": "for i in $(seq 300); do echo out $i; echo err $i >&2; done; {wait}; echo last",
    "a progress bar and no last newline": r'printf "1\r2\r"; {wait}; printf "3\r4"',
    "a character in two halves": r'printf "\303"; {wait}; printf "\244 \360\237"; {wait}; printf "\220\237"',
    "a character that is never finished": r'printf "a\342\202"; printf "b\360\237" >&2; {wait}',
    "bytes that are no text": r'printf "\377\376\000\033[1m\n"; {wait}; printf "\200"',
    "one long line": "head -c 3000000 /dev/zero | tr '\\\\0' x; {wait}; echo",
    "nothing": "{wait}",
}


@pytest.mark.parametrize("speech", SPEAKS.values(), ids=SPEAKS)
def test_followers_get_every_byte_once_and_then_the_end(served: Served, tmp_path: Path, speech: str) -> None:
    gate = Gate(tmp_path / "gate")
    command = json.dumps(speech.format(wait=gate.wait))
    text = f"framework: none\nrun: {{cmd: {command}}}\nenvironment: {{replicas: {{n_workers: 1}}}}"
    with ThreadPoolExecutor(8) as pool:
        word = served.run(text, oversubscribe=True)
        early = [pool.submit(followed, served, word) for _ in range(3)]
        only = pool.submit(followed, served, word, "worker-*")
        for _ in range(speech.count("{wait}")):
            gate.open(2)
        late = [pool.submit(followed, served, word) for _ in range(2)]
        served.finished(word)
        everyone = [follower.result() for follower in [*early, *late]] + [followed(served, word)]
    expected: dict[tuple[str, int], bytes] = {}
    for replica in ("master-0", "worker-0"):
        log = served.home / "experiments" / word / "attempt-0" / replica / "try-0" / "log"
        for item in logs.read(log, 0, 1 << 30):
            assert isinstance(item, logs.Chunk)
            expected[replica, item.stream] = expected.get((replica, item.stream), b"") + item.data
    for frames in everyone:
        assert texts(frames) == {key: data.decode("utf-8", "replace") for key, data in expected.items()}
        assert [set(frame) for frame in frames].index({"end"}) == len(frames) - 1
        assert frames[-1]["end"]["state"] == "succeeded"
        ExperimentView.model_validate({k: v for k, v in frames[-1]["end"].items() if k != "replicas"})
    assert {replica for replica, _ in texts(only.result())} <= {"worker-0"}


def test_followers_who_leave_take_everything_with_them(served: Served, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    word = served.run(THREE.format(command=f"yes | head -n 30000; {gate.wait}"), oversubscribe=True)
    paths = [f"/api/experiments/{word}/follow", "/api/events?after=0", f"/api/experiments/{word}/logs"]
    until(lambda: len(list(served.client.logs(word, tail=1))) == 3, "the first lines")

    def open_and_leave() -> None:
        with ExitStack() as stack:
            for number in range(20):
                stack.enter_context(served.open("GET", paths[number % len(paths)])).read(100)

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{served.pid}/fd"))

    first = descriptors()
    open_and_leave()  # connections to the database are kept for the next who asks, at most fifteen, of three files each
    until(lambda: descriptors() < first + 50, "that the descriptors of those who left are closed")
    before = descriptors()
    for _ in range(4):
        open_and_leave()
    until(lambda: descriptors() < before + 30, "that the descriptors of 80 who left are closed")
    assert len(os.listdir(f"/proc/{served.pid}/task")) < 60
    gate.open(3)
    assert served.finished(word)["state"] == "succeeded"
