"""What the server remembers between questions, and when it does not."""

from __future__ import annotations

from shoal.server.memory import MOST_REPORTS, Memory


def test_a_report_is_made_once_for_each_state_of_an_experiment() -> None:
    memory, made = Memory(), []

    def make(word: str) -> dict[str, str]:
        made.append(word)
        return {"verdict": word}

    for of, word in ((("a", 1), "first"), (("a", 1), "again"), (("a", 2), "changed"), (("b", 1), "other")):
        memory.report(of, lambda word=word: make(word))  # type: ignore[misc]
    assert made == ["first", "changed", "other"]
    assert memory.report(("a", 1), lambda: make("never")) == {"verdict": "first"}


def test_the_oldest_reports_are_forgotten() -> None:
    memory = Memory()
    for number in range(MOST_REPORTS + 1):
        memory.report((str(number), 0), dict)
    assert memory.report(("0", 0), lambda: {"made": "again"}) == {"made": "again"}
    assert memory.report((str(MOST_REPORTS), 0), lambda: {"made": "again"}) == {}


def test_nothing_is_loaded_to_forget_what_was_never_decoded() -> None:
    memory = Memory()
    memory.forget(["s1"])
    assert "heads" not in vars(memory)
