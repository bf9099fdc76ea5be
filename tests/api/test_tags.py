"""Tags that people give and take: they are found by them, others hear of it, and they stay."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.api.speaking import Served, events
from tests.api.test_changes import until_told
from tests.conftest import ROOT

FIRST = "tags: [file]\nrun: {cmd: 'true'}"


@pytest.fixture
def word(served: Served) -> str:
    found = served.run(FIRST, oversubscribe=True)
    served.finished(found)
    return found


@pytest.mark.parametrize(
    ("add", "remove", "left"),
    [
        (["a", "b"], [], ["file", "a", "b"]),
        (["a", "file", "a"], [], ["file", "a"]),
        ([" a "], [], ["file", "a"]),
        ([], ["file"], []),
        (["b"], ["file", "nobody has it"], ["b"]),
        (["b"], ["b"], ["file"]),
        ([], [], ["file"]),
        (["a, b: c|d", "größer"], [], ["file", "a, b: c|d", "größer"]),
    ],
    ids=[
        "new ones come last",
        "those it has stay where they are",
        "blanks around them do not count",
        "the file's can be removed",
        "what it does not have is no matter",
        "both at once means removed",
        "nothing changes nothing",
        "any text is a tag",
    ],
)
def test_tags_are_added_and_removed(
    served: Served, word: str, add: list[str], remove: list[str], left: list[str]
) -> None:
    assert served.client.tag(word, *add, remove=remove)["tags"] == left
    assert served.client.show(word)["tags"] == left


def test_experiments_are_found_by_their_new_tags_at_once(served: Served, word: str) -> None:
    assert served.client.experiments("tags:baseline") == []
    served.client.tag(word, "baseline")
    assert [(found["id"], found["tags"]) for found in served.client.experiments("tags:baseline")] == [
        (word, ["file", "baseline"])
    ]
    served.client.tag(word, remove=["baseline"])
    assert served.client.experiments("tags:baseline") == []
    assert word in {found["id"] for found in served.client.experiments("tags:~baseline")}


def test_others_hear_of_it(served: Served, word: str) -> None:
    with served.open("GET", "/api/events?tracked=true") as answer:
        heard = events(answer)
        next(heard)
        served.client.tag(word, "heard")
        until_told(heard, word, "records")


def test_they_outlive_the_server(alone: Served) -> None:
    word = alone.run(FIRST, oversubscribe=True)
    alone.finished(word)
    alone.client.tag(word, "kept", remove=["file"])
    alone.client.end_server()
    assert alone.client.show(word)["tags"] == ["kept"]
    assert [found["id"] for found in alone.client.experiments("tags:kept")] == [word]


def test_what_a_script_says_and_what_people_say_stand_side_by_side(served: Served, tmp_path: Path) -> None:
    script = tmp_path / "tags.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nimport shoal\nshoal.tag('script', 'wrong')\n")
    word = served.run(f"tags: [file]\nrun: {{cmd: {sys.executable} {script}}}", oversubscribe=True)
    served.client.tag(word, "person")
    assert set(served.finished(word)["tags"]) == {"file", "person", "script", "wrong"}
    served.client.tag(word, remove=["wrong"])
    assert set(served.client.show(word)["tags"]) == {"file", "person", "script"}, (
        "it was said once, and is not read again"
    )


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"add": [""]}, 422),
        ({"add": ["  "]}, 422),
        ({"add": ["x" * 101]}, 422),
        ({"add": ["a"] * 101}, 422),
        ({"add": ["a\x1b[2Jb"]}, 422),
        ({"add": "a"}, 422),
        ({"tags": ["a"]}, 422),
        ({}, 200),
    ],
    ids=["empty", "blank", "too long", "too many", "for a terminal", "no list", "another key", "nothing"],
)
def test_what_is_no_tag_is_refused(served: Served, word: str, body: object, status: int) -> None:
    assert served.ask("POST", f"/api/experiments/{word}/tags", body).status == status
    assert served.client.show(word)["tags"] == ["file"]
