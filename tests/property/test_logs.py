"""Random printing on both streams, with kills, refusing disks and caps: what is read is what was printed."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.launcher.logfile import LONG, LogWriter
from shoal.logformat import CLOSED, HEADER, RECORD, Record, index_name, pack_record, segment_name, segment_numbers
from shoal.store.logs import Chunk, Gap, Line, LineAssembler, closed, entries, find, lines, offset_at, read, size, tail
from tests.conftest import at_most, files_no_larger_than

EVERYTHING = 1 << 40
NO_CAP = 1 << 40
STREAMS = st.sampled_from([1, 2])
PRINTED = st.one_of(
    st.binary(max_size=40),
    st.text("ab\n\r", max_size=40).map(str.encode),
    st.integers(1, 70).map(lambda length: b"x" * length),
)
PAUSES = st.sampled_from([0.0, 0.001, 0.03, 0.1, 0.2, 5.0, -3.0])

Step = tuple[str, int, bytes, float]
WRITES = st.tuples(st.just("write"), STREAMS, PRINTED, PAUSES)
FLUSHES = st.tuples(st.just("flush"), STREAMS, st.just(b""), PAUSES)
KILLS = st.tuples(st.sampled_from(["kill", "kill in the index", "kill before the data"]), STREAMS, st.just(b""), PAUSES)
LONG_LINES = st.tuples(st.just("write"), STREAMS, st.integers(LONG - 2, LONG + 2).map(lambda n: b"y" * n), PAUSES)
PRINTING = st.lists(st.one_of(WRITES, WRITES, WRITES, FLUSHES), max_size=30)
A_LITTLE_PRINTING = st.lists(st.one_of(WRITES, WRITES, FLUSHES), max_size=8)
SEGMENTS = st.sampled_from([11, 64, 1000])


class Clock:
    now = 1000.0

    def after(self, pause: float) -> float:
        self.now += pause
        return self.now


@contextmanager
def directories(count: int) -> Iterator[list[Path]]:
    with tempfile.TemporaryDirectory() as directory:
        yield [Path(directory) / f"log-{number}" for number in range(count)]


def play(steps: list[Step], writers: list[LogWriter]) -> float:
    """Do the same to all writers; tells what time it is then."""
    clock = Clock()
    for step, stream, data, pause in steps:
        now = clock.after(pause)
        for writer in writers:
            if step == "write":
                writer.write(stream, data, now)
            writer.flush(now)
    return clock.now


def printed(items: list[Chunk | Gap], stream: int) -> bytes:
    return b"".join(item.data for item in items if isinstance(item, Chunk) and item.stream == stream)


def bytes_at(items: list[Chunk | Gap]) -> dict[int, tuple[int, int]]:
    """Offset -> stream and byte."""
    return {
        item.offset + place: (item.stream, byte)
        for item in items
        if isinstance(item, Chunk)
        for place, byte in enumerate(item.data)
    }


def assert_without_holes(items: list[Chunk | Gap], directory: Path) -> None:
    position = 0
    for item in items:
        assert item.offset == position < item.end
        position = item.end
    assert position == size(directory)


def half_written(directory: Path, kind: str) -> None:
    """Leave what a writer leaves that is killed at the worst moment."""
    numbers = segment_numbers(path.name for path in directory.iterdir())
    if not numbers:
        return
    index = directory / index_name(numbers[-1])
    record = pack_record(Record(size(directory), 2000.0, 2, 0))
    with index.open("ab") as file:
        file.write(record[:13] if kind == "kill in the index" else record)


@given(st.lists(st.one_of(WRITES, WRITES, WRITES, FLUSHES, KILLS), max_size=30), SEGMENTS)
@settings(max_examples=at_most(500))
def test_whoever_is_killed_what_was_printed_is_read_but_for_an_unfinished_line(steps: list[Step], segment: int) -> None:
    check_kills(steps, segment)


@given(st.lists(st.one_of(WRITES, LONG_LINES, FLUSHES, KILLS), max_size=12), st.sampled_from([1000, LONG, LONG + 1]))
@settings(max_examples=at_most(100))
def test_lines_that_are_too_long_to_wait_are_kept_too(steps: list[Step], segment: int) -> None:
    check_kills(steps, segment)


def check_kills(steps: list[Step], segment: int) -> None:
    expected = {1: b"", 2: b""}
    clock = Clock()
    with directories(1) as [directory]:
        writer = LogWriter(directory, segment, NO_CAP)
        for step, stream, data, pause in steps:
            now = clock.after(pause)
            if step == "write":
                writer.write(stream, data, now)
                expected[stream] += data
            writer.flush(now)
            if not step.startswith("kill"):
                continue
            for each in (1, 2):
                kept = printed(read(directory, 0, EVERYTHING), each)
                held = expected[each][len(kept) :]
                assert expected[each].startswith(kept)
                assert b"\n" not in held
                assert len(held) < LONG
                expected[each] = kept
            if step != "kill":
                half_written(directory, step)
            assert not closed(directory)
            writer = LogWriter(directory, segment, NO_CAP)
            assert writer.size == size(directory)
        writer.close(clock.now)
        items = read(directory, 0, EVERYTHING)
        assert closed(directory)
        assert writer.size == size(directory) == len(expected[1]) + len(expected[2])
        assert {stream: printed(items, stream) for stream in (1, 2)} == expected
        assert_without_holes(items, directory)
        times = [item.time for item in items if isinstance(item, Chunk)]
        assert times == sorted(times)


@given(PRINTING, SEGMENTS, st.integers(2, 9), st.integers(0, 300), st.lists(st.integers(1, 50), min_size=1))
@settings(max_examples=at_most(300))
def test_a_log_read_in_windows_is_the_log(
    steps: list[Step], segment: int, most: int, start: int, limits: list[int]
) -> None:
    with directories(1) as [directory]:
        play(steps, [LogWriter(directory, segment, most * segment)])
        items: list[Chunk | Gap] = []
        position, turn = start, 0
        while found := read(directory, position, limits[turn % len(limits)]):
            assert found[0].offset == position
            assert sum(len(item.data) for item in found if isinstance(item, Chunk)) <= limits[turn % len(limits)]
            items += found
            position, turn = found[-1].end, turn + 1
        whole = bytes_at(read(directory, 0, EVERYTHING))
        assert bytes_at(items) == {offset: byte for offset, byte in whole.items() if offset >= start}
        assert position == max(size(directory), start)


@given(PRINTING, st.sampled_from([11, 64]), st.integers(2, 9))
@settings(max_examples=at_most(300))
def test_the_cap_keeps_head_and_tail_and_shows_the_gap(steps: list[Step], segment: int, most: int) -> None:
    with directories(2) as [capped, whole]:
        play(steps, [LogWriter(capped, segment, most * segment), LogWriter(whole, segment, NO_CAP)])
        everything = bytes_at(read(whole, 0, EVERYTHING))
        count = -(-len(everything) // segment)
        gap = range(0)
        if count > most:
            gap = range(most // 2 * segment, (count - most + most // 2) * segment)
        items = read(capped, 0, EVERYTHING)
        assert bytes_at(items) == {offset: byte for offset, byte in everything.items() if offset not in gap}
        assert [item for item in items if isinstance(item, Gap)] == ([Gap(gap.start, len(gap), "cap")] if gap else [])
        assert sum(path.stat().st_size for path in capped.glob("[0-9]" * 6)) <= most * segment
        assert {path.stem for path in capped.iterdir()} == {path.name for path in capped.glob("[0-9]" * 6)}
        assert_without_holes(items, capped)


@given(
    st.lists(st.tuples(st.booleans(), A_LITTLE_PRINTING), max_size=5),
    st.sampled_from([16, 64, 1000]),
    st.integers(1, 100),
)
@settings(max_examples=at_most(300))
def test_what_a_disk_refuses_is_a_gap_and_everything_else_is_in_its_place(
    turns: list[tuple[bool, list[Step]]], segment: int, room: int
) -> None:
    with directories(2) as [directory, sound]:
        writer, twin = LogWriter(directory, segment, NO_CAP), LogWriter(sound, segment, NO_CAP)
        now = 0.0
        for refuses, steps in turns:
            with files_no_larger_than(room if refuses else resource.RLIM_INFINITY):
                now = play(steps, [writer])
            play(steps, [twin])
        writer.close(now)
        twin.close(now)
        items = read(directory, 0, EVERYTHING)
        everything = bytes_at(read(sound, 0, EVERYTHING))
        assert bytes_at(items).items() <= everything.items()
        assert_without_holes(items, directory)
        assert size(directory) == size(sound)
        assert sum(item.length for item in items if isinstance(item, Gap) and item.reason == "lost") == writer.dropped
        assert not [item for item in items if isinstance(item, Gap) and item.reason != "lost"]
        assert closed(directory)


@given(PRINTING, st.sampled_from([64, 1000]), st.integers(0, 1000))
@settings(max_examples=at_most(300))
def test_bytes_that_come_later_never_change_what_was_read(steps: list[Step], segment: int, missing: int) -> None:
    """A reader may look when the index already speaks of bytes that are not there yet."""
    with directories(1) as [directory]:
        play(steps, [LogWriter(directory, segment, NO_CAP)])
        whole = bytes_at(read(directory, 0, EVERYTHING))
        for number in segment_numbers(path.name for path in directory.iterdir())[-1:]:
            data = directory / segment_name(number)
            data.write_bytes(data.read_bytes()[: -missing or None])
        seen = bytes_at(read(directory, 0, EVERYTHING))
        assert seen == {offset: byte for offset, byte in whole.items() if offset < size(directory)}


@given(PRINTING, SEGMENTS, st.integers(2, 9))
@settings(max_examples=at_most(300))
def test_lines_are_those_of_each_stream_between_gaps(steps: list[Step], segment: int, most: int) -> None:
    with directories(1) as [directory]:
        play(steps, [LogWriter(directory, segment, most * segment)])
        items = read(directory, 0, EVERYTHING)
        found = list(entries(directory))
        assert [entry for entry in found if isinstance(entry, Gap)] == [item for item in items if isinstance(item, Gap)]
        for stream in (1, 2):
            runs: list[bytes] = [b""]
            for item in items:
                if isinstance(item, Gap):
                    runs.append(b"")
                elif item.stream == stream:
                    runs[-1] += item.data
            of_stream = [entry for entry in found if isinstance(entry, Line) and entry.stream == stream]
            expected = [line for run in runs for line in [*run.split(b"\n")[:-1], tail_of(run)] if line is not None]
            assert [line.text for line in of_stream] == expected
            assert list(lines(directory, stream=stream)) == of_stream
        where = bytes_at(items)
        assert all(where[line.offset] == (line.stream, (line.text + b"\n")[0]) for line in lines(directory))


def tail_of(run: bytes) -> bytes | None:
    return run.rpartition(b"\n")[2] or None


@given(
    st.lists(st.one_of(WRITES, WRITES, FLUSHES), max_size=30),
    SEGMENTS,
    st.integers(2, 9),
    st.integers(0, 12),
    st.integers(1, 60),
    st.booleans(),
)
@settings(max_examples=at_most(500))
def test_the_tail_is_the_end_of_all_lines(
    steps: list[Step], segment: int, most: int, count: int, window: int, again: bool
) -> None:
    with directories(1) as [directory]:
        play(steps, [LogWriter(directory, segment, most * segment)])
        if again:
            play(steps, [LogWriter(directory, segment, most * segment)])
        every = in_order_of_last_bytes(directory)
        assert tail(directory, count, window) == every[len(every) - min(count, len(every)) :]


def in_order_of_last_bytes(directory: Path) -> list[Line]:
    where = bytes_at(read(directory, 0, EVERYTHING))
    offsets = {stream: iter([offset for offset in where if where[offset][0] == stream]) for stream in (1, 2)}
    ends = {}
    for line in lines(directory):
        for _ in range(len(line.text) + line.complete):
            ends[line] = next(offsets[line.stream])
    return sorted(ends, key=lambda line: ends[line])


@given(PRINTING, st.sampled_from([11, 64, 1000]), st.floats(990, 1100), st.floats(0, 50))
@settings(max_examples=at_most(500))
def test_times_choose_lines_by_their_first_byte(steps: list[Step], segment: int, since: float, duration: float) -> None:
    with directories(1) as [directory]:
        play(steps, [LogWriter(directory, segment, NO_CAP)])
        every = list(lines(directory))
        chosen = [line for line in every if since <= line.time < since + duration]
        assert list(lines(directory, since=since, until=since + duration)) == chosen
        later = [
            item.offset for item in read(directory, 0, EVERYTHING) if isinstance(item, Chunk) and item.time >= since
        ]
        assert offset_at(directory, since) == min(later, default=size(directory))


@given(PRINTING, st.sampled_from([11, 64, 1000]), st.binary(min_size=1, max_size=2), st.integers(0, 5))
@settings(max_examples=at_most(200))
def test_what_is_found_is_in_the_lines(steps: list[Step], segment: int, pattern: bytes, limit: int) -> None:
    with directories(1) as [directory]:
        play(steps, [LogWriter(directory, segment, NO_CAP)])
        matching = [line for line in lines(directory) if pattern in line.text]
        assert list(find(directory, pattern)) == matching
        assert list(find(directory, pattern, limit=limit)) == matching[:limit]


@given(PRINTING, st.sampled_from([11, 64, 1000]), st.integers(1, 50))
@settings(max_examples=at_most(200))
def test_who_follows_a_log_gets_the_same_lines(steps: list[Step], segment: int, limit: int) -> None:
    clock = Clock()
    with directories(1) as [directory]:
        writer, assembler = LogWriter(directory, segment, NO_CAP), LineAssembler()
        position, followed = 0, []
        for step, stream, data, pause in steps:
            now = clock.after(pause)
            if step == "write":
                writer.write(stream, data, now)
            writer.flush(now)
            for item in read(directory, position, limit):
                followed += assembler.feed(item)
                position = item.end
        writer.close(clock.now)
        while found := read(directory, position, limit):
            for item in found:
                followed += assembler.feed(item)
                position = item.end
        assert followed + assembler.rest() == list(lines(directory))


@given(PRINTING)
@settings(max_examples=at_most(200))
def test_an_index_ends_with_the_record_that_closes_the_log(steps: list[Step]) -> None:
    with directories(1) as [directory]:
        writer = LogWriter(directory, 64, NO_CAP)
        now = play(steps, [writer])
        writer.close(now)
        last = max(directory.glob("*.index")).read_bytes()
        assert (len(last) - HEADER.size) % RECORD.size == 0
        record = Record(*RECORD.unpack(last[-RECORD.size :]))
        assert (record.offset, record.flags) == (size(directory), CLOSED)
