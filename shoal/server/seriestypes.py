"""What the routes of metrics give."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from shoal.server.types import ApiModel

Number = float | Literal["NaN", "Infinity", "-Infinity"]
Kind = Literal["metric", "tensorboard", "import", "resource", "all"]
Statistic = Literal["min", "mean", "max", "p50", "p95", "all"]


class SeriesView(ApiModel):
    """One metric of one process in one attempt, without its points."""

    name: str = Field(description="Of the metric.")
    kind: str = Field(description="metric, tensorboard, import or resource.")
    replica: str = Field(description="`worker-2`")
    process: int = Field(description="Local rank.")
    rank: int = Field(description="Over all processes.")
    attempt: int = Field(description="Which attempt.")
    count: int = Field(description="Points.")
    last: Number = Field(description="The newest value.")
    min: Number = Field(description="Of what is not NaN.")
    max: Number = Field(description="Of what is not NaN.")
    first_step: int = Field(description="Of the first point.")
    last_step: int = Field(description="Of the newest point.")
    min_step: int = Field(description="The smallest.")
    max_step: int = Field(description="The largest.")
    first_time: float = Field(description="UTC seconds.")
    last_time: float = Field(description="UTC seconds.")


class Member(ApiModel):
    """One of the curves that are aggregated."""

    replica: str = Field(description="`worker-2`")
    process: int = Field(description="Local rank.")
    rank: int = Field(description="Over all processes.")
    attempt: int = Field(description="The newest that has points of it.")


class CurveView(ApiModel):
    """One curve as columns: one entry for each bucket that is not empty."""

    name: str = Field(description="Of the metric.")
    kind: str = Field(description="metric, tensorboard, import or resource.")
    replica: str | None = Field(None, description="Whose it is; not when curves are aggregated.")
    process: int | None = Field(None, description="Local rank; not when curves are aggregated.")
    rank: int | None = Field(None, description="Over all processes; not when curves are aggregated.")
    attempt: int | None = Field(None, description="The newest that has points of it.")
    members: list[Member] = Field([], description="Which curves are aggregated.")
    start: list[Number] = Field(description="Where each bucket begins, a multiple of the width.")
    x_first: list[Number] = Field(description="The smallest x in it.")
    x_last: list[Number] = Field(description="The largest x in it.")
    min: list[Number] = Field([], description="Of all points in it.")
    min_x: list[Number] = Field([], description="Where the minimum is.")
    min_of: list[int] = Field([], description="Which member has it; -1 when all is NaN.")
    max: list[Number] = Field([], description="Of all points in it.")
    max_x: list[Number] = Field([], description="Where the maximum is.")
    max_of: list[int] = Field([], description="Which member has it; -1 when all is NaN.")
    last: list[Number] = Field([], description="Of the last point in it.")
    mean: list[Number] = Field(
        [], description="Of the finite values in it; aggregated, the mean of the members' means."
    )
    p50: list[Number] = Field([], description="Half of the members' means are not above it.")
    p95: list[Number] = Field([], description="95 % of the members' means are not above it.")
    count: list[int] = Field(description="Points in it.")
    finite: list[int] = Field([], description="Those that are neither NaN nor infinite.")
    curves: list[int] = Field([], description="How many members have points in it.")


class ChartView(ApiModel):
    """Curves in buckets of one width, a power of two, so that they can be laid over each other."""

    x: str = Field(description="step, time, relative, or the name of a metric.")
    width: float = Field(description="Of all buckets.")
    agg: str | None = Field(None, description="What is aggregated over replicas and processes.")
    series: list[CurveView] = Field(description="The curves.")


class PointsView(ApiModel):
    """One curve with all its points."""

    name: str = Field(description="Of the metric.")
    kind: str = Field(description="metric, tensorboard, import or resource.")
    replica: str = Field(description="`worker-2`")
    process: int = Field(description="Local rank.")
    rank: int = Field(description="Over all processes.")
    attempt: int = Field(description="The newest that has points of it; with `replaced`, that of these points.")
    try_: int | None = Field(None, alias="try", description="With `replaced`.")
    restart: int | None = Field(None, description="With `replaced`.")
    points: list[list[Number]] = Field(description="[step, time, value], and x where it is asked for.")


class RecordView(ApiModel):
    """Something that a script said beside points."""

    kind: str = Field(description="params, tag, summary, define, text, image, table, histogram, artifact, …")
    name: str = Field(description="What it was given as a name.")
    step: int | None = Field(description="When it was given one.")
    time: float = Field(description="UTC seconds.")
    attempt: int = Field(description="Which attempt.")
    replica: str = Field(description="`worker-2`")
    process: int = Field(description="Local rank.")
    stream: str = Field(description="Which process wrote it; with `seq` it is unique.")
    seq: int = Field(description="Its place in the stream.")
    data: dict[str, Any] = Field(description="What was said.")
    pending: bool = Field(description="Whether its files are still on their way.")
