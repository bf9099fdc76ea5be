"""How processes end, fork and fail, and that their streams hold what they said: real processes, real signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal import journal
from tests.environments import environment
from tests.recording import Stream, environment_for, record, start, stream_below, streams_below
from tests.running import until


def lines(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return process.stdout


def whole(stream: Stream) -> None:
    """No damage, no frame lost or doubled."""
    assert stream.damage == 0
    assert stream.seqs == list(range(len(stream.seqs)))


ENDS = {
    "the end of the script": ("", 0, "exited", ""),
    "sys.exit": ("import sys; sys.exit(3)", 3, "exception", "exit code 3"),
    "sys.exit in a function": ("import sys\ndef main(): sys.exit(-1)\nmain()", 255, "exception", "exit code 255"),
    "sys.exit with words": ("import sys; sys.exit('no data')", 1, "exception", "no data"),
    "sys.exit of a parser": (
        "import argparse; argparse.ArgumentParser().parse_args(['-x'])",
        2,
        "exception",
        "exit code 2",
    ),
    "sys.exit that is fine": ("import sys; sys.exit(0)", 0, "exited", ""),
    "sys.exit with a number of which nothing is left": ("import sys; sys.exit(256)", 0, "exited", ""),
    "sys.exit without a code": ("import sys; sys.exit()", 0, "exited", ""),
    "sys.exit that is caught": ("import sys\ntry: sys.exit(3)\nexcept SystemExit: pass", 0, "exited", ""),
    "sys.exit that is kept": ("import sys\ntry: sys.exit(3)\nexcept SystemExit as e: kept = e", 0, "exited", ""),
    "sys.exit of a thread": (
        "import sys, threading\nt = threading.Thread(target=sys.exit, args=[3])\nt.start(); t.join()",
        0,
        "exited",
        "",
    ),
    "an exception": ("raise KeyError('lr')", 1, "exception", "KeyError: 'lr'"),
    "an exception of a class of its own": ("class Odd(Exception): pass\nraise Odd", 1, "exception", "Odd"),
    "finish": ("shoal.finish()", 0, "finished", ""),
    "SIGTERM": ("signal.raise_signal(signal.SIGTERM)", -15, "exception", "ended by SIGTERM"),
    "Ctrl-C": ("signal.raise_signal(signal.SIGINT)", -2, "exception", "KeyboardInterrupt"),
}


@pytest.mark.parametrize(("code", "status", "how", "error"), ENDS.values(), ids=ENDS)
def test_nothing_is_lost_when_a_process_ends(code: str, status: int, how: str, error: str, tmp_path: Path) -> None:
    record(f"import shoal, signal\nfor i in range(1000): shoal.log(i=i)\n{code}\n", tmp_path / "home", code=status)
    stream = stream_below(tmp_path / "home")
    assert stream.points["i"] == [(i, float(i)) for i in range(1000)]
    assert stream.end is not None
    assert (stream.end["how"], stream.end["error"], stream.end["dropped"]) == (how, error, 0)
    whole(stream)


def test_sigterm_ends_a_process_whose_main_thread_hangs_in_c(tmp_path: Path) -> None:
    process = start(
        """
        import ctypes, shoal
        shoal.log(i=1)
        library, lock = ctypes.CDLL(None), ctypes.create_string_buffer(128)
        library.pthread_mutex_lock(lock)
        print("hangs", flush=True)
        library.pthread_mutex_lock(lock)  # as in a collective that never returns: no handler of Python runs
        """,
        tmp_path / "home",
    )
    assert lines(process).readline() == "hangs\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    stream = stream_below(tmp_path / "home")
    assert stream.points["i"] == [(0, 1.0)]
    assert stream.end is not None
    assert stream.end["error"] == "ended by SIGTERM"


HANDLERS = {
    "a handler that was there before": (
        "signal.signal(signal.SIGTERM, own); shoal.log(a=1)",
        "own",
        7,
        "exception",
    ),
    "a handler that came later": ("shoal.log(a=1); signal.signal(signal.SIGTERM, own)", "own", 7, "exception"),
    "a later handler that calls the one before": (
        "shoal.log(a=1); before = signal.getsignal(signal.SIGTERM); "
        "signal.signal(signal.SIGTERM, lambda n, f: (before(n, f), own(n, f)))",
        "own",
        7,
        "exception",
    ),
    "a signal that is ignored": ("signal.signal(signal.SIGTERM, signal.SIG_IGN); shoal.log(a=1)", "lives", 0, "exited"),
}


@pytest.mark.parametrize(("code", "said", "status", "how"), HANDLERS.values(), ids=HANDLERS)
def test_handlers_of_the_script_still_decide(code: str, said: str, status: int, how: str, tmp_path: Path) -> None:
    process = start(
        f"""
        import os, signal, sys, shoal
        def own(number, frame):
            print("own", flush=True)
            sys.exit(7)
        {code}
        os.kill(os.getpid(), signal.SIGTERM)
        print("lives", flush=True)
        """,
        tmp_path / "home",
    )
    output, errors = process.communicate(timeout=60)
    assert (output, process.returncode, errors) == (f"{said}\n", status, "")
    stream = stream_below(tmp_path / "home")
    assert stream.points["a"] == [(0, 1.0)]
    assert stream.end is not None
    assert stream.end["how"] == how


def test_what_was_said_is_soon_in_the_file_and_survives_kill_9(tmp_path: Path) -> None:
    for round_ in range(5):
        home = tmp_path / str(round_) / "home"
        home.mkdir(parents=True)
        process = start(
            """
            import shoal
            number = 0
            while True:
                shoal.log({"number": number, "half": number / 2})
                number += 1
                if number % 10_000 == 0:
                    print(number, flush=True)
            """,
            home,
        )
        said = [int(lines(process).readline()) for _ in range(1 + round_)][-1]
        until(lambda home=home, said=said: numbers_in(home) >= said, "what was said, in the file")
        process.kill()
        process.communicate()
        stream = stream_below(home)
        numbers = stream.points["number"]
        assert numbers == [(number, float(number)) for number in range(len(numbers))]
        assert stream.points["half"] == [(number, number / 2) for number in range(len(numbers))]
        assert stream.seqs == list(range(len(stream.seqs)))


def numbers_in(home: Path) -> int:
    """How many points the file of a process that lives holds so far."""
    return sum(len(stream.points.get("number", ())) for stream in streams_below(home) if stream.header)


def test_a_checkpoint_is_known_before_the_call_returns(tmp_path: Path) -> None:
    (tmp_path / "step-7.pt").write_bytes(b"weights")
    code = "import os, shoal; shoal.log(a=1); shoal.checkpoint('step-7.pt', step=7); os._exit(9)"
    record(code, tmp_path / "home", code=9)
    stream = stream_below(tmp_path / "home")
    assert stream.of_kind("checkpoint")[0]["step"] == 7
    assert stream.points["a"] == [(0, 1.0)]


def test_a_fork_has_a_stream_of_its_own(tmp_path: Path) -> None:
    record(
        """
        import os, shoal
        shoal.log(parent=1)
        child = os.fork()
        shoal.log(child=1) if child == 0 else os.waitpid(child, 0)
        """,
        tmp_path / "home",
    )
    streams = streams_below(tmp_path / "home")
    assert len(streams) == 2
    parent = next(stream for stream in streams if "parent" in stream.points)
    child = next(stream for stream in streams if "child" in stream.points)
    assert set(parent.points) == {"parent"}
    assert set(child.points) == {"child"}
    assert child.header["pid"] != parent.header["pid"]
    assert child.header["key"] == parent.header["key"]
    assert (parent.header["parent"], child.header["parent"]) == (None, parent.header["stream"])
    assert all(stream.end is not None for stream in streams)


@pytest.mark.parametrize(
    ("leaves", "status", "error"),
    [("sys.exit(3)", 3, "exit code 3"), ("raise KeyError('lr')", 1, "KeyError: 'lr'")],
)
def test_a_fork_ends_well_where_others_watch_the_end_too(tmp_path: Path, leaves: str, status: int, error: str) -> None:
    errors = record(
        f"""
        import os, sys, shoal
        shoal.log(parent=1)
        def watched(function):
            return lambda *arguments: function(*arguments)
        sys.exit, sys.excepthook = watched(sys.exit), watched(sys.excepthook)  # as other trackers do
        child = os.fork()
        if child == 0:
            shoal.log(child=1)
            {leaves}
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        tmp_path / "home",
        code=status,
    )
    assert "Recursion" not in errors
    child = next(stream for stream in streams_below(tmp_path / "home") if "child" in stream.points)
    assert child.end is not None
    assert child.end["error"] == error


def test_a_child_that_its_parent_ends_has_not_failed(tmp_path: Path) -> None:
    record(
        """
        import multiprocessing, shoal
        shoal.log(parent=1)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            pool.apply(shoal.log, [{"child": 1}])
        """,
        tmp_path / "home",
    )
    ends = {name: stream.end for stream in streams_below(tmp_path / "home") for name in stream.points}
    assert {name: end and end["how"] for name, end in ends.items()} == {"parent": "exited", "child": "exited"}


def test_a_fork_that_says_nothing_opens_nothing(tmp_path: Path) -> None:
    process = start(
        """
        import multiprocessing, os, signal, shoal
        def open_files():
            found = []
            for name in os.listdir("/proc/self/fd"):
                try:
                    found.append(os.readlink(f"/proc/self/fd/{name}"))
                except OSError:
                    pass  # the one that lists
            return found
        def work(number):
            return open_files(), signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        if __name__ == "__main__":
            before = set(open_files())
            shoal.log(a=1)
            shoal.sdk.session.current().flush()
            ours = set(open_files()) - before
            assert len(ours) == 3, ours  # the stream, the pipe that wakes the writer, the answer to shoal stacks
            with multiprocessing.get_context("fork").Pool(2) as pool:
                for files, default in pool.map(work, range(20)):
                    assert default, "SIGTERM of a worker is not as it was"
                    assert not ours & set(files), files
        """,
        tmp_path / "home",
    )
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert stream_below(tmp_path / "home").points == {"a": [(0, 1.0)]}


@pytest.mark.parametrize("handler", ["", "signal.signal(signal.SIGTERM, lambda *_: os._exit(15))"])
def test_a_fork_that_is_ended_before_it_knows_of_itself_ends_alone(handler: str, tmp_path: Path) -> None:
    """As a pool does that is over before its last worker has begun. The pipe that signals ring is the parent's too."""
    record(
        f"""
        import os, signal, time
        heard, tell = os.pipe()
        def begin_late():
            os.write(tell, b".")
            deadline = time.monotonic() + 30
            while signal.SIGTERM not in signal.sigpending() and time.monotonic() < deadline:
                time.sleep(0.01)
        os.register_at_fork(after_in_child=begin_late)
        import shoal
        {handler}
        shoal.log(a=1)
        shoal.sdk.session.current().flush()
        child = os.fork()
        if not child:
            time.sleep(30)
            os._exit(1)
        os.read(heard, 1)
        os.kill(child, signal.SIGTERM)
        status = os.waitpid(child, 0)[1]
        assert (os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)) == 15, status
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
        shoal.log(a=2)
        """,
        tmp_path / "home",
    )
    stream = stream_below(tmp_path / "home")
    assert stream.points == {"a": [(0, 1.0), (1, 2.0)]}
    assert stream.end is not None
    assert stream.end["how"] == "exited"


@pytest.mark.parametrize("first", ["parent", "children"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_join_the_run_of_their_parent(method: str, first: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"""
import multiprocessing, os, shoal
def work(rank):
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
    for number in range(100):
        shoal.log(rank=rank)
    if rank == 2:
        raise ValueError("rank 2 has no data")
if __name__ == "__main__":
    if {first == "parent"}:
        shoal.log(parent=1)
    context = multiprocessing.get_context({method!r})
    children = [context.Process(target=work, args=(rank,)) for rank in (1, 2)]
    for child in children: child.start()
    for child in children: child.join()
    shoal.log(parent=2)
"""
    )
    home = tmp_path / "home"
    done = subprocess.run([sys.executable, script], env=environment_for(home), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    streams = streams_below(home)
    assert [stream.header["rank"] for stream in streams] == [0, 1, 2]
    assert len(list(home.glob("outside/*"))) == 1
    for rank in (1, 2):
        assert streams[rank].points["rank"] == [(step, float(rank)) for step in range(100)]
    if first == "parent":
        assert [stream.header["parent"] for stream in streams] == [None, *[streams[0].header["stream"]] * 2]
    ends = [stream.end and (stream.end["how"], stream.end["error"]) for stream in streams]
    assert ends == [("exited", ""), ("exited", ""), ("exception", "ValueError: rank 2 has no data")]


def test_threads_log_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    errors = record(
        """
        import shoal, threading
        def work(thread):
            for number in range(20_000):
                shoal.log({f"t{thread}": number, "all": 1.0})
        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
        tmp_path / "home",
    )
    assert errors == ""
    stream = stream_below(tmp_path / "home")
    for thread in range(4):
        assert [value for _, value in stream.points[f"t{thread}"]] == [float(number) for number in range(20_000)]
    assert sorted(step for step, _ in stream.points["all"]) == list(range(80_000))
    assert len(stream.seqs) > 2


def test_what_is_said_while_the_interpreter_ends(tmp_path: Path) -> None:
    errors = record(
        """
        import atexit
        atexit.register(lambda: shoal.log(after=1))
        import shoal
        atexit.register(lambda: shoal.log(before=1))
        class Late:
            def __del__(self): shoal.log(late=1)
        late = Late()
        shoal.log(during=1)
        """,
        tmp_path / "home",
    )
    assert errors == ""
    streams = streams_below(tmp_path / "home")
    assert {"before", "during", "after"} <= {name for stream in streams for name in stream.points}
    assert all(stream.end is not None for stream in streams)


def test_a_first_word_at_the_very_end(tmp_path: Path) -> None:
    errors = record("import atexit, shoal\natexit.register(lambda: shoal.log(a=1))\nshoal.log", tmp_path / "home")
    assert errors == ""
    assert stream_below(tmp_path / "home").points["a"] == [(0, 1.0)]


def test_a_full_disk_keeps_what_it_can_and_says_so_once(tmp_path: Path) -> None:
    process = start(
        """
        import os, resource, sys, time, shoal
        from shoal.sdk import session
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        shoal.log(i=0)
        session.current().flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        for number in range(1, 5000):
            shoal.log(i=number * 1.1, j=number / 7)
            if number % 1000 == 0:
                session.current().flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        shoal.log(i=-1)
        """,
        tmp_path / "home",
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(errors.splitlines()) == 1, errors
    assert "File too large" in errors
    stream = stream_below(tmp_path / "home")
    assert len(stream.points["i"]) == 5001
    assert stream.points["j"] == [(number - 1, number / 7) for number in range(1, 5000)]
    assert stream.end is not None
    assert stream.end["dropped"] == 0
    whole(stream)


def test_a_home_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    errors = record(
        """
        import shoal
        shoal.init("x")
        for number in range(3): shoal.log(a=1)
        shoal.artifact("file")
        print(shoal.replica.name)
        """,
        tmp_path / "file",
    )
    assert errors
    assert all(line.startswith("shoal: ") for line in errors.splitlines()), errors
    assert "Traceback" not in errors


def test_too_many_calls_are_dropped_and_counted(tmp_path: Path) -> None:
    errors = record(
        """
        import sys, shoal
        wide = dict.fromkeys(map(str, range(4000)), 0.5)
        shoal.log(wide)
        shoal.sdk.session.current().flush()
        sys.setswitchinterval(1000)  # the writer hardly gets a turn
        for number in range(3000): shoal.log(wide)
        sys.setswitchinterval(0.005)
        """,
        tmp_path / "home",
    )
    assert [line for line in errors.splitlines() if "calls are dropped and counted" not in line] == []
    (file,) = (tmp_path / "home").glob("**/streams/*")
    frames = [frame for frame in journal.scan(file.read_bytes())[0] if isinstance(frame, journal.Frame)]
    bodies = [frame.body for frame in frames if frame.kind == journal.POINTS]
    groups = [group for body in bodies for group in journal.unpack_points(body) if "7" in group.names]
    dropped = journal.unpack_json(frames[-1].body)["dropped"]
    assert 0 < dropped < 3000
    assert sum(len(group.times) for group in groups) + dropped == 3001


def test_tensors_and_arrays_are_values_and_images(tmp_path: Path) -> None:
    script = """
    import numpy, torch, shoal, warnings
    warnings.simplefilter("error")
    shoal.log({"np": numpy.float32(0.5), "np64": numpy.float64(1.5), "int": numpy.int64(3), "one": numpy.array([2.5])})
    shoal.log({"t": torch.tensor(0.25, requires_grad=True), "one": torch.ones(1, 1)}, step=numpy.int32(7))
    shoal.log(bad=torch.ones(2))
    grey = numpy.arange(6, dtype="uint8").reshape(2, 3)
    shoal.image("grey", grey)
    shoal.image("colour", numpy.zeros((4, 5, 3)))
    shoal.image("first", torch.rand(3, 8, 9))
    shoal.histogram("h", torch.arange(10.0, requires_grad=True), bins=5)
    shoal.params(lr=numpy.float32(0.5), shape=numpy.array([1, 2]))
    """
    errors = record(script, tmp_path / "home", python=str(environment("pytorch")))
    assert errors.splitlines() == [line for line in errors.splitlines() if "bad is a Tensor" in line]
    stream = stream_below(tmp_path / "home")
    assert stream.points == {
        "np": [(0, 0.5)],
        "np64": [(0, 1.5)],
        "int": [(0, 3.0)],
        "one": [(0, 2.5), (7, 1.0)],
        "t": [(7, 0.25)],
    }
    sizes = [(event["name"], event["width"], event["height"]) for event in stream.of_kind("image")]
    assert sizes == [("grey", 3, 2), ("colour", 5, 4), ("first", 9, 8)]
    assert stream.of_kind("histogram")[0]["counts"] == [2, 2, 2, 2, 2]
    assert stream.of_kind("params")[0]["values"] == {"lr": 0.5, "shape": [1, 2]}
