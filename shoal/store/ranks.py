"""What the ranks of the newest attempt logged lately, as the straggler report needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from glob import escape
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from shoal.store import chunks as codec
from shoal.store.curves import Choice, Curve, find
from shoal.store.heads import Heads
from shoal.store.series import NOT_RESOURCES, Summaries, summaries_of
from shoal.store.stragglers import OURS, STEP_BUSY, STEP_TIME, Points, Process
from shoal.store.tables import chunks

RECENT = 2048  # points of a series
LATELY = 60  # samples of what a replica uses
UTILIZATION = "gpu*/utilization"  # percent, for each GPU of a replica


def processes(connection: Connection, uid: str, summaries: Summaries | None, heads: Heads) -> list[Process]:
    """Every process of the newest attempt that logged something, with what tells about its steps."""
    rows = [row for row in summaries_of(connection, uid, summaries) if row["kind"] in NOT_RESOURCES]
    if not rows:
        return []
    attempt = max(row["attempt"] for row in rows)
    mine = [row for row in rows if row["attempt"] == attempt]
    names = {STEP_TIME, STEP_BUSY} & {row["name"] for row in mine}
    if STEP_TIME not in names:
        names |= _often(mine)
    found: dict[tuple[str, int], tuple[int, dict[str, Points]]] = {
        (row["replica"], row["process"]): (row["rank"], {}) for row in mine
    }
    for curve in find(connection, uid, Choice([escape(name) for name in names], attempt=attempt), heads):
        rank, series = found.get((curve.replica, curve.process), (curve.rank, {}))
        if curve.name not in series:  # an SDK's goes before what TensorBoard files say under the same name
            series[curve.name] = recent(connection, curve)
        found[curve.replica, curve.process] = rank, series
    cpu, gpu = _activity(connection, uid, attempt, heads)
    return [
        Process(rank, replica, process, series, cpu.get(replica), gpu.get(replica))
        for (replica, process), (rank, series) in found.items()
    ]


def recent(connection: Connection, curve: Curve) -> Points:
    """The last points of the newest incarnation of a curve, in the order they were logged."""
    newest = curve.parts[-1].incarnation
    pieces = []
    for part in (part for part in curve.parts if part.incarnation == newest):
        if part.series is not None:
            place = chunks.c.number + chunks.c.count > part.count - RECENT
            query = select(chunks.c.data).where(chunks.c.series == part.series, place).order_by(chunks.c.number)
            pieces += [codec.decode(data) for data in connection.execute(query).scalars()]
        if part.head is not None:
            pieces.append(part.head)
    points = codec.join(pieces)
    last = slice(-RECENT, None)
    return Points(points.steps[last], points.times[last] / 1e6, points.values[last])


def _often(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """The few names of which the one that tells most is taken: logged by the most processes, and most often."""
    seen: dict[str, tuple[int, int]] = {}
    for row in rows:
        if not row["name"].startswith(OURS):
            ranks, count = seen.get(row["name"], (0, 0))
            seen[row["name"]] = ranks + 1, count + row["count"]
    return set(sorted(seen, key=lambda name: seen[name], reverse=True)[:3])


def _activity(
    connection: Connection, uid: str, attempt: int, heads: Heads
) -> tuple[dict[str, float], dict[str, float]]:
    """replica -> cores it used lately, and the part of the time in which its GPUs did; on the average."""
    cpu: dict[str, float] = {}
    gpus: dict[str, list[float]] = {}
    for curve in find(connection, uid, Choice(["cpu", UTILIZATION], attempt=attempt, kinds=["resource"]), heads):
        values = recent(connection, curve).values
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        lately = float(values[-LATELY:].mean())
        if curve.name == "cpu":
            cpu[curve.replica] = lately
        else:
            gpus.setdefault(curve.replica, []).append(lately / 100)
    return cpu, {replica: sum(each) / len(each) for replica, each in gpus.items()}
