"""Launchers far away fetch what their experiment was given, over connections that break, and nothing else."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shoal.launcher import fetching
from shoal.launcher.shipping import Away, Closed, Refused
from shoal.launcher.sinks import HttpSink
from shoal.server.trust import write_token
from tests.api.speaking import Served
from tests.api.test_datasets import managed

FILES = {"a.txt": b"one\n", "empty": b"", "more/large.bin": random.Random(1).randbytes(3_000_000), "z": b"last"}
READS = "framework: none\nrun: {{cmd: 'true'}}\ndata: [{{dataset: letters}}, {{uri: {path}}}, {{uri: {path}/z}}]\n"


@contextmanager
def breaking(port: int, after: int, times: int) -> Iterator[int]:
    """A port that leads to another; the first connections break after so many bytes of the answer."""
    listener = socket.create_server(("127.0.0.1", 0))
    broken = 0

    def carry(source: socket.socket, target: socket.socket, most: int) -> None:
        mine = f":{listener.getsockname()[1]}\r\n".encode()  # in the Host header, which the server checks
        with suppress(OSError):
            while most > 0 and (data := source.recv(min(65536, most))):
                target.sendall(data.replace(mine, f":{port}\r\n".encode()))
                most -= len(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        nonlocal broken
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", port))
                most = after if broken < times else 1 << 60
                broken += 1
                threading.Thread(target=carry, args=(near, far, 1 << 60), daemon=True).start()
                threading.Thread(target=carry, args=(far, near, most), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    assert broken > times, "it was never broken"


def given(served: Served, place: Path) -> tuple[str, str]:
    """(uid, token) of an experiment that has data of all kinds."""
    managed(served, "letters", FILES)
    for name, content in FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    word = served.run(READS.format(path=place))
    assert served.finished(word)["state"] == "succeeded"
    uid = str(served.client.show(word)["uid"])
    return uid, write_token(served.token, uid)


def tree(place: Path) -> dict[str, bytes]:
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def steady(port: int, uid: str, token: str, path: str) -> fetching.Steady:
    sink = HttpSink(f"http://127.0.0.1:{port}/", f"{uid}/0", token)
    return fetching.Steady(sink, path, sleep=lambda seconds: None)


def test_data_arrives_whole_over_connections_that_break(alone: Served, tmp_path: Path) -> None:
    uid, token = given(alone, tmp_path / "here")
    for number in (0, 1):
        target = tmp_path / f"far-{number}"
        with breaking(alone.port, after=700_001, times=4) as port:
            fetching.spread(steady(port, uid, token, f"data/{number}"), str(target))
        assert tree(target) == FILES
    fetching.spread(steady(alone.port, uid, token, "data/2"), str(tmp_path / "one"))
    assert tree(tmp_path / "one") == {"z": b"last"}


def test_a_replica_has_its_data_where_the_file_says(alone: Served, tmp_path: Path) -> None:
    uid, token = given(alone, tmp_path / "here")
    mounts = [
        {"at": "deep/letters", "file": None, "label": "letters@v1"},
        {"at": "here", "file": None, "label": "here"},
        {"at": "z", "file": "z", "label": "z"},
    ]
    run = {"uid": uid, "attempt": 0, "work": str(tmp_path / "work"), "mounts": mounts}
    variables = {
        "SHOAL_DATA": str(tmp_path / "data"),
        "SHOAL_SINK": f"http://{alone.host}/",
        "SHOAL_SINK_TOKEN": token,
    }
    assert fetching.bring_data(run, variables) == ""
    deep = {f"deep/letters/{name}": content for name, content in FILES.items()}
    assert tree(tmp_path / "data") == {
        **deep,
        **{f"here/{name}": content for name, content in FILES.items()},
        "z": b"last",
    }
    alone.client.end_server()
    assert fetching.bring_data(run, variables) == "", "the next try has them already"


def test_what_has_changed_is_told_by_name(alone: Served, tmp_path: Path) -> None:
    uid, token = given(alone, tmp_path / "here")
    (tmp_path / "here" / "a.txt").write_bytes(b"longer\n")
    with pytest.raises(Refused, match=r"here has changed since this was submitted"):
        fetching.spread(steady(alone.port, uid, token, "data/1"), str(tmp_path / "far"))
    blob = next(path for path in (alone.home / "blobs").rglob("*") if path.is_file() and path.read_bytes() == b"one\n")
    blob.chmod(0o600)
    blob.write_bytes(b"two\n")
    with pytest.raises(Refused, match=r"a\.txt is not what it was"):
        fetching.spread(steady(alone.port, uid, token, "data/0"), str(tmp_path / "other"))


def test_a_token_reads_the_data_of_its_own_experiment_only(alone: Served, tmp_path: Path) -> None:
    uid, token = given(alone, tmp_path / "here")
    other = str(alone.client.show(alone.quick())["uid"])
    path = f"/api/ingest/{uid}/0/data/0"
    assert alone.ask("GET", path, authorization=f"Bearer {token}").status == 200
    assert alone.ask("GET", path, authorization=f"Bearer {write_token(alone.token, other)}").status == 401
    assert alone.ask("GET", path, authorization=None).status == 401
    for wrong, what in (("0/data/3", "has 3 data sets"), ("1/data/0", "has no attempt 1"), ("0/code/" + "0" * 64, "")):
        answer = alone.ask("GET", f"/api/ingest/{uid}/{wrong}", authorization=f"Bearer {token}")
        assert (answer.status, what in answer.json()["what"]) == (404, True)
    with pytest.raises(Closed):
        list(steady(alone.port, uid, token, "data/3"))
    far = HttpSink(f"http://{alone.host}/", f"{uid}/0", "wrong")
    with pytest.raises(Away):
        list(fetching.Steady(far, "data/0", patience=0.0))
