"""The straggler report on real distributed training, where all step times are equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.client import Client
from tests.conftest import ROOT
from tests.environments import environment
from tests.examples.test_examples import EXITS
from tests.running import finished, shoal, submit

FILE = """\
framework: pytorch
run: {cmd: '%s train.py'}
code: %s
environment:
  env_vars: {SLOW: '%d', MARKS: '%d', OMP_NUM_THREADS: '1', PYTHONPATH: '%s:%s'}
  replicas: {n_workers: 3, master: false}
"""


def trained(tmp_path: Path, *, slow: int, marks: bool) -> str:
    script = ROOT / "tests" / "examples" / "stragglers"
    text = FILE % (environment("pytorch"), script, slow, marks, ROOT, EXITS)
    word = submit(tmp_path, text, "--oversubscribe")
    end = finished(word)
    assert end["state"] == "succeeded", "\n".join(end["first_failure"]["lines"])
    return word


@pytest.mark.parametrize("slow", [0, 2])
def test_the_rank_that_is_delayed_before_the_all_reduce_is_named(home: Path, tmp_path: Path, slow: int) -> None:
    word = trained(tmp_path, slow=slow, marks=True)
    found = Client().stragglers(word)
    assert (found["how"], found["slowest"]["rank"]) == ("busy", slow), found
    assert found["slowest"]["excess"] > 0
    times = [rank["step_time"]["p50"] for rank in found["ranks"]]
    assert max(times) < 1.5 * min(times), "the step times alone tell nothing"
    assert f"worker-{slow} (rank {slow}) works" in shoal("why", word).stdout


def test_without_marks_nobody_is_accused(home: Path, tmp_path: Path) -> None:
    word = trained(tmp_path, slow=1, marks=False)
    found = Client().stragglers(word)
    assert found["how"] in ("none", "activity"), found
    assert found["slowest"] is None or found["guess"]
    assert "shoal.step()" in found["verdict"]
