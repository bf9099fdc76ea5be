"""What a script says of its metrics decides what a list shows of them."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.cli.wording import losses
from shoal.server import views
from shoal.store import defined, series, streams
from tests.tracking import BEGAN, Recorded


def say(recorded: Recorded, stream: str, kind: str, **data: Any) -> None:
    row = recorded.streams[stream]
    record = {
        "stream": stream, "seq": row["seq"], "uid": recorded.uid, "kind": kind, "name": data.get("name", ""),
        "step": None, "time": BEGAN + row["seq"], "attempt": row["attempt"], "replica": row["replica"], "process": 0,
        "data": data, "pending": False,
    }  # fmt: skip
    row["seq"] += 1
    with recorded.database.write() as connection:
        streams.add_records(connection, [record])


def metrics(recorded: Recorded) -> dict[str, dict[str, Any]]:
    with recorded.database.read() as connection:
        return series.metrics_of(connection, recorded.uid, recorded.summaries)


@pytest.mark.parametrize(
    ("chosen", "value"),
    [("min", 1.0), ("max", 4.0), ("mean", 7 / 3), ("last", None), ("none", None)],
)
@pytest.mark.parametrize("compacted", [False, True], ids=["live", "in chunks"])
def test_a_definition_chooses_what_stands_for_a_metric(
    recorded: Recorded, chosen: str, value: float | None, compacted: bool
) -> None:
    stream = recorded.stream()
    recorded.column(stream, "loss", [0, 1, 2, 3], [4.0, 1.0, float("nan"), 2.0])
    say(recorded, stream, "define", name="loss", x="", summary=chosen)
    if compacted:
        recorded.compact(stream, close=True)
    found = metrics(recorded)["loss"]
    assert found["last"] == 2.0
    assert found.get("value") == (pytest.approx(value) if value is not None else None)


def test_a_pattern_means_many_and_a_name_goes_before_it(recorded: Recorded) -> None:
    stream = recorded.stream()
    for name in ("val/acc", "val/loss", "train/loss"):
        recorded.column(stream, name, [0, 1, 2], [2.0, 3.0, 1.0])
    say(recorded, stream, "define", name="val/*", x="epoch", summary="max")
    say(recorded, stream, "define", name="val/loss", x="epoch", summary="min")
    shown = {name: entry.get("value") for name, entry in metrics(recorded).items()}
    assert shown == {"val/acc": 3.0, "val/loss": 1.0, "train/loss": None}
    with recorded.database.read() as connection:
        assert defined.axis_of(connection, recorded.uid, ["val/acc", "val/loss"]) == "epoch"
        assert defined.axis_of(connection, recorded.uid, ["val/acc", "train/loss"]) is None


def test_values_by_hand_are_metrics_if_they_are_numbers(recorded: Recorded) -> None:
    first, second = recorded.stream("worker-0"), recorded.stream("worker-1")
    recorded.column(first, "loss", [0, 1], [3.0, 2.0])
    say(recorded, first, "summary", values={"best": 0.5, "note": "good", "done": True})
    say(recorded, first, "summary", values={"best": 0.25, "loss": 1.5, "odd": "NaN"})
    say(recorded, second, "summary", values="none")  # by something else than the SDK
    say(recorded, second, "summary", values={"best": 9.0, "only": 7})  # a higher rank only adds
    say(recorded, second, "summary")
    found = metrics(recorded)
    assert (found["loss"]["last"], found["loss"]["value"]) == (2.0, 1.5)
    assert {name: found[name]["value"] for name in ("best", "odd", "only")} == {"best": 0.25, "odd": "NaN", "only": 7}
    assert "note" not in found
    with recorded.database.read() as connection:
        assert defined.summary_of(connection, recorded.uid)["note"] == "good"
        said = streams.records_of(connection, recorded.uid, "summary")
        assert sorted(record["stream"] for record in said) == sorted([first, second]), (
            "one for each, however often it is set"
        )


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ({"dropped": 1}, ["of worker-1, 1 call was dropped: they came too fast, or could not be written"]),
        ({"gaps": 1, "damaged": 812}, ["1 gap in what worker-1 wrote: 812 B cannot be read"]),
        ({"gaps": 1}, ["1 gap in what worker-1 wrote: a part of it never came"]),
        (
            {"gaps": 2000, "damaged": 4096, "dropped": 7000, "process": 3, "attempt": 2},
            [
                "of worker-1:3 in attempt 2, 7,000 calls were dropped: they came too fast, or could not be written",
                "2,000 gaps in what worker-1:3 in attempt 2 wrote: 4.0 KiB cannot be read",
            ],
        ),
    ],
    ids=["a call", "damaged bytes", "frames that are missing without a trace", "everything"],
)
def test_losses_are_said_in_words(lost: dict[str, int], said: list[str]) -> None:
    entry = {"replica": "worker-1", "process": 0, "attempt": 0, "dropped": 0, "gaps": 0, "damaged": 0, **lost}
    assert losses([entry]) == said


def test_losses_are_counted_for_each_process(recorded: Recorded) -> None:
    gap = {"segment": 0, "offset": 10, "length": 100, "frames": 2}
    recorded.stream("worker-0")
    recorded.stream("worker-1", dropped=700)
    recorded.stream("worker-1", dropped=72, gaps=[gap, gap])
    with recorded.database.read() as connection:
        assert views.losses(connection, recorded.uid) == [
            {"attempt": 0, "replica": "worker-1", "process": 0, "dropped": 772, "gaps": 2, "damaged": 200}
        ]
