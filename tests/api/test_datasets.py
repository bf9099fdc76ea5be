"""Data sets as the console makes them: content that is put without a hash, and who used a version."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.api.speaking import Served

READS = """\
name: {name}
framework: none
run: {{cmd: 'cat $SHOAL_DATA/{at}/a.txt'}}
data: [{{dataset: {dataset}, at: {at}}}]
"""


def put(served: Served, content: bytes) -> dict[str, Any]:
    answer = served.ask("POST", "/api/blobs", content, content_type="application/octet-stream")
    assert answer.status == 201
    found: dict[str, Any] = answer.json()
    return found


def managed(served: Served, name: str, files: dict[str, bytes]) -> dict[str, Any]:
    entries = [{"path": path, **put(served, content)} for path, content in files.items()]
    answer = served.ask("POST", "/api/datasets/managed", {"name": name, "files": entries})
    assert answer.status == 201, answer.body
    found: dict[str, Any] = answer.json()["dataset"]
    return found


def test_content_is_hashed_by_who_keeps_it(alone: Served) -> None:
    large = bytes(range(256)) * 20_000
    for content in (b"", b"a,b\n", large):
        assert put(alone, content) == {"hash": hashlib.sha256(content).hexdigest(), "size": len(content)}
    found = managed(alone, "letters", {"a.txt": b"one\n", "more/b.txt": large})
    assert (found["name"], found["version"], found["files"], found["size"]) == ("letters", 1, 2, 4 + len(large))
    assert alone.ask("GET", "/api/datasets/letters@v1/content?path=more/b.txt").body == large


def test_who_used_a_version(alone: Served) -> None:
    managed(alone, "letters", {"a.txt": b"one\n"})
    managed(alone, "others", {"a.txt": b"one\n"})  # the same content under another name
    first = alone.run(READS.format(name="first", dataset="letters@v1", at="here"))
    alone.finished(first)
    managed(alone, "letters", {"a.txt": b"two\n"})
    second = alone.run(READS.format(name="second", dataset="letters", at="there"))
    stranger = alone.run(READS.format(name="stranger", dataset="others", at="x"))
    for word in (second, stranger):
        assert alone.finished(word)["state"] == "succeeded"

    def users(word: str) -> list[tuple[str, int, str]]:
        answer = alone.ask("GET", f"/api/datasets/{word}/users")
        return [(entry["id"], entry["version"], entry["at"]) for entry in answer.json()]

    assert users("letters") == [(second, 2, "there"), (first, 1, "here")]
    assert users("letters@v1") == [(first, 1, "here")]
    assert users("letters@v2") == [(second, 2, "there")]
    assert users("others") == [(stranger, 1, "x")]
    assert alone.ask("GET", "/api/datasets/letters@v3/users").status == 404
