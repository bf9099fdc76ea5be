"""Finding and reading experiment files. Standard library only: a command that hands them to a server loads no more."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import FileProblems, Problem, UsageError, Where

USUAL_NAMES = (
    "experiment.yml",
    "experiment.yaml",
    "shoal.yml",
    "shoal.yaml",
    "polyaxonfile.yml",
    "polyaxonfile.yaml",
    "polyaxonfile.json",
    "polyaxon.yml",
    "polyaxon.yaml",
    "polyaxon.json",
)
LARGEST_FILE = 256 * 1024

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Source:
    """The text of one experiment file and the name errors call it by."""

    name: str
    text: str
    directory: Path | None = None


def find(directory: Path) -> Path:
    """The experiment file of a directory, by its usual names."""
    found = [directory / name for name in USUAL_NAMES if (directory / name).is_file()]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name for path in found)
        raise UsageError(
            f"{directory}: more than one experiment file: {names}", hint=f"name one: shoal check {found[0]}"
        )
    raise UsageError(
        f"{directory}: no experiment file here",
        hint=f"the names looked for are {', '.join(USUAL_NAMES)}; or name a file",
    )


def read(argument: str) -> Source:
    """The text behind a command-line argument: a file, a directory that holds one, or `-` for standard input."""
    if argument == STANDARD_INPUT:
        return Source("stdin", decode(sys.stdin.buffer.read(LARGEST_FILE + 1), "stdin"))
    path = Path(argument)
    if path.is_dir():
        path = find(path)
    name = str(path)
    try:
        with path.open("rb") as file:
            return Source(name, decode(file.read(LARGEST_FILE + 1), name), path.resolve().parent)
    except FileNotFoundError:
        raise UsageError(f"{name}: no such file", hint=_nearest_file(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{name}: cannot be read: {reason}") from None


def decode(data: bytes, name: str) -> str:
    """The text of a file, or one error that says what the file is instead."""
    whole = Where(name, 1, 1)

    def refuse(message: str, hint: str, where: Where = whole) -> FileProblems:
        return FileProblems([Problem(message, where=where, hint=hint)])

    if len(data) > LARGEST_FILE:
        raise refuse(
            f"larger than {LARGEST_FILE // 1024} KiB, which no experiment file is",
            "is this a data file? Lists of values belong in a file that the command reads",
        )
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise refuse("encoded as UTF-16", "save it as UTF-8")
    if b"\0" in data:
        raise refuse("a binary file", "an experiment file is YAML text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        raise refuse(
            f"byte 0x{data[error.start]:02x} is not UTF-8", "save it as UTF-8", Where(name, line, column)
        ) from None


def _nearest_file(path: Path) -> str:
    from difflib import get_close_matches

    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yml", ".yaml", ".json")]
    except OSError:
        return f"{path.parent} is no directory"
    near = get_close_matches(path.name, names, n=1)
    if near:
        return f"did you mean {path.parent / near[0]}?"
    return f"experiment files there: {', '.join(sorted(names))}" if names else f"{path.parent} holds no YAML file"
