"""Mutated files: whatever is done to them, the answer is a spec or located errors, never a traceback."""

from __future__ import annotations

import random
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from shoal import sources
from shoal.errors import FileProblems
from shoal.plan import plan
from shoal.spec import Source, interpret, older, reading
from tests.fixtures import RIGHT, WRONG

TEXTS = [path.read_bytes().decode("utf-8", "replace") for path in (*RIGHT, *WRONG)]
JUNK = """
\t|  |:|- |&a|*a|{|}|[|]|{{ lr }}|{% if|...|---|<<: *a|>-|#|!!int|!x|'|"|%YAML 1.1|\x00|\x85|\u2028|\ufeff|é|🐟|-1|.nan
|1e999|null|true|0|99999999|? |@|`|n_workers: 3|framework: jax|index: 1|resources: {}|environment:|worker: [{index: 0}]
|run: {cmd: x}|params: {a: *a}|horovod: {n_workers: 1}|max_restarts: 2|request: 1|worker_resources: [{index: 0}]
""".replace("\n", "").split("|")


def mutate(text: str, rng: random.Random) -> str:
    """One to four small accidents: what editors, copying and merging do to files."""
    for _ in range(rng.randint(1, 4)):
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        kind = rng.randrange(9)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, lines[rng.randrange(len(lines))])
        elif kind == 2:
            lines[at] = " " * rng.randrange(9) + lines[at].lstrip()
        elif kind == 3:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == 4:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        elif kind == 5:
            key, colon, _ = lines[at].partition(":")
            lines[at] = key + colon + " " + rng.choice(JUNK)
        elif kind == 6:
            lines[at] = rng.choice(JUNK) + lines[at]
        else:
            line, where = lines[at], rng.randrange(len(lines[at]) + 1)
            lines[at] = line[:where] + rng.choice(JUNK) + line[where + rng.randrange(3) :]
        text = "\n".join(lines)
    return text


@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_a_mutated_file_gives_a_plan_or_located_errors(which: int, seed: int) -> None:
    text = mutate(TEXTS[which % len(TEXTS)], random.Random(seed))
    try:
        document = interpret([Source("a.yml", text)])
    except FileProblems as error:
        problems = (*error.problems, *error.warnings)
        broken = True
    else:
        problems, broken = document.warnings, False
        ranks = [replica.rank for replica in plan(document.spec).replicas]
        assert ranks == list(range(len(ranks)))
    assert problems or not broken
    lines = text.count("\n") + text.count("\x85") + text.count("\u2028") + text.count("\r") + 1
    for problem in problems:
        assert problem.where is not None, problem
        assert problem.where.file == "a.yml"
        assert 1 <= problem.where.line <= lines, problem
        assert problem.where.column >= 1
        assert problem.message
        assert problem.hint, problem


@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_rewriting_older_spellings_twice_changes_nothing_more(which: int, seed: int) -> None:
    text = mutate(TEXTS[which % len(TEXTS)], random.Random(seed))
    try:
        root, _ = reading.parse(Source("a.yml", text))
    except FileProblems:
        return
    once, _ = older.rewrite(root)
    twice, notes = older.rewrite(once)
    assert twice.plain() == once.plain() or "nan" in text.lower()
    assert notes.warnings == []


@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_one_error(data: bytes) -> None:
    with suppress(FileProblems):
        interpret([Source("a.yml", sources.decode(data, "a.yml"))])
