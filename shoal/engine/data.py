"""`data:` and `code: {git: …}` of a file at the moment it is submitted: which version is meant, and is it still there?

What is found is kept with the experiment (`provenance`), so that it runs with that and nothing newer, and so
does whoever runs it again:

    {"at": "cifar10", "name": "cifar10", "version": 1, "kind": "object", "uri": "s3://bucket/cifar10", "digest": "9f…",
     "file": null, "options": {"anonymous": true}, "size": 178102112, "files": 7}
"""

from __future__ import annotations

import copy
import json
import os
import posixpath
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.backends.backend import Mounted
from shoal.data import buckets, manifests
from shoal.data.manifests import Manifest
from shoal.engine import checkouts
from shoal.errors import Problem, ShoalError, Unavailable, UsageError
from shoal.launcher.replica import write_json
from shoal.spec import Document
from shoal.spec.tree import Path as Keys
from shoal.spec.tree import dotted
from shoal.spec.types import Data, Dataset, External, Git
from shoal.store import datasets
from shoal.store.blobs import Blobs
from shoal.store.database import Database
from shoal.store.datasets import MANAGED, OBJECT, PATH

Mount = dict[str, Any]


class Resolver:
    """Looks data sets and commits up for one caller. `before` is what an earlier experiment ran with."""

    def __init__(
        self,
        home: Path,
        database: Database,
        environment: Mapping[str, str],
        *,
        before: Mapping[str, Any] | None = None,
        reach: bool = True,  # False: only what the store itself knows
    ) -> None:
        self.home = home
        self.database = database
        self.environment = environment
        self.reach = reach
        self.pins = {mount["name"]: mount["version"] for mount in (before or {}).get("datasets", ()) if mount["name"]}
        self.code = (before or {}).get("code")

    def seeing(self, variables: Mapping[str, str]) -> Resolver:
        """The same with more variables: those of secrets."""
        other = copy.copy(self)
        other.environment = {**self.environment, **variables}
        return other

    def mounts(self, document: Document, directory: str, problems: list[Problem]) -> list[Mount]:
        """What is to lie below SHOAL_DATA. What cannot be is added to the problems, at its place in the file."""
        found: list[Mount] = []
        for number, entry in enumerate(document.spec.data):
            key = "uri" if isinstance(entry, External) else "dataset"
            try:
                mount = self._mount(entry, directory)
                _apart(mount["at"], [other["at"] for other in found])
            except ShoalError as error:
                problems.append(_located(error, document, ("data", number, key)))
                continue
            found.append(mount)
        return found

    def commit(self, document: Document, directory: str, problems: list[Problem]) -> dict[str, str] | None:
        """{git, ref, commit} of code that comes from a repository."""
        code = document.spec.code
        if not isinstance(code, Git):
            return None
        if self.code and (self.code["ref"], self.code["written"]) == (code.ref, code.git):
            return dict(self.code)
        if not self.reach:
            return {"git": code.git, "written": code.git, "ref": code.ref, "commit": "<commit>"}
        try:
            url, commit = checkouts.resolve(code.git, code.ref, directory, self.environment)
        except subprocess.TimeoutExpired:
            slow = Unavailable(f"git: {code.git} does not answer", hint="is the URL right and reachable?")
            problems.append(_located(slow, document, ("code", "git")))
            return None
        except ShoalError as error:
            problems.append(_located(error, document, ("code", "ref" if "has no branch" in str(error) else "git")))
            return None
        return {"git": url, "written": code.git, "ref": code.ref, "commit": commit}

    def _mount(self, entry: Data, directory: str) -> Mount:
        if isinstance(entry, Dataset):
            name, version = datasets.split(entry.dataset)
            row = self._row(name, version if version is not None else self.pins.get(name))
            mount = mount_of(row, entry.at or name)
            if self.reach:
                self._unchanged(row)
                self._keep(mount, row["manifest"])
            return mount
        at = entry.at or entry.uri.rstrip("/").rpartition("/")[2]
        if buckets.is_bucket(entry.uri):
            return self._objects(entry, at)
        place = path_of(entry.uri, directory, self.environment)
        manifest = manifests.listing_of(place) if self.reach else Manifest(())
        return _unregistered(at, PATH, str(place), manifest.digest(str(place)), manifest, {})

    def _row(self, name: str, version: int | None) -> datasets.Row:
        with self.database.read() as connection:
            row = datasets.find(connection, name, version)
            if row is not None:
                return row
            known = datasets.versions(connection)
        raise missing(name, version, known)

    def _unchanged(self, row: datasets.Row) -> None:
        """Raises when the content is no longer that of the version."""
        label = f"{row['name']}@v{row['version']}"
        again = f"shoal dataset add {row['name']} {row['uri']} makes a new version of what is there now"
        if row["kind"] == MANAGED:
            blobs = Blobs(self.home)
            gone = [e["path"] for e in row["manifest"] if not _has(blobs, e["hash"], e["size"])]
            if gone:
                lost = manifests.Differences(missing=tuple(gone))
                raise UsageError(f"{label} is damaged: {lost}", hint=f"shoal dataset upload {row['name']} PATH again")
            return
        if row["kind"] == PATH:
            try:
                changes, entries = manifests.differences(Path(row["uri"]), row["manifest"])
            except UsageError as error:
                raise UsageError(f"{label}: {error.problems[0].message}", hint=again) from None
            if not changes and entries != tuple(row["manifest"]):
                with self.database.write() as connection:
                    datasets.refresh(connection, row["name"], row["version"], entries)
        else:
            address = buckets.address_of(row["uri"], row["options"], self.environment)
            changes = manifests.between(row["manifest"], buckets.Bucket(address, self.environment).listing().entries)
        if changes:
            raise UsageError(f"{label} has changed since it was added: {changes}", hint=again)

    def _objects(self, entry: External, at: str) -> Mount:
        address = buckets.address_of(entry.uri, {"anonymous": entry.anonymous}, self.environment)
        options = options_of(address)
        if not self.reach:
            return _unregistered(at, OBJECT, entry.uri, "", Manifest(()), options)
        manifest = buckets.Bucket(address, self.environment).listing()
        mount = _unregistered(at, OBJECT, entry.uri, manifest.digest(address.origin), manifest, options)
        self._keep(mount, manifest.entries)
        return mount

    def _keep(self, mount: Mount, entries: Sequence[manifests.Entry]) -> None:
        """What is to be fetched lies beside where it will lie: whoever fetches it needs no more than the digest."""
        file = manifest_file(self.home, mount["digest"])
        if mount["kind"] != PATH and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(str(file), {"entries": [dict(entry) for entry in entries]})


def mount_of(row: datasets.Row, at: str) -> Mount:
    options = {key: value for key, value in row["options"].items() if key not in ("single", "removed")}
    return {
        "at": posixpath.normpath(at),
        **{key: row[key] for key in ("name", "version", "kind", "uri", "digest", "size", "files")},
        "file": row["manifest"][0]["path"] if row["options"].get("single") else None,
        "options": options,
    }


def label(mount: Mapping[str, Any]) -> str:
    """`cifar10@v1`, or the URI of what has no name."""
    return f"{mount['name']}@v{mount['version']}" if mount["name"] else str(mount["uri"])


def mounted(provenance: Mapping[str, Any] | None) -> tuple[Mounted, ...]:
    """What replicas far from the home have to be brought."""
    mounts = (provenance or {}).get("datasets") or ()
    return tuple(Mounted(mount["at"], label(mount), mount["size"], mount["file"]) for mount in mounts)


def options_of(address: buckets.Address) -> dict[str, Any]:
    """What has to be remembered of an address beside its URI."""
    said = {"anonymous": address.anonymous, "endpoint": address.endpoint, "region": address.region}
    return {key: value for key, value in said.items() if value}


def path_of(uri: str, directory: str, environment: Mapping[str, str]) -> Path:
    """An absolute path: what is relative is so to the directory, and ~ is the caller's."""
    text = uri.removeprefix("file://")
    if text == "~" or text.startswith("~/"):
        text = (environment.get("HOME") or os.path.expanduser("~")) + text[1:]
    return Path(os.path.normpath(os.path.join(directory, text)))


def missing(name: str, version: int | None, known: Sequence[datasets.Row]) -> UsageError:
    """Why there is no such data set, and which there are."""
    here = [row for row in known if row["name"] == name]
    there = [f"v{row['version']}" for row in here if not datasets.removed(row)]
    if not there:
        names = sorted({row["name"] for row in known if not datasets.removed(row)})
        hint = f"shoal dataset add {name} PATH makes it; known: {', '.join(names[:10]) or 'none'}"
        return UsageError(f"there is no data set {name!r}" + (": it was removed" if here else ""), hint=hint)
    gone = version in [row["version"] for row in here]
    what = f"{name}@v{version} was removed" if gone else f"{name} has no version {version}"
    return UsageError(what, hint=f"versions: {', '.join(there)}")


def manifest_file(home: Path, digest: str) -> Path:
    return home / "cache" / f"{digest}.json"


def read_manifest(home: Path, database: Database, mount: Mapping[str, Any]) -> list[manifests.Entry]:
    """The files of a mount."""
    try:
        entries: list[manifests.Entry] = json.loads(manifest_file(home, mount["digest"]).read_text())["entries"]
        return entries
    except (OSError, ValueError, LookupError):
        pass
    with database.read() as connection:
        row = datasets.find(connection, mount["name"], mount["version"]) if mount["name"] else None
    if row is None or row["digest"] != mount["digest"]:
        raise UsageError(f"{label(mount)}: it is no longer known which files it has", hint="run the file again")
    return list(row["manifest"])


def _unregistered(at: str, kind: str, uri: str, digest: str, manifest: Manifest, options: Mapping[str, Any]) -> Mount:
    return {
        "at": posixpath.normpath(at),
        "name": None,
        "version": None,
        "kind": kind,
        "uri": uri,
        "digest": digest,
        "file": manifest.entries[0]["path"] if manifest.single else None,
        "options": dict(options),
        "size": manifest.size,
        "files": len(manifest.entries),
    }


def _apart(at: str, others: Sequence[str]) -> None:
    """Each has its own place, and none lies inside another: that may be somebody's own directory."""
    if at == ".":
        raise UsageError("at: . is SHOAL_DATA itself", hint="name a path below it")
    for other in others:
        if f"{at}/".startswith(f"{other}/") or f"{other}/".startswith(f"{at}/"):
            raise UsageError(f"at: {at} and {other} lie inside each other", hint="give each a place of its own")


def _has(blobs: Blobs, hash_: str, size: int) -> bool:
    try:
        return blobs.size(hash_) == size
    except OSError:
        return False


def _located(error: ShoalError, document: Document, path: Keys) -> Problem:
    first = error.problems[0]
    hint = first.hint or "see shoal dataset --help"
    return Problem(first.message, path=dotted(path), where=document.where(path), hint=hint)
