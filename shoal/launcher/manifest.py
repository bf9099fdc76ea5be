"""Which outputs of a try have been carried as a whole, and which never will be: what its sink is told of them.

Outputs change as they like, so bytes that came say nothing: a file counts when its launcher has said how large it is
and what its SHA-256 is, after it had sent the last byte and the file was still the same. `manifest.jsonl` of the try
only grows, and is carried like the others:

    {"path": "outputs/model.pt", "size": 5242880, "sha256": "…", "mtime": 17…, "inode": 12}    all of it was sent
    {"path": "outputs/model.pt", "size": null}                                                 there is none any more
    {"expected": {"outputs/model.pt": 5242880}}          at the command's end: what is still to come
    {"left": {"outputs/model.pt": "why"}, "more": 3}     it will not; and three others

The newest line about a path counts. Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

MANIFEST = "manifest.jsonl"
OUTPUTS = "outputs"
SETTLED = 30.0  # seconds that a file has not changed before it is carried while its command runs
LOOK = 10.0  # seconds between two looks at the outputs meanwhile
NAMES, FEW_NAMES = 10_000, 100  # that are told; the second where every line counts


class Signature(NamedTuple):
    """By which one sees that a file has changed."""

    size: int
    mtime: int  # nanoseconds
    inode: int


class Begun:
    """A file that is being carried: how far, and the hash of that."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.digest = hashlib.sha256()
        self.at = 0
        self.sent = False  # what the sink holds under this name is of this very file


class Outputs:
    """The outputs of one try, as its mirror carries them. `most` bytes are taken by the sink; None: all."""

    def __init__(self, directory: str, most: Optional[int]) -> None:
        self.directory = directory
        self.most = most
        self.left: Dict[str, str] = {}  # path -> why it stays
        self._told: Set[str] = set()  # of those
        self._more = 0
        self._whole: Dict[str, Signature] = {}
        self._begun: Dict[str, Begun] = {}
        self._since: Dict[str, Tuple[Signature, float]] = {}
        self._looked: Optional[float] = None
        self._wanted: List[str] = []  # then
        self._expected = False
        _mend(os.path.join(directory, MANIFEST))
        for path, line in read(os.path.join(directory, MANIFEST)).whole.items():
            self._whole[path] = Signature(line["size"], line.get("mtime", 0), line.get("inode", 0))

    def due(self, now: float, over: bool) -> List[str]:
        """What is to be carried now, small ones first; while the command runs, what has not changed for a while."""
        if not self.looks(now, over):  # a log has no room for what may change
            return [path for path in self._wanted if self._is_due(path)]
        self._looked = now
        found = files(self.directory)
        self._since = {
            path: self._since[path] if self._since.get(path, (None,))[0] == signature else (signature, now)
            for path, signature in found.items()
        }
        if over:
            self.left.update(others(self.directory))
        wanted = [path for path in found if self._whole.get(path) != found[path] and path not in self.left]
        if not over:
            wanted = [path for path in wanted if now - self._since[path][1] >= SETTLED]
        wanted.sort(key=lambda path: (found[path].size, path))
        self._wanted = self._that_fit(wanted, found) if over else wanted
        return list(self._wanted)

    def looks(self, now: float, over: bool) -> bool:
        """Whether it is time to look at all of them."""
        return over or (self.most is None and (self._looked is None or now >= self._looked + LOOK))

    def gone(self, held: Iterable[str]) -> List[str]:
        """What a sink holds of files that are not there any more."""
        places = [path for path in held if path.startswith(OUTPUTS + "/")]
        return [path for path in places if signature(os.path.join(self.directory, path)) is None]

    def whole(self, path: str) -> Optional[int]:
        """The size of a file that was carried as a whole and is still the same."""
        found = self._whole.get(path)
        return found.size if found is not None and found == signature(os.path.join(self.directory, path)) else None

    def begun(self, path: str) -> Optional[Begun]:
        """How far it is; anew when the file has changed. None when it is gone."""
        now = signature(os.path.join(self.directory, path))
        if now is None:
            self._begun.pop(path, None)
            return None
        if path not in self._begun or self._begun[path].signature != now:
            self._begun[path] = Begun(now)
        return self._begun[path]

    def again(self, path: str) -> None:
        """The sink has less than was thought."""
        self._begun.pop(path, None)
        self._whole.pop(path, None)

    def declare(self, path: str) -> bool:
        """Everything was sent. Whether the file was the same all the while."""
        begun = self._begun.pop(path)
        if signature(os.path.join(self.directory, path)) != begun.signature:
            return False
        size, mtime, inode = self._whole[path] = begun.signature
        told = {"path": path, "size": size, "sha256": begun.digest.hexdigest(), "mtime": mtime, "inode": inode}
        self._write(told)
        return True

    def forget(self, path: str) -> None:
        """Its file is gone."""
        self.again(path)
        self._write({"path": path, "size": None})

    def expect(self, paths: Iterable[str]) -> bool:
        """Tells what is still to come, once; whether there was anything to tell."""
        if self._expected:
            return False
        self._expected = True
        found = {path: _size(os.path.join(self.directory, path)) for path in list(paths)[: self._most_names()]}
        if found:
            self._write({"expected": found})
        return bool(found)

    def tell_left(self, others: Mapping[str, str]) -> None:
        """Tells what stays behind: outputs, and the other files that were refused."""
        new = {path: why for path, why in {**others, **self.left}.items() if path not in self._told}
        if not new:
            return
        self._told.update(new)
        named = dict(sorted(new.items())[: self._most_names()])
        self._write({"left": named, "more": len(new) - len(named)})

    def _that_fit(self, wanted: List[str], found: Mapping[str, Signature]) -> List[str]:
        """Those that the sink takes; the others stay."""
        if self.most is None:
            return wanted
        taken, room = [], self.most
        for path in wanted:
            begun = self._begun.get(path)
            rest = found[path].size - (begun.at if begun is not None and begun.signature == found[path] else 0)
            if rest <= room:
                taken.append(path)
                room -= rest
            else:
                self.left[path] = "too large for a log"
        return taken

    def _is_due(self, path: str) -> bool:
        """Whether it has not been carried, nor changed since the last look."""
        now = signature(os.path.join(self.directory, path))
        return now is not None and now == self._since[path][0] != self._whole.get(path) and path not in self.left

    def _most_names(self) -> int:
        return NAMES if self.most is None else FEW_NAMES

    def _write(self, line: Mapping[str, Any]) -> None:
        with open(os.path.join(self.directory, MANIFEST), "a", encoding="ascii") as file:
            file.write(json.dumps(line) + "\n")


def others(directory: str) -> Dict[str, str]:
    """What is among the outputs and no file that could be carried: path -> what it is."""
    found: Dict[str, str] = {}
    for place, directories, names in os.walk(os.path.join(directory, OUTPUTS)):
        for whole in (os.path.join(place, name) for name in directories + names):
            path = os.path.relpath(whole, directory).replace(os.sep, "/")
            if os.path.islink(whole):
                found[path] = f"a link to {os.readlink(whole)}"
            elif not os.path.isfile(whole) and not os.path.isdir(whole) and os.path.lexists(whole):
                found[path] = "no plain file"
    return found


class Told(NamedTuple):
    """What a manifest says."""

    whole: Dict[str, Dict[str, Any]]  # path -> the line that says so
    expected: Dict[str, int]
    left: Dict[str, str]
    more: int  # that are left and not named


def read(path: str) -> Told:
    """What stands in a manifest, as far as it has come; nothing when there is none."""
    told = Told({}, {}, {}, 0)
    more = 0
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")[:-1]  # what follows the last end of line has not come wholly
    except OSError:
        return told
    for text in lines:
        try:
            line = json.loads(text)
            if "path" in line:
                told.whole.pop(str(line["path"]), None)
                told.expected.pop(str(line["path"]), None)
                told.left.pop(str(line["path"]), None)
                if line["size"] is not None:
                    told.whole[str(line["path"])] = {**line, "size": int(line["size"]), "sha256": str(line["sha256"])}
            told.expected.update({str(name): int(size) for name, size in line.get("expected", {}).items()})
            told.left.update({str(name): str(why) for name, why in line.get("left", {}).items()})
            more += int(line.get("more", 0))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # damaged: the file it speaks of does not count as whole
    return told._replace(more=more)


def files(directory: str) -> Dict[str, Signature]:
    """Every plain file below `outputs`."""
    found: Dict[str, Signature] = {}
    for place, _, names in os.walk(os.path.join(directory, OUTPUTS)):
        for name in names:
            seen = signature(os.path.join(place, name))
            if seen is not None:
                found[os.path.relpath(os.path.join(place, name), directory).replace(os.sep, "/")] = seen
    return found


def signature(path: str) -> Optional[Signature]:
    """None when it is no plain file, or not there."""
    import stat

    try:
        found = os.lstat(path)
    except OSError:
        return None
    return Signature(found.st_size, found.st_mtime_ns, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _mend(path: str) -> None:
    """Ends a line in which its writer was killed."""
    try:
        with open(path, "r+b") as file:
            data = file.read()
            if data and not data.endswith(b"\n"):
                file.write(b"\n")
    except OSError:
        return


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
