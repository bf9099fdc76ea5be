"""Stacks of many ranks as one tree, and who is not where the others wait."""

from __future__ import annotations

import faulthandler
import tempfile
import threading

import pytest

from shoal.engine.stacktrees import Frame, Rank, groups, parse, tree, verdict

TRAIN = "/home/me/train.py"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LOADER = "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
MAIN = Frame(TRAIN, 50, "<module>")
REDUCING = (MAIN, Frame(TRAIN, 30, "step"), Frame(C10D, 2810, "all_reduce"))
KVSTORE = "/venv/lib/python3.11/site-packages/mxnet/kvstore/kvstore.py"
PULLING = (MAIN, Frame(TRAIN, 30, "Trainer.step"), Frame(KVSTORE, 300, "KVStore.pull"))  # as newer Pythons call methods
IN_BARRIER = (MAIN, Frame(TRAIN, 44, "save"), Frame(C10D, 4000, "barrier"))
LOADING = (MAIN, Frame(TRAIN, 18, "next_batch"), Frame(LOADER, 700, "__next__"))
BACKWARD = (MAIN, Frame(TRAIN, 31, "step"), Frame("/venv/lib/python3.11/site-packages/torch/_tensor.py", 5, "backward"))


def ranks(*stacks: tuple[Frame, ...]) -> list[Rank]:
    return [Rank(f"worker-{n}", f"worker-{n}", 0, n, 100 + n, "sdk", stack) for n, stack in enumerate(stacks)]


@pytest.mark.parametrize(
    ("stacks", "said", "odd"),
    [
        pytest.param(
            [REDUCING, LOADING, REDUCING, REDUCING],
            "worker-1 has not entered all_reduce, where 3 other ranks wait: "
            "worker-1 is in __next__, called by next_batch (train.py:18)",
            ["worker-1"],
            id="one rank is missing in a collective",
        ),
        pytest.param(
            [LOADING, REDUCING, LOADING],
            "worker-0 and worker-2 have not entered all_reduce, where 1 other rank waits",
            ["worker-0", "worker-2"],
            id="most ranks are missing",
        ),
        pytest.param(
            [REDUCING, REDUCING, IN_BARRIER],
            "ranks wait in different collectives: worker-0 and worker-1 in all_reduce; worker-2 in barrier",
            ["worker-2"],
            id="ranks wait in different collectives",
        ),
        pytest.param(
            [PULLING, PULLING, LOADING],
            "worker-2 has not entered KVStore.pull, where 2 other ranks wait: "
            "worker-2 is in __next__, called by next_batch (train.py:18)",
            ["worker-2"],
            id="a collective that is a method",
        ),
        pytest.param(
            [REDUCING, REDUCING],
            "all 2 ranks are in all_reduce, called by step (train.py:30)",
            [],
            id="all ranks are at the same place",
        ),
        pytest.param(
            [BACKWARD, BACKWARD, LOADING],
            "2 ranks are in backward, called by step (train.py:31); "
            "worker-2 in __next__, called by next_batch (train.py:18)",
            ["worker-2"],
            id="a wait that no frame shows",
        ),
        pytest.param(
            [BACKWARD, LOADING], "ranks are at 2 places; no collective is among them", [], id="nobody can tell"
        ),
        pytest.param([LOADING], "worker-0 is in __next__, called by next_batch (train.py:18)", [], id="one rank"),
        pytest.param([()], "no stack could be read", [], id="no stacks"),
        pytest.param(
            [REDUCING, *[LOADING] * 8],
            "worker-1, worker-2, worker-3, worker-4, worker-5 and 3 more have not entered all_reduce, "
            "where 1 other rank waits",
            [f"worker-{n}" for n in range(1, 9)],
            id="many ranks are counted",
        ),
    ],
)
def test_the_verdict_is_one_sentence(stacks: list[tuple[Frame, ...]], said: str, odd: list[str]) -> None:
    assert verdict(ranks(*stacks)) == (said, odd)


def test_equal_calls_are_one_branch_and_the_largest_comes_first() -> None:
    (root,) = tree(ranks(LOADING, REDUCING, REDUCING))
    assert (root.frame, root.ranks) == (MAIN, ["worker-0", "worker-1", "worker-2"])
    assert [(child.frame.function, child.ranks) for child in root.children] == [
        ("step", ["worker-1", "worker-2"]),
        ("next_batch", ["worker-0"]),
    ]
    assert [len(who) for _, who in groups(ranks(LOADING, REDUCING, REDUCING))] == [2, 1]


def test_what_faulthandler_writes_is_read() -> None:
    """Of the main thread, whichever thread wrote it, and however many there are."""
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        leave.wait()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        leave.set()
        thread.join()
        file.seek(0)
        dump = file.read()
    main = threading.main_thread().ident
    assert main is not None
    frames, threads = parse(dump, main)
    assert threads >= 2
    assert frames[-1].function == "test_what_faulthandler_writes_is_read"
    assert frames[-1].file == __file__
    of_the_other, _ = parse(dump, thread.ident or 0)
    assert "work" in [frame.function for frame in of_the_other]


@pytest.mark.parametrize("dump", ["", "nonsense\n", "Thread 0x1 (most recent call first):\n  <no Python frame>\n"])
def test_what_is_no_stack_gives_none(dump: str) -> None:
    assert parse(dump, 1)[0] == ()
