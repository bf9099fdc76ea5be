"""Streams: what is written is read back, whatever is torn, overwritten or read in pieces."""

from __future__ import annotations

import math
import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal import journal
from shoal.engine.reading import Position, read
from shoal.journalfile import JournalFile
from tests.conftest import at_most

names = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=12)
numbers = st.floats(allow_nan=True, allow_infinity=True)
steps = st.integers(-(2**63), 2**63 - 1)


@st.composite
def groups(draw: st.DrawFn) -> journal.Group:
    rows = draw(st.integers(1, 5))
    chosen = tuple(draw(st.lists(names, min_size=1, max_size=4, unique=True)))
    column = st.lists(numbers, min_size=rows, max_size=rows)
    return journal.Group(
        chosen,
        draw(st.lists(st.floats(0, 1e10), min_size=rows, max_size=rows)),
        draw(st.lists(steps, min_size=rows, max_size=rows)),
        [draw(column) for _ in chosen],
    )


bodies = st.lists(groups(), min_size=1, max_size=3).map(journal.pack_points)
streams = st.lists(st.tuples(st.sampled_from((journal.POINTS, journal.EVENT)), bodies), min_size=1, max_size=8)


def same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


@settings(max_examples=at_most(300))
@given(st.lists(groups(), max_size=4))
def test_points_come_back_as_they_were(written: list[journal.Group]) -> None:
    found = journal.unpack_points(journal.pack_points(written))
    assert [group.names for group in found] == [group.names for group in written]
    for one, other in zip(found, written, strict=True):
        assert list(one.steps) == list(other.steps)
        assert list(one.times) == list(other.times)
        for mine, theirs in zip(one.values, other.values, strict=True):
            assert all(same(a, b) for a, b in zip(mine, theirs, strict=True))


def packed(content: list[tuple[int, bytes]]) -> tuple[bytes, list[tuple[int, int, bytes]]]:
    data = b"".join(journal.pack(kind, seq, body) for seq, (kind, body) in enumerate(content))
    return data, [(kind, seq, body) for seq, (kind, body) in enumerate(content)]


@settings(max_examples=at_most(200))
@given(streams, st.randoms(use_true_random=False))
def test_a_stream_that_is_read_in_pieces_gives_every_frame_once(
    content: list[tuple[int, bytes]], chance: random.Random
) -> None:
    data, expected = packed(content)
    found, at, seen = [], 0, 0
    while at < len(data) or seen < len(data):
        seen = min(len(data), seen + chance.randint(1, 60))
        items, done = journal.scan(data[at:seen], over=seen == len(data))
        found += items
        at += done
    assert [(item.kind, item.seq, item.body) for item in found if isinstance(item, journal.Frame)] == expected
    assert not [item for item in found if isinstance(item, journal.Damage)]


@settings(max_examples=at_most(300))
@given(streams, st.randoms(use_true_random=False), st.sampled_from(("zeros", "noise", "cut", "doubled")))
def test_damage_costs_only_the_frames_it_touches(
    content: list[tuple[int, bytes]], chance: random.Random, how: str
) -> None:
    data, expected = packed(content)
    start = chance.randrange(len(data))
    end = min(len(data), start + chance.randint(1, 200))
    piece = {
        "zeros": bytes(end - start),
        "noise": bytes(chance.randrange(256) for _ in range(end - start)),
        "cut": b"",
        "doubled": data[start:end] * 2,
    }[how]
    spoilt = data[:start] + piece + data[end:]
    found, done = journal.scan(spoilt, over=True)
    assert done == len(spoilt)
    frames = [(item.kind, item.seq, item.body) for item in found if isinstance(item, journal.Frame)]
    edges, place = [], 0
    for kind, seq, body in expected:
        after = place + len(journal.pack(kind, seq, body))
        edges.append((place, after, (kind, seq, body)))
        place = after
    untouched = [frame for before, after, frame in edges if after <= start or before >= end]
    assert [frame for frame in frames if frame in untouched] == untouched
    assert all(frame in expected for frame in frames), "nothing is made up"
    covered = sum(item.end - item.start for item in found)
    assert covered == len(spoilt), "every byte is in a frame or in a damage"


@settings(max_examples=at_most(30))
@given(st.lists(groups(), min_size=1, max_size=20), st.integers(100, 2000), st.randoms(use_true_random=False))
def test_segments_are_read_as_one_stream(written: list[journal.Group], segment: int, chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as place:
        file = JournalFile(place, {"replica": "worker-0"}, segment=segment)
        position, found, left = Position(), [], list(written)
        while left or not found:
            for group in [left.pop(0) for _ in range(min(len(left), chance.randint(1, 4)))]:
                file.points([group])
            position, more = drain(place, file.stream, position, over=False)
            found += more
        file.end({"how": "finished"})
        position, more = drain(place, file.stream, position, over=True)
        found += more
        assert [group.names for group in found] == [group.names for group in written]
        assert [list(group.steps) for group in found] == [list(group.steps) for group in written]
        assert position.seq == file.seq


def drain(place: str, stream: str, position: Position, *, over: bool) -> tuple[Position, list[journal.Group]]:
    found: list[journal.Group] = []
    while True:
        numbers = journal.segments(path.name for path in Path(place).iterdir())[stream]
        piece = read(place, stream, numbers, position, over=over)
        found += [group for groups in piece.groups for group in groups]
        assert not piece.gaps
        position = piece.position
        if not piece.more:
            return position, found
