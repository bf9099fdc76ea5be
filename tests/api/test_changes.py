"""Which experiments have new points, records or log lines: told as it happens, and again after a broken connection."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.api.speaking import Gate, Served, events
from tests.conftest import ROOT
from tests.running import until

TRACKS = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import shoal
for line in open(sys.argv[1]):
    word = line.strip()
    if word == "point":
        shoal.log(loss=1.0)
    elif word == "record":
        shoal.params(lr=0.1)
    elif word == "line":
        print("a line", flush=True)
    elif word == "end":
        break
"""


class Speaker:
    """An experiment that logs, records and prints when it is told to."""

    def __init__(self, served: Served, place: Path) -> None:
        (place / "speaks.py").write_text(TRACKS)
        self.gate = Gate(place / "gate")
        command = f"{sys.executable} {place / 'speaks.py'} {place / 'gate'}"
        self.id = served.run(f"framework: none\nrun: {{cmd: {command}}}", oversubscribe=True)

    def say(self, word: str) -> None:
        os.write(self.gate._pipe, f"{word}\n".encode())


def kinds(event: dict[str, Any], word: str) -> set[str]:
    """What an event tells of an experiment."""
    found = [entry for entry in event["data"].get("experiments", ()) if entry["id"] == word]
    return {kind for entry in found for kind in ("points", "records", "logs") if entry[kind]}


def until_told(heard: Iterator[dict[str, Any]], word: str, kind: str) -> dict[str, Any]:
    """The event that tells of it; resource samples may be told before."""
    return next(event for event in heard if kind in kinds(event, word))


@pytest.fixture
def speaker(served: Served, tmp_path: Path) -> Iterator[Speaker]:
    speaker = Speaker(served, tmp_path)
    yield speaker
    speaker.say("end")
    served.finished(speaker.id)


def test_what_is_new_is_told_as_it_happens(served: Served, speaker: Speaker) -> None:
    with served.open("GET", "/api/events?tracked=true") as answer:
        heard = events(answer)
        first = next(heard)
        assert (first["event"], first["data"]) == ("tracked", {"experiments": []}), "it hands over a cursor at once"
        for word, kind in (("line", "logs"), ("point", "points"), ("record", "records"), ("line", "logs")):
            speaker.say(word)
            until_told(heard, speaker.id, kind)


def test_a_listener_that_comes_back_is_told_what_it_missed(served: Served, speaker: Speaker) -> None:
    with served.open("GET", "/api/events?tracked=true") as answer:
        cursor = next(events(answer))["id"]
    with served.open("GET", "/api/events?tracked=true") as answer:
        heard = events(answer)
        next(heard)  # it listens: who comes later is told nothing of what others have heard
        speaker.say("line")
        until_told(heard, speaker.id, "logs")  # somebody else has heard it
    for query, header in (("", cursor), (f"&cursor={cursor}", None)):
        with served.open("GET", f"/api/events?tracked=true{query}", last_event_id=header) as answer:
            until_told(events(answer), speaker.id, "logs")


def test_states_are_told_with_the_rest(served: Served) -> None:
    def changes_of(heard: Iterator[dict[str, Any]], word: str) -> Iterator[dict[str, Any]]:
        for event in heard:
            if event["event"] == "change" and event["data"]["id"] == word:
                yield event["data"]
                if event["data"]["replica"] is None and event["data"]["to_state"] == "succeeded":
                    return

    with served.open("GET", "/api/events?tracked=true") as answer:
        heard = events(answer)
        cursor = next(heard)["id"]
        word = served.quick()
        told = list(changes_of(heard, word))
    with served.open("GET", "/api/events?tracked=true", last_event_id=cursor) as answer:
        assert list(changes_of(events(answer), word)) == told


def test_after_a_restart_of_the_server_everything_may_be_stale(alone: Served) -> None:
    alone.quick()
    with alone.open("GET", "/api/events?tracked=true&after=0") as answer:
        cursor = next(e for e in events(answer) if e["event"] == "change")["id"]
    alone.client.end_server()
    assert alone.client.server()
    with alone.open("GET", "/api/events?tracked=true", last_event_id=cursor) as answer:
        heard = events(answer)
        assert next(heard)["event"] == "stale"
        assert next(heard)["event"] == "change", "states are told from the cursor on all the same"


def test_others_hear_of_states_only(served: Served, speaker: Speaker) -> None:
    with served.open("GET", "/api/events?after=0") as answer:
        speaker.say("line")
        heard = list(islice(events(answer), 3))
    assert {event["event"] for event in heard} == {"change"}
    assert [event["id"] for event in heard] == [str(event["data"]["number"]) for event in heard]


def test_files_are_checked_as_the_command_does(served: Served) -> None:
    good = {
        "files": [
            {"name": "e.yml", "text": "framework: pytorch\nrun: {cmd: a}\nenvironment: {replicas: {n_workers: 1}}"}
        ]
    }
    told = served.ask("POST", "/api/check", good).json()
    assert (told["ok"], told["errors"], [r["replica"] for r in told["replicas"]]) == (
        True,
        [],
        ["master-0", "worker-0"],
    )
    assert set(told["totals"]) == {"cpu", "memory", "gpu"}
    bad = {"files": [{"name": "e.yml", "text": "framework: pytroch\nrun: {cmd: a}\nx: 1"}], "params": []}
    told = served.ask("POST", "/api/check", bad).json()
    assert [problem["where"] for problem in told["errors"]] == ["e.yml:1:12", "e.yml:3:1"]
    assert (told["ok"], told["replicas"], told["totals"]) == (False, [], None)
    odd = {"files": [{"name": "e.yml", "text": "params: {lr: .nan, b: [.inf]}\nrun: {cmd: a}"}]}
    assert served.ask("POST", "/api/check", odd).status == 200


def test_every_template_is_a_file_that_could_run(served: Served) -> None:
    templates = served.ask("GET", "/api/templates").json()
    assert {"quickstart", "pytorch", "tensorflow/mirrored"} <= {template["name"] for template in templates}
    for template in templates:
        assert Path(template["directory"]).is_dir()
        assert template["title"].endswith((".", ":", "leads.")) or template["title"]
        told = served.ask("POST", "/api/check", {"files": [{"name": "e.yml", "text": template["text"]}]}).json()
        assert told["ok"], template["name"]


def test_why_tells_how_old_each_sign_of_life_of_a_rank_is(served: Served, speaker: Speaker) -> None:
    """What it printed, what it tracked, its launcher; and which process it is."""

    def heard() -> dict[str, Any] | None:
        (rank,) = served.client.why(speaker.id)["ranks"]
        ages = [rank[key] for key in ("last_line_age", "last_metric_age", "heartbeat_age")]
        return rank if None not in ages else None

    (before,) = served.client.why(speaker.id)["ranks"]
    assert before["last_metric_age"] is None, "it has tracked nothing yet"
    speaker.say("line")
    speaker.say("point")
    rank = until(heard, "all signs of life")
    assert min(rank["last_line_age"], rank["last_metric_age"], rank["heartbeat_age"]) >= 0
    assert "speaks.py" in Path(f"/proc/{rank['pid']}/cmdline").read_text()


def test_why_tells_what_ranks_of_an_earlier_attempt_did_last(served: Served) -> None:
    text = (
        "framework: none\nrun: {cmd: 'echo attempt $SHOAL_ATTEMPT of $SHOAL_REPLICA; exit $((1 - $SHOAL_ATTEMPT))'}\n"
        "description: two attempts\nrestart: {policy: experiment, max: 1}\n"
    )
    word = served.run(text)
    shown = served.finished(word)
    assert (shown["state"], shown["attempt"], shown["description"]) == ("succeeded", 1, "two attempts")

    def ends(search: str) -> list[tuple[str, str, int]]:
        told = served.ask("GET", f"/api/experiments/{word}/why{search}").json()
        return [(rank["last_line"], rank["state"], rank["exit_code"]) for rank in told["ranks"]]

    assert ends("?attempt=0") == [("attempt 0 of master-0", "failed", 1)]
    assert ends("") == ends("?attempt=1") == ends("?attempt=9") == [("attempt 1 of master-0", "succeeded", 0)]
