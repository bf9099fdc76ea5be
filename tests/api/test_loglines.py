"""A few of many lines: windows, searching and the raw log of a real experiment, against grep."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.speaking import Served

SPEAKS = (
    'for i in $(seq 400); do echo "$SHOAL_REPLICA step $i"; '
    '[ $((i % 50)) = 0 ] && echo "$SHOAL_REPLICA Warning $i" >&2; done; '
    'seq 1 20000 | sed "s/^/line /"; printf "half a line"'
)


@pytest.fixture(scope="module")
def word(served: Served, tmp_path_factory: pytest.TempPathFactory) -> str:
    script = tmp_path_factory.mktemp("speaks") / "speaks.sh"
    script.write_text(SPEAKS)
    word = served.run(f"framework: none\nrun: {{cmd: bash {script}}}\nenvironment: {{replicas: {{n_workers: 2}}}}")
    assert served.finished(word)["state"] == "succeeded"
    return word


def raw(served: Served, word: str, replica: str, more: str = "") -> bytes:
    answer = served.ask("GET", f"/api/experiments/{word}/logs/raw?replica={replica}{more}")
    assert answer.status == 200
    assert answer.headers["content-disposition"] == f'attachment; filename="{word}-{replica}-attempt-0-try-0.log"'
    return answer.body


def get(served: Served, word: str, what: str) -> Any:
    answer = served.ask("GET", f"/api/experiments/{word}/logs/{what}")
    assert answer.status == 200, answer.body
    return answer.json()


def test_the_raw_log_is_everything_that_was_printed(served: Served, word: str) -> None:
    text = raw(served, word, "worker-1")
    lines = text.decode().splitlines()
    assert len(lines) == 400 + 8 + 20_000 + 1
    assert (lines[0], lines[-1]) == ("worker-1 step 1", "half a line")
    assert raw(served, word, "worker-1", "&stream=2").decode().splitlines() == [
        f"worker-1 Warning {number}" for number in range(50, 401, 50)
    ]
    missing = served.ask("GET", f"/api/experiments/{word}/logs/raw?replica=worker-9")
    assert missing.status == 404
    assert "master-0, worker-0, worker-1" in missing.json()["hint"]


@pytest.mark.parametrize(
    ("query", "grep"),
    [
        ("text=line", ["-F", "line"]),
        ("text=line 1999", ["-F", "line 1999"]),
        ("text=WARNING&ignore_case=true", ["-i", "-F", "WARNING"]),
        ("text=nothing of this kind", ["-F", "nothing of this kind"]),
        ("regex=step [0-9]+0$", ["-E", "step [0-9]+0$"]),
        ("regex=^l.*7{3}&ignore_case=true", ["-i", "-E", "^l.*7{3}"]),
    ],
)
def test_a_count_is_what_grep_counts(served: Served, word: str, tmp_path: Path, query: str, grep: list[str]) -> None:
    query = quote(query, safe="=&")
    counts = {}
    for replica in ("master-0", "worker-0", "worker-1"):
        file = tmp_path / replica
        file.write_bytes(raw(served, word, replica))
        counts[replica] = int(subprocess.run(["grep", "-c", *grep, file], stdout=subprocess.PIPE).stdout)
        found = get(served, word, f"search?replica={replica}&{query}&limit=1000")
        assert found["count"] == counts[replica]
        assert len(found["hits"]) == min(counts[replica], 1000)
    together = get(served, word, f"search?{query}")
    assert {log["replica"]: log["count"] for log in together["logs"]} == counts
    assert together["count"] == sum(counts.values())


def test_hits_can_be_gone_through_and_lead_to_their_lines(served: Served, word: str) -> None:
    whole = get(served, word, "search?text=Warning&limit=1000")
    assert whole["count"] == 24
    pages = [get(served, word, f"search?text=Warning&limit=7&from={start}")["hits"] for start in range(0, 28, 7)]
    assert [hit for page in pages for hit in page] == whole["hits"]
    for place, hit in list(enumerate(whole["hits"]))[::5]:
        start, stop = hit.pop("match")
        assert hit["text"][start:stop] == "Warning"
        anchor = f"{hit['attempt']}:{hit['replica']}:{hit['try']}:{hit['line']}"
        window = get(served, word, f"window?anchor={anchor}&before=3&after=3")
        assert hit in window["lines"]
        assert get(served, word, f"search?text=Warning&limit=1&anchor={anchor}")["first"] == place


@pytest.mark.parametrize("choice", ["", "replica=worker-*&", "replica=worker-0&stream=2&"])
def test_windows_are_pieces_of_one_list(served: Served, word: str, choice: str) -> None:
    total = get(served, word, f"window?{choice}before=0&after=1")["total"]
    assert total == {"": 3 * 20_409, "replica=worker-*&": 2 * 20_409, "replica=worker-0&stream=2&": 8}[choice]
    at_once = get(served, word, f"window?{choice}before=0&after=2000")["lines"]
    seen: list[Any] = []
    while len(seen) < len(at_once):
        page = get(served, word, f"window?{choice}line={len(seen)}&before=0&after=333")
        assert page["first"] == len(seen)
        seen += page["lines"]
    assert seen[: len(at_once)] == at_once
    assert [line["time"] for line in at_once] == sorted(line["time"] for line in at_once)
    last = get(served, word, f"window?{choice}line=-1&before=5&after=5")
    assert (last["first"], len(last["lines"])) == (total - 5, 5)
    if "stream" not in choice:
        assert last["lines"][-1]["text"] == "half a line"
        assert not last["lines"][-1]["complete"]
    middle = get(served, word, f"window?{choice}line={total // 2}&before=0&after=1")
    time = middle["lines"][0]["time"]
    at_time = get(served, word, f"window?{choice}time={time}&before=1&after=1")
    assert at_time["first"] <= total // 2
    assert at_time["lines"][-1]["time"] == time


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("search", "search for a text or for a regex"),
        ("search?text=a&regex=b", "search for a text or for a regex"),
        ("search?text=a%0Ab", "text: a line has no newline in it"),
        ("search?regex=%28", "regex: missing ), unterminated subpattern at position 0"),
        ("window?anchor=x", "anchor: 'x' is not attempt:replica:try:line"),
        ("window?anchor=0:worker-9:0:1", "anchor: there is no log 0:worker-9:0 among those chosen"),
        ("window?after=9999", "query.after: Input should be less than or equal to 2000"),
    ],
)
def test_wrong_questions_are_told_so(served: Served, word: str, path: str, what: str) -> None:
    answer = served.ask("GET", f"/api/experiments/{word}/logs/{path}")
    assert (answer.status, answer.json()["what"]) == (422, what)


def test_an_experiment_that_printed_nothing_has_no_lines(served: Served) -> None:
    word = served.run("run: {cmd: 'true'}")
    served.finished(word)
    assert get(served, word, "window")["lines"] == []
    assert get(served, word, "window?line=-1")["total"] == 0
    assert get(served, word, "search?text=a")["count"] == 0
    assert get(served, word, "search?regex=a&replica=none")["hits"] == []
    assert raw(served, word, "master-0") == b""
