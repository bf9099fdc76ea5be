"""Every error a user can meet, and how it reads.

    ShoalError            what happened, where, and one hint; carries the exit code of the command line
    ├── UsageError        the command was called wrongly                                     exit 2
    ├── FileProblems      an experiment file is wrong: all its problems at once              exit 2
    └── Unavailable       a server, a cluster or a capability cannot be reached              exit 3

An error reads the same everywhere, with and without colour:

    error: exp.yml:14:5: environment.replicas.n_ps: PyTorch has no parameter servers

    hint: remove n_ps, or set framework: tensorflow

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Sequence, Tuple


@dataclass(frozen=True)
class Where:
    """A place in a file, counted from 1; `line` 0 means the whole source (`-P lr=0.2` has no lines)."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, or merely dated, in an experiment file."""

    message: str
    path: str = ""
    where: Optional[Where] = None
    hint: str = ""

    def line(self) -> str:
        """`exp.yml:14:5: environment.replicas.n_ps: PyTorch has no parameter servers`"""
        parts = [str(self.where) if self.where else "", self.path, self.message]
        return ": ".join(part for part in parts if part)

    def json(self) -> Dict[str, Optional[str]]:
        return {
            "where": str(self.where) if self.where else None,
            "path": self.path,
            "message": self.message,
            "hint": self.hint or None,
        }


class ShoalError(Exception):
    """What went wrong, said once, for a person."""

    exit_code = 1

    def __init__(self, what: str, hint: str = "", where: Optional[Where] = None) -> None:
        super().__init__(what)
        self.problems: Tuple[Problem, ...] = (Problem(what, where=where, hint=hint),)

    def text(self) -> str:
        return render("error", self.problems)


class UsageError(ShoalError):
    """The command was called in a way that cannot work."""

    exit_code = 2


class Unavailable(ShoalError):
    """Something outside this process is needed and cannot be reached."""

    exit_code = 3


class FileProblems(ShoalError):
    """Everything that is wrong with an experiment file, in the order of the file, and its warnings."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem], warnings: Iterable[Problem] = ()) -> None:
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)
        Exception.__init__(self, "; ".join(problem.line() for problem in self.problems))


def render(severity: str, problems: Sequence[Problem]) -> str:
    """The problems as the terminal shows them: a line each, its hint below after a blank line."""
    blocks: List[str] = []
    for problem in problems:
        block = f"{severity}: {problem.line()}"
        if problem.hint:
            block += f"\n\nhint: {problem.hint}"
        blocks.append(block)
    return "\n\n".join(blocks)
