"""A real PyTorch run that dies and goes on from its checkpoint: it ends where one ends that never died."""

from __future__ import annotations

from pathlib import Path

from tests.examples.test_examples import HERE, Done, lines_of, run


def test_a_restarted_run_ends_with_the_same_weights(home: Path) -> None:
    whole = resumed("")
    assert begun(whole) == {"master-0": [0], "worker-0": [0]}
    died = resumed("3")
    assert died.experiment()["attempt"] == 1
    assert begun(died) == {"master-0": [0, 3], "worker-0": [0, 3]}
    assert weights(died) == weights(whole)


def resumed(crash: str) -> Done:
    done = run(str(HERE / "resuming"), framework="pytorch", CRASH=crash)
    assert done.code == 0, done.err
    return done


def begun(done: Done) -> dict[str, list[int]]:
    """replica -> the epochs with which its starts began."""
    return {
        replica: [int(line.split()[-1]) for line in lines_of(done.id, replica) if " begins with epoch " in line]
        for replica in ("master-0", "worker-0")
    }


def weights(done: Done) -> list[str]:
    return [line for line in lines_of(done.id, "master-0") if line.startswith("weights")]
