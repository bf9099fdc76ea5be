"""What `import shoal as wandb` does beside what real scripts of wandb show (tests/examples/test_integrations.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from shoal import journal
from tests.conftest import ROOT


@dataclass(frozen=True)
class Case:
    says: str
    code: str
    points: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    out: str = ""
    err: str = ""


CASES = [
    Case(
        "rows are counted over all names, as wandb counts them",
        "wandb.init(project='p'); wandb.log({'a': 1}); wandb.log({'b': 2}); wandb.log({'a': 3})",
        points={"a": [(0, 1.0), (2, 3.0)], "b": [(1, 2.0)]},
    ),
    Case(
        "init without an option is enough",
        "run = wandb.init(); wandb.log({'a': 1}); wandb.log({'a': 2, 'b': 3}); wandb.log({'b': 4});"
        "wandb.run.summary['best'] = 1; wandb.run.config.lr = 2;"
        "print(run is wandb.run, run.step, wandb.summary['a'], wandb.config.as_dict(), run.project, repr(run.group))",
        points={"a": [(0, 1.0), (1, 2.0)], "b": [(1, 3.0), (2, 4.0)]},
        events=[{"kind": "summary", "values": {"best": 1}}, {"kind": "params", "values": {"lr": 2}}],
        out="True 3 2 {'lr': 2} uncategorized ''\n",
    ),
    Case(
        "the import may be in a function",
        "del wandb\ndef main():\n  import shoal as wandb\n  wandb.init(name='n')\n"
        "  wandb.log({'a': 1}); wandb.log({'b': 2})\nmain()",
        points={"a": [(0, 1.0)], "b": [(1, 2.0)]},
    ),
    Case(
        "without an init, calls are counted for each name",
        "wandb.log({'a': 1}); wandb.log({'b': 2}); wandb.log({'a': 3})",
        points={"a": [(0, 1.0), (1, 3.0)], "b": [(0, 2.0)]},
    ),
    Case(
        "a script that calls it shoal counts for each name, and has its run too",
        "shoal = wandb; del wandb; run = shoal.init('x'); shoal.log(a=1); shoal.log(b=2);"
        "shoal.run.summary['best'] = 1; print(shoal.run is run, run.name, type(run.step()).__name__);"
        "shoal.finish(); print(shoal.run)",
        points={"a": [(0, 1.0)], "b": [(0, 2.0)], "shoal/step_busy": ANY},
        events=[{"kind": "summary", "values": {"best": 1}}],
        out="True x Mark\nNone\n",
    ),
    Case(
        "a step that goes back is kept",
        "wandb.init(project='p'); wandb.log({'a': 1}, step=5); wandb.log({'a': 2}, step=3); wandb.log({'a': 3})",
        points={"a": [(5, 1.0), (3, 2.0), (5, 3.0)]},
    ),
    Case(
        "the run tells its step, its id, its name and where the console shows it",
        "run = wandb.init(project='p', name='mine'); wandb.log({'a': 1}); wandb.log({'a': 2});"
        "print(run.step, run.name, run.id == wandb.run.id != '', repr(run.url));"
        "wandb.finish(); run = wandb.init(project='p'); print(run.step, run.name == run.id)",
        points={"a": [(0, 1.0), (1, 2.0)]},
        out="2 mine True ''\n0 True\n",
    ),
    Case(
        "the next run counts and remembers anew",
        "wandb.init(config={'lr': 1}); wandb.log({'a': 1}); wandb.finish(); print(wandb.run, 'lr' in wandb.config);"
        "wandb.init(project='p'); wandb.log({'a': 2}); print(wandb.summary['a'])",
        points={"a": [(0, 1.0), (0, 2.0)]},
        events=[{"kind": "params", "values": {"lr": 1}}],
        out="None False\n2\n",
    ),
    Case(
        "reinit finishes the run before",
        "one = wandb.init(project='p'); first = one.id; wandb.log({'a': 1});"
        "two = wandb.init(project='p', reinit=True); wandb.log({'a': 2}); print(wandb.run is two, first == two.id)",
        points={"a": [(0, 1.0), (0, 2.0)]},
        out="True False\n",
    ),
    Case(
        "a second init goes on in the run that is open",
        "one = wandb.init(project='p', config={'lr': 1}); wandb.log({'a': 1}); two = wandb.init(project='p');"
        "wandb.log({'a': 2}); print(one is two is wandb.run, two.step, wandb.config.lr, wandb.summary['a'])",
        points={"a": [(0, 1.0), (1, 2.0)]},
        events=[{"kind": "params", "values": {"lr": 1}}],
        out="True 2 1 2\n",
    ),
    Case(
        "what a second init says is not used, and that is said",
        "run = wandb.init(config={'lr': 1}); wandb.init(name='two', config={'lr': 2}, tags=['late']);"
        "wandb.log({'a': 1}); print(wandb.config.lr, run.tags)",
        points={"a": [(0, 1.0)]},
        events=[{"kind": "params", "values": {"lr": 1}}],
        out="1 ()\n",
        err="shoal: init: a run is open and goes on as it began; shoal.finish() first, or reinit=True\n",
    ),
    Case(
        "a fork begins a run of its own",
        "import os, warnings; warnings.simplefilter('ignore'); wandb.init(project='p'); wandb.log({'a': 1})\n"
        "if not os.fork():\n  wandb.init(project='p'); wandb.log({'b': 1}); wandb.finish(); os._exit(0)\n"
        "os.wait(); wandb.log({'a': 2})",
        points={"a": [(0, 1.0), (1, 2.0)], "b": [(0, 1.0)]},
    ),
    Case(
        "after a disabled run another can begin",
        "wandb.init(mode='disabled'); wandb.log({'a': 1}); run = wandb.init(); wandb.log({'a': 2});print(run.disabled)",
        points={"a": [(0, 2.0)]},
        out="False\n",
    ),
    Case(
        "the values may be called data, and a dict of that name is one",
        "wandb.init(); wandb.log(data={'kw': 1}); wandb.log(data={'kw': 2}, step=5);"
        "wandb.log({'data': {'kw': 3}}); wandb.log(data=4)",
        points={"kw": [(0, 1.0), (5, 2.0)], "data/kw": [(5, 3.0)], "data": [(6, 4.0)]},
    ),
    Case(
        "mode=disabled records nothing, and the script reads what it has set",
        "run = wandb.init(mode='disabled', config={'lr': 1}); run.log({'a': 1}); wandb.summary['b'] = 2;"
        "print(wandb.define_metric('a').name, wandb.config.lr, wandb.summary['b'])",
        out="a 1 2\n",
    ),
    Case(
        "a list of images is one event for each",
        "import shoal.sdk.media as m; dot = m.png(1, 1, 1, b'\\0'); wandb.init(project='p');"
        "wandb.log({'seen': [wandb.Image(dot, caption='one'), wandb.Image(dot)]})",
        events=[
            {"kind": "image", "name": "seen", "step": 0, "caption": "one", "width": 1},
            {"kind": "image", "name": "seen", "step": 0, "caption": "", "width": 1},
        ],
    ),
    Case(
        "a histogram needs no numpy",
        "wandb.log({'h': wandb.Histogram([0, 1, 1, float('nan'), 4], num_bins=4)}, step=2)",
        events=[{"kind": "histogram", "name": "h", "step": 2, "edges": [0, 1, 2, 3, 4], "counts": [1, 2, 0, 1]}],
    ),
    Case(
        "a table grows by rows and by columns, and a page is a text",
        "t = wandb.Table(columns=['a']); t.add_data(1); t.add_column('b', [None]);"
        "wandb.log({'t': t, 'page': wandb.Html('<b>x</b>')})",
        events=[
            {"kind": "table", "name": "t", "columns": ["a", "b"], "rows": [[1, None]]},
            {"kind": "text", "name": "page", "text": "<b>x</b>"},
        ],
    ),
    Case(
        "a column of a table can be read",
        "t = wandb.Table(columns=['a', 'b'], data=[[1, 'x'], [2, 'y']]); print(t.get_column('b'));"
        "print(t.get_column('a', convert_to='numpy').sum())",
        out="['x', 'y']\n3\n",
    ),
    Case(
        "an image in a table is recorded beside it, and the row tells where",
        "import shoal.sdk.media as m; dot = m.png(1, 1, 1, b'\\0'); wandb.init(); t = wandb.Table(['n', 'seen']);"
        "t.add_data(1, wandb.Image(dot, caption='one')); t.add_data(2, wandb.Image(dot));"
        "t.add_data(3, wandb.Html('<b>')); wandb.log({'a': 1}); wandb.log({'t': t})",
        points={"a": [(0, 1.0)]},
        events=[
            {"kind": "image", "name": "t/seen", "step": 1, "caption": "row 0: one"},
            {"kind": "image", "name": "t/seen", "step": 1, "caption": "row 1"},
            {"kind": "text", "name": "t/seen", "step": 1, "text": "<b>"},
            {
                "kind": "table",
                "step": 1,
                "rows": [[1, "(image t/seen, row 0)"], [2, "(image t/seen, row 1)"], [3, "(html t/seen, row 2)"]],
            },
        ],
    ),
    Case(
        "a metric that was defined can be what others are drawn over",
        "epoch = wandb.define_metric('epoch'); loss = wandb.define_metric('loss', step_metric=epoch);"
        "print(epoch.name, epoch.step_metric, loss.step_metric)",
        events=[{"kind": "define", "name": "epoch", "x": ""}, {"kind": "define", "name": "loss", "x": "epoch"}],
        out="epoch None epoch\n",
    ),
    Case(
        "tags can be added to the run, and those that are recorded stay",
        "run = wandb.init(tags=['a']); run.tags += ('b', 'c'); print(run.tags); run.tags = ['c']; print(run.tags)",
        events=[{"kind": "tag", "tags": ["a"]}, {"kind": "tag", "tags": ["b", "c"]}],
        out="('a', 'b', 'c')\n('c',)\n",
        err="shoal: run.tags: what was given stays; the console and Client.tag take tags away\n",
    ),
    Case(
        "a run can be renamed",
        "run = wandb.init(name='first'); run.name = 'first'; run.name = 'second'; run.name = 'third'; print(run.name)",
        events=[{"kind": "name", "name": "second"}, {"kind": "name", "name": "third"}],
        out="third\n",
    ),
    Case(
        "a config that names a file is not read",
        "wandb.init(config='config.yaml'); print(len(wandb.config))",
        out="0\n",
        err="shoal: init: 'config.yaml' names a file, which is not read; hand over a dict\n",
    ),
    Case(
        "the best of a metric is what its goal says",
        "wandb.define_metric('acc', summary='best', goal='maximize'); wandb.define_metric('loss', summary='min,last')",
        events=[
            {"kind": "define", "name": "acc", "x": "", "summary": "max"},
            {"kind": "define", "name": "loss", "x": "", "summary": "min"},
        ],
    ),
    Case(
        "defaults of the config do not overwrite",
        "wandb.config.lr = 1; wandb.config.setdefaults({'lr': 2, 'seed': 3}); print(wandb.config.as_dict())",
        events=[{"kind": "params", "values": {"lr": 1}}, {"kind": "params", "values": {"seed": 3}}],
        out="{'lr': 1, 'seed': 3}\n",
    ),
    Case(
        "an alert is a line on stderr, and watch says once that it does nothing",
        "wandb.login(); wandb.alert('low', 'disk'); wandb.watch(object()); wandb.watch(object()); wandb.unwatch()",
        err="alert: low: disk\n"
        "shoal: watch does not record gradients; log what you want to see, for example as a Histogram\n",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_names_of_wandb(tmp_path: Path, case: Case) -> None:
    done = run(tmp_path, case.code)
    assert (done.returncode, done.stdout, done.stderr) == (0, case.out, case.err)
    points, events = recorded(tmp_path)
    assert points == case.points
    assert [event["kind"] for event in events] == [event["kind"] for event in case.events]
    for event, expected in zip(events, case.events, strict=True):
        assert {key: event[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("wandb.init(config={'lr': 1}); wandb.config.rate", "AttributeError: config has no 'rate'; it has lr"),
        ("wandb.Table(columns=['a', 'b']).add_data(1)", "ValueError: a row of 1 values for 2 columns, ['a', 'b']"),
        ("wandb.Histogram([1], num_bins=600)", "ValueError: 600 bins; there may be 1 to 512"),
        ("wandb.Table(columns=['a']).get_column('b')", "ValueError: no column 'b'; there are ['a']"),
        ("wandb.Histogram()", "ValueError: a histogram needs a sequence or np_histogram"),
        ("wandb.Video", "AttributeError: module 'shoal' has no attribute 'Video'"),
    ],
)
def test_a_mistake_is_said_where_it_is_made(tmp_path: Path, code: str, error: str) -> None:
    assert run(tmp_path, code).stderr.splitlines()[-1] == error


@pytest.mark.parametrize("variable", ["SHOAL_HOME", "SHOAL_DISABLED"])
def test_a_script_that_cannot_or_shall_not_record_has_its_run_all_the_same(tmp_path: Path, variable: str) -> None:
    value = {"SHOAL_HOME": "/dev/null/home", "SHOAL_DISABLED": "1"}[variable]
    done = run(
        tmp_path,
        "run = wandb.init(config={'lr': 1}); wandb.run.summary['best'] = 2; run.tags += ('a',); wandb.init();"
        "print(run is wandb.run, wandb.config.lr, wandb.summary['best'], run.define_metric('a').name)",
        **{variable: value},
    )
    assert (done.returncode, done.stdout) == (0, "True 1 2 a\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_names_have_types(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import shoal as wandb\n\n"
        "run = wandb.init(project='p')\n"
        "wandb.config.lr = 0.1\n"
        "wandb.summary['best'] = 1\n"
        "epoch = wandb.define_metric('epoch')\n"
        "wandb.define_metric('loss', step_metric=epoch)\n"
        "wandb.log({'h': wandb.Histogram([1, 2]), 'i': wandb.Image('a.png'), 't': wandb.Table(columns=['a'])})\n"
        "run.tags += ('a',)\n"
        "run.summary.update({'a': 1})\n"
        "if wandb.run is not None:\n    wandb.run.config.update({'lr': 1})\n"
        "wandb.alert('low')\n"
        "wandb.login()\n"
    )
    mypy = Path(sys.executable).with_name("mypy")
    done = subprocess.run(
        [mypy, "--strict", "--no-error-summary", f"--cache-dir={tmp_path / 'cache'}", script],
        env={**os.environ, "MYPYPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout == ""


def run(place: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import shoal as wandb\n{code}"],
        env={**os.environ, "SHOAL_HOME": str(place / "home"), "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def recorded(place: Path) -> tuple[dict[str, list[tuple[int, float]]], list[dict[str, Any]]]:
    """All points and events of the runs, in the order of the runs; without what every run says of its host."""
    points: dict[str, list[tuple[int, float]]] = {}
    events = []
    files = [file for file in place.rglob("streams/*") if file.is_file()]
    for file in sorted(files, key=lambda file: file.stat().st_mtime_ns):
        for frame in journal.scan(file.read_bytes(), over=True)[0]:
            assert isinstance(frame, journal.Frame)
            if frame.kind == journal.EVENT:
                events.append(journal.unpack_json(frame.body))
            elif frame.kind == journal.POINTS:
                for group in journal.unpack_points(frame.body):
                    for name, column in zip(group.names, group.values, strict=True):
                        points.setdefault(name, []).extend(zip(group.steps, column, strict=True))
    return points, [event for event in events if event["kind"] != "host"]
