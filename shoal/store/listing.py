"""Many experiments at once, as JSON text: a list reads one table, decodes nothing it need not, and renders once.

An experiment that is over does not change, so what was rendered of it is kept in memory with the revision of its row.
One that is not over is rendered anew each time, with the metrics that its scripts have written until now.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from sqlalchemy import Connection, Select, Text, func, select, type_coerce

from shoal.states import CREATED, FAILED, FINAL, QUEUED, STOPPED
from shoal.store import progress as progressing
from shoal.store import query
from shoal.store.tables import experiments, replicas

MOST_KEPT = 20_000  # rendered experiments, about 1 KB each
AT_ONCE = 900  # rows asked for by number in one statement

PLAIN = (
    "id", "uid", "number", "name", "state", "reason", "framework", "backend", "cluster", "origin", "attempt", "created",
    "started", "finished",
)  # fmt: skip
JSONS = ("params", "tags", "first_failure", "metrics", "progress", "scale")

Metrics = Mapping[str, Any]
Live = Callable[[str], Metrics | None]  # uid -> the metrics of an experiment that is not over


class Listing:
    """Lists of one database. May be asked by several threads."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, str]] = {}
        self._kept_roles: dict[int, tuple[int, str]] = {}

    def text(
        self,
        connection: Connection,
        *,
        now: float,
        live: Live,
        limit: int,
        before: int | None = None,
        states: Sequence[str] = (),
        wanted: Sequence[query.Condition] = (),
        keys: Sequence[query.Key] = (),
    ) -> str:
        """A JSON array of experiments, newest first unless `keys` say otherwise."""
        choice: dict[str, Any] = {"before": before, "states": states, "wanted": wanted, "keys": keys}
        return self.page(connection, now=now, live=live, limit=limit, **choice)[0]

    def page(
        self,
        connection: Connection,
        *,
        now: float,
        live: Live,
        limit: int,
        offset: int = 0,
        before: int | None = None,
        states: Sequence[str] = (),
        wanted: Sequence[query.Condition] = (),
        keys: Sequence[query.Key] = (),
        roles: bool = False,
    ) -> tuple[str, int]:
        """The same after the first `offset`, and how many there are in all; with `roles`, the states of replicas."""
        chosen = select(experiments.c.number, experiments.c.revision).order_by(experiments.c.number.desc())
        if before is not None:
            chosen = chosen.where(experiments.c.number < before)
        if states:
            chosen = chosen.where(experiments.c.state.in_(states))
        if wanted or keys:
            found = _found(connection, chosen, wanted, keys, now, live)
            numbers: Sequence[Any] = found[offset : offset + limit]
            total = len(found)
        else:
            numbers = _fetched(connection, chosen.limit(limit).offset(offset))
            counted = chosen.order_by(None).with_only_columns(func.count(), maintain_column_froms=True)
            all_seen = offset == 0 and len(numbers) < limit
            total = len(numbers) if all_seen else connection.execute(counted).scalar() or 0
        texts = self._texts(connection, numbers, now, live)
        if roles:
            known = self._roles(connection, numbers)
            texts = [f'{text[:-1]},"roles":{known[number]}}}' for text, (number, _) in zip(texts, numbers, strict=True)]
        return "[" + ",".join(texts) + "]", total

    def _roles(self, connection: Connection, numbers: Sequence[Any]) -> dict[int, str]:
        """What is over keeps its roles, as it keeps its text."""
        over = self._kept
        kept = self._kept_roles if len(self._kept_roles) < MOST_KEPT else {}
        missing = [number for number, revision in numbers if kept.get(number, (0, ""))[0] != revision]
        fresh = {number: json.dumps(roles) for number, roles in roles_of(connection, missing).items()}
        shown = {number: fresh.get(number, "{}") for number in missing}
        for number, revision in numbers:
            if number not in shown:
                shown[number] = kept[number][1]
            elif over.get(number, (0, ""))[0] == revision:
                kept[number] = (revision, shown[number])
        self._kept_roles = kept
        return shown

    def _texts(self, connection: Connection, numbers: Sequence[Any], now: float, live: Live) -> list[str]:
        kept = self._kept
        missing = [number for number, revision in numbers if number not in kept or kept[number][0] != revision]
        if len(kept) + len(missing) > MOST_KEPT:
            self._kept = kept = {}
            missing = [number for number, _ in numbers]
        fresh: dict[int, str] = {}
        for start in range(0, len(missing), AT_ONCE):
            part = missing[start : start + AT_ONCE]
            for raw in _fetched(connection, select(*_RENDERED).where(experiments.c.number.in_(part))):
                *shown, tracked, revision = raw
                number, over = raw[NUMBER], bool(tracked) and raw[STATE] in FINAL
                text = _rendered(shown, now, None if over or raw[STATE] == QUEUED else live(raw[UID]))
                if over:
                    kept[number] = (revision, text)
                else:
                    fresh[number] = text
        return [fresh[number] if number in fresh else kept[number][1] for number, _ in numbers]


def roles_of(connection: Connection, numbers: Sequence[int]) -> dict[int, dict[str, dict[str, int]]]:
    """{12: {"worker": {"running": 7, "failed": 1}}}: newest tries of newest attempts; what never started is created."""
    found: dict[int, dict[str, dict[str, int]]] = {}
    newest = replicas.alias()
    later = (
        select(newest.c.uid)
        .where(
            *(newest.c[name] == replicas.c[name] for name in ("uid", "attempt", "replica")),
            newest.c["try"] > replicas.c["try"],
        )
        .exists()
    )
    of_newest = (replicas.c.uid == experiments.c.uid) & (replicas.c.attempt == experiments.c.attempt)
    for start in range(0, len(numbers), AT_ONCE):
        part = experiments.c.number.in_(numbers[start : start + AT_ONCE])
        states = (
            select(experiments.c.number, replicas.c.role, replicas.c.state, func.count(), func.min(replicas.c.rank))
            .join(replicas, of_newest)
            .where(part, ~later)
            .group_by(experiments.c.number, replicas.c.role, replicas.c.state)
            .order_by(func.min(replicas.c.rank))
        )
        for number, role, state, count, _ in _fetched(connection, states):
            found.setdefault(number, {}).setdefault(role, {})[state] = count
        planned = func.json_array_length(experiments.c.plan["replicas"])
        for number, many, state in _fetched(
            connection, select(experiments.c.number, planned, experiments.c.state).where(part)
        ):
            missing = (many or 0) - sum(sum(states.values()) for states in found.get(number, {}).values())
            if missing > 0:
                found[number] = _with_planned(connection, number, state, found.get(number, {}))
    return found


def _with_planned(
    connection: Connection, number: int, state: str, started: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    plan = connection.execute(select(experiments.c.plan).where(experiments.c.number == number)).scalar() or {}
    shown: dict[str, dict[str, int]] = {}
    for entry in plan.get("replicas", ()):
        shown.setdefault(entry["role"], {"": 0})[""] += 1
    for role, states in shown.items():
        states.update(started.get(role, {}))
        rest = states.pop("") - sum(started.get(role, {}).values())
        if rest > 0:
            unstarted = STOPPED if state in (STOPPED, FAILED) else CREATED
            states[unstarted] = states.get(unstarted, 0) + rest
    return shown


def _text(column: Any) -> Any:
    """JSON as the text it is."""
    return type_coerce(column, Text)


_RENDERED = [
    *(experiments.c[name] for name in PLAIN),
    *(_text(experiments.c[name]) for name in JSONS),
    experiments.c.tracked,
    experiments.c.revision,
]
NUMBER, STATE, UID = PLAIN.index("number"), PLAIN.index("state"), PLAIN.index("uid")


def _found(
    connection: Connection,
    chosen: Select[Any],
    wanted: Sequence[query.Condition],
    keys: Sequence[query.Key],
    now: float,
    live: Live,
) -> list[tuple[int, int]]:
    """(number, revision) of what is asked for, in the order that is asked for."""
    fields = [*(condition.field for condition in wanted), *(key.field for key in keys)]
    columns = {"number": experiments.c.number, "revision": experiments.c.revision}
    for field in fields:
        columns.update(_columns_of(field))
    places = {name: place for place, name in enumerate(columns)}
    rows: Iterable[_Row] = (
        _Row(raw, places, live) for raw in _fetched(connection, chosen.with_only_columns(*columns.values()))
    )
    if wanted:
        # What is cheap to look at goes first: then most rows are never decoded.
        first = sorted(wanted, key=lambda condition: condition.field.kind in (query.METRIC, query.PARAM))
        rows = [row for row in rows if query.matches(first, row, now)]
    return [(row["number"], row["revision"]) for row in query.ordered(keys, rows, now)]


def _columns_of(field: query.Field) -> dict[str, Any]:
    """What has to be read to know the value of a field; of metrics only the numbers that it may mean."""
    if field.kind == query.METRIC:
        columns: dict[str, Any] = {name: experiments.c[name] for name in ("uid", "state", "tracked")}
        if json.dumps(field.key) != f'"{field.key}"':  # what is written otherwise in JSON, SQLite cannot say in a path
            return {**columns, "metrics": _text(experiments.c.metrics)}
        name, _, statistic = field.key.rpartition(".")
        for chosen in ("last", "value"):
            columns[f"{chosen} {field.key}"] = _text(experiments.c.metrics[(field.key, chosen)])
        if name and statistic in query.STATISTICS:
            columns[f"{statistic} {name}"] = _text(experiments.c.metrics[(name, statistic)])
        return columns
    if field.name == "duration":
        return {name: experiments.c[name] for name in ("started", "finished")}
    if field.name == "replicas":
        return {"replicas": func.json_array_length(experiments.c.plan["replicas"])}
    name = field.name.partition(".")[0]
    return {name: _text(experiments.c[name]) if name in JSONS else experiments.c[name]}


class _Row(dict[str, Any]):
    """One experiment as a query sees it; what is JSON is decoded when it is asked for."""

    def __init__(self, raw: Sequence[Any], places: Mapping[str, int], live: Live) -> None:
        super().__init__()
        self.raw = raw
        self.places = places
        self.live = live

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._metrics() if name == "metrics" else self._value(name)
        return value

    def _value(self, name: str) -> Any:
        value = self.raw[self.places[name]]
        return value if name not in JSONS else json.loads(value) if value else None

    def _metrics(self) -> Metrics:
        over = self["tracked"] and self["state"] in FINAL
        current = None if over or self["state"] == QUEUED else self.live(self["uid"])
        if current is not None:
            return current
        if "metrics" in self.places:
            return self._value("metrics") or {}
        found: dict[str, dict[str, Any]] = {}
        for label, place in self.places.items():
            statistic, space, name = label.partition(" ")
            if space and self.raw[place] not in (None, "null"):
                found.setdefault(name, {})[statistic] = json.loads(self.raw[place])
        return found


def _fetched(connection: Connection, statement: Select[Any]) -> Sequence[Any]:
    """All rows as the driver gives them: rows of SQLAlchemy cost as much as reading them."""
    result: Any = connection.execute(statement)
    rows: Sequence[Any] = result.cursor.fetchall()
    result.close()
    return rows


def _rendered(shown: Sequence[Any], now: float, live: Metrics | None) -> str:
    (
        id_, uid, number, name, state, reason, framework, backend, cluster, origin, attempt, created, started, finished,
        params, tags, first_failure, metrics, progress, scale,
    ) = shown  # fmt: skip
    if live is not None:
        metrics = json.dumps(plain(live))
    elif metrics and ("NaN" in metrics or "Infinity" in metrics):
        metrics = json.dumps(plain(json.loads(metrics)))
    if progress and progress != "null":
        progress = json.dumps(progressing.shown(json.loads(progress), state, now))
    return (
        f'{{"id":"{id_}","uid":"{uid}","number":{number},"state":"{state}","reason":{quoted(reason)},'
        f'"framework":{quoted(framework)},"backend":{quoted(backend)},"cluster":{quoted(cluster)},"attempt":{attempt},'
        f'"created":{created!r},"started":{"null" if started is None else repr(started)},'
        f'"finished":{"null" if finished is None else repr(finished)},"params":{params},"tags":{tags},'
        f'"first_failure":{first_failure or "null"},"name":{quoted(name) if name else "null"},'
        f'"metrics":{metrics if metrics and metrics != "null" else "{}"},"progress":{progress or "null"},'
        f'"origin":"{origin}","scale":{scale or "null"}}}'
    )


def plain(metrics: Metrics) -> dict[str, Any]:
    """With NaN and the infinities as the strings that JSON has for them."""
    return {
        name: {key: _plain(value) for key, value in entry.items()} if isinstance(entry, Mapping) else _plain(entry)
        for name, entry in metrics.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value
