"""Which experiments are meant: Polyaxon's query language, and the order to show them in. Pure.

    state:failed, params.lr:>0.01, metrics.loss:<0.3      conditions, all of which hold
    -metrics.acc, created                                 an order; - is descending

    :value  :a|b  :%text%      equal, one of, like (of any case)          ~ before any of them is "not"
    :>  :>=  :<  :<=  :a..b    numbers, dates and durations
    :nil                       there is none

An experiment without a value meets no comparison, nor its opposite; but it is "not adam". docs/reference/queries.md
tells all of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

from shoal.errors import UsageError, Where

TEXT, STATE, NUMBER, DATE, DURATION, TAGS, PARAM, METRIC = (
    "text", "state", "number", "date", "duration", "tags", "param", "metric",
)  # fmt: skip

FIELDS = {
    "id": TEXT,
    "uid": TEXT,
    "number": NUMBER,
    "name": TEXT,
    "state": STATE,
    "reason": TEXT,
    "framework": TEXT,
    "backend": TEXT,
    "cluster": TEXT,
    "origin": TEXT,
    "tags": TAGS,
    "created": DATE,
    "started": DATE,
    "finished": DATE,
    "duration": DURATION,
    "attempt": NUMBER,
    "replicas": NUMBER,
    "progress": NUMBER,
    "scale": TEXT,
    "first_failure.replica": TEXT,
    "first_failure.reason": TEXT,
    "first_failure.signal": TEXT,
    "first_failure.exit_code": NUMBER,
}
GROUPS = {"params": PARAM, "metrics": METRIC}  # followed by a name of the user's
ALIASES = {  # Polyaxon's names
    "status": "state",
    "uuid": "uid",
    "created_at": "created",
    "started_at": "started",
    "finished_at": "finished",
    "tag": "tags",
    "metric": "metrics",
    "param": "params",
    "declarations": "params",
    "inputs": "params",
    "in": "params",
    "outputs": "metrics",
    "out": "metrics",
}
STATES = ("queued", "starting", "running", "restarting", "succeeded", "failed", "stopped", "lost")
STATISTICS = ("last", "min", "max", "step", "time")
ORDERED = (NUMBER, DATE, DURATION, PARAM, METRIC)

Experiment = TypeVar("Experiment", bound=Mapping[str, Any])

_RELATIVE = re.compile(r"-\s*(\d+(?:\.\d+)?)\s*([smhdw])")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")
_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ]+(\d{2}:\d{2})(:\d{2}(?:\.\d{1,6})?)?)?\s*(Z|[+-]\d{2}:\d{2})?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Field(NamedTuple):
    """`metrics.loss.min` is (metrics, "loss.min", METRIC)."""

    name: str
    key: str
    kind: str


@dataclass(frozen=True)
class Condition:
    field: Field
    holds: Callable[[Any], bool]  # for a value of the field, None when there is none


@dataclass(frozen=True)
class Key:
    field: Field
    descending: bool


def conditions(text: str, now: float) -> tuple[Condition, ...]:
    """What the text asks for; none when it is empty. UsageError with the place of what is wrong."""
    _closed("query", text)
    found = []
    for place, part in _parts(text, 0, ","):
        if not part.strip():
            if text.strip():
                raise _wrong(
                    "query", text, place, "a condition is missing", "write conditions with commas between them"
                )
            continue
        found.append(_condition(text, place, part, now))
    return tuple(found)


def order(text: str) -> tuple[Key, ...]:
    """The keys of an order, the first first."""
    _closed("sort", text)
    found = []
    for place, part in _parts(text, 0, ","):
        name = part.strip()
        if not name:
            if text.strip():
                raise _wrong("sort", text, place, "a field is missing", "write fields with commas between them")
            continue
        start = place + part.index(name)
        descending = name.startswith("-")
        sign = descending or name.startswith("+")
        found.append(Key(_field("sort", text, start + sign, name[sign:]), descending))
    return tuple(found)


def check_states(words: Iterable[str]) -> None:
    """UsageError for a word that is no state."""
    for word in words:
        if word not in STATES:
            raise UsageError(f"there is no state {word[:80]!r}", hint=_nearest_state(word))


def _nearest_state(word: str) -> str:
    near = get_close_matches(word, STATES, n=1)
    return f"{f'did you mean {near[0]}? ' if near else ''}states: {', '.join(STATES)}"


def matches(wanted: Iterable[Condition], experiment: Mapping[str, Any], now: float) -> bool:
    """Whether all of them hold. `experiment` has the keys of the API, and `replicas` as a number."""
    return all(condition.holds(value_of(condition.field, experiment, now)) for condition in wanted)


def ordered(keys: Sequence[Key], experiments: Iterable[Experiment], now: float) -> list[Experiment]:
    """In the order of the keys; what has no value comes last, either way. Equals stay as they were."""
    result = list(experiments)
    for key in reversed(keys):
        ranked = [(_rank(value_of(key.field, experiment, now)), experiment) for experiment in result]
        there = [pair for pair in ranked if pair[0] is not None]
        there.sort(key=lambda pair: pair[0] or (), reverse=key.descending)
        result = [pair[1] for pair in there] + [pair[1] for pair in ranked if pair[0] is None]
    return result


def value_of(field: Field, experiment: Mapping[str, Any], now: float) -> Any:
    """The value that a field names, None when there is none."""
    if field.kind == METRIC:
        return _metric(experiment["metrics"] or {}, field.key)
    if field.kind == PARAM:
        return _param(experiment["params"] or {}, field.key)
    if field.name == "duration":
        started = experiment["started"]
        return None if started is None else (experiment["finished"] or now) - started
    if field.name == "progress":
        return (experiment["progress"] or {}).get("fraction")
    if field.name == "scale":
        return (experiment["scale"] or {}).get("id")
    group, _, key = field.name.partition(".")
    if key:
        return (experiment[group] or {}).get(key)
    value = experiment[group]
    return value if value != "" else None


def _metric(metrics: Mapping[str, Any], key: str) -> Any:
    """`loss` is what stands for it, mostly the last value, `loss.min` the smallest; one called so goes before."""
    if key in metrics:
        entry = metrics[key]
        return _number_in(entry, "value" if isinstance(entry, Mapping) and "value" in entry else "last")
    name, _, statistic = key.rpartition(".")
    return _number_in(metrics[name], statistic) if statistic in STATISTICS and name in metrics else None


def _number_in(metric: Any, statistic: str) -> Any:
    value = metric.get(statistic) if isinstance(metric, Mapping) else metric
    if value is None:
        return math.nan
    return float(value) if isinstance(value, str) else value  # JSON has NaN and the infinities as strings


def _param(params: Any, key: str) -> Any:
    """`a.b` is the param called so, else the entry b of the param a."""
    if key in params:
        return params[key]
    first, dot, rest = key.partition(".")
    while dot:
        if isinstance(params.get(first), Mapping):
            found = _param(params[first], rest)
            if found is not None:
                return found
        more, dot, rest = rest.partition(".")
        first = f"{first}.{more}"
    return None


def _rank(value: Any) -> tuple[int, Any] | None:
    """Numbers before texts; NaN is no value to compare."""
    if value is None or value != value:
        return None
    if isinstance(value, (int, float)):
        return 0, value
    return 1, value if isinstance(value, str) else json.dumps(value)


def _parts(text: str, offset: int, separator: str) -> list[tuple[int, str]]:
    """(place, part) between separators that do not stand in quotes."""
    found, start, quote = [], 0, ""
    for number, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == separator:
            found.append((offset + start, text[start:number]))
            start = number + 1
    return [*found, (offset + start, text[start:])]


def _closed(what: str, text: str) -> None:
    """A quote that nobody closes would take all that follows for its text."""
    opened = -1
    for number, letter in enumerate(text):
        if opened >= 0:
            opened = -1 if letter == text[opened] else opened
        elif letter in "\"'":
            opened = number
    if opened >= 0:
        quote, other = text[opened], "'" if text[opened] == '"' else '"'
        raise _wrong(what, text, opened, f"{quote} is not closed", f"close it, or write {other}{quote}{other}")


def _condition(text: str, place: int, part: str, now: float) -> Condition:
    pieces = _parts(part, place, ":")
    name = pieces[0][1]
    start = place + len(name) - len(name.lstrip())
    if len(pieces) == 1:
        raise _wrong("query", text, start, f"{name.strip()!r} says nothing of its value", f"write {name.strip()}:value")
    field = _field("query", text, start, name.strip())
    test = part[len(name) + 1 :]
    start = place + len(name) + 1 + len(test) - len(test.lstrip())
    return Condition(field, _Test(text, start, field, now).read(test.strip()))


def _field(what: str, text: str, place: int, name: str) -> Field:
    group, dot, key = _unquoted(name).partition(".")
    group = ALIASES.get(group, group)
    if group in GROUPS and dot:
        key = "".join(_unquoted(piece) for piece in re.split(r"(\"[^\"]*\"|'[^']*')", name.partition(".")[2]))
        if key:
            return Field(group, key, GROUPS[group])
    whole = f"{group}{dot}{key}"
    if whole in FIELDS:
        return Field(whole, "", FIELDS[whole])
    if group in GROUPS:
        raise _wrong(
            what, text, place, f"{group} needs a name", f"for example {group}.{'lr' if group == 'params' else 'loss'}"
        )
    known = [*FIELDS, *(f"{group}.NAME" for group in GROUPS)]
    near = get_close_matches(group if group not in FIELDS else whole, [*FIELDS, *ALIASES, *GROUPS], n=1)
    guess = f"did you mean {ALIASES.get(near[0], near[0])}? " if near else ""
    raise _wrong(what, text, place, f"there is no field {name!r}", f"{guess}fields: {', '.join(known)}")


class _Test:
    """What stands after the colon of one condition."""

    def __init__(self, text: str, place: int, field: Field, now: float) -> None:
        self.text, self.place, self.field, self.now = text, place, field, now
        self.name = ".".join(filter(None, (field.name, field.key)))

    def read(self, test: str) -> Callable[[Any], bool]:
        negated = test.startswith("~")
        if negated:
            rest = test[1:].lstrip()
            self.place += len(test) - len(rest)
            test = rest
        if not test:
            raise self.wrong("a value is missing", f"for example {self.example()}")
        if test == "nil":
            return (lambda value: not _is_nil(value)) if negated else _is_nil
        for operator in (">=", "<=", ">", "<"):
            if test.startswith(operator):
                return self.comparison(operator, test[len(operator) :].strip(), negated)
        pieces = test.split("..", 1)
        if len(pieces) == 2 and self.field.kind in ORDERED and test[0] not in "\"'":
            return self.span(pieces[0].strip(), pieces[1].strip(), negated)
        tests = [self.equality(place, part) for place, part in _parts(test, self.place, "|")]
        if negated:
            return lambda value: not any(one(value) for one in tests)
        return tests[0] if len(tests) == 1 else lambda value: any(one(value) for one in tests)

    def comparison(self, operator: str, word: str, negated: bool) -> Callable[[Any], bool]:
        if self.field.kind not in ORDERED:
            hint = f"write {self.example()}, a|b, %text%, ~value or nil"
            raise self.wrong(f"{self.name} has no order: {operator} cannot be used", hint)
        low, high = self.interval(word)
        if isinstance(low, str):
            return _ordered_test(lambda value: isinstance(value, str) and _compare(operator, value, low, low), negated)
        return _ordered_test(lambda value: _is_number(value) and _compare(operator, value, low, high), negated)

    def span(self, first: str, last: str, negated: bool) -> Callable[[Any], bool]:
        low, _ = self.interval(first)
        end, high = self.interval(last)
        if isinstance(low, str) or isinstance(high, str):
            raise self.wrong("a range is of numbers", "for example params.lr:0.01..0.1")

        def inside(value: Any) -> bool:
            return _is_number(value) and low <= value and (value <= end or value < high)

        return (lambda value: _is_number(value) and value == value and not inside(value)) if negated else inside

    def equality(self, place: int, part: str) -> Callable[[Any], bool]:
        word = part.strip()
        self.place = place + len(part) - len(part.lstrip())
        if not word:
            raise self.wrong("a value is missing", f"for example {self.example()}")
        kind, plain = self.field.kind, _unquoted(word)
        if plain == word and (word.startswith("%") or word.endswith("%")) and word.strip("%"):
            return self.like(word)
        if kind == STATE and plain not in STATES:
            raise self.wrong(f"there is no state {plain!r}", _nearest_state(plain))
        if kind == TAGS:
            return lambda value: plain in value
        if kind in (TEXT, STATE):
            return lambda value: value == plain
        if kind == PARAM:
            return _same_param(plain, quoted=plain != word)
        low, high = self.interval(plain)
        if kind == DATE and low == high and _RELATIVE.fullmatch(plain):
            raise self.wrong(f"{plain} is a moment", f"write {self.name}:>{plain} for everything since")
        if low != low:
            return lambda value: _is_number(value) and value != value
        return lambda value: _is_number(value) and (value == low or low <= value < high)

    def like(self, word: str) -> Callable[[Any], bool]:
        if self.field.kind not in (TEXT, STATE, TAGS, PARAM):
            raise self.wrong(f"{self.name} is no text: % cannot be used", f"for example {self.example()}")
        pattern = re.compile(
            ("" if word.startswith("%") else r"\A")
            + re.escape(word.strip("%"))
            + ("" if word.endswith("%") else r"\Z"),
            re.IGNORECASE,
        )
        if self.field.kind == TAGS:
            return lambda value: any(pattern.search(tag) for tag in value)
        return lambda value: isinstance(value, str) and pattern.search(value) is not None

    def interval(self, word: str) -> tuple[Any, Any]:
        """From where to below where: a day is long, a number is not. A text for params that are texts."""
        kind = self.field.kind
        if not word:
            raise self.wrong("a value is missing", f"for example {self.example()}")
        if kind == DATE:
            return self.date(_unquoted(word))
        if kind == DURATION and _DURATION.fullmatch(word):
            seconds = sum(float(n) * _SECONDS[unit] for n, unit in re.findall(r"([\d.]+)([smhdw])", word))
            return seconds, seconds
        number = _number(_unquoted(word))
        if number is not None:
            return number, number
        if kind == PARAM:
            return _unquoted(word), _unquoted(word)
        what = "a duration" if kind == DURATION else "a number"
        raise self.wrong(f"{word!r} is not {what}", f"for example {self.example()}")

    def date(self, word: str) -> tuple[float, float]:
        relative = _RELATIVE.fullmatch(word)
        if relative:
            moment = self.now - float(relative[1]) * _SECONDS[relative[2]]
            return moment, moment
        if word in ("today", "yesterday"):
            day = datetime.fromtimestamp(self.now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            start = day.timestamp() - (86400 if word == "yesterday" else 0)
            return start, start + 86400
        match = _DATE.fullmatch(word)
        try:
            if match is None:
                raise ValueError
            day_text, minute, second, zone = match.groups()
            moment_ = datetime.fromisoformat(f"{day_text}T{minute or '00:00'}{second or ''}")
            start = moment_.replace(tzinfo=UTC).timestamp()
            if zone not in (None, "Z"):
                start -= (1 if zone[0] == "+" else -1) * timedelta(
                    hours=int(zone[1:3]), minutes=int(zone[4:])
                ).total_seconds()
        except (ValueError, OverflowError):
            raise self.wrong(
                f"{word!r} is not a date", "write 2026-11-01, 2026-11-01 12:30, today, or >-2d for two days ago"
            ) from None
        return start, start + (1 if second else 60 if minute else 86400)

    def example(self) -> str:
        shown = {NUMBER: ">1", METRIC: "<0.3", PARAM: ">0.01", DATE: ">-2d", DURATION: ">10m", STATE: "failed"}
        return f"{self.name}:{shown.get(self.field.kind, 'value')}"

    def wrong(self, message: str, hint: str) -> UsageError:
        return _wrong("query", self.text, self.place, message, hint)


def _ordered_test(test: Callable[[Any], bool], negated: bool) -> Callable[[Any], bool]:
    """The opposite of a comparison is the other comparison: what has no value, or is NaN, meets neither."""
    if not negated:
        return test
    return lambda value: (isinstance(value, str) or (_is_number(value) and value == value)) and not test(value)


def _compare(operator: str, value: Any, low: Any, high: Any) -> bool:
    """With an interval: `>` is after all of it, `>=` from its beginning on."""
    if operator == ">":
        return bool(value >= high if high > low else value > low)
    if operator == ">=":
        return bool(value >= low)
    if operator == "<":
        return bool(value < low)
    return bool(value < high if high > low else value <= low)


def _same_param(word: str, *, quoted: bool) -> Callable[[Any], bool]:
    number = None if quoted else _number(word)

    def same(value: Any) -> bool:
        if isinstance(value, bool):
            return not quoted and word.lower() == str(value).lower()
        if _is_number(value):
            return number is not None and (value == number or (value != value and number != number))
        if value is None or isinstance(value, str):
            return bool(value == word)
        return json.dumps(value, separators=(",", ":")) == word.replace(" ", "")

    return same


def _is_nil(value: Any) -> bool:
    return value is None or value == []


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(word: str) -> float | None:
    try:
        return None if "_" in word else int(word) if re.fullmatch(r"[+-]?\d{1,18}", word) else float(word)
    except ValueError:
        return None


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) >= 2 and word[0] == word[-1] and word[0] in "\"'" else word


def _wrong(what: str, text: str, place: int, message: str, hint: str) -> UsageError:
    return UsageError(message, hint=hint, where=Where(what, 1, min(place, len(text)) + 1))
