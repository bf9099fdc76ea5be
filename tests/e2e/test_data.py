"""Data sets, code from git, and where an experiment comes from: the real command, a real server, a real store."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from tests.running import finished, kill, lines_of, server_pid, shoal, show, submit, until
from tests.s3 import OpenS3, open_s3, signed_s3

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CA_BUNDLE")


@pytest.fixture(scope="module")
def s3() -> Iterator[OpenS3]:
    with open_s3() as server:
        yield server


@pytest.fixture(autouse=True)
def no_credentials(s3: OpenS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    s3.open.set()


def ok(*arguments: str, cwd: Path | None = None, **env: str) -> str:
    result = shoal(*arguments, cwd=cwd, **env)
    assert result.returncode == 0, result.stderr
    return result.stdout


def tree(place: Path, **files: str) -> Path:
    for name, text in files.items():
        file = place / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return place


def provenance(word: str) -> Any:
    return json.loads(ok("show", word, "--provenance", "--json"))


READS_ALL = 'run: {cmd: "cd $SHOAL_DATA && find -L . -type f | sort | while read f; do echo $f $(cat $f); done"}\n'


def test_every_replica_finds_all_kinds_of_data_below_shoal_data(home: Path, tmp_path: Path, s3: OpenS3) -> None:
    tree(tmp_path / "here", a="path", sub__b="below")
    s3.bucket("public-kinds", {"d/x": b"object", "d/sub/y": b"deep", "one.csv": b"single"})
    assert ok("dataset", "add", "here", "here", cwd=tmp_path) == "here@v1\n"
    assert ok("dataset", "upload", "kept", str(tmp_path / "here")) == "kept@v1\n"
    assert ok("dataset", "add", "far", "s3://public-kinds/d", "--anonymous") == "far@v1\n"
    text = READS_ALL + (
        "framework: none\nenvironment: {replicas: {n_workers: 1}}\ndata:\n"
        "- {dataset: here@v1}\n- {dataset: kept, at: deep/inside}\n- {dataset: far@1, at: objects}\n"
        "- {uri: 's3://public-kinds/one.csv', anonymous: true}\n- {uri: here/sub}\n"
    )
    word = submit(tmp_path, text)
    assert finished(word)["state"] == "succeeded"
    expected = [
        "./deep/inside/a path",
        "./deep/inside/sub/b below",
        "./here/a path",
        "./here/sub/b below",
        "./objects/sub/y deep",
        "./objects/x object",
        "./one.csv single",
        "./sub/b below",
    ]
    assert lines_of(word, "master-0") == expected
    assert lines_of(word, "worker-0") == expected
    used = provenance(word)["datasets"]
    assert [(entry["at"], entry["name"], entry["version"]) for entry in used] == [
        ("here", "here", 1),
        ("deep/inside", "kept", 1),
        ("objects", "far", 1),
        ("one.csv", None, None),
        ("sub", None, None),
    ]
    assert all(len(entry["digest"]) == 64 for entry in used)


def changed_path(place: Path, s3: OpenS3) -> None:
    tree(place / "here", a="other", new="x")


def changed_object(place: Path, s3: OpenS3) -> None:
    s3.put("public-wrong", "d/x", b"other")


def removed(place: Path, s3: OpenS3) -> None:
    ok("dataset", "rm", "here@v1")


def nothing(place: Path, s3: OpenS3) -> None:
    pass


WRONG: dict[str, tuple[str, Callable[[Path, OpenS3], None], str, str]] = {
    "an unknown data set": ("- {dataset: cifer}", nothing, "3:13: data[0].dataset", "there is no data set 'cifer'"),
    "a version there is not": ("- {dataset: here@v7}", nothing, "3:13: data[0].dataset", "here has no version 7"),
    "a version that is none": ("- {dataset: here@new}", nothing, "3:13: data[0].dataset", "'new' is no version"),
    "a version that was removed": ("- {dataset: here@1}", removed, "3:13: data[0].dataset", "it was removed"),
    "files that have changed": (
        "- {dataset: here}",
        changed_path,
        "3:13: data[0].dataset",
        "here@v1 has changed since it was added: 1 file changed (a), 1 file is new (new)",
    ),
    "objects that have changed": (
        "- {dataset: far}",
        changed_object,
        "3:13: data[0].dataset",
        "far@v1 has changed since it was added: 1 file changed (x)",
    ),
    "a path that is not there": ("- {uri: nowhere}", nothing, "3:9: data[0].uri", "nowhere: No such file"),
    "a bucket that needs credentials": ("- {uri: 's3://closed/a'}", nothing, "3:9: data[0].uri", "no credentials"),
    "a scheme nobody reads": ("- {uri: 'ftp://a/b'}", nothing, "3:9: data[0].uri", "ftp:// cannot be read"),
    "one inside another": (
        "- {dataset: here, at: a}\n- {dataset: here, at: a/b}",
        nothing,
        "4:13: data[1].dataset",
        "a/b and a lie inside each other",
    ),
    "a place above": ("- {dataset: here, at: .}", nothing, "3:13: data[0].dataset", "SHOAL_DATA itself"),
}


@pytest.mark.parametrize(("entry", "change", "where", "says"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_at_submit(
    home: Path, tmp_path: Path, s3: OpenS3, entry: str, change: Callable[[Path, OpenS3], None], where: str, says: str
) -> None:
    s3.bucket("public-wrong", {"d/x": b"object"})
    s3.bucket("closed", {"a": b"x"})
    tree(tmp_path / "here", a="one")
    ok("dataset", "add", "here", str(tmp_path / "here"))
    ok("dataset", "add", "far", "s3://public-wrong/d", "--anonymous")
    change(tmp_path, s3)
    (tmp_path / "experiment.yml").write_text(f"run: {{cmd: 'true'}}\ndata:\n{entry}\n")
    result = shoal("run", str(tmp_path / "experiment.yml"))
    assert result.returncode == 2
    assert f"experiment.yml:{where}: " in result.stderr
    assert says in result.stderr
    assert "\n\nhint: " in result.stderr
    assert Client().experiments() == []


def test_a_store_that_does_not_answer_is_said_at_submit(home: Path, tmp_path: Path) -> None:
    (tmp_path / "experiment.yml").write_text("run: {cmd: 'true'}\ndata: [{uri: 's3://a', anonymous: true}]\n")
    result = shoal("run", str(tmp_path / "experiment.yml"), AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert result.returncode == 2
    assert "experiment.yml:2:14: data[0].uri: s3://a cannot be read" in result.stderr


def test_the_same_content_is_the_same_version_and_the_newest_is_meant(home: Path, tmp_path: Path) -> None:
    tree(tmp_path / "d", a="one")
    assert ok("dataset", "add", "d", str(tmp_path / "d")) == "d@v1\n"
    again = shoal("dataset", "add", "d", str(tmp_path / "d"))
    assert (again.stdout, "as before" in again.stderr) == ("d@v1\n", True)
    tree(tmp_path / "d", a="two")
    assert ok("dataset", "add", "d", str(tmp_path / "d")) == "d@v2\n"
    word = submit(tmp_path, READS_ALL + "data: [{dataset: d}]\n")
    finished(word)
    assert lines_of(word) == ["./d/a two"]
    listed = json.loads(ok("dataset", "ls", "--json"))
    assert [(entry["name"], entry["version"], entry["files"]) for entry in listed] == [("d", 1, 1), ("d", 2, 1)]
    shown = json.loads(ok("dataset", "show", "d@v1", "--json"))
    assert [entry["path"] for entry in shown["manifest"]] == ["a"]


def test_signed_access_with_the_callers_variables_or_a_secret(home: Path, tmp_path: Path) -> None:
    text = READS_ALL + "data: [{uri: 's3://private/d', at: d}]\n"
    with signed_s3({"d/a": b"secret"}) as store:
        (tmp_path / "experiment.yml").write_text(text)
        endpoint = {"AWS_ENDPOINT_URL": store.url, "AWS_REGION": "us-east-1"}
        refused = shoal("run", str(tmp_path / "experiment.yml"), **endpoint)
        assert "no credentials" in refused.stderr
        wrong = shoal("run", str(tmp_path / "experiment.yml"), **{**store.variables, "AWS_SECRET_ACCESS_KEY": "no"})
        assert "s3://private/d: not allowed" in wrong.stderr
        result = shoal("run", str(tmp_path / "experiment.yml"), **store.variables)
        assert result.stdout == "master-0 | ./d/a secret\n"
        assert ok("dataset", "add", "mine", "s3://private/d", **store.variables) == "mine@v1\n"
        assert ok("dataset", "get", "mine", str(tmp_path / "copy"), **store.variables)
        assert (tmp_path / "copy" / "a").read_text() == "secret"
        secrets = home / "secrets.toml"
        secrets.write_text(
            f'[lab]\nAWS_ACCESS_KEY_ID = "{store.key}"\nAWS_SECRET_ACCESS_KEY = "{store.secret}"\n'
            f'AWS_ENDPOINT_URL = "{store.url}"\n'
        )
        secrets.chmod(0o600)
        (tmp_path / "experiment.yml").write_text(text.replace("at: d", "at: e") + "environment: {secret_refs: [lab]}\n")
        by_secret = shoal("run", str(tmp_path / "experiment.yml"))
        assert by_secret.stdout == "master-0 | ./e/a secret\n", by_secret.stderr
    kept = b"".join(file.read_bytes() for file in home.glob("shoal.db*"))
    assert store.secret.encode() not in kept


def fetching(word: str) -> Any:
    found = show(word)
    return found if found["reason"].startswith("fetching") else None


def held(tmp_path: Path, s3: OpenS3, bucket: str, content: bytes = b"x" * 3_000_000) -> str:
    """An experiment whose data does not come."""
    s3.bucket(bucket, {"d/a": content, "d/b": b"small"})
    s3.open.clear()
    cmd = 'run: {cmd: "wc -c < $SHOAL_DATA/d/a"}\n'
    word = submit(tmp_path, f"{cmd}data: [{{uri: 's3://{bucket}/d', anonymous: true}}]\n")
    found = until(lambda: fetching(word), "a download")
    assert found["state"] == "starting"
    assert found["reason"] == f"fetching s3://{bucket}/d: 0 of 2.9 MiB"
    return word


def test_a_server_that_is_killed_while_it_fetches_is_followed_by_one_that_goes_on(
    home: Path, tmp_path: Path, s3: OpenS3
) -> None:
    word = held(tmp_path, s3, "public-killed")
    kill(server_pid(home))
    s3.open.set()
    final = finished(word)
    assert final["state"] == "succeeded"
    assert final["reason"] == ""
    assert lines_of(word) == ["3000000"]


def test_a_stop_while_fetching_ends_the_experiment(home: Path, tmp_path: Path, s3: OpenS3) -> None:
    word = held(tmp_path, s3, "public-stopped")
    ok("stop", word)
    final = finished(word)
    assert (final["state"], final["reason"]) == ("stopped", "stopped by the user")


def test_a_download_that_fails_fails_the_experiment(home: Path, tmp_path: Path, s3: OpenS3) -> None:
    word = held(tmp_path, s3, "public-failing")
    s3.put("public-failing", "d/a", b"y" * 3_000_000)
    s3.open.set()
    final = finished(word)
    assert final["state"] == "failed"
    assert final["reason"] == "s3://public-failing/d: a has changed since it was listed"


def test_what_was_fetched_once_is_shared(home: Path, tmp_path: Path, s3: OpenS3) -> None:
    s3.bucket("public-shared", {"d/a": b"one"})
    text = READS_ALL + "data: [{uri: 's3://public-shared/d', anonymous: true}]\n"
    finished(submit(tmp_path, text))
    s3.asked.clear()
    second = submit(tmp_path, text)
    assert finished(second)["state"] == "succeeded"
    assert lines_of(second) == ["./d/a one"]
    assert s3.asked == []


def test_a_restarted_attempt_finds_its_data(home: Path, tmp_path: Path) -> None:
    tree(tmp_path / "d", a="one")
    cmd = "test $SHOAL_ATTEMPT = 1 && cat $SHOAL_DATA/d/a"
    word = submit(tmp_path, f"run: {{cmd: '{cmd}'}}\ndata: [{{uri: d}}]\nrestart: {{policy: experiment}}\n")
    assert finished(word)["state"] == "succeeded"
    assert lines_of(word) == ["one"]


def test_get_and_rm(home: Path, tmp_path: Path, s3: OpenS3) -> None:
    tree(tmp_path / "d", a="one", sub__b="two")
    s3.bucket("public-get", {"d/a": b"one", "d/sub/b": b"two"})
    ok("dataset", "add", "path", str(tmp_path / "d"))
    ok("dataset", "upload", "managed", str(tmp_path / "d"))
    ok("dataset", "add", "object", "s3://public-get/d", "--anonymous")
    for name in ("path", "managed", "object"):
        ok("dataset", "get", name, str(tmp_path / f"copy-{name}"))
        assert (tmp_path / f"copy-{name}" / "sub" / "b").read_text() == "two"
        taken = shoal("dataset", "get", name, str(tmp_path / f"copy-{name}"))
        assert (taken.returncode, "is not empty" in taken.stderr) == (2, True)
    ok("dataset", "upload", "one", str(tmp_path / "d" / "a"))
    ok("dataset", "get", "one@v1", str(tmp_path / "single"))
    assert (tmp_path / "single" / "a").read_text() == "one"

    word = submit(tmp_path, "run: {cmd: sleep 600}\ndata: [{dataset: managed}]\ngrace: {stop: 0s}\n")
    until(lambda: show(word)["state"] == "running", "the start")
    used = shoal("dataset", "rm", "managed")
    assert (used.returncode, f"managed@v1 is used by {word}" in used.stderr) == (2, True)
    ok("stop", word)
    finished(word)
    ok("dataset", "rm", "managed", "one@v1")
    assert [file for file in (home / "blobs").rglob("*") if file.is_file()] == []
    gone = shoal("dataset", "show", "managed")
    assert (gone.returncode, "it was removed" in gone.stderr) == (2, True)
    assert ok("dataset", "upload", "managed", str(tmp_path / "d")) == "managed@v1\n"


def git(place: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    command = ["git", *identity, "-C", str(place), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(place: Path, **files: str) -> str:
    """A repository with one commit; the commit."""
    tree(place, **files)
    git(place, "init", "--quiet", "--initial-branch=main")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "first")
    return git(place, "rev-parse", "HEAD")


def test_an_experiment_remembers_where_it_comes_from(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "work"
    commit = repository(place, train="print(1)\n")
    tree(place, train="print(2)\n")
    word = submit(place, "run: {cmd: echo hello}\n")
    finished(word)
    until(lambda: "packages" in provenance(word), "packages")
    found = provenance(word)
    assert found["command"] == "echo hello"
    assert found["directory"] == str(place)
    assert (found["git"]["commit"], found["git"]["branch"], found["git"]["dirty"]) == (commit, "main", True)
    assert found["git"]["untracked"] == ["experiment.yml"]
    assert "+print(2)" in found["git"]["diff"]
    assert found["host"]["cpu"] >= 1
    assert found["packages"]["click"]
    assert found["python"].startswith("3.")
    assert show(word)["provenance"]["git"]["commit"] == commit
    printed = ok("show", word, "--provenance")
    assert commit in printed
    assert "+print(2)" in printed


def test_without_a_repository_there_is_no_commit(home: Path, tmp_path: Path) -> None:
    word = submit(tmp_path, "run: {cmd: 'true'}\n")
    assert provenance(word)["git"] is None
    finished(word)


def test_a_large_diff_is_cut_and_says_so(home: Path, tmp_path: Path) -> None:
    repository(tmp_path / "work", a="1\n")
    tree(tmp_path / "work", a="line\n" * 400_000)
    word = submit(tmp_path / "work", "run: {cmd: 'true'}\n")
    about = provenance(word)["git"]
    assert about["diff_cut"] is True
    assert about["diff_size"] > len(about["diff"]) == 1 << 20
    finished(word)


def test_rerun_says_what_is_no_longer_the_same_and_exact_refuses(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "work"
    repository(place, train="print(1)\n", experiment="")
    tree(tmp_path / "data", a="one")
    ok("dataset", "add", "d", str(tmp_path / "data"))
    word = submit(place, READS_ALL + "data: [{dataset: d}]\n")
    finished(word)
    same = shoal("rerun", word, "--exact")
    assert (same.returncode, same.stdout) == (0, "master-0 | ./d/a one\n"), same.stderr

    tree(place, train="print(2)\n")
    git(place, "commit", "--quiet", "-a", "-m", "second")
    tree(place, train="print(3)\n")
    loose = shoal("rerun", word)
    assert loose.returncode == 0
    assert (
        f"warning: not as when {word} ran: {place}: the commit is {git(place, 'rev-parse', 'HEAD')[:12]}"
        in loose.stderr
    )
    assert "files are changed since the commit" in loose.stderr
    exact = shoal("rerun", word, "--exact")
    assert (exact.returncode, f"{word} cannot be run again exactly" in exact.stderr) == (2, True)

    (tmp_path / "other").mkdir()
    tree(tmp_path / "other", a="newer")
    assert ok("dataset", "add", "d", str(tmp_path / "other")) == "d@v2\n"
    again = shoal("rerun", word)
    assert again.stdout == "master-0 | ./d/a one\n"


def test_outside_git_the_files_themselves_are_compared(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "work"
    place.mkdir()
    tree(place, train="echo one\n")
    word = submit(place, "run: {cmd: 'sh train'}\n")
    finished(word)
    same = shoal("rerun", word, "--exact")
    assert (same.returncode, same.stdout) == (0, "master-0 | one\n"), same.stderr
    tree(place, train="echo two\n")
    changed = shoal("rerun", word)
    assert f"not as when {word} ran: {place}: files are changed: train" in changed.stderr
    assert "files are changed" in shoal("rerun", word, "--exact").stderr
    newest = json.loads(ok("ls", "--json"))[0]["id"]
    found = json.loads(ok("diff", word, newest, "--json"))["differs"]
    assert list(found["files"]) == ["train"]


def test_code_from_git_is_the_commit_that_the_ref_meant(home: Path, tmp_path: Path) -> None:
    first = repository(tmp_path / "repository", train="echo one\n")
    place = tmp_path / "elsewhere"
    place.mkdir()
    text = "code: {git: ../repository, ref: main}\nrun: {cmd: 'sh train; touch mine; pwd'}\n"
    word = submit(place, text)
    final = finished(word)
    assert lines_of(word) == ["one", str(home / "experiments" / word / "code")]
    assert final["directory"] == str(home / "experiments" / word / "code")
    assert provenance(word)["code"]["commit"] == first

    tree(tmp_path / "repository", train="echo two\n")
    git(tmp_path / "repository", "commit", "--quiet", "-a", "-m", "second")
    newer = submit(place, text)
    finished(newer)
    assert lines_of(newer)[0] == "two"
    again = shoal("rerun", word, "--exact")
    assert again.stdout.splitlines()[0] == "master-0 | one", again.stderr
    assert not (tmp_path / "repository" / "mine").exists()


NO_CODE = {
    "no such branch": ("{git: repository, ref: zzz}", "1:30: code.ref", "has no branch, tag or commit 'zzz'"),
    "no such repository": ("{git: nowhere}", "1:13: code.git", "git: nowhere: "),
    "an option": ("{git: --upload-pack=x}", "1:13: code.git", "neither may begin with -"),
    "a snapshot": ("{snapshot: abc}", "1:18: code.snapshot", "snapshots are not kept yet"),
}


@pytest.mark.parametrize(("code", "where", "says"), NO_CODE.values(), ids=NO_CODE)
def test_code_that_cannot_be_fetched(home: Path, tmp_path: Path, code: str, where: str, says: str) -> None:
    repository(tmp_path / "repository", train="echo one\n")
    (tmp_path / "experiment.yml").write_text(f"code: {code}\nrun: {{cmd: 'true'}}\n")
    result = shoal("run", "experiment.yml", cwd=tmp_path)
    assert result.returncode == 2
    assert f"experiment.yml:{where}: " in result.stderr
    assert says in result.stderr


def test_diff_shows_only_what_differs(home: Path, tmp_path: Path) -> None:
    text = "params: {lr: 0.1, depth: 3}\nrun: {cmd: 'echo {{ lr }}'}\n"
    first = submit(tmp_path, text)
    second = submit(tmp_path, text)
    third = submit(tmp_path, text, "-P", "lr=0.2")
    for word in (first, second, third):
        finished(word)
        until(lambda word=word: "packages" in show(word)["provenance"], "packages")
    assert ok("diff", first, second) == f"nothing differs between {first} and {second}\n"
    assert json.loads(ok("diff", first, second, "--json"))["differs"] == {}
    found = json.loads(ok("diff", first, third, "--json"))["differs"]
    assert found["params"] == {"lr": [0.1, 0.2]}
    assert found["facts"] == {"command": ["echo 0.1", "echo 0.2"]}
    assert "-  lr: 0.1" in found["file"]
    assert set(found) == {"params", "facts", "file"}
    printed = ok("diff", first, third)
    assert "depth" not in printed.replace("   depth", "")
    assert "lr" in printed


def test_the_home_of_the_caller_is_where_a_tilde_leads(home: Path, tmp_path: Path) -> None:
    tree(tmp_path / "mine", a="one")
    assert os.environ["HOME"] == str(tmp_path)
    word = submit(tmp_path, READS_ALL + "data: [{uri: ~/mine}]\n")
    finished(word)
    assert lines_of(word) == ["./mine/a one"]
