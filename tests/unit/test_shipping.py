"""What a try writes reaches its sink byte for byte, once, whoever dies or is away meanwhile."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from shoal.launcher import shipping
from shoal.launcher.logfile import LogWriter
from shoal.launcher.shipping import Away, Behind, Marks, Mirror, back_off, snapshot
from shoal.launcher.sinks import LINE, DirectorySink, Gap, StdoutSink, decode
from shoal.store import logs
from tests.launched import points, ran, start, try_directory
from tests.running import until
from tests.tries import fill, over, tree


def test_a_directory_holds_what_a_launcher_wrote(tmp_path: Path) -> None:
    command = "echo hello; mkdir -p $(dirname $SHOAL_STREAMS)/files; echo content > $(dirname $SHOAL_STREAMS)/files/x"
    directory = ran(tmp_path, command, SHOAL_SINK=f"directory:{tmp_path / 'sink'}")
    copy = try_directory(tmp_path / "sink")
    assert tree(copy) == tree(directory)
    assert {"log/000000", "log/000000.index", "files/x", "exit.json"} <= set(tree(copy))
    assert "cpu" in points(copy / "streams", "resource")
    assert not (directory / "companion.err").exists()


def test_files_come_in_an_order_that_a_reader_can_trust(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "files" / "link").symlink_to("/etc/passwd")
    (tmp_path / "log" / "000000.index").write_bytes(b"x" * 250)
    steps, sizes = snapshot(str(tmp_path))
    order = [path for path, _ in steps]
    parts = [path.partition("/")[0] for path in order]
    assert parts == sorted(parts, key=["log", "files", "streams", "exit.json"].index)
    assert order.index("log/000000.index") < order.index("log/000000")
    assert sizes["log/000000.index"] == 240  # a record is carried whole
    assert not {"files/link", "exit.json"} & set(order)
    over(tmp_path)
    assert snapshot(str(tmp_path))[0][-1][0] == "exit.json"


class Read(DirectorySink):
    """Somebody reads the log after each step, as a follower may."""

    def put(self, path: str, offset: int, data: bytes) -> int:
        size = super().put(path, offset, data)
        found = logs.read(os.path.join(self.directory, "log"), 0, 1 << 20)
        assert [item for item in found if isinstance(item, logs.Gap)] == [], (path, offset)
        return size


def test_no_reader_thinks_that_bytes_are_lost_which_are_on_their_way(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "try" / "log", segment=10, cap=1000)
    mirror = Mirror(str(tmp_path / "try"), Read(str(tmp_path / "copy")))
    mirror.carry()
    for data in (b"hello\n", b"a line over three segments\n"):
        log.write(1, data, 1.0)
        log.flush(1.0)
        mirror.carry()
    log.write(1, b"end\n", 2.0)
    log.close(2.0)
    mirror.carry()
    assert logs.closed(tmp_path / "copy" / "log")
    assert tree(tmp_path / "copy") == tree(tmp_path / "try")


class Forgetful:
    """A sink in memory that fails, forgets and answers late, as chance will have it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.files: dict[str, bytearray] = {}

    def watermarks(self) -> Marks:
        self._maybe()
        return Marks({path: len(data) for path, data in self.files.items()}, {})

    def put(self, path: str, offset: int, data: bytes) -> int:
        self._maybe()
        held = self.files.setdefault(path, bytearray())
        if offset > len(held):
            raise Behind(len(held))
        held[offset:] = data[: self.chance.randint(0, len(data))] if self.chance.random() < 0.3 else data
        self._maybe()
        return len(held)

    def delete(self, path: str) -> None:
        self._maybe()
        self.files.pop(path, None)

    def close(self, sizes: Mapping[str, int]) -> None:
        return

    def _maybe(self) -> None:
        if self.chance.random() < 0.2:
            raise Away("a bad moment")


@pytest.mark.parametrize("seed", range(20))
def test_a_sink_that_fails_half_of_the_time_gets_everything_once(tmp_path: Path, seed: int) -> None:
    fill(tmp_path, seed)
    sink = Forgetful(random.Random(seed))
    mirror = Mirror(str(tmp_path), sink)
    for growing in (True, False):
        if not growing:
            (tmp_path / "log" / "000000").open("ab").write(b"more")
            over(tmp_path)
        attempts = 0
        while attempts < 10_000:
            attempts += 1
            if sink.chance.random() < 0.1:
                mirror = Mirror(str(tmp_path), sink)  # its process was killed
            try:
                if not mirror.carry():
                    break
            except Away:
                continue
    assert {path: bytes(data) for path, data in sink.files.items()} == tree(tmp_path)


def test_segments_that_the_cap_of_the_log_took_go_from_the_sink_too(tmp_path: Path) -> None:
    directory, copy = tmp_path / "try", tmp_path / "copy"
    fill(directory)
    for number in (1, 2):
        (directory / "log" / f"00000{number}").write_bytes(b"x" * 100)
        (directory / "log" / f"00000{number}.index").write_bytes(b"y" * 48)
    mirror = Mirror(str(directory), DirectorySink(str(copy)))
    mirror.carry()
    for name in ("000001", "000001.index"):
        (directory / "log" / name).unlink()
    mirror = Mirror(str(directory), DirectorySink(str(copy)))
    mirror.carry()
    assert tree(copy) == tree(directory)


def test_a_name_that_is_no_text_stops_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "try" / "files").mkdir(parents=True)
    for name in (b"a\xff", b"b"):
        (tmp_path / "try" / "files" / os.fsdecode(name)).write_bytes(b"x")
    reader, writer = os.pipe()
    mirror = Mirror(str(tmp_path / "try"), StdoutSink(writer))
    mirror.carry()
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert decode(pipe, str(tmp_path / "copy")).files == ["files/b"]
    assert list(mirror.refused) == ["files/a\udcff"]


def test_waiting_grows_to_half_a_minute_and_differs() -> None:
    assert all(FIRST <= back_off(n) <= 30 for n in range(1, 50) for FIRST in [0.25 if n == 1 else 0.5])
    assert max(back_off(20) for _ in range(100)) > 20
    assert len({back_off(5) for _ in range(50)}) > 10


def test_after_the_deadline_a_launcher_gives_up_and_keeps_the_files(tmp_path: Path) -> None:
    directory = ran(
        tmp_path, "echo x", SHOAL_SINK="http://127.0.0.1:9/", SHOAL_SINK_TOKEN="t", SHOAL_SINK_PATIENCE="0.1"
    )
    assert "given up after 0.1 s" in (directory / "companion.err").read_text()
    assert (directory / "log" / "000000").read_bytes() == b"x\n"
    assert (directory / "exit.json").exists()


def test_a_launcher_that_waits_for_its_sink_can_be_hurried(tmp_path: Path) -> None:
    launcher = start(tmp_path, "true", SHOAL_SINK="http://127.0.0.1:9/", SHOAL_SINK_TOKEN="t")
    until((try_directory(tmp_path) / "exit.json").exists, "the end of the command")
    assert launcher.poll() is None
    launcher.send_signal(signal.SIGUSR2)
    launcher.communicate(timeout=60)
    assert launcher.returncode == 0


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SHOAL_SINK": "ftp://x/"}, "use directory:/path, https://host:port/ or stdout:"),
        ({"SHOAL_SINK": "directory:relative"}, "use directory:/path"),
        ({"SHOAL_SINK": "https://"}, "not the address of a server"),
        ({"SHOAL_SINK": "directory:/x", "SHOAL_TRY": "one"}, "do not say which replica this is"),
    ],
)
def test_a_sink_that_cannot_be_is_named(tmp_path: Path, variables: dict[str, str], said: str) -> None:
    known = {"SHOAL_ATTEMPT": "0", "SHOAL_REPLICA": "worker-0", "SHOAL_TRY": "0", "SHOAL_REPLICA_UID": "u-0-worker-0"}
    with pytest.raises(ValueError, match=re.escape(said)):
        shipping.shipper(str(tmp_path), {**known, **variables})
    assert shipping.shipper(str(tmp_path), known) is None


# --- lines of text


def sent(directory: Path, *, complete: bool = True, try_: int = 0) -> list[str]:
    """The lines that carry a directory."""
    reader, writer = os.pipe()
    lines: list[bytes] = []

    def read() -> None:
        with os.fdopen(reader, "rb") as pipe:
            lines.append(pipe.read())

    thread = threading.Thread(target=read)
    thread.start()
    mirror = Mirror(str(directory), StdoutSink(writer, try_))
    mirror.carry()
    if complete:
        mirror.close()
    os.close(writer)
    thread.join()
    return lines[0].decode("ascii").splitlines(keepends=True)


NOISE = ("epoch 1 loss 0.3\n", "#shoal1\n", "#shoal1 streams/x 12 zzz\n", "\n", "no end of line", "ünïcode\r\n")


def test_lines_among_others_become_the_same_files(tmp_path: Path) -> None:
    directory = tmp_path / "try"
    fill(directory)
    over(directory)
    chance = random.Random(3)
    mixed: list[str] = []
    for line in sent(directory):
        assert len(line.encode()) <= LINE
        mixed += [*chance.sample(NOISE, chance.randint(0, 2)), f"2026-01-02T03:04:05Z stdout F {line}"]
    text = "".join(mixed)  # a word without an end of line joins what follows it
    found = decode(text.splitlines(keepends=True), str(tmp_path / "copy"))
    assert tree(tmp_path / "copy") == tree(directory)
    assert (found.gaps, found.complete) == ([], True)


def test_tries_that_share_an_output_are_told_apart(tmp_path: Path) -> None:
    lines: list[str] = []
    for try_ in (0, 1, 11):
        place = tmp_path / f"try-{try_}" / "log"
        place.mkdir(parents=True)
        (place / "000000").write_text(f"try {try_}\n")
        lines += sent(place.parent, try_=try_)
    random.Random(7).shuffle(lines)
    for try_ in (0, 1, 11):
        copy = tmp_path / f"copy-{try_}"
        found = decode(lines, str(copy), try_)
        assert (found.gaps, found.complete) == ([], True)
        assert tree(copy) == tree(tmp_path / f"try-{try_}")


def test_lines_that_come_twice_or_out_of_order_change_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "try"
    fill(directory)
    lines = sent(directory) * 2
    random.Random(5).shuffle(lines)
    assert decode(lines, str(tmp_path / "copy")).gaps == []
    assert tree(tmp_path / "copy") == tree(directory)


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda line: "", id="lines are missing"),
        pytest.param(lambda line: line[:-40] + "\n", id="lines are cut off"),
        pytest.param(
            lambda line: line[:-20] + ("B" if line[-20] == "A" else "A") + line[-19:], id="a character is another"
        ),
    ],
)
def test_what_does_not_come_through_is_told_as_gaps(tmp_path: Path, harm: Callable[[str], str]) -> None:
    directory = tmp_path / "try"
    fill(directory)
    lines = sent(directory)
    frames = [number for number, line in enumerate(lines) if " files/a/model.bin " in line]
    hurt = {frames[3], frames[4], frames[-1]}
    found = decode(
        [harm(line) if number in hurt else line for number, line in enumerate(lines)], str(tmp_path / "copy")
    )
    whole, copied = tree(directory), tree(tmp_path / "copy")
    assert {gap.path for gap in found.gaps} == {"files/a/model.bin"}
    assert len(found.gaps) == 2
    expected = bytearray(whole["files/a/model.bin"])
    for gap in found.gaps:
        expected[gap.start : gap.end] = bytes(gap.end - gap.start)
    assert copied["files/a/model.bin"].ljust(len(expected), b"\0") == expected
    assert found.gaps[-1].end == len(expected)  # the end is known, though it did not come


def test_a_log_that_ends_early_is_not_complete(tmp_path: Path) -> None:
    directory = tmp_path / "try"
    fill(directory)
    found = decode(sent(directory, complete=False), str(tmp_path / "copy"))
    assert not found.complete
    assert decode([], str(tmp_path / "none")) == ([], [], 0, False)


def test_lines_cannot_write_elsewhere(tmp_path: Path) -> None:
    def line(path: str) -> str:
        data = b"x"
        crc = zlib.crc32(data, zlib.crc32(f"{path} 0 ".encode()))
        import base64

        return f"#shoal1 {path} 0 {crc:08x} {base64.b64encode(zlib.compress(data)).decode()}\n"

    bad = ("files/../../x", "/etc/x", "log/../../x", "other/x", "exit.json/..")
    found = decode([line(path) for path in bad], str(tmp_path / "copy"))
    assert (found.files, found.torn) == ([], len(bad))
    assert list(tmp_path.iterdir()) == []


def test_a_launcher_prints_what_it_carries(tmp_path: Path) -> None:
    launcher = start(tmp_path, "echo hello", SHOAL_SINK="stdout:")
    output, _ = launcher.communicate(timeout=60)
    found = decode(output.decode().splitlines(keepends=True), str(tmp_path / "copy"))
    assert (found.gaps, found.torn, found.complete) == ([], 0, True)
    assert tree(tmp_path / "copy") == tree(try_directory(tmp_path))
    assert Gap("x", 0, 1).end == 1
