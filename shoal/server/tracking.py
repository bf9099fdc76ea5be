"""Routes of metrics: which there are, charts of them, their points, and what scripts said beside points.

A chart comes as JSON, or packed for whoever draws many of them: 4 bytes, the length of the JSON that follows, as a
little-endian integer; the JSON, with blanks at its end so that what follows is at a multiple of 8; then all arrays as
little-endian float64, one after the other. The JSON is the same as that of the JSON answer, but each array in it is
`[place, length]`, counted in numbers from the first one.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import FastAPI, Header, Query
from fastapi import Path as InPath
from fastapi.responses import Response

from shoal.errors import UsageError
from shoal.server import exporting, live, seriestypes
from shoal.server.reading import caught_up
from shoal.store import streams

if TYPE_CHECKING:
    from shoal.server.context import Server
    from shoal.store.curves import Choice, Curve
    from shoal.store.heads import Heads

MOST_CURVES = 2000
PACKED = "application/octet-stream"
AT_ONCE = 500_000  # points that are read in one transaction
STATISTICS = ("min", "mean", "max", "p50", "p95")

Word = Annotated[str, InPath(description="An experiment: its id, its number, its uid, or its name (the newest).")]
Names = Annotated[list[str] | None, Query(description="Names or patterns, `train/*`; default: all.")]
Replicas = Annotated[list[str] | None, Query(description="`worker-2`, or a pattern: `worker-*`.")]
Process = Annotated[int | None, Query(description="Only this local rank.", ge=0, le=2**31 - 1)]
Attempt = Annotated[int | None, Query(description="Only this attempt; default: joined.", ge=0, le=2**31 - 1)]
Kind = Annotated[
    seriestypes.Kind | None, Query(description="What sampled it; default: all but resources, which have to be named.")
]
Axis = Annotated[
    str,
    Query(description="step, time, relative (seconds since the replica began) or a metric's name.", max_length=1000),
]
ChosenAxis = Annotated[
    str | None,
    Query(
        description="step, time, relative (seconds since the replica began) or a metric's name; default: what the "
        "script defined for all of these metrics, else step.",
        max_length=1000,
    ),
]
From = Annotated[float | None, Query(alias="from", description="Only from this x on.", allow_inf_nan=False)]
To = Annotated[float | None, Query(description="Only up to this x.", allow_inf_nan=False)]


def add_routes(app: FastAPI, server: Server) -> None:
    _lists(app, server)
    _charts(app, server)
    _points(app, server)


def _lists(app: FastAPI, server: Server) -> None:
    @app.get("/api/experiments/{word}/metrics", response_model=list[seriestypes.SeriesView], tags=["metrics"])
    def metrics(
        word: Word,
        name: Names = None,
        replica: Replicas = None,
        process: Process = None,
        attempt: Attempt = None,
        kind: Kind = None,
    ) -> Any:
        """Every metric of every process in every attempt, with its last value, minimum, maximum and steps."""
        from shoal.store import series

        row = caught_up(server, server.find(word))
        wanted = _choice(name, replica, process, attempt, kind)
        summaries = server.ingest.summaries  # before the database is read: whoever writes has its lock first
        with server.database.read() as connection:
            found = series.summaries_of(connection, row["uid"], summaries)
        return Response(json.dumps(_listed(found, wanted)), media_type="application/json")

    @app.get("/api/experiments/{word}/records", response_model=list[seriestypes.RecordView], tags=["metrics"])
    def records(
        word: Word,
        kind: Annotated[
            str | None, Query(description="params, text, table, histogram, image, …", max_length=16)
        ] = None,
        name: Annotated[str | None, Query(description="Only those with this name.", max_length=1000)] = None,
    ) -> Any:
        """What scripts said beside points, in the order of time: params, text, tables, histograms, images, …"""
        row = caught_up(server, server.find(word))
        with server.database.read() as connection:
            found = streams.records_of(connection, row["uid"], kind, name)
        keys = seriestypes.RecordView.model_fields
        shown = [{key: exporting.strict(record[key]) for key in keys} for record in found]
        return Response(json.dumps(shown), media_type="application/json")


def _charts(app: FastAPI, server: Server) -> None:
    @app.get(
        "/api/experiments/{word}/series",
        response_model=seriestypes.ChartView,
        tags=["metrics"],
        responses={200: {"content": {PACKED: {}}, "description": "The curves, as JSON or packed"}},
    )
    def chart(
        word: Word,
        name: Names = None,
        replica: Replicas = None,
        process: Process = None,
        attempt: Attempt = None,
        kind: Kind = None,
        x: ChosenAxis = None,
        low: From = None,
        to: To = None,
        buckets: Annotated[int, Query(description="About how many.", ge=2, le=100_000)] = 1000,
        width: Annotated[
            float | None,
            Query(
                description="None is narrower: with that of an earlier answer, what came since fits to it.",
                gt=0,
                le=2**53,
                allow_inf_nan=False,
            ),
        ] = None,
        agg: Annotated[
            seriestypes.Statistic | None, Query(description="Over replicas and processes: one curve for each name.")
        ] = None,
        format: Annotated[  # noqa: A002
            Literal["json", "binary"] | None, Query(description="Default: what `Accept` asks for.")
        ] = None,
        accept: Annotated[str, Header(description=f"`{PACKED}` for packed arrays.")] = "",
    ) -> Response:
        """Curves in buckets that keep minimum and maximum: as many points as a screen can show.

        A later attempt, try or restart replaces the steps from its first one on; older steps stay. Packed, the answer
        is the length of the JSON in 4 bytes, the JSON, and all arrays as float64, little-endian.
        """
        row = caught_up(server, server.find(word))
        wanted = _choice(name, replica, process, attempt, kind)
        from shoal.store import curves, defined, drawing

        with server.database.read() as connection:
            found = curves.find(connection, row["uid"], wanted, server.memory.heads)
            _not_too_many(found)
            others: list[Curve | None] = []
            chosen, x = x, x or defined.axis_of(connection, row["uid"], {c.name for c in found}) or curves.STEP
            if x not in (curves.STEP, curves.TIME, curves.RELATIVE):
                others = curves.companions(connection, row["uid"], found, x, server.memory.heads)
                if chosen is None and not all(others):  # what the script said cannot be done for all of them
                    x, others = curves.STEP, []
                else:
                    _known_axis(x, found, others)
            ends = (-math.inf if low is None else low, math.inf if to is None else to)
            drawn = drawing.chart(connection, found, x, *ends, buckets, others, server.memory.outlines, _power(width))
        shown: dict[str, Any] = {"x": x, "width": drawn.width}
        shown |= _aggregated(found, drawn.curves, agg) if agg else _each(found, drawn.curves)
        if format == "binary" or (format is None and PACKED in accept):
            return Response(_packed(shown), media_type=PACKED)
        return Response(_as_json(shown, whole=x == curves.STEP), media_type="application/json")


def _points(app: FastAPI, server: Server) -> None:
    kinds = {
        "json": "application/json",
        "ndjson": "application/x-ndjson",
        "csv": "text/csv; charset=utf-8",
        "parquet": "application/vnd.apache.parquet",
    }

    @app.get(
        "/api/experiments/{word}/points",
        response_model=list[seriestypes.PointsView],
        tags=["metrics"],
        responses={
            200: {
                "content": {kind.partition(";")[0]: {} for name, kind in kinds.items() if name != "json"},
                "description": "Every point",
            }
        },
    )
    def points(
        word: Word,
        name: Names = None,
        replica: Replicas = None,
        process: Process = None,
        attempt: Attempt = None,
        kind: Kind = None,
        x: Axis = "step",
        low: From = None,
        to: To = None,
        replaced: Annotated[bool, Query(description="Also what later attempts, tries and restarts replaced.")] = False,
        format: Annotated[  # noqa: A002
            Literal["json", "ndjson", "csv", "parquet"], Query(description="Of the answer.")
        ] = "json",
    ) -> Response:
        """Every point of the curves, raw. With an x that is neither step nor time, each point has its x too."""
        if format == "parquet":
            exporting.pyarrow()
        row = caught_up(server, server.find(word))
        wanted = _choice(name, replica, process, attempt, kind)
        ends = (-math.inf if low is None else low, math.inf if to is None else to)
        pieces = _pieces(server, row["uid"], wanted, server.memory.heads, x, ends, replaced)
        with_x = x not in ("step", "time")
        made = {
            "json": lambda: exporting.as_json(pieces),
            "ndjson": lambda: exporting.as_lines(pieces),
            "csv": lambda: exporting.as_csv(pieces, with_x),
            "parquet": lambda: exporting.as_parquet(pieces, with_x),
        }[format]()
        return live.Stream(live.batches(made), kinds[format])


def _power(width: float | None) -> float:
    """The least power of two that is not smaller; 0 for none."""
    if not width:
        return 0.0
    fraction, exponent = math.frexp(width)
    return math.ldexp(1.0, exponent - 1 if fraction == 0.5 else exponent)


def _pieces(
    server: Server, uid: str, wanted: Choice, heads: Heads, x: str, ends: tuple[float, float], replaced: bool
) -> Generator[exporting.Piece]:
    """Points, read a few curves at a time: nobody waits for whoever downloads them. The first look is done here."""
    from shoal.store import curves

    with server.database.read() as connection:
        found = curves.find(connection, uid, wanted, heads)
        if x not in (curves.STEP, curves.TIME, curves.RELATIVE):
            _known_axis(x, found, curves.companions(connection, uid, found, x, heads))
    batches = _batches(found)

    def rest() -> Generator[exporting.Piece]:
        for keys in batches:
            names = sorted({key[1] for key in keys})
            choice = curves.Choice(names, wanted.replicas, wanted.process, wanted.attempt, wanted.kinds)
            with server.database.read() as connection:
                now = [curve for curve in curves.find(connection, uid, choice, heads) if _key(curve) in keys]
                others: list[Curve | None] = [None] * len(now)
                if x not in (curves.STEP, curves.TIME, curves.RELATIVE):
                    others = curves.companions(connection, uid, now, x, heads)
                made = [
                    piece
                    for curve, other in zip(now, others, strict=True)
                    for piece in _of_curve(connection, curve, other, x, ends, replaced)
                ]
            yield from made

    return rest()


def _of_curve(
    connection: Any, curve: Curve, other: Curve | None, x: str, ends: tuple[float, float], replaced: bool
) -> list[exporting.Piece]:
    from shoal.store import charts, curves

    beside = curves.points_of(connection, other) if other is not None else None
    found = []
    entry: dict[str, Any] = {**_who(curve), "name": curve.name, "kind": curve.kind}
    for life in curves.lives(connection, curve, replaced=replaced):
        points, where = life.points, None
        if beside is not None:
            here, where = charts.matched(points.steps, beside.steps, beside.values)
            points = curves.chosen(points, here)
        elif x in (curves.STEP, curves.TIME, curves.RELATIVE):
            where = curves.axis_of(curve, points, x)
        else:
            points = curves.chosen(points, slice(0, 0))
            where = points.values
        if ends != (-math.inf, math.inf):
            inside = (where >= ends[0]) & (where <= ends[1])
            points, where = curves.chosen(points, inside), where[inside]
        if replaced:
            entry = {**entry, "attempt": life.attempt, "try": life.try_, "restart": life.restart}
        found.append(exporting.Piece(entry, life.attempt, points, None if x in (curves.STEP, curves.TIME) else where))
    return found


def _batches(found: list[Curve]) -> list[set[tuple[str, str, str, int]]]:
    """The curves in groups that are not too large, in their order."""
    batches: list[set[tuple[str, str, str, int]]] = []
    size = AT_ONCE
    for curve in found:
        count = sum(part.count + (len(part.head.steps) if part.head else 0) for part in curve.parts)
        if size + count > AT_ONCE:
            batches.append(set())
            size = 0
        batches[-1].add(_key(curve))
        size += count
    return batches


def _key(curve: Curve) -> tuple[str, str, str, int]:
    return curve.kind, curve.name, curve.replica, curve.process


def _choice(
    names: list[str] | None, replicas: list[str] | None, process: int | None, attempt: int | None, kind: str | None
) -> Choice:
    from shoal.store.curves import Choice
    from shoal.store.series import NOT_RESOURCES

    kinds = NOT_RESOURCES if kind is None else (*NOT_RESOURCES, "resource") if kind == "all" else (kind,)
    return Choice(names or (), replicas or (), process, attempt, kinds)


def _listed(rows: list[dict[str, Any]], wanted: Choice) -> list[dict[str, Any]]:
    """One entry for each metric, process and attempt; what its streams have is joined."""
    from shoal.store.curves import matches
    from shoal.store.series import added, json_number

    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["attempt"], row["try"], row["restart"], row["last_time"])):
        if (
            row["kind"] not in wanted.kinds
            or wanted.process not in (None, row["process"])
            or wanted.attempt not in (None, row["attempt"])
            or not matches(row["replica"], wanted.replicas)
            or not matches(row["name"], wanted.names)
        ):
            continue
        key = (row["kind"], row["name"], row["rank"], row["replica"], row["process"], row["attempt"])
        found[key] = {**row, **added(found[key], row)} if key in found else row
    keys = seriestypes.SeriesView.model_fields
    return [
        {name: json_number(row[name]) if name in ("last", "min", "max") else row[name] for name in keys}
        for _, row in sorted(found.items())
    ]


def _not_too_many(found: list[Curve]) -> None:
    if len(found) > MOST_CURVES:
        raise UsageError(
            f"these are {len(found):,} curves; at most {MOST_CURVES:,} are drawn at once",
            hint="choose some by name, replica or process",
        )


def _known_axis(x: str, found: list[Curve], others: list[Curve | None]) -> None:
    if found and not any(others):
        raise UsageError(
            f"x: no process that has these metrics has {x[:80]!r}", hint="step, time, relative, or the name of a metric"
        )


def _who(curve: Curve) -> dict[str, Any]:
    return {key: getattr(curve, key) for key in ("replica", "process", "rank", "attempt")}


def _each(found: list[Curve], drawn: list[Any]) -> dict[str, Any]:
    return {
        "series": [
            {"name": curve.name, "kind": curve.kind, **_who(curve), **_columns(buckets)}
            for curve, buckets in zip(found, drawn, strict=True)
        ]
    }


def _aggregated(found: list[Curve], drawn: list[Any], statistic: str) -> dict[str, Any]:
    from shoal.store import charts

    left_out = {name for name in STATISTICS if statistic not in ("all", name)}
    left_out |= {f"{name}_of" for name in left_out}
    entries = []
    for kind, name in dict.fromkeys((curve.kind, curve.name) for curve in found):
        mine = [index for index, curve in enumerate(found) if (curve.kind, curve.name) == (kind, name)]
        columns = _columns(charts.aggregated([drawn[index] for index in mine]))
        members = [_who(found[index]) for index in mine]
        kept = {key: column for key, column in columns.items() if key not in left_out}
        entries.append({"name": name, "kind": kind, "members": members, **kept})
    return {"agg": statistic, "series": entries}


def _columns(buckets: Any) -> dict[str, Any]:
    columns: Mapping[str, Any] = buckets._asdict()
    return {"count" if key == "points" else key: column for key, column in columns.items()}


def _as_json(shown: dict[str, Any], *, whole: bool) -> bytes:
    """With `whole` x is written as the integer it is."""

    def said(key: str, value: Any) -> Any:
        if not hasattr(value, "dtype"):
            return value
        if whole and key in ("start", "x_first", "x_last", "min_x", "max_x"):
            return [int(number) for number in value.tolist()]
        return exporting.numbers(value)

    series = [{key: said(key, value) for key, value in entry.items()} for entry in shown["series"]]
    return json.dumps({**shown, "series": series}).encode()


def _packed(shown: dict[str, Any]) -> bytes:
    arrays: list[bytes] = []
    place = 0

    def said(value: Any) -> Any:
        nonlocal place
        if not hasattr(value, "dtype"):
            return value
        arrays.append(value.astype("<f8").tobytes())
        place += len(value)
        return [place - len(value), len(value)]

    series = [{key: said(value) for key, value in entry.items()} for entry in shown["series"]]
    text = json.dumps({**shown, "series": series}).encode()
    text += b" " * (-(4 + len(text)) % 8)
    return b"".join((struct.pack("<I", len(text)), text, *arrays))
