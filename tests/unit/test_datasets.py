"""Data sets: what a version is, what counts as a change, and what is fetched from a bucket."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.data import buckets, downloads, manifests
from shoal.data.buckets import Address, Bucket
from shoal.data.manifests import Manifest
from shoal.errors import ShoalError, Unavailable, UsageError
from shoal.store import datasets
from shoal.store.database import Database
from tests.s3 import Asked, OpenS3, open_s3, signed_s3

LONG_AGO = 1_600_000_000
NOBODY = {"HOME": "/nonexistent"}


def tree(place: Path, **files: str) -> Path:
    """Files that nobody has touched for long: `a__b` is a/b."""
    for name, text in files.items():
        file = place / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (LONG_AGO, LONG_AGO))
    return place


def test_a_manifest_holds_every_file_with_its_hash(tmp_path: Path) -> None:
    manifest = manifests.of_path(tree(tmp_path, a="one", sub__b="two"))
    assert [(entry["path"], entry["size"], entry["hash"][:8]) for entry in manifest.entries] == [
        ("a", 3, "7692c3ad"),
        ("sub/b", 3, "3fc4ccfe"),
    ]
    assert manifest.size == 6


def test_a_link_to_a_directory_is_followed(tmp_path: Path) -> None:
    tree(tmp_path, kept__a="one")
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "link").symlink_to(tmp_path / "kept")
    assert [entry["path"] for entry in manifests.of_path(tmp_path / "seen").entries] == ["link/a"]


def loop(place: Path) -> None:
    (place / "up").symlink_to(place)


def dangling(place: Path) -> None:
    (place / "nowhere").symlink_to(place / "gone")


def pipe(place: Path) -> None:
    os.mkfifo(place / "pipe")


def not_utf_8(place: Path) -> None:
    open(os.fsencode(place) + b"/\xff", "w").close()


CANNOT_BE = {
    "an empty directory": (lambda place: None, "holds no files"),
    "a link that leads back": (loop, "leads back to a directory above it"),
    "a link that leads nowhere": (dangling, "No such file"),
    "a pipe": (pipe, "neither a file nor a directory"),
    "a name that is not UTF-8": (not_utf_8, "not UTF-8"),
}


@pytest.mark.parametrize(("make", "says"), CANNOT_BE.values(), ids=CANNOT_BE)
def test_what_cannot_be_a_data_set(tmp_path: Path, make: Callable[[Path], None], says: str) -> None:
    make(tmp_path)
    with pytest.raises(UsageError, match=says) as caught:
        manifests.of_path(tmp_path)
    assert caught.value.problems[0].hint


def touched(place: Path) -> None:
    os.utime(place / "a", (LONG_AGO + 5, LONG_AGO + 5))


def rewritten(place: Path) -> None:
    (place / "a").write_text("ONE")


def rewritten_at_the_same_time(place: Path) -> None:
    (place / "a").write_text("longer")
    os.utime(place / "a", (LONG_AGO, LONG_AGO))


def removed(place: Path) -> None:
    (place / "a").unlink()


def added(place: Path) -> None:
    tree(place, new="new")


CHANGES = {
    "nothing": (lambda place: None, ""),
    "a time without a change of content": (touched, ""),
    "content of the same size": (rewritten, "1 file changed (a)"),
    "another size with the old time": (rewritten_at_the_same_time, "1 file changed (a)"),
    "a file that is gone": (removed, "1 file is missing (a)"),
    "a file more": (added, "1 file is new (new)"),
}


@pytest.mark.parametrize(("change", "says"), CHANGES.values(), ids=CHANGES)
def test_what_counts_as_a_change(tmp_path: Path, change: Callable[[Path], None], says: str) -> None:
    recorded = manifests.of_path(tree(tmp_path, a="one", sub__b="two"))
    change(tmp_path)
    found, entries = manifests.differences(tmp_path, recorded.entries)
    assert str(found) == says
    if not says:
        assert Manifest(entries).digest() == recorded.digest()


def test_a_file_that_was_hashed_is_not_read_again_while_size_and_time_are_the_same(tmp_path: Path) -> None:
    known = manifests.of_path(tree(tmp_path, a="one"))
    marked = [{**entry, "hash": "remembered"} for entry in known.entries]
    assert manifests.of_path(tmp_path, marked).entries[0]["hash"] == "remembered"


def test_a_file_that_was_just_written_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    known = manifests.of_path(tmp_path)
    marked = [{**entry, "hash": "remembered"} for entry in known.entries]
    assert manifests.of_path(tmp_path, marked).entries[0]["hash"] != "remembered"


def test_the_same_content_has_the_same_digest_wherever_it_lies(tmp_path: Path) -> None:
    first = manifests.of_path(tree(tmp_path / "one", a="x", b="y"))
    second = manifests.of_path(tree(tmp_path / "two", b="y", a="x"))
    assert first.digest() == second.digest()
    assert first.digest() != manifests.of_path(tree(tmp_path / "three", a="x", b="z")).digest()


WORDS = {
    "cifar10": ("cifar10", None),
    "cifar10@v1": ("cifar10", 1),
    "cifar10@12": ("cifar10", 12),
    "a.b-c_d@v3": ("a.b-c_d", 3),
}


@pytest.mark.parametrize(("word", "expected"), WORDS.items(), ids=WORDS)
def test_a_version_is_a_number(word: str, expected: tuple[str, int | None]) -> None:
    assert datasets.split(word) == expected


@pytest.mark.parametrize("word", ["", "@v1", "a@", "a@v0", "a@new", "a@v1.2", "-a", "a/b", "a b", "a@-1", "ä"])
def test_what_names_no_version(word: str) -> None:
    with pytest.raises(UsageError):
        datasets.split(word)


def add(database: Database, content: str, name: str = "d", uri: str = "/d") -> tuple[int, bool]:
    manifest = Manifest(({"path": "a", "size": 1, "hash": content},))
    with database.write() as connection:
        row, new = datasets.add(connection, name, "path", uri, {}, manifest.entries, manifest.digest())
    return row["version"], new


def test_versions_are_content(database: Database) -> None:
    assert add(database, "x") == (1, True)
    assert add(database, "x") == (1, False)
    assert add(database, "y") == (2, True)
    assert add(database, "x") == (1, False)
    assert add(database, "x", name="other") == (1, True)
    assert add(database, "x", uri="/elsewhere") == (3, True)


def test_a_number_is_given_once_and_the_same_content_brings_its_version_back(database: Database) -> None:
    add(database, "x")
    add(database, "y")
    with database.write() as connection:
        datasets.remove(connection, "d", 2)
    with database.read() as connection:
        newest = datasets.find(connection, "d", None)
        assert newest is not None
        assert newest["version"] == 1
        assert datasets.find(connection, "d", 2) is None
    assert add(database, "z") == (3, True)
    assert add(database, "y") == (2, False)
    with database.read() as connection:
        again = datasets.find(connection, "d", 2)
    assert again is not None
    assert again["manifest"][0]["hash"] == "y"


@pytest.fixture
def s3() -> Iterator[OpenS3]:
    with open_s3() as server:
        yield server


def bucket(s3: OpenS3, uri: str, *, anonymous: bool = True) -> Bucket:
    return Bucket(Address(uri, anonymous, s3.url), NOBODY)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_objects_are_listed_and_fetched(s3: OpenS3, tmp_path: Path, scheme: str) -> None:
    s3.bucket(f"public-{scheme}", {"d/a": b"one", "d/sub/": b"", "d/sub/ü b": b"two", "d/empty": b"", "other/c": b""})
    found = bucket(s3, f"{scheme}://public-{scheme}/d/")
    manifest = found.listing()
    assert [(e["path"], e["size"]) for e in manifest.entries] == [("a", 3), ("empty", 0), ("sub/ü b", 3)]
    downloads.fetch(found, manifest.entries, tmp_path / "to")
    assert (tmp_path / "to" / "a").read_bytes() == b"one"
    assert (tmp_path / "to" / "sub" / "ü b").read_bytes() == b"two"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["to"]


def test_one_object_is_a_data_set_too(s3: OpenS3, tmp_path: Path) -> None:
    s3.bucket("public-one", {"d/labels.csv": b"1,2"})
    found = bucket(s3, "s3://public-one/d/labels.csv")
    manifest = found.listing()
    assert manifest.single
    downloads.fetch(found, manifest.entries, tmp_path / "to", single=True)
    assert (tmp_path / "to" / "labels.csv").read_bytes() == b"1,2"


REFUSED: dict[str, tuple[str, bool, type[ShoalError], str]] = {
    "a bucket that is not public, read anonymously": ("s3://closed", True, Unavailable, "not allowed: Access Denied"),
    "no credentials": ("s3://closed", False, Unavailable, "there are no credentials"),
    "no such bucket": ("s3://public-nowhere", True, UsageError, "no bucket 'public-nowhere'"),
    "nothing there": ("s3://public-wrong/zzz", True, UsageError, "there is no such object"),
    "nothing at all": ("s3://public-empty", True, UsageError, "holds no objects"),
    "no bucket is named": ("s3:///a", True, UsageError, "names no bucket"),
    "a file and a folder at once": ("s3://public-wrong/both", True, UsageError, "an object and a folder"),
}


@pytest.mark.parametrize(("uri", "anonymous", "kind", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read(s3: OpenS3, uri: str, anonymous: bool, kind: type[ShoalError], says: str) -> None:
    s3.bucket("closed", {"a": b"x"})
    s3.bucket("public-empty")
    s3.bucket("public-wrong", {"both/a": b"x", "both/a/b": b"y"})
    with pytest.raises(kind, match=says) as caught:
        bucket(s3, uri, anonymous=anonymous).listing()
    assert caught.value.problems[0].hint


def test_a_store_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be read"):
        Bucket(Address("s3://a", True, "http://127.0.0.1:9"), NOBODY).listing()


@pytest.mark.slow
def test_signatures_are_checked_by_the_store(tmp_path: Path) -> None:
    profile = tmp_path / "credentials"
    with signed_s3({"d/a": b"one"}) as store:
        profile.write_text(f"[lab]\naws_access_key_id = {store.key}\naws_secret_access_key = {store.secret}\n")
        without = {key: value for key, value in store.variables.items() if "KEY" not in key}
        ways = {
            "variables": (store.variables, ""),
            "a profile": ({**without, "AWS_PROFILE": "lab", "AWS_SHARED_CREDENTIALS_FILE": str(profile)}, ""),
            "a wrong secret": ({**store.variables, "AWS_SECRET_ACCESS_KEY": "wrong"}, "signature"),
            "a wrong key": ({**store.variables, "AWS_ACCESS_KEY_ID": "WRONG"}, "does not exist"),
        }
        for variables, says in ways.values():
            address = buckets.address_of("s3://private/d", {}, variables)
            if says:
                with pytest.raises(Unavailable, match=f"not allowed.*{says}"):
                    Bucket(address, variables).listing()
            else:
                found = Bucket(address, variables)
                assert [entry["path"] for entry in found.listing().entries] == ["a"]


PIECE = 1 << 16


def large(pieces: float) -> bytes:
    return os.urandom(int(pieces * PIECE))


def test_a_large_object_comes_in_pieces(s3: OpenS3, tmp_path: Path) -> None:
    content = large(5.5)
    s3.bucket("public-large", {"big": content})
    found = bucket(s3, "s3://public-large")
    told: list[int] = []
    downloads.fetch(found, found.listing().entries, tmp_path / "to", progress=told.append, piece=PIECE)
    assert (tmp_path / "to" / "big").read_bytes() == content
    assert len(s3.asked) == 6
    assert max(told) == len(content)


@pytest.mark.slow
def test_an_object_that_was_stored_in_parts(s3: OpenS3, tmp_path: Path) -> None:
    parts = [os.urandom(5 << 20), b"rest"]
    s3.bucket("public-parts")
    s3.put_in_parts("public-parts", "big", parts)
    found = bucket(s3, "s3://public-parts")
    entries = found.listing().entries
    assert entries[0]["etag"].strip('"').endswith("-2")
    downloads.fetch(found, entries, tmp_path / "to", piece=PIECE)
    assert (tmp_path / "to" / "big").read_bytes() == b"".join(parts)


def test_a_download_that_broke_goes_on_with_what_is_missing(s3: OpenS3, tmp_path: Path) -> None:
    content = large(8)
    s3.bucket("public-broken", {"a": b"one", "big": content})
    found = bucket(s3, "s3://public-broken")
    entries = found.listing().entries
    seen: list[int] = []

    def enough() -> bool:
        return len(seen) > 3

    with pytest.raises(downloads.Cancelled):
        downloads.fetch(found, entries, tmp_path / "to", progress=seen.append, cancelled=enough, piece=PIECE)
    assert not (tmp_path / "to").exists()
    before = {(asked.key, asked.range) for asked in s3.asked}
    s3.asked.clear()
    downloads.fetch(found, entries, tmp_path / "to", piece=PIECE)
    assert (tmp_path / "to" / "big").read_bytes() == content
    assert before
    assert not before & {(asked.key, asked.range) for asked in s3.asked}


def test_what_is_damaged_on_its_way_is_fetched_again(s3: OpenS3, tmp_path: Path) -> None:
    content = large(3)
    s3.bucket("public-noise", {"small": b"one", "big": content})
    damaged: set[str] = set()

    def once(asked: Asked, body: bytes) -> bytes:
        if asked.key in damaged:
            return body
        damaged.add(asked.key)
        return bytes([body[0] ^ 1]) + body[1:]

    s3.change = once
    found = bucket(s3, "s3://public-noise")
    downloads.fetch(found, found.listing().entries, tmp_path / "to", piece=PIECE)
    assert (tmp_path / "to" / "small").read_bytes() == b"one"
    assert (tmp_path / "to" / "big").read_bytes() == content


def test_what_comes_differently_each_time_is_refused(s3: OpenS3, tmp_path: Path) -> None:
    s3.bucket("public-static", {"a": b"content"})
    s3.change = lambda asked, body: os.urandom(len(body))
    found = bucket(s3, "s3://public-static")
    with pytest.raises(Unavailable, match="never as its etag says"):
        downloads.fetch(found, found.listing().entries, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_an_etag_that_is_no_sum_is_known_by_equal_content(s3: OpenS3, tmp_path: Path) -> None:
    """Buckets that encrypt with a key of their own have such etags."""
    s3.bucket("public-kms", {"a": b"content", "b": b"content"})
    s3.change = lambda asked, body: body.upper()
    found = bucket(s3, "s3://public-kms")
    downloads.fetch(found, found.listing().entries, tmp_path / "to")
    assert (tmp_path / "to" / "a").read_bytes() == b"CONTENT"


def test_an_object_that_changes_after_it_was_listed(s3: OpenS3, tmp_path: Path) -> None:
    s3.bucket("public-moving", {"a": b"one"})
    found = bucket(s3, "s3://public-moving")
    entries = found.listing().entries
    s3.put("public-moving", "a", b"two")
    with pytest.raises(UsageError, match="a has changed since it was listed"):
        downloads.fetch(found, entries, tmp_path / "to")
    s3.remove("public-moving", "a")
    with pytest.raises(UsageError, match="a is gone since it was listed"):
        downloads.fetch(found, entries, tmp_path / "to")


def test_a_tree_that_lost_a_file_is_mended(s3: OpenS3, tmp_path: Path) -> None:
    s3.bucket("public-mend", {"a": b"one", "b": b"two"})
    found = bucket(s3, "s3://public-mend")
    entries = found.listing().entries
    downloads.fetch(found, entries, tmp_path / "to")
    (tmp_path / "to" / "a").unlink()
    s3.asked.clear()
    downloads.fetch(found, entries, tmp_path / "to")
    assert [asked.key for asked in s3.asked] == ["a"]
    assert (tmp_path / "to" / "a").read_bytes() == b"one"


def test_other_schemes_are_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="ftp:// cannot be read") as caught:
        buckets.is_bucket("ftp://a/b")
    assert "s3://" in caught.value.problems[0].hint
