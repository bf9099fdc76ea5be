"""Event files of real writers, read as they grow, by the replica whose processes wrote them and by no other."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.launcher import tensorboard, tfevents
from shoal.launcher.tensorboard import Follower
from tests.environments import environment as environment_of
from tests.launched import events, frames, points, ran, start, try_directory
from tests.running import until

HEADER = {"replica": "worker-0", "rank": 0, "started": 1.0}

WRITERS = {
    "tensorboardX": """
from tensorboardX import SummaryWriter
import numpy
writer = SummaryWriter(sys.argv[1])
for step in range(5): writer.add_scalar("loss", 1 / (step + 1), step)
writer.add_text("note", "two words", 3)
writer.add_histogram("weights", numpy.array([1.0, 1.0, 2.0, 3.0]), 4)
writer.close()
""",
    "pytorch": """
from torch.utils.tensorboard import SummaryWriter
import torch
writer = SummaryWriter(sys.argv[1])
for step in range(5): writer.add_scalar("loss", 1 / (step + 1), step, new_style=step % 2 == 0)
writer.add_text("note", "two words", 3)
writer.add_histogram("weights", torch.tensor([1.0, 1.0, 2.0, 3.0]), 4)
writer.close()
""",
    "tensorflow": """
import tensorflow
with tensorflow.summary.create_file_writer(sys.argv[1]).as_default():
    for step in range(5): tensorflow.summary.scalar("loss", 1 / (step + 1), step=step)
    tensorflow.summary.text("note", "two words", step=3)
    tensorflow.summary.histogram("weights", [1.0, 1.0, 2.0, 3.0], step=4)
""",
}
BESIDE = "import os, sys\nsys.path.append(os.environ['BESIDE'])\n"


def written_by(library: str, directory: Path) -> None:
    """Runs a script that uses the real library."""
    beside = environment_of("tensorboard").parent.parent / "lib" / "python3.11" / "site-packages"
    python = environment_of("tensorboard" if library == "tensorboardX" else library)
    variables = {**os.environ, "BESIDE": str(beside), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    script = BESIDE + WRITERS[library]
    subprocess.run([python, "-c", script, str(directory)], check=True, env=variables, capture_output=True)


def follower(place: Path, *, own: Path | None = None, shared: Path | None = None, **more: Any) -> Follower:
    streams = place / "streams"
    streams.mkdir(exist_ok=True)
    header = {**HEADER, **more.pop("header", {})}
    return Follower(str(streams), header, own=str(own or ""), shared=str(shared or ""), **more)


@pytest.mark.slow
@pytest.mark.parametrize("library", WRITERS)
def test_what_real_libraries_write_is_read(tmp_path: Path, library: str) -> None:
    own = tmp_path / "outputs" / "worker-0"
    own.mkdir(parents=True)
    reader = follower(tmp_path, own=own)
    written_by(library, own / "runs" / "train")
    reader.look()
    reader.close()

    found = points(tmp_path / "streams", "tensorboard")
    assert list(found) == ["runs/train/loss"]
    assert [(step, value) for step, _, value in found["runs/train/loss"]] == [
        (step, struct.unpack("f", struct.pack("f", 1 / (step + 1)))[0]) for step in range(5)
    ]
    file = next(own.rglob("*tfevents*"))
    assert all(abs(at - file.stat().st_mtime) < 60 for _, at, _ in found["runs/train/loss"])
    text, histogram = events(tmp_path / "streams", "tensorboard")
    assert (text["kind"], text["name"], text["text"], text["step"]) == ("text", "runs/train/note", "two words", 3)
    assert (histogram["kind"], histogram["name"], histogram["step"]) == ("histogram", "runs/train/weights", 4)
    assert sum(histogram["counts"]) == 4
    assert len(histogram["edges"]) == len(histogram["counts"]) + 1
    assert histogram["edges"] == sorted(histogram["edges"])
    [(header, _)] = frames(tmp_path / "streams")
    assert (header["kind"], header["replica"], header["rank"]) == ("tensorboard", "worker-0", 0)


TENSORS = """
import json, sys
import numpy
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util
from tensorboard.plugins.scalar import metadata
writer = EventFileWriter(sys.argv[1])
def add(tag, tensor):
    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(
        tag=tag, tensor=tensor, metadata=metadata.create_summary_metadata(tag, ""))])
    writer.add_event(event_pb2.Event(wall_time=12.5, step=7, summary=summary))
for kind in ("float32", "float64", "int32", "int64", "float16", "uint8", "int8", "int16", "uint16", "uint32", "uint64"):
    number = numpy.array(-3 if kind[0] != "u" else 3, kind)
    code = tensor_util.make_tensor_proto(number).dtype
    add("content/" + kind, tensor_pb2.TensorProto(dtype=code, tensor_content=number.tobytes()))
    add("values/" + kind, tensor_util.make_tensor_proto(number))
add("values/bool", tensor_pb2.TensorProto(dtype=types_pb2.DT_BOOL, bool_val=[True]))
add("values/bfloat16", tensor_pb2.TensorProto(dtype=types_pb2.DT_BFLOAT16, half_val=[0xC040]))
add("several", tensor_util.make_tensor_proto(numpy.array([1.0, 2.0])))
add("nan", tensor_util.make_tensor_proto(numpy.float32("nan")))
writer.close()
"""


def test_scalars_of_every_type_are_read_however_they_are_written(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    reader = follower(tmp_path, own=own)
    subprocess.run([environment_of("tensorboard"), "-c", TENSORS, str(own)], check=True, capture_output=True)
    reader.close()
    found = {
        name: [(s, t, v) for s, t, v in rows] for name, rows in points(tmp_path / "streams", "tensorboard").items()
    }
    assert "several" not in found
    [(_, _, nan)] = found.pop("nan")
    assert nan != nan
    assert found.pop("values/bool") == [(7, 12.5, 1.0)]
    assert len(found) == 23
    assert {name: rows for name, rows in found.items() if rows != [(7, 12.5, 3.0 if "/u" in name else -3.0)]} == {}


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    crcs = [struct.pack("<I", tfevents.masked_crc(part)) for part in (length, data)]
    return length + crcs[0] + data + crcs[1]


def scalar(step: int, value: float, tag: str = "loss", at: float = 100.0) -> bytes:
    inner = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(inner)]) + inner
    return record(b"\x09" + struct.pack("<d", at) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary)


def values(place: Path, name: str = "loss") -> list[tuple[int, float]]:
    return [(step, value) for step, _, value in points(place / "streams", "tensorboard").get(name, [])]


def test_the_checksum_is_the_one_of_others() -> None:
    crc = 0xE3069283  # of 123456789, as every description of CRC-32C says
    assert tfevents.masked_crc(b"123456789") == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_file_is_read_as_it_grows_byte_by_byte(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    reader = follower(tmp_path, own=own)
    data = b"".join(scalar(step, step / 2) for step in range(3))
    with open(own / "events.out.tfevents.1.host", "ab", buffering=0) as file:
        kept = []
        for place in range(len(data)):
            file.write(data[place : place + 1])
            kept.append(reader.look())
    assert [number + 1 for number, count in enumerate(kept) if count] == [len(data) // 3 * n for n in (1, 2, 3)]
    reader.close()
    assert values(tmp_path) == [(0, 0.0), (1, 0.5), (2, 1.0)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(scalar(0, 1) + b"\0" * 40 + scalar(1, 2), [(0, 1.0), (1, 2.0)], id="zeros between"),
        pytest.param(scalar(0, 1)[:-1] + b"\x01" + scalar(1, 2), [(1, 2.0)], id="a wrong checksum of the data"),
        pytest.param(b"\x07" + scalar(0, 1)[1:] + scalar(1, 2), [(1, 2.0)], id="a wrong length"),
        pytest.param(scalar(0, 1) + scalar(1, 2)[:20], [(0, 1.0)], id="a torn end"),
        pytest.param(record(b"\xff\xff\xff") + scalar(1, 2), [(1, 2.0)], id="something else in a whole record"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_damage_costs_what_is_damaged(tmp_path: Path, data: bytes, expected: list[tuple[int, float]]) -> None:
    assert read_at_once(tmp_path, data) == expected


@pytest.mark.slow  # to sum up what is large
@pytest.mark.parametrize(
    ("length", "size"),
    [
        pytest.param(b"\x85\x80\x80\x03", 3 * 2**21 + 5, id="a picture of six megabytes"),
        pytest.param(b"\x80\x80\x80\x01", 2**21, id="a record larger than what is read at once"),
    ],
)
def test_what_is_large_and_no_scalar_is_passed_over(tmp_path: Path, length: bytes, size: int) -> None:
    data = record(b"\x1a" + length + b"x" * size) + scalar(1, 2)
    assert read_at_once(tmp_path, data) == [(1, 2.0)]


def read_at_once(tmp_path: Path, data: bytes) -> list[tuple[int, float]]:
    own = tmp_path / "own"
    own.mkdir()
    reader = follower(tmp_path, own=own)
    (own / "events.out.tfevents.1.host").write_bytes(data)
    reader.close()
    return values(tmp_path)


@pytest.mark.parametrize(
    ("begins", "expected"),
    [
        pytest.param({"attempt": 1, "try": 0}, [(1, 2.0), (2, 3.0)], id="a later attempt"),
        pytest.param({"attempt": 0, "try": 1}, [(1, 2.0), (2, 3.0)], id="a later try"),
        pytest.param({"attempt": 0, "try": 0}, [(0, 1.0), (1, 2.0), (2, 3.0)], id="the first: others were faster"),
    ],
)
def test_what_an_earlier_attempt_wrote_is_not_read_again(
    tmp_path: Path, begins: dict[str, int], expected: list[tuple[int, float]]
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "events.out.tfevents.1.host").write_bytes(scalar(0, 1))
    reader = follower(tmp_path, own=own, header=begins)
    with open(own / "events.out.tfevents.1.host", "ab") as file:
        file.write(scalar(1, 2))
    (own / "events.out.tfevents.2.host").write_bytes(scalar(2, 3))
    reader.close()
    assert values(tmp_path) == expected


def test_directories_that_come_later_are_found(tmp_path: Path) -> None:
    own = tmp_path / "own"
    reader = follower(tmp_path, own=own)
    for number, below in enumerate(("", "a", "a/b", "c/d/e")):
        (own / below).mkdir(parents=True, exist_ok=True)
        (own / below / f"events.out.tfevents.{number}.host").write_bytes(scalar(number, number))
        reader._due = 0.0
        assert reader.look() == 1
    (own / "link").symlink_to(tmp_path)
    reader.close()
    assert set(points(tmp_path / "streams", "tensorboard")) == {"loss", "a/loss", "a/b/loss", "c/d/e/loss"}


def shared_script(name: str, data: bytes, done: Path) -> str:
    """Writes a file below the directory that all replicas share, and lives until there is a file `done`."""
    code = f"import os, socket, time\nname = {name!r}.format(host=socket.gethostname(), pid=os.getpid())\n"
    code += "path = os.environ['SHOAL_OUTPUTS'] + '/' + name\nos.makedirs(os.path.dirname(path), exist_ok=True)\n"
    code += f"file = open(path, 'wb')\nfile.write(bytes.fromhex('{data.hex()}'))\nfile.flush()\n"
    code += "if 'open' not in name: file.close()\n"
    return f'{sys.executable} -c "{code}while not os.path.exists({str(done)!r}): time.sleep(0.05)"'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reader"),
    [
        pytest.param("events.out.tfevents.1.{host}.{pid}.0", "worker-1", id="a name with a pid: its replica"),
        pytest.param("events.out.tfevents.1.{host}.{pid}.0.v2", "worker-1", id="a name as TensorFlow writes it"),
        pytest.param("events.out.tfevents.1.{host}", "worker-0", id="a name without one: rank 0"),
        pytest.param("open/events.out.tfevents.1.{host}", "worker-1", id="a name without one, open: who has it open"),
        pytest.param("events.out.tfevents.1.elsewhere.{pid}.0", "worker-0", id="a name of another machine: rank 0"),
    ],
)
def test_a_shared_file_is_read_once(tmp_path: Path, name: str, reader: str) -> None:
    done = tmp_path / "done"
    launchers = [
        start(tmp_path, f"while [ ! -e {done} ]; do sleep 0.05; done", SHOAL_REPLICA="worker-0"),
        start(tmp_path, shared_script(name, scalar(3, 4), done), SHOAL_REPLICA="worker-1"),
    ]
    try:
        until(lambda: list((tmp_path / "outputs").glob("**/*tfevents*")), "the file")
        if reader == "worker-1":
            until(lambda: points_of(tmp_path, "worker-1"), "its points")
    finally:
        done.touch()
        for launcher in reversed(launchers):
            launcher.communicate(timeout=60)
    assert {replica: points_of(tmp_path, replica) for replica in ("worker-0", "worker-1")} == {
        "worker-0": {},
        "worker-1": {},
        reader: {"open/loss" if "open" in name else "loss": [(3, 100.0, 4.0)]},
    }


def points_of(place: Path, replica: str) -> dict[str, Any]:
    streams = try_directory(place, replica) / "streams"
    return points(streams, "tensorboard") if streams.exists() else {}


def test_a_claim_is_one_replicas(tmp_path: Path) -> None:
    shared = tmp_path / "outputs"
    shared.mkdir()
    name = f"events.out.tfevents.1.{socket.gethostname()}.999999999.0"
    readers = {}
    for number in (0, 1, 2):
        place = tmp_path / f"worker-{number}"
        place.mkdir()
        header = {"replica": f"worker-{number}", "rank": number}
        pids = (lambda: [999999999]) if number else tuple
        readers[number] = follower(place, shared=shared, header=header, pids=pids)
    (shared / name).write_bytes(scalar(1, 2))
    for number in (2, 1, 0):  # two think that it is theirs, the third that it is nobody's
        readers[number].close()
    assert [values(tmp_path / f"worker-{number}") for number in (0, 1, 2)] == [[], [], [(1, 2.0)]]
    assert [os.readlink(link) for link in (tmp_path / "tensorboard").iterdir()] == ["worker-2"]


def test_directories_of_replicas_in_the_shared_one_are_theirs(tmp_path: Path) -> None:
    shared = tmp_path / "outputs"
    for name in ("worker-0", "worker-1", "other"):
        (shared / name).mkdir(parents=True)
    reader = follower(tmp_path, own=shared / "worker-0", shared=shared, others=["worker-0", "worker-1"])
    for number, name in enumerate(("worker-0", "worker-1", "other")):
        (shared / name / "events.out.tfevents.1.host").write_bytes(scalar(number, number))
    reader.close()
    assert points(tmp_path / "streams", "tensorboard") == {
        "loss": [(0, 100.0, 0.0)],
        "other/loss": [(2, 100.0, 2.0)],
    }


def test_processes_of_one_replica_are_told_apart_by_their_ranks(tmp_path: Path) -> None:
    """As torchrun starts them: each with RANK and LOCAL_RANK of its own, all writing below one directory."""
    own = tmp_path / "own"
    own.mkdir()
    wait = [sys.executable, "-c", "print(flush=True); import sys; sys.stdin.read()"]
    processes = []
    for rank in (4, 5):
        variables = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank - 4)}
        process = subprocess.Popen(wait, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        processes.append(process)
    try:
        reader = follower(tmp_path, own=own, header={"rank": 1}, pids=lambda: [process.pid for process in processes])
        for process in processes:
            name = f"events.out.tfevents.1.{socket.gethostname()}.{process.pid}.0"
            (own / name).write_bytes(scalar(0, process.pid % 100))
        reader.close()
    finally:
        for process in processes:
            process.communicate()
    assert sorted((header["rank"], header["process"]) for header, _ in frames(tmp_path / "streams")) == [(4, 0), (5, 1)]


def test_a_replica_that_writes_event_files_needs_no_other_word(tmp_path: Path) -> None:
    python = environment_of("tensorboard")
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nfrom tensorboardX import SummaryWriter\n"
        "with SummaryWriter(os.environ['SHOAL_REPLICA_OUTPUTS']) as writer:\n"
        "    for step in range(100): writer.add_scalar('loss', step, step)\n"
    )
    directory = ran(tmp_path, f"{python} {script}")
    found = points(directory / "streams", "tensorboard")
    assert [(step, value) for step, _, value in found["loss"]] == [(step, float(step)) for step in range(100)]
    assert json.loads((directory / "exit.json").read_text())["exit_code"] == 0
    assert not (directory / "companion.err").exists()


def test_looking_is_done_less_often_where_it_takes_long(tmp_path: Path) -> None:
    assert tensorboard.COST >= 100
    own = tmp_path / "own"
    own.mkdir()
    times = [1000.0]
    reader = follower(tmp_path, own=own, clock=lambda: times[-1])
    reader.look()
    assert reader._due >= times[-1]
    (own / "events.out.tfevents.1.host").write_bytes(scalar(0, 1))
    times.append(1000.0 + 60)
    assert reader.look() == 1
    reader.close()
