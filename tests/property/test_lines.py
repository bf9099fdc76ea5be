"""Numbers of lines, windows of several logs, and searching: against reading everything and counting by hand."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import UsageError
from shoal.launcher.logfile import LogWriter
from shoal.store import logs, searching
from shoal.store.lines import BLOCK, BOTH, NumberedLog, Together
from shoal.store.searching import Wanted, search
from tests.conftest import at_most

PRINTED = st.one_of(
    st.text("ab\n", max_size=12).map(str.encode),
    st.lists(st.sampled_from([b"ab", b"B", b"needle", b"", "ä€".encode(), b"\xff\0"]), max_size=6).map(
        lambda parts: b"\n".join(parts) + b"\n"
    ),
)
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([1, 2]), PRINTED, st.sampled_from([0.0, 0.01, 0.06, 0.3])), max_size=25
)
SEGMENTS = st.sampled_from([13, 100, 4096])
FEW = settings(max_examples=at_most(200))  # each reads many small files
STREAMS = st.sampled_from([BOTH, 1, 2])


def printed(place: Path, steps: list[tuple[int, int, bytes, float]], segment: int, cap: int = 1 << 40) -> list[Path]:
    """Three logs of what was printed; the last one is closed."""
    directories = [place / str(number) for number in range(3)]
    writers = [LogWriter(directory, segment, cap) for directory in directories]
    now = 1000.0
    for which, stream, data, pause in steps:
        now += pause
        writers[which].flush(now)
        writers[which].write(stream, data, now)
    for writer in writers:
        writer.flush(now + 10)
    writers[2].close(now + 20)
    return directories


def by_hand(directory: Path, stream: int = BOTH) -> tuple[list[logs.Line], list[logs.Line]]:
    """Lines that ended, in this order, and those that did not."""
    found = list(logs.lines(directory, stream=stream or None))
    return [line for line in found if line.complete], [line for line in found if not line.complete]


@FEW
@given(steps=STEPS, segment=SEGMENTS, stream=STREAMS)
def test_every_line_of_a_log_has_its_number(
    steps: list[tuple[int, int, bytes, float]], segment: int, stream: int
) -> None:
    with tempfile.TemporaryDirectory() as place:
        for directory in printed(Path(place), steps, segment):
            log = NumberedLog(directory, stream)
            ended, begun = by_hand(directory, stream)
            assert (log.finished, log.count) == (len(ended), len(ended) + len(begun))
            found = log.texts(log.ends(0, log.count))
            assert [(line.offset, line.time, line.stream, line.text) for line in found[: len(ended)]] == [
                (line.offset, line.time, line.stream, line.text) for line in ended
            ]
            assert {(line.offset, line.text) for line in found[len(ended) :]} == {(b.offset, b.text) for b in begun}
            assert all(line.complete == (place < len(ended)) for place, line in enumerate(found))
            all_ended = [line.offset for line in by_hand(directory)[0]]
            assert [line.number for line in found[: len(ended)]] == [all_ended.index(line.offset) for line in ended]
            for first in range(0, log.count, 3):
                assert log.texts(log.ends(first, first + 2)) == found[first : first + 2]


@FEW
@given(steps=STEPS, segment=SEGMENTS, stream=STREAMS, before=st.integers(0, 9), after=st.integers(0, 9))
def test_windows_of_several_logs_are_pieces_of_one_list(
    steps: list[tuple[int, int, bytes, float]], segment: int, stream: int, before: int, after: int
) -> None:
    with tempfile.TemporaryDirectory() as place:
        together = Together([NumberedLog(directory, stream) for directory in printed(Path(place), steps, segment)])
        whole: list[tuple[float, int, int]] = []
        for which, log in enumerate(together.logs):
            ends = log.ends(0, log.count)
            whole += [(float(time), which, int(number)) for time, number in zip(ends.times, ends.numbers, strict=True)]
        whole.sort()
        middle = len(whole) // 2
        assert together.total == len(whole)
        for at in (-1, 0, 1, middle, middle + 1, len(whole) - 1, len(whole), len(whole) + 1):
            first, found = together.around(at, before, after)
            at = min(max(at, 0), len(whole))
            assert first == max(at - before, 0)
            assert [(which, line.number) for which, line in found] == [
                (which, number) for _, which, number in whole[first : at + after]
            ]
        for at, (time, which, number) in list(enumerate(whole))[:: max(len(whole) // 5, 1)]:
            assert together.place_of(which, number) == at
            assert together.at_time(time) == next(p for p, entry in enumerate(whole) if entry[0] == time)


WANTED = {
    "a text": Wanted(text="needle"),
    "one letter": Wanted(text="b"),
    "letters of both cases": Wanted(text="AB", ignore_case=True),
    "beyond ASCII": Wanted(text="€"),
}


@pytest.mark.parametrize("wanted", WANTED.values(), ids=WANTED)
@FEW
@given(steps=STEPS, segment=SEGMENTS, stream=STREAMS)
def test_what_is_found_is_what_grep_counts(
    wanted: Wanted, steps: list[tuple[int, int, bytes, float]], segment: int, stream: int
) -> None:
    pattern = re.compile(re.escape(wanted.text.encode()), re.IGNORECASE if wanted.ignore_case else 0)
    with tempfile.TemporaryDirectory() as place:
        numbered = [NumberedLog(directory, stream) for directory in printed(Path(place), steps, segment)]
        for log, hits in zip(numbered, search(numbered, wanted), strict=True):
            ended, begun = by_hand(Path(log.log.directory), stream)
            expected = sorted(line.offset for line in [*ended, *begun] if pattern.search(line.text))
            found = log.texts(hits.lines)
            assert sorted(line.offset for line in found) == expected
            for line, start, stop in zip(found, hits.starts, hits.stops, strict=True):
                assert pattern.fullmatch(line.text[start:stop])


def test_patterns_find_the_same_lines_as_texts(tmp_path: Path) -> None:
    steps = [(n % 3, 1 + n % 2, f"line {n} ä\npart {n} ".encode(), 0.01) for n in range(200)]
    numbered = [NumberedLog(directory) for directory in printed(tmp_path, steps, 500)]
    texts = search(numbered, Wanted(text="INE 1", ignore_case=True))
    patterns = search(numbered, Wanted(regex=r"ine\s1", ignore_case=True))
    for by_text, by_pattern in zip(texts, patterns, strict=True):
        assert by_text.lines.offsets.tolist() == by_pattern.lines.offsets.tolist() != []
    whose, within = searching.in_order(texts)
    times = [texts[which].lines.times[row] for which, row in zip(whose, within, strict=True)]
    assert times == sorted(times)
    assert [
        searching.before(texts, int(which), int(texts[which].lines.numbers[row]), float(time))
        for which, row, time in zip(whose, within, times, strict=True)
    ] == list(range(len(times)))


@pytest.mark.slow
def test_a_pattern_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbered = [NumberedLog(directory) for directory in printed(tmp_path, [(0, 1, b"a" * 40 + b"\n", 0.0)], 500)]
    monkeypatch.setattr(searching, "PATIENCE", 2.0)
    with pytest.raises(UsageError, match="has not been found within 2 s"):
        search(numbered, Wanted(regex="(a+)+b"))


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (Wanted(), "a text or"),
        (Wanted("a", "b"), "a text or"),
        (Wanted("a\nb"), "no newline"),
        (Wanted(regex="(a"), "regex: missing \\)"),
    ],
)
def test_what_cannot_be_found_is_refused(wanted: Wanted, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        search([], wanted)


@settings(max_examples=at_most(50))
@given(steps=STEPS)
def test_what_the_cap_took_is_marked_and_nothing_else_is_lost(steps: list[tuple[int, int, bytes, float]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        many = [(0, stream, data * 3, pause) for _, stream, data, pause in steps]
        directory = printed(Path(place), many, 64, 128)[0]
        log = NumberedLog(directory)
        found = log.texts(log.ends(0, log.count))
        missing = sum(entry.length for entry in logs.entries(directory) if isinstance(entry, logs.Gap))
        assert bool(missing) == any(line.gap for line in found) or not found
        assert {line.text for line in by_hand(directory)[0]} >= {
            line.text for line in found if not line.gap and line.complete
        }


def test_numbers_stay_while_a_log_grows(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log", 3 * BLOCK, 1 << 40)
    text = b"".join(b"%07d\n" % number for number in range(70_000))
    for part in range(0, len(text), 50_001):
        writer.write(1, text[part : part + 50_001], 1000.0 + part)
        log = NumberedLog(tmp_path / "log")
        assert log.finished == min(part + 50_001, len(text)) // 8
        for number in (0, log.finished // 2, log.finished - 1):
            (line,) = log.texts(log.ends(number, number + 1))
            assert (line.number, line.text) == (number, b"%07d" % number)
