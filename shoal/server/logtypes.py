"""What the routes for logs give."""

from __future__ import annotations

from pydantic import Field

from shoal.server.types import ApiModel


class LogName(ApiModel):
    """One log: what one try of one replica printed."""

    replica: str = Field(description="`worker-2`")
    attempt: int = Field(description="Which attempt.")
    try_: int = Field(alias="try", description="Which start within the attempt.")


class LogLine(LogName):
    """One line. `attempt:replica:try:line` is its name, which other requests take as an anchor."""

    line: int = Field(description="Its number in its log, from 0, in the order in which lines ended.")
    offset: int = Field(description="Where its first byte is in its log.")
    time: float = Field(description="When its first byte came, UTC seconds.")
    stream: int = Field(description="1 stdout, 2 stderr.")
    text: str = Field(description="Without its newline; at most 10,000 characters.")
    length: int = Field(description="All of its bytes.")
    complete: bool = Field(description="Whether it has ended; one that has not may still grow.")
    gap: int = Field(description="How many bytes are missing before it, or in it.")


class LogHit(LogLine):
    """A line that matches."""

    match: list[int] = Field(description="Where the first match in its text begins and ends.")


class LogState(LogName):
    """How long a log is."""

    rank: int = Field(description="Of its replica.")
    lines: int = Field(description="How many lines it has.")
    size: int = Field(description="Bytes.")
    closed: bool = Field(description="Whether nothing will follow.")


class LogCount(LogName):
    count: int = Field(description="How many of its lines match.")


class LogWindow(ApiModel):
    """Some lines of a list that may have millions."""

    total: int = Field(description="How many lines the list has.")
    first: int = Field(description="The place of the first of these in the list.")
    lines: list[LogLine] = Field(description="In the order of the list.")
    logs: list[LogState] = Field(description="The logs that the list is made of.")


class LogHits(ApiModel):
    """What a search found."""

    count: int = Field(description="How many lines match: what `grep -c` says of the raw logs.")
    first: int = Field(description="Which hit the first of these is, from 0.")
    hits: list[LogHit] = Field(description="In the order of time.")
    logs: list[LogCount] = Field(description="How many in each log.")
