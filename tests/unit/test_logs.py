from __future__ import annotations

import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.launcher.logfile import LONG, PATIENCE, LogWriter
from shoal.logformat import (
    BEGINS_LINE,
    HEADER,
    RECORD,
    Record,
    index_name,
    pack_record,
    segment_numbers,
    unpack_header,
    unpack_record,
)
from shoal.store.logs import (
    LONGEST,
    Chunk,
    Gap,
    Line,
    LineAssembler,
    closed,
    entries,
    find,
    lines,
    offset_at,
    read,
    size,
    tail,
)

EVERYTHING = 1 << 40
Write = tuple[float, int, bytes]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "try-0" / "log"


def written(directory: Path, *writes: Write, segment: int = 1000, cap: int = 1 << 30) -> LogWriter:
    """A writer that was given these, and is still open."""
    writer = LogWriter(directory, segment, cap)
    for now, stream, data in writes:
        writer.flush(now)
        writer.write(stream, data, now)
    return writer


def plain(items: list[Chunk | Gap]) -> list[tuple[int, float, int, bytes] | Gap]:
    return [item if isinstance(item, Gap) else (item.offset, item.time, item.stream, item.data) for item in items]


def texts(found: list[Line]) -> list[bytes]:
    return [line.text for line in found]


def records(directory: Path, number: int = 0) -> list[Record]:
    content = (directory / index_name(number)).read_bytes()[HEADER.size :]
    return [unpack_record(content[at : at + RECORD.size]) for at in range(0, len(content), RECORD.size)]


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        pytest.param([], [], id="nothing printed, nothing kept"),
        pytest.param(
            [(1, 1, b"a\n"), (2, 2, b"b\n"), (3, 1, b"c\n")],
            [(0, 1, 1, b"a\n"), (2, 2, 2, b"b\n"), (4, 3, 1, b"c\n")],
            id="each stream and each time has its own chunk",
        ),
        pytest.param(
            [(1, 1, b"a\n"), (1.01, 1, b"b\n"), (1.049, 1, b"c\n"), (1.05, 1, b"d\n")],
            [(0, 1, 1, b"a\nb\nc\n"), (6, 1.05, 1, b"d\n")],
            id="what comes within a twentieth of a second shares a time",
        ),
        pytest.param(
            [(1, 1, b"lo"), (1.1, 2, b"error\n"), (1.15, 1, b"ss\n")],
            [(0, 1.1, 2, b"error\n"), (6, 1.1, 1, b"loss\n")],
            id="the beginning of a line waits for its end, and time does not run backwards",
        ),
        pytest.param(
            [(1, 1, b"Password: "), (1.2, 2, b"error\n"), (1.3, 1, b"x\n")],
            [(0, 1, 1, b"Password: "), (10, 1.2, 2, b"error\n"), (16, 1.3, 1, b"x\n")],
            id="the beginning of a line does not wait for ever",
        ),
        pytest.param(
            [(1, 1, b"10%\r"), (1.1, 1, b"20%\r"), (1.2, 1, b"30%\r"), (1.5, 1, b"\n")],
            [(0, 1, 1, b"10%\r20%\r"), (8, 1.2, 1, b"30%\r"), (12, 1.5, 1, b"\n")],
            id="a progress bar is kept raw",
        ),
        pytest.param(
            [(1, 2, bytes(range(256))), (2, 2, b"\xff\xfe\0\n")],
            [(0, 1, 2, bytes(range(256))), (256, 2, 2, b"\xff\xfe\0\n")],
            id="any bytes are kept as they are",
        ),
        pytest.param(
            [(5, 1, b"a\n"), (3, 2, b"b\n")],
            [(0, 5, 1, b"a\n"), (2, 5, 2, b"b\n")],
            id="a clock that is set back stands still",
        ),
    ],
)
def test_what_is_printed_is_read(log: Path, writes: list[Write], expected: list[tuple[int, float, int, bytes]]) -> None:
    writer = written(log, *writes)
    writer.flush(writes[-1][0] + PATIENCE if writes else 0)
    assert plain(read(log, 0, EVERYTHING)) == expected
    assert not closed(log)
    writer.close(9)
    assert plain(read(log, 0, EVERYTHING)) == expected
    assert closed(log)


def test_the_beginning_of_a_line_has_a_deadline(log: Path) -> None:
    writer = LogWriter(log)
    assert (writer.pending, writer.deadline) == (False, None)
    writer.write(1, b"whole\n", 10)
    assert (writer.pending, writer.deadline) == (False, None)
    writer.write(2, b"be", 11)
    writer.write(1, b"whole\nbe", 11.125)
    assert (writer.pending, writer.deadline) == (True, 11 + PATIENCE)
    writer.flush(11.19)
    assert writer.size == 12
    writer.flush(11 + PATIENCE)
    assert (writer.size, writer.deadline) == (14, 11.125 + PATIENCE)
    writer.close(11.25)
    assert (writer.size, writer.pending) == (16, False)


def test_a_clock_that_is_set_back_holds_nothing_back(log: Path) -> None:
    writer = written(log, (1000, 1, b"Password: "))
    writer.flush(5)
    assert plain(read(log, 0, EVERYTHING)) == [(0, 1000, 1, b"Password: ")]


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        pytest.param(b"x" * (LONG - 1), 0, id="a line that is not long waits"),
        pytest.param(b"x" * LONG, LONG, id="a long line does not wait"),
        pytest.param(b"a\n" + b"x" * LONG, LONG + 2, id="a long line after another does not wait"),
        pytest.param(b"x" * LONG + b"\nb", LONG + 1, id="a line after a long line waits"),
    ],
)
def test_what_is_long_does_not_wait(log: Path, data: bytes, kept: int) -> None:
    writer = LogWriter(log)
    writer.write(1, data, 1)
    assert size(log) == writer.size == kept


def test_a_line_of_many_megabytes_is_kept_and_read_in_pieces(log: Path) -> None:
    writer = LogWriter(log, segment=1 << 20)
    for turn in range(80):
        writer.write(1, b"x" * LONG, 1 + turn)
        writer.write(2, b"between\n", 1 + turn)
    writer.write(1, b"end\nnext\n", 100)
    writer.close(100)
    of_stdout = list(lines(log, stream=1))
    assert [len(line.text) for line in of_stdout] == [LONGEST] * 5 + [3, 4]
    assert [line.complete for line in of_stdout] == [False] * 5 + [True] * 2
    assert texts(list(lines(log, stream=2))) == [b"between"] * 80
    assert texts(tail(log, 1)) == [b"next"]
    fragment, following = tail(log, 2)
    assert (fragment.text[-4:], len(fragment.text) <= LONGEST, following.text) == (b"xend", True, b"next")


def test_half_a_million_lines_have_a_small_index(log: Path) -> None:
    writer = LogWriter(log)
    block = b"step 1 loss 0.5\n" * 4096
    for turn in range(125):
        writer.write(1, block, 1 + turn / 125)
    writer.close(2)
    assert size(log) == 125 * len(block)
    assert sum(path.stat().st_size for path in log.glob("*.index")) < 1000


def test_lines_of_the_two_streams_do_not_tear_each_other(log: Path) -> None:
    writer = LogWriter(log)
    for turn in range(20):
        for stream, part in ((1, b"out"), (2, b"err"), (1, b"put\n"), (2, b"or\n")):
            writer.write(stream, part, turn)
    assert (
        b"".join(item.data for item in read(log, 0, EVERYTHING) if isinstance(item, Chunk)) == b"output\nerror\n" * 20
    )


def test_the_files_are_as_described(log: Path) -> None:
    written(log, (1, 1, b"0123456789" * 3 + b"\n"), (2, 2, b"e\n"), segment=16, cap=64).close(3)
    assert sorted(path.name for path in log.iterdir()) == [
        *("000000", "000000.index"),
        *("000001", "000001.index"),
        *("000002", "000002.index"),
    ]
    assert (log / "000000").read_bytes() == b"0123456789012345"
    assert (log / "000001").read_bytes() == b"67890123456789\ne"
    assert (log / "000002").read_bytes() == b"\n"
    assert (log / "000000.index").read_bytes().hex(" ", 8) == (
        "73686f616c6c6f67 0100000000000000 1000000000000000 0000000000000000 000000000000f03f 0101000000000000"
    )
    assert records(log, 1) == [Record(16, 1, 1, 0), Record(31, 2, 2, BEGINS_LINE)]
    assert records(log, 2) == [Record(32, 2, 2, 0), Record(33, 3, 0, 4)]
    assert (log / "000000").stat().st_mode & 0o777 == 0o600


def test_the_middle_of_a_long_log_goes_and_the_gap_is_shown(log: Path) -> None:
    writer = LogWriter(log, segment=10, cap=40)
    for turn in range(10):
        writer.write(1, b"line %4d\n" % turn, turn)
    assert segment_numbers(path.name for path in log.iterdir()) == [0, 1, 8, 9]
    assert [entry if isinstance(entry, Gap) else entry.text for entry in entries(log)] == [
        b"line    0",
        b"line    1",
        Gap(20, 60, "cap"),
        b"line    8",
        b"line    9",
    ]
    assert read(log, 50, 1)[0] == Gap(50, 30, "cap")
    assert size(log) == 100
    assert texts(tail(log, 3)) == [b"line    1", b"line    8", b"line    9"]
    assert [offset_at(log, time) for time in (1, 2, 8, 9, 10)] == [10, 80, 80, 90, 100]


def test_what_a_gap_left_of_a_line_is_given(log: Path) -> None:
    written(log, *((turn, 1, b"x" * 10) for turn in range(9)), (9, 1, b"end\n"), segment=10, cap=40)
    head, left = Line(0, 0, 1, b"x" * 20, False), Line(80, 8, 1, b"x" * 10 + b"end", True)
    assert list(entries(log)) == [head, Gap(20, 60, "cap"), left]
    assert list(entries(log, since=5)) == [left]
    assert list(lines(log, since=9)) == []
    assert tail(log, 1, window=2) == [left]


def test_a_cap_without_room_for_head_and_tail_is_refused(log: Path) -> None:
    with pytest.raises(ValueError, match="cannot keep a head and a tail"):
        LogWriter(log, segment=10, cap=19)


def test_a_closed_log_takes_nothing_more(log: Path) -> None:
    writer = written(log, (1, 1, b"a"))
    writer.close(2)
    writer.close(3)
    with pytest.raises(ValueError, match="closed"):
        writer.write(1, b"b", 4)
    assert plain(read(log, 0, EVERYTHING)) == [(0, 1, 1, b"a")]


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(lambda log: None, id="nothing"),
        pytest.param(lambda log: append(log / "000000.index", b"\x07" * 11), id="half a record"),
        pytest.param(lambda log: append(log / "000000.index", bytes(48)), id="zeros after a power cut"),
        pytest.param(
            lambda log: append(log / "000000.index", pack_record(Record(4, 3, 2, 0))), id="a record without its data"
        ),
        pytest.param(
            lambda log: append(log / "000000.index", pack_record(Record(4, 3, 0, 2)) + pack_record(Record(6, 3, 2, 0))),
            id="a loss without what follows it",
        ),
        pytest.param(lambda log: append(log / "000001.index", b"shoal"), id="half an index without its segment"),
    ],
)
@pytest.mark.parametrize("stream", [1, 2])
def test_whatever_a_killed_writer_leaves_the_next_goes_on(
    log: Path, leave: Callable[[Path], None], stream: int
) -> None:
    written(log, (1, 1, b"a\nb\n"), (1.1, 1, b"held"))
    leave(log)
    assert plain(read(log, 0, EVERYTHING)) == [(0, 1, 1, b"a\nb\n")]
    assert size(log) == 4
    assert not closed(log)
    writer = written(log, (5, stream, b"c\n"))
    assert plain(read(log, 0, EVERYTHING)) == [(0, 1, 1, b"a\nb\n"), (4, 5, stream, b"c\n")]
    writer.write(3 - stream, b"d\n", 6)
    writer.close(6)
    assert texts(list(lines(log))) == texts(tail(log, 9)) == [b"a", b"b", b"c", b"d"]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_the_next_writer_keeps_the_segment_size_it_finds(log: Path) -> None:
    written(log, (1, 1, b"0123456789\n"), segment=4)
    written(log, (2, 1, b"abc\n"), segment=100).close(3)
    assert {unpack_header(path.read_bytes()) for path in log.glob("*.index")} == {4}
    assert texts(list(lines(log))) == [b"0123456789", b"abc"]


@contextmanager
def files_no_larger_than(length: int) -> Iterator[None]:
    """A disk that takes no more, as far as this process can tell: writes are short, then refused."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_a_gap_and_not_the_end(log: Path) -> None:
    writer = written(log, (1, 1, b"a" * 99 + b"\n"))
    with files_no_larger_than(104):
        writer.write(1, b"0123456789\n", 2)
        assert (writer.dropped, type(writer.error), writer.size) == (7, OSError, 111)
        writer.write(2, b"dropped\n", 2.5)
        assert writer.dropped == 15
    writer.write(1, b"too early to try\n", 2.75)
    assert (writer.dropped, writer.error is None) == (32, False)
    writer.write(1, b"again\n", 3)
    assert (writer.dropped, writer.error) == (32, None)
    assert list(entries(log, start=100)) == [
        Line(100, 2, 1, b"0123", False),
        Gap(104, 32, "lost"),
        Line(136, 3, 1, b"again", True),
    ]
    assert (log / "000000").stat().st_size == size(log) == 142


def test_a_clock_that_is_set_back_does_not_keep_a_disk_from_being_tried(log: Path) -> None:
    writer = written(log, (1000, 1, b"a\n"))
    with files_no_larger_than(2):
        writer.write(1, b"b\n", 1001)
    writer.write(1, b"c\n", 5)
    assert texts(list(lines(log))) == [b"a", b"c"]


def test_a_loss_larger_than_segments_is_one_gap(log: Path) -> None:
    writer = written(log, (1, 1, b"0123456789\n"), segment=32)
    with files_no_larger_than(11):
        writer.write(1, b"x" * 99 + b"\n", 2)
    writer.write(1, b"again\n", 3)
    assert segment_numbers(path.name for path in log.iterdir()) == [0, 3]
    assert read(log, 50, 1)[0] == Gap(50, 61, "lost")
    assert list(entries(log)) == [
        Line(0, 1, 1, b"0123456789", True),
        Gap(11, 100, "lost"),
        Line(111, 3, 1, b"again", True),
    ]


@pytest.mark.parametrize(
    ("segment", "room"),
    [
        pytest.param(100, 11, id="in a segment"),
        pytest.param(11, 11, id="between two"),
        pytest.param(8, 3, id="over several"),
    ],
)
def test_a_loss_at_the_end_is_shown_when_the_log_is_closed(log: Path, segment: int, room: int) -> None:
    writer = written(log, (1, 1, b"0123456789\n"), segment=segment)
    with files_no_larger_than(room):
        writer.write(1, b"never kept\n", 2)
    writer.close(2)
    assert list(entries(log)) == [Line(0, 1, 1, b"0123456789", True), Gap(11, 11, "lost")]
    assert size(log) == 22


def test_a_directory_that_cannot_be_made_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    log = tmp_path / "file" / "log"
    writer = written(log, (1, 1, b"a\n"))
    assert (writer.dropped, isinstance(writer.error, OSError)) == (2, True)
    (tmp_path / "file").unlink()
    writer.write(1, b"b\n", 5)
    writer.close(5)
    assert list(entries(log)) == [Gap(0, 2, "lost"), Line(2, 5, 1, b"b", True)]


@pytest.mark.parametrize("there", [pytest.param(False, id="no directory"), pytest.param(True, id="an empty directory")])
def test_a_log_that_is_not_there_is_empty(log: Path, there: bool) -> None:
    if there:
        log.mkdir(parents=True)
    assert (size(log), closed(log), offset_at(log, 1)) == (0, False, 0)
    assert (read(log, 0, 10), list(lines(log)), tail(log, 10), list(find(log, b"a"))) == ([], [], [], [])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({}, [b"one", b"warn", b"two", b"three", b"en"], id="all lines, as they were finished"),
        pytest.param({"stream": 1}, [b"one", b"two", b"three", b"en"], id="one stream"),
        pytest.param({"stream": 2}, [b"warn"], id="the other stream"),
        pytest.param({"start": 4}, [b"warn", b"two", b"three", b"en"], id="from an offset on"),
        pytest.param({"since": 2}, [b"warn", b"three", b"en"], id="a line that began earlier is not of this time"),
        pytest.param({"until": 2}, [b"one", b"two"], id="a line that began in time is given to its end"),
        pytest.param({"since": 2, "until": 4}, [b"warn"], id="between two times"),
        pytest.param({"since": 9}, [], id="after the end"),
        pytest.param({"until": 1}, [], id="before the beginning"),
    ],
)
def test_lines_are_chosen(log: Path, arguments: dict[str, int], expected: list[bytes]) -> None:
    written(log, (1, 1, b"one\ntw"), (2, 2, b"warn\n"), (3, 1, b"o\n"), (4, 1, b"three\n"), (5, 1, b"en")).close(5)
    assert [line.text for line in lines(log, **arguments)] == expected


@pytest.mark.parametrize(
    ("pattern", "limit", "expected"),
    [
        pytest.param(b"loss", None, [b"loss 1.5", b"loss 2x5"], id="bytes"),
        pytest.param(b".5", None, [b"loss 1.5"], id="bytes mean themselves"),
        pytest.param(re.compile(rb"s \d.5$"), None, [b"loss 1.5", b"loss 2x5"], id="a pattern"),
        pytest.param(re.compile(rb"DONE", re.IGNORECASE), None, [b"done"], id="a pattern keeps its flags"),
        pytest.param(b"loss", 1, [b"loss 1.5"], id="the first"),
        pytest.param(b"loss", 0, [], id="none"),
        pytest.param(b"5\nl", None, [], id="a match does not cross lines"),
    ],
)
def test_lines_are_found(
    log: Path, pattern: bytes | re.Pattern[bytes], limit: int | None, expected: list[bytes]
) -> None:
    written(log, (1, 1, b"loss 1.5\nloss 2x5\ndone\n"))
    assert texts(list(find(log, pattern, limit=limit))) == expected


def test_a_follower_who_comes_late_gets_whole_lines(log: Path) -> None:
    written(log, (1, 1, b"first\nsecond\n"), (2, 2, b"warn\n"), (3, 1, b"third\n"))
    late = LineAssembler(inside=True)
    assert texts([line for item in read(log, 2, EVERYTHING) for line in late.feed(item)]) == [
        b"second",
        b"warn",
        b"third",
    ]


def test_the_tail_has_an_unfinished_line_where_it_stopped(log: Path) -> None:
    writer = written(log, (1, 2, b"one\nPassword: "), (2, 1, b"two\nthree\n"))
    assert texts(list(lines(log))) == [b"one", b"two", b"three", b"Password: "]
    assert texts(tail(log, 3, window=1)) == [b"Password: ", b"two", b"three"]
    writer.close(3)
    assert texts(tail(log, 1, window=1)) == [b"three"]


def test_the_tail_of_a_large_log_reads_its_end_only(log: Path) -> None:
    writer = LogWriter(log, segment=1 << 20)
    for turn in range(100):
        writer.write(1, b"line\n" * 20_000 + b"last of %d\n" % turn, turn)
    writer.write(2, b"one error\n", 200)
    for number in range(9):
        (log / f"{number:06d}").unlink()
    assert texts(tail(log, 3)) == [b"line", b"last of 99", b"one error"]
