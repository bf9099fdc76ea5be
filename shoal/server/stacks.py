"""Where every rank is: stacks of all processes of a running experiment, merged."""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI
from pydantic import Field

from shoal.engine import stacks, stacktrees
from shoal.server.context import Conflict, Server, Word
from shoal.server.types import ApiModel
from shoal.states import FINAL, QUEUED


class FrameView(ApiModel):
    """One call."""

    file: str = Field(description="Of the code.")
    line: int = Field(description="In the file.")
    function: str = Field(description="Its name.")


class RankStack(ApiModel):
    """Where one process is."""

    name: str = Field(description="`worker-2`, or `worker-2:1` for its process 1.")
    replica: str = Field(description="`worker-2`")
    process: int = Field(description="Local rank.")
    rank: int = Field(description="Over all processes, from 0.")
    pid: int = Field(description="Its process.")
    how: str = Field(description="sdk or py-spy.")
    threads: int = Field(description="How many threads it has.")
    frames: list[FrameView] = Field(description="Of its main thread, from the outermost call to the innermost.")
    error: str = Field(description="Why there are none, or empty.")


class StackNode(FrameView):
    """One call, with everybody who is in it."""

    ranks: list[str] = Field(description="Who is in it, by name.")
    children: list[StackNode] = Field(description="What it calls, the most ranks first.")


class StackGroup(ApiModel):
    """Ranks that are at the same place."""

    where: str = Field(description="`all_reduce, called by step (train.py:30)`")
    ranks: list[str] = Field(description="Who, by name.")


class Stacks(ApiModel):
    """Where every rank is."""

    id: str = Field(description="Of the experiment.")
    time: float = Field(description="When, UTC seconds.")
    verdict: str = Field(description="All of it in one sentence.")
    odd: list[str] = Field(description="The ranks that are not where the others wait for them.")
    groups: list[StackGroup] = Field(description="The largest first.")
    tree: list[StackNode] = Field(description="Equal calls of all ranks once.")
    ranks: list[RankStack] = Field(description="In the order of their ranks.")
    notes: list[str] = Field(description="What keeps some of them from being read.")


def add_routes(app: FastAPI, server: Server) -> None:
    @app.get("/api/experiments/{word}/stacks", response_model=Stacks, tags=["experiments"])
    def show(word: Word) -> Any:
        """Where every rank of a running experiment is: stacks merged as a tree, and who is not with the others."""
        row = server.find(word)
        if row["state"] in FINAL:
            raise Conflict(
                f"{row['id']} is {row['state']}: nothing of it runs", hint=f"shoal why {row['id']} tells more"
            )
        if row["state"] == QUEUED:
            raise Conflict(f"{row['id']} waits in the queue: nothing of it runs yet", hint=f"shoal why {row['id']}")
        if not row["handle"]:
            raise Conflict(f"{row['id']} has not started yet", hint=f"shoal why {row['id']}")
        answers, notes = server.engine.backend_of(row["cluster"]).stacks(row["handle"])
        ranks = stacks.ranks_of(answers)
        verdict, odd = stacktrees.verdict(ranks)
        return {
            "id": row["id"],
            "time": time.time(),
            "verdict": verdict if ranks else "no process of it can be asked where it is",
            "odd": odd,
            "groups": [
                {"where": where, "ranks": [rank.name for rank in who]} for where, who in stacktrees.groups(ranks)
            ],
            "tree": [node.json() for node in stacktrees.tree(ranks)],
            "ranks": [_shown(rank) for rank in ranks],
            "notes": notes if ranks else [*notes, "only Python processes can be asked, once they have called the SDK"],
        }


def _shown(rank: stacktrees.Rank) -> dict[str, Any]:
    kept = {key: getattr(rank, key) for key in ("name", "replica", "process", "rank", "pid", "how", "threads", "error")}
    return {**kept, "frames": [frame._asdict() for frame in rank.frames]}
