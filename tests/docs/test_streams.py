"""The reader in the page reads real streams, and knows nothing of ours."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from shoal import journal
from shoal.journalfile import JournalFile
from tests.conftest import ROOT
from tests.launched import ran, until_recorded

PAGE = (ROOT / "docs" / "concepts" / "streams.md").read_text()


def reader() -> str:
    [code] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(code)


def read(directory: Path) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", reader(), str(directory)], capture_output=True, text=True, check=True
    )
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_the_reader_is_short_and_needs_nothing() -> None:
    assert len(reader().splitlines()) <= 50
    assert "shoal" not in reader().replace(r"\xf5shl", "")


def test_it_reads_what_is_written(tmp_path: Path) -> None:
    stream = JournalFile(str(tmp_path), {"kind": "metric", "replica": "worker-0"}, segment=3000)
    for step in range(100):
        values = [[step / 3], [float("nan")]] if step % 2 else [[step / 3]]
        stream.points([journal.Group(("loss", "ä b")[: len(values)], [1.5], [step], values)])
    stream.event({"kind": "params", "time": 2.0, "values": {"lr": 0.1, "text": "x" * 2000}})
    stream.points([journal.Group((f"m{n}",), [1.0] * 50, range(-25, 25), [[n] * 50]) for n in range(20)])
    stream.event({"kind": "dropped", "time": 2.5, "calls": 7})
    stream.end({"time": 3.0, "how": "finished", "error": "", "dropped": 0})
    assert len(list(tmp_path.iterdir())) > 2

    found = read(tmp_path)
    losses = [(int(step), float(value)) for name, step, _, value in (row for row in found if row[0] == "loss")]
    assert losses == [(step, step / 3) for step in range(100)]
    assert [row[3] for row in found if row[0] == "ä b"] == ["nan"] * 50
    assert sum(row[0].startswith("m") and len(row) == 4 for row in found) == 1000
    assert sum(row[0] == "header" for row in found) == len(list(tmp_path.iterdir()))
    event, dropped = [json.loads(row[1]) for row in found if row[0] == "event"]
    assert event["values"]["lr"] == 0.1
    assert dropped == {"kind": "dropped", "time": 2.5, "calls": 7}
    assert all(f"`{key}`" in PAGE for key in dropped)
    assert json.loads(found[-1][1])["how"] == "finished"


def test_it_passes_over_damage(tmp_path: Path) -> None:
    stream = JournalFile(str(tmp_path), {"kind": "metric"})
    for step in range(10):
        stream.points([journal.Group(("loss",), [1.0], [step], [[step]])])
    stream.close()
    [file] = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    place = data.rfind(journal.MARKER, 0, data.rfind(journal.MARKER))
    data[place + 30] ^= 1
    file.write_bytes(data[:-3])
    assert [int(row[1]) for row in read(tmp_path) if row[0] == "loss"] == list(range(8))


def test_it_reads_the_samples_of_a_replica(tmp_path: Path) -> None:
    directory = ran(tmp_path, until_recorded("memory"))
    found = read(directory / "streams")
    told = {row[0] for row in found if len(row) == 4}
    assert {"cpu", "memory", "processes"} <= told
    assert {name for name in told if f"`{name}`" not in PAGE} == set()
    header = json.loads(found[0][1])
    assert {key for key in header if f"`{key}`" not in PAGE} == set()
