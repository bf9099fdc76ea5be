"""Files of experiments: outputs, artifacts, models and checkpoints, by the real command and the real server."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.client import Client
from shoal.home import read_server
from tests.running import finished, lines_of, running, shoal, submit, until

PYTHON = sys.executable


def experiment(place: Path, script: str, workers: int = 1, more: str = "") -> str:
    """Starts a script on some workers; the id."""
    (place / "script.py").write_text(script)
    text = f"version: 1\nkind: experiment\nframework: none\nrun: {{cmd: {PYTHON} script.py}}\n"
    text += f"environment: {{replicas: {{n_workers: {workers}, master: false}}}}\ngrace: {{stop: 1s}}\n{more}"
    return submit(place, text)


def said(*arguments: str) -> str:
    result = shoal(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def asked(*arguments: str) -> Any:
    return json.loads(said(*arguments, "--json"))


def get(path: str, home: Path, **headers: str) -> httpx.Response:
    server = read_server(home)
    assert server is not None
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.get(server["url"] + path, headers={"authorization": f"Bearer {server['token']}", **named})


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


OUTPUTS = """
import os, pathlib
shared, own = pathlib.Path(os.environ["SHOAL_OUTPUTS"]), pathlib.Path(os.environ["SHOAL_REPLICA_OUTPUTS"])
(own / "deep").mkdir()
(own / "deep" / "own.bin").write_bytes(os.environ["SHOAL_REPLICA"].encode())
if os.environ["SHOAL_INDEX"] == "0":
    (shared / "sub dir").mkdir()
    (shared / "sub dir" / "shared é.txt").write_text("hello\\n")
    (shared / "inside").symlink_to("sub dir/shared é.txt")
    (shared / "outside").symlink_to("/etc/hostname")
    (shared / "way out").symlink_to("/etc")
    os.mkfifo(shared / "pipe")
"""


def test_outputs_are_listed_fetched_and_printed(home: Path, tmp_path: Path) -> None:
    word = experiment(tmp_path, OUTPUTS, workers=2)
    finished(word)
    listed = {file["path"]: file for file in asked("outputs", word, "ls", "--hash")["files"]}
    assert list(listed) == [
        "inside",
        "outside",
        "sub dir/shared é.txt",
        "way out",
        "worker-0/deep/own.bin",
        "worker-1/deep/own.bin",
    ]
    assert {path: file["replica"] for path, file in listed.items() if file["replica"]} == {
        "worker-0/deep/own.bin": "worker-0",
        "worker-1/deep/own.bin": "worker-1",
    }
    shared = listed["sub dir/shared é.txt"]
    assert (shared["size"], shared["hash"], shared["link"]) == (6, sha(b"hello\n"), None)
    assert (listed["inside"]["outside"], listed["inside"]["hash"]) == (False, sha(b"hello\n"))
    assert (listed["outside"]["outside"], listed["outside"]["hash"]) == (True, None)
    assert "not followed" in said("outputs", word)
    assert [file["path"] for file in asked("outputs", word, "ls", "-r", "worker-1")["files"]] == [
        "worker-1/deep/own.bin"
    ]
    assert said("outputs", word, "cat", "sub dir/shared é.txt") == "hello\n"
    assert said("outputs", word, "cat", "deep/own.bin", "--replica", "worker-1") == "worker-1"

    target = tmp_path / "fetched"
    first = shoal("outputs", word, "get", "--to", str(target))
    assert first.returncode == 0, first.stderr
    assert sorted(str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()) == [
        "inside",
        "sub dir/shared é.txt",
        "worker-0/deep/own.bin",
        "worker-1/deep/own.bin",
    ]
    before = (target / "worker-0/deep/own.bin").stat()
    (target / "worker-1/deep/own.bin").write_bytes(b"half")
    second = shoal("outputs", word, "get", "--to", str(target))
    assert "1 of 4 files fetched" in second.stderr
    assert (target / "worker-1/deep/own.bin").read_bytes() == b"worker-1"
    assert (target / "worker-0/deep/own.bin").stat() == before
    said("outputs", word, "get", "deep", "--replica", "worker-0", "--to", str(tmp_path / "one"))
    assert (tmp_path / "one" / "deep" / "own.bin").read_bytes() == b"worker-0"


def test_no_path_and_no_link_leads_out_of_the_outputs(home: Path, tmp_path: Path) -> None:
    word = experiment(tmp_path, OUTPUTS)
    finished(word)
    escapes = [
        "outside",
        "way%20out/hostname",
        "%2e%2e/environment.json",
        "../../../secrets.toml",
        "sub%20dir/%2e%2e/%2e%2e/attempt-0/request.json",
        "%2fetc/hostname",
        "/etc/hostname",
        "pipe",
        "worker-0",
        "",
        "nothing",
        "%00",
        "a" * 5000,
    ]
    for path in escapes:
        answer = get(f"/api/experiments/{word}/outputs/{path}", home)
        assert answer.status_code == 404, (path, answer.text)
        assert answer.json()["what"]
    listing = get(f"/api/experiments/{word}/outputs?under=../..", home)
    assert listing.json()["files"] == []


RANGES = {
    "all of it": ("", 200, b"0123456789"),
    "from a place on": ("bytes=4-", 206, b"456789"),
    "a part": ("bytes=2-4", 206, b"234"),
    "more than there is": ("bytes=8-100", 206, b"89"),
    "the end": ("bytes=-3", 206, b"789"),
    "more than the whole end": ("bytes=-30", 206, b"0123456789"),
    "beyond the end": ("bytes=10-", 416, b""),
    "nothing": ("bytes=-0", 416, b""),
    "backwards is not understood": ("bytes=4-2", 200, b"0123456789"),
    "several are not understood": ("bytes=1-2,4-5", 200, b"0123456789"),
    "lines are not understood": ("lines=1-2", 200, b"0123456789"),
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An experiment with one file of ten bytes, for many questions."""
    from tests.conftest import clear

    place = tmp_path_factory.mktemp("digits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_HOME", str(place / "home"))
        script = "import os; open(os.environ['SHOAL_OUTPUTS'] + '/digits.html', 'w').write('0123456789')"
        word = experiment(place, script)
        finished(word)
        yield place / "home", word
        clear(place / "home")


@pytest.mark.parametrize("case", RANGES)
def test_a_part_of_a_file(digits: Any, case: str) -> None:
    (home, word), (wanted, status, content) = digits, RANGES[case]
    answer = get(f"/api/experiments/{word}/outputs/digits.html", home, range=wanted)
    assert (answer.status_code, answer.content) == (status, content)
    if status == 206:
        first = b"0123456789".index(content)
        assert answer.headers["content-range"] == f"bytes {first}-{first + len(content) - 1}/10"


def test_a_range_of_another_version_is_answered_with_the_whole_file(digits: Any) -> None:
    home, word = digits
    path = f"/api/experiments/{word}/outputs/digits.html"
    tag = get(path, home).headers["etag"]
    assert get(path, home, range="bytes=5-", if_range=tag).content == b"56789"
    assert get(path, home, range="bytes=5-", if_range='"other"').content == b"0123456789"


def test_what_scripts_wrote_is_never_a_page_of_the_console(digits: Any) -> None:
    home, word = digits
    headers = get(f"/api/experiments/{word}/outputs/digits.html", home).headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"].startswith("attachment")
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]


def test_two_replicas_that_hold_one_file_open_for_writing_are_reported_while_they_do(
    home: Path, tmp_path: Path
) -> None:
    script = (
        "import os, pathlib, time\nshared = pathlib.Path(os.environ['SHOAL_OUTPUTS'])\n"
        "both = open(shared / 'both.txt', 'a'); own = open(shared / f\"{os.environ['SHOAL_INDEX']}.txt\", 'w')\n"
        "reading = open(shared / 'both.txt')\n"
        "while not (shared / 'enough').exists(): time.sleep(0.02)\n"
    )
    word = experiment(tmp_path, script, workers=2)
    running(word)

    def both() -> Any:
        found = {file["path"]: file for file in Client().outputs(word)}
        writers = [len(found.get(name, {}).get("writers", [])) for name in ("both.txt", "0.txt", "1.txt")]
        return found if writers == [2, 1, 1] else None

    found = until(both, "two writers of one file, and one of each other")
    assert found["both.txt"]["conflict"]
    assert not found["0.txt"]["conflict"]
    assert found["1.txt"]["writers"] == ["worker-1"]
    assert "worker-0 and worker-1 (best effort)" in said("outputs", word)
    (home / "experiments" / word / "outputs" / "enough").touch()
    assert finished(word)["state"] == "succeeded"
    assert not any(file["conflict"] for file in Client().outputs(word))


HANDED_OVER = """
import os, pathlib, shoal
index = os.environ["SHOAL_INDEX"]
place = pathlib.Path(os.environ["SHOAL_REPLICA_OUTPUTS"])
for step in range(2):
    (place / "sub").mkdir(exist_ok=True)
    (place / "sub" / "weights.bin").write_text(f"weights of {index} at {step} " * 1000)
    (place / "config.json").write_text("{}")
    shoal.artifact(place, name="mine/" + index, kind="checkpoint", step=step)
    shoal.model("digits", place / "sub", metrics={"accuracy": step / 2}, step=step)
shoal.artifact(place / "config.json", name="equal")
(place / "note.txt").write_text(index)
shoal.artifact(place / "note.txt", name="note")
"""


def test_artifacts_are_versioned_listed_fetched_and_freed(home: Path, tmp_path: Path) -> None:
    word = experiment(tmp_path, HANDED_OVER, workers=2)
    finished(word)
    artifacts = asked("outputs", word)["artifacts"]
    assert [(a["name"], a["version"], a["conflict"]) for a in artifacts] == [
        ("equal", 1, False),
        ("mine/0", 1, False),
        ("mine/0", 2, False),
        ("mine/1", 1, False),
        ("mine/1", 2, False),
        ("note", 1, True),
        ("note", 2, True),
    ]
    assert sorted(writer["replica"] for writer in artifacts[-1]["writers"]) == ["worker-0", "worker-1"]
    assert "conflict: " in said("outputs", word)

    weights = b"weights of 1 at 0 " * 1000
    files = asked("outputs", word, "ls", "--artifact", "mine/1@1")["files"]
    assert [(file["path"], file["hash"]) for file in files] == [
        ("config.json", sha(b"{}")),
        ("sub/weights.bin", sha(weights)),
    ]
    assert said("outputs", word, "cat", "sub/weights.bin", "-a", "mine/1@1").encode() == weights
    target = tmp_path / "got"
    said("outputs", word, "get", "--artifact", "mine/1@1", "--to", str(target))
    assert (target / "sub/weights.bin").read_bytes() == weights

    (number,) = [a["id"] for a in artifacts if (a["name"], a["version"]) == ("mine/1", 1)]
    with tarfile.open(fileobj=io.BytesIO(get(f"/api/artifacts/{number}/tar", home).content)) as archive:
        assert archive.getnames() == ["config.json", "sub/weights.bin"]
        inner = archive.extractfile("sub/weights.bin")
        assert inner is not None
        assert inner.read() == weights
    with zipfile.ZipFile(io.BytesIO(get(f"/api/artifacts/{number}/zip", home).content)) as packed:
        assert packed.read("sub/weights.bin") == weights
    assert get(f"/api/artifacts/{number}/files/sub/weights.bin", home, range="bytes=-4").content == b"t 0 "

    blobs = home / "blobs"
    assert (blobs / sha(b"{}")[:2] / sha(b"{}")).exists()
    said("rm", word)
    until(lambda: not (blobs / sha(b"{}")[:2] / sha(b"{}")).exists(), "the end of blobs that nobody names")
    assert get(f"/api/artifacts/{number}", home).status_code == 404
    models = asked("model", "ls")
    assert len(models) == 4, "models outlive their experiment"
    said("model", "get", "digits@1", "--to", str(tmp_path / "kept"))
    assert (tmp_path / "kept" / "weights.bin").read_bytes().startswith(b"weights of ")


def test_models_are_numbered_promoted_and_fetched_by_alias(home: Path, tmp_path: Path) -> None:
    word = experiment(tmp_path, HANDED_OVER)
    finished(word)
    until(lambda: len(asked("model", "ls")) == 2, "two versions")
    first, second = asked("model", "ls", "dig*")
    assert (first["version"], first["step"], first["metrics"]) == (1, 0, {"accuracy": 0.0})
    assert (second["experiment"], second["replica"], second["aliases"]) == (word, "worker-0", [])
    assert said("model", "promote", "digits@2", "production") == "digits@production is digits@2\n"
    said("model", "promote", "digits@1", "production")
    said("model", "promote", "digits@production", "old")
    assert [model["aliases"] for model in asked("model", "ls")] == [["old", "production"], []]
    assert asked("model", "show", "digits@production")["version"] == 1
    assert asked("model", "show", "digits")["version"] == 2

    target = tmp_path / "serving"
    said("model", "get", "digits@production", "--to", str(target))
    whole = b"weights of 0 at 0 " * 1000
    assert (target / "weights.bin").read_bytes() == whole
    # A download that broke off goes on: what is there is not asked for again.
    (target / "weights.bin").unlink()
    (target / f".weights.bin.{sha(whole)[:16]}.part").write_bytes(whole[:9000])
    said("model", "get", "digits@production", "--to", str(target))
    assert [file.name for file in target.iterdir()] == ["weights.bin"]
    assert (target / "weights.bin").read_bytes() == whole
    # One that was damaged is found out, and the next try begins anew.
    (target / "weights.bin").unlink()
    (target / f".weights.bin.{sha(whole)[:16]}.part").write_bytes(b"x" * 9000)
    broken = shoal("model", "get", "digits@production", "--to", str(target))
    assert broken.returncode == 3
    assert "hash" in broken.stderr
    said("model", "get", "digits@production", "--to", str(target))
    assert (target / "weights.bin").read_bytes() == whole

    said("model", "promote", "digits", "old", "--remove")
    said("model", "rm", "digits@2")
    assert [(model["version"], model["aliases"]) for model in asked("model", "ls")] == [(1, ["production"])]
    assert shoal("model", "show", "digits@2").returncode == 2


WRONG = {
    "an experiment that is not there": (["outputs", "nobody"], "there is no experiment"),
    "a file that is not there": (["outputs", "1", "cat", "x"], "has no output"),
    "nothing to fetch": (["outputs", "1", "get", "x"], "has no output"),
    "cat of nothing": (["outputs", "1", "cat"], "needs a path"),
    "an artifact that is not there": (["outputs", "1", "ls", "--artifact", "x@2"], "has no artifact"),
    "an artifact of a replica": (["outputs", "1", "--artifact", "x", "--replica", "worker-0"], "together"),
    "a model that is not there": (["model", "show", "x"], "there is no model"),
    "no name": (["model", "show", "@3"], "names no model"),
    "an alias that looks like a version": (["model", "promote", "x@1", "v3"], "cannot be an alias"),
    "an alias with a space": (["model", "promote", "x@1", "a b"], "cannot be an alias"),
    "an alias that is not there": (["model", "promote", "x", "best", "--remove"], "has no alias"),
    "removing by alias": (["model", "rm", "x@best"], "which version"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(digits: Any, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(digits[0]))
    arguments, text = WRONG[case]
    result = shoal(*arguments)
    assert result.returncode == 2
    assert text in result.stderr
    assert "hint: " in result.stderr
    assert result.stdout == ""


RESUMING = """
import os, pathlib, sys, shoal
place = pathlib.Path(os.environ["SHOAL_REPLICA_OUTPUTS"])
before = shoal.replica.resume_from
assert str(before or "") == os.environ.get("SHOAL_RESUME_FROM", "")
step = int(pathlib.Path(before).read_text()) if before else 0
print("begins at", step, "from", pathlib.Path(before).name if before else "nothing", flush=True)
for step in range(step + 1, 9):
    file = place / f"step-{step}"
    file.write_text(str(step))
    shoal.checkpoint(file, step=step)
    if step == 3 + 3 * int(os.environ["SHOAL_TRY"]) + 3 * int(os.environ["SHOAL_ATTEMPT"]) and step < 9:
        os._exit(1)
"""


@pytest.mark.parametrize("policy", ["experiment", "replica"])
def test_a_restart_goes_on_from_the_newest_checkpoint(home: Path, tmp_path: Path, policy: str) -> None:
    word = experiment(tmp_path, RESUMING, more=f"restart: {{policy: {policy}, max: 3}}\n")
    assert finished(word)["state"] == "succeeded"
    begun = [line for line in lines_of(word) if line.startswith("begins")]
    assert begun == ["begins at 0 from nothing", "begins at 3 from step-3", "begins at 6 from step-6"]


LAGGING = """
import os, pathlib, time, shoal
rank, attempt = int(os.environ["SHOAL_INDEX"]), int(os.environ["SHOAL_ATTEMPT"])
place = pathlib.Path(os.environ["SHOAL_REPLICA_OUTPUTS"])
print("begins from", shoal.replica.resume_from or "nothing", flush=True)
if attempt == 0:
    for step in (1, 2, 3) if rank == 0 else (1, 2):
        (place / f"{step}").touch()
        shoal.checkpoint(place / f"{step}", step=step)
    (place / "marked").touch()
    while not all((place.parent / f"worker-{other}" / "marked").exists() for other in (0, 1)):
        time.sleep(0.01)
    raise SystemExit(1)
"""


def test_every_rank_goes_on_from_its_own_part_of_the_newest_step_that_all_have(home: Path, tmp_path: Path) -> None:
    word = experiment(tmp_path, LAGGING, workers=2, more="restart: {policy: experiment, max: 1}\n")
    assert finished(word)["state"] == "succeeded"
    outputs = home / "experiments" / word / "outputs"
    for replica in ("worker-0", "worker-1"):
        assert lines_of(word, replica) == ["begins from nothing", f"begins from {outputs / replica / '2'}"]


def test_a_rerun_can_go_on_where_another_experiment_ended(home: Path, tmp_path: Path) -> None:
    word = experiment(tmp_path, RESUMING)
    assert finished(word)["state"] == "failed"
    result = shoal("rerun", "--detach", "--resume", word)
    assert result.returncode == 0, result.stderr
    again = result.stdout.strip()
    finished(again)
    assert lines_of(again)[0] == "begins at 3 from step-3"
    assert os.environ.get("SHOAL_RESUME_FROM") is None
    for file in (home / "experiments" / word / "outputs").glob("*/step-*"):
        file.unlink()
    gone = shoal("rerun", "--detach", "--resume", word)
    assert (gone.returncode, gone.stdout) == (2, "")
    assert f"{word}: its checkpoint of step 3 cannot be used: {home}" in gone.stderr
    assert "step-3 is not there any more" in gone.stderr
    without = experiment(tmp_path, "pass")
    finished(without)
    refused = shoal("rerun", "--detach", "--resume", without)
    assert refused.returncode == 2
    assert "it marked no checkpoint" in refused.stderr
