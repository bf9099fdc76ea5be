"""Which anchors may be in a cluster: a file of the home for each, written before it is made, removed after it is gone.

So whoever dies in between, the next server knows what it has to remove, and asks no cluster that nobody uses. It tells
where the anchor is as well: settings may lead to another namespace or cluster by then, and what is not there has not
been removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from shoal.backends.kubernetes.api import Refused
from shoal.backends.kubernetes.identity import Identity
from shoal.launcher.replica import read_json, write_json


class Anchor(NamedTuple):
    """The object that owns all others of one attempt."""

    name: str
    uid: str  # of the experiment
    directory: str  # of the attempt
    object_uid: str = ""  # of the object, where that is known


class Anchors:
    def __init__(self, place: Path) -> None:
        self.place = place

    def note(self, anchor: Anchor, where: Mapping[str, str]) -> bool:
        """Whether that is new. `where` is what `Identity` notes: that of the first time counts."""
        self.place.mkdir(parents=True, exist_ok=True)
        new = not self._file(anchor).exists()
        if new:
            write_json(str(self._file(anchor)), {"uid": anchor.uid, "directory": anchor.directory, **where})
        return new

    def noted(self) -> list[Anchor]:
        found = []
        for file in sorted(self.place.glob("*.json")):
            told = read_json(str(file))
            if told is not None:
                found.append(Anchor(file.stem, told["uid"], told["directory"]))
        return found

    def where(self, anchor: Anchor) -> Mapping[str, str]:
        """What was noted of the place where it is."""
        return read_json(str(self._file(anchor))) or {}

    def forget(self, anchor: Anchor) -> None:
        """It is not there."""
        self._file(anchor).unlink(missing_ok=True)

    def remove(self, identity: Identity, anchor: Anchor) -> None:
        """Deletes it, and with it everything of the attempt. Silent when it is gone, or another one has its name.

        Raises Refused when another cluster answers than the one that it is in.
        """
        told = read_json(str(self._file(anchor)))
        if told is None:
            return
        api = identity.api
        namespace = str(told.get("namespace") or api.settings.namespace)
        if identity.differs(told):
            name = api.settings.name
            raise Refused(
                409,
                "Elsewhere",
                f"cluster {name} is not the one that {anchor.name} is in, at {told.get('address')}: it is left there",
                hint=f"lead [clusters.{name}] there again, or delete {self._file(anchor)}",
            )
        known = anchor.object_uid
        if not known:
            found = api.get("ConfigMap", anchor.name, namespace) or {"metadata": {}}
            mine = (found["metadata"].get("labels") or {}).get("shoal/uid") == anchor.uid
            known = found["metadata"]["uid"] if mine else ""
        if known:
            api.delete("ConfigMap", anchor.name, uid=known, namespace=namespace)
        self.forget(anchor)

    def _file(self, anchor: Anchor) -> Path:
        return self.place / f"{anchor.name}.json"
