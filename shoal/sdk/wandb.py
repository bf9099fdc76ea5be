"""The names of wandb, so that `import shoal as wandb` is the only line of a script that changes.

    run = wandb.init(project="curves", config={"lr": 0.1})      config → params, tags → tags
    wandb.log({"loss": 0.3})                                    → points, with the steps that wandb would count
    wandb.log({"seen": wandb.Image(pixels)}, step=7)            → image, table and histogram events
    wandb.summary["best"] = 0.2                                 → a summary event
    wandb.finish()

What is different: every process records into one experiment; a step that goes back is kept; nothing is uploaded. A dict
in a dict becomes a name with a slash, a text becomes a text event; an image in a table is recorded beside it. `log`,
`init` and `finish` are those of Shoal.
"""

from __future__ import annotations

import json
import os
import sys
from time import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from shoal.sdk import calls, media, session
from shoal.sdk.replicas import replica
from shoal.sdk.running import Run
from shoal.sdk.values import flat, mapping, plain, said, whole
from shoal.sdk.warning import warn

__all__ = [
    "Config",
    "Histogram",
    "Html",
    "Image",
    "Metric",
    "Summary",
    "Table",
    "WandbRun",
    "alert",
    "begin",
    "config",
    "define_metric",
    "forget",
    "log",
    "login",
    "run",
    "summary",
    "unwatch",
    "watch",
]

MOST_BINS = 512
SUMMARIES = ("min", "max", "last", "mean", "none")


class Image:
    """A picture for `log`: a path, the bytes of a file, an array or tensor, an image of PIL, a figure of matplotlib."""

    def __init__(self, data_or_path: Any, mode: Any = None, caption: Optional[str] = None, **ignored: Any) -> None:
        self.data = data_or_path
        self.caption = caption

    def shoal_record(self, name: str, step: Optional[int]) -> None:
        calls.image(name, self.data, step, self.caption or "")


class Html:
    """A page for `log`, which is recorded as a text: its source, or a path that ends with .html."""

    def __init__(self, data: Any, **ignored: Any) -> None:
        if hasattr(data, "read"):
            data = data.read()
        elif isinstance(data, str) and data.endswith(".html") and "<" not in data:
            with open(data, encoding="utf-8") as file:
                data = file.read()
        self.html = str(data)

    def shoal_record(self, name: str, step: Optional[int]) -> None:
        calls.text(name, self.html, step)


class Table:
    """Rows for `log`; `add_data` adds one."""

    def __init__(
        self,
        columns: Optional[Sequence[Any]] = None,
        data: Any = None,
        rows: Any = None,
        dataframe: Any = None,
        **ignored: Any,
    ) -> None:
        given = dataframe if dataframe is not None else data if data is not None else rows
        if given is not None and hasattr(given, "columns") and hasattr(given, "values"):  # a DataFrame
            columns = list(given.columns) if columns is None else columns
            given = given.values
        if hasattr(given, "tolist"):
            given = given.tolist()
        self.columns: List[Any] = ["Input", "Output", "Expected"] if columns is None else list(columns)
        self.data: List[List[Any]] = []
        for row in [] if given is None else given:
            self.add_data(*row)

    def add_data(self, *row: Any) -> None:
        if len(row) != len(self.columns):
            raise ValueError(f"a row of {len(row)} values for {len(self.columns)} columns, {self.columns}")
        self.data.append(list(row))

    def add_column(self, name: str, data: Iterable[Any]) -> None:
        values = list(data)
        if self.data and len(values) != len(self.data):
            raise ValueError(f"a column of {len(values)} values for {len(self.data)} rows")
        self.columns = [*self.columns, name] if self.data else [name]
        self.data = [[*row, value] for row, value in zip(self.data or [[] for _ in values], values)]  # noqa: B905  Python 3.8

    def get_column(self, name: Any, convert_to: Optional[str] = None) -> Any:
        """The values of a column: a list, or with `convert_to="numpy"` an array."""
        if name not in self.columns:
            raise ValueError(f"no column {name!r}; there are {self.columns}")
        place = self.columns.index(name)
        values = [row[place] for row in self.data]
        return media.array_of(values) if convert_to == "numpy" else values

    def shoal_record(self, name: str, step: Optional[int]) -> None:
        at = calls.count(name, step)
        rows = [
            [_beside(f"{name}/{column}", cell, at, number) for column, cell in zip(self.columns, row)]  # noqa: B905  Python 3.8
            for number, row in enumerate(self.data)
        ]
        calls.table(name, self.columns, rows, at)


def _beside(name: str, cell: Any, step: int, row: int) -> Any:
    """The cell; or, when it is a picture or the like and is recorded beside its table, the words that tell where."""
    if not hasattr(type(cell), "shoal_record"):
        return cell
    if isinstance(cell, Image):
        cell = Image(cell.data, caption=f"row {row}: {cell.caption}" if cell.caption else f"row {row}")
    cell.shoal_record(name, step)
    return f"({type(cell).__name__.lower()} {name}, row {row})"


class Histogram:
    """Counts for `log`: of the numbers in a sequence, or as `numpy.histogram` returned them."""

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        if np_histogram is not None:
            if len(np_histogram) != 2:
                raise ValueError("np_histogram is a pair: the counts, and one edge more than counts")
            counts, edges = plain(np_histogram[0]), plain(np_histogram[1])
        elif sequence is not None:
            if not 1 <= num_bins <= MOST_BINS:
                raise ValueError(f"{num_bins} bins; there may be 1 to {MOST_BINS}")
            edges, counts = media.histogram(sequence, num_bins)
        else:
            raise ValueError("a histogram needs a sequence or np_histogram")
        if len(edges) != len(counts) + 1 or len(counts) > MOST_BINS:
            raise ValueError(
                f"{len(counts)} counts and {len(edges)} edges: edges are one more, counts at most {MOST_BINS}"
            )
        self.histogram: List[Any] = list(counts)
        self.bins: List[Any] = list(edges)

    def shoal_record(self, name: str, step: Optional[int]) -> None:
        at = calls.count(name, step)
        session.current().event("histogram", name=str(name), step=at, edges=self.bins, counts=self.histogram)


class Config:
    """Parameters as items and as attributes; what is set is recorded."""

    def __init__(self) -> None:
        self.__dict__["_values"] = {}

    def update(self, values: Any = None, allow_val_change: Optional[bool] = None, **more: Any) -> None:
        """Sets several. Any may change, with and without `allow_val_change`; the last value is shown."""
        new = {**mapping(values), **more}
        self._values.update(new)
        if new:
            calls.params(new)

    def setdefaults(self, values: Any) -> None:
        """Sets those that have no value yet."""
        self.update({name: value for name, value in mapping(values).items() if name not in self._values})

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def keys(self) -> Iterable[str]:
        return self._values.keys()  # type: ignore[no-any-return]

    def items(self) -> Iterable[Tuple[str, Any]]:
        return self._values.items()  # type: ignore[no-any-return]

    def as_dict(self) -> Dict[str, Any]:
        return dict(self._values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            known = ", ".join(sorted(self._values)) or "nothing yet"
            raise AttributeError(f"config has no {name!r}; it has {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


class Summary:
    """The last value of each metric, and what a script sets by hand; only the latter is recorded as such."""

    def __init__(self) -> None:
        self.__dict__["_values"] = {}

    def update(self, values: Any = None, **more: Any) -> None:
        new = {**mapping(values), **more}
        self._values.update(new)
        if new and not session.state.disabled:
            session.current().event("summary", values=new)

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def keys(self) -> Iterable[str]:
        return self._values.keys()  # type: ignore[no-any-return]

    def items(self) -> Iterable[Tuple[str, Any]]:
        return self._values.items()  # type: ignore[no-any-return]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"summary has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __repr__(self) -> str:
        return repr(self._values)


class Metric(NamedTuple):
    """What `define_metric` has defined; others can have it as their `step_metric`."""

    name: str
    step_metric: Optional[str]


class WandbRun(Run):
    """What `init` gives to a script of wandb."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        super().__init__(said(about.get("name") or "") or replica.experiment, about.get("tags") or ())
        self.project = about.get("project") or "uncategorized"
        self.entity, self.group, self.job_type = (about.get(key) or "" for key in ("entity", "group", "job_type"))
        self.notes = about.get("notes")
        self.disabled = about.get("mode") == "disabled"

    @property
    def step(self) -> int:  # type: ignore[override]
        """The row that the next call of `log` belongs to."""
        return _rows.next

    @property
    def url(self) -> str:
        """Its page in the console; empty when no server of the home has run, or it is elsewhere."""
        try:
            mine = session.state.session
            settled = mine.settled if mine is not None else None
            if settled is None or not self.id:
                return ""
            above = settled.directory  # home/experiments/id/attempt-0/worker-0/try-0, or home/outside/key/…
            for _ in range(5):
                above = os.path.dirname(above)
            with open(os.path.join(above, "server.json"), encoding="utf-8") as file:
                return f"{json.load(file)['url']}/experiments/{self.id}"
        except (OSError, ValueError, LookupError, TypeError):
            return ""


class _Rows:
    """How wandb counts: calls without a step make a row each; those that leave it open, or have its step, share one."""

    def __init__(self) -> None:
        self.next = 0

    def take(self, step: Optional[int], commit: Optional[bool]) -> int:
        """The row that a call belongs to."""
        row = self.next if step is None else step
        over = commit or (commit is None and step is None)
        self.next = max(self.next, row + 1 if over else row)
        return row


config = Config()
summary = Summary()
run: Optional[Run] = None  # between `init` and `finish`
_rows = _Rows()


def begin(**about: Any) -> WandbRun:
    """A run begins. Its parameters and tags are recorded already; options about wandb's servers mean nothing here."""
    forget()
    config.__dict__["_values"] = mapping(about.get("config"))
    return WandbRun(about)


def forget() -> None:
    """The run is over: the next one counts and remembers anew."""
    global run
    run = None
    _rows.next = 0
    for kept in (config, summary):
        kept.__dict__["_values"] = {}


def log(data: Mapping[str, Any], step: Any = None, commit: Optional[bool] = None) -> None:
    """Records one row, or a part of one, at the step that wandb would give it."""
    row = _rows.take(None if step is None else whole(step), commit)
    numbers: Dict[str, float] = {}
    for name, value in flat(data):
        if type(value) is float or type(value) is int:
            numbers[name] = value
            continue
        several = isinstance(value, (list, tuple)) and bool(value) and hasattr(value[0], "shoal_record")
        for item in value if several else [value]:
            calls._take(name, item, row, numbers)
    summary._values.update(numbers)
    if numbers:
        session.current().append((time(), row, numbers))


def define_metric(
    name: str,
    step_metric: Any = None,
    step_sync: Any = None,
    hidden: Any = None,
    summary: Optional[str] = None,
    goal: Optional[str] = None,
    **ignored: Any,
) -> Metric:
    """Says what a metric is drawn over, and which of its values stands for it."""
    x = said(getattr(step_metric, "name", step_metric) or "")
    metric = Metric(said(name), x or None)
    if session.state.disabled:
        return metric
    words = [word.strip() for word in (summary or "").split(",")]
    if "best" in words:
        words = ["max" if (goal or "").startswith("max") else "min"]
    chosen = next((word for word in words if word in SUMMARIES), "last")
    session.current().event("define", name=metric.name, x=x, summary=chosen)
    return metric


def alert(title: str, text: str = "", level: Any = None, wait_duration: Any = None) -> None:
    """Prints to stderr, which is the replica's log."""
    try:
        print(f"alert: {title}: {text}" if text else f"alert: {title}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass


def watch(*models: Any, **options: Any) -> None:
    """Does nothing but say so."""
    warn("watch", "watch does not record gradients; log what you want to see, for example as a Histogram")


def unwatch(*models: Any) -> None:
    """Nothing is watched."""


def login(*arguments: Any, **options: Any) -> bool:
    """Nobody has to."""
    return True
