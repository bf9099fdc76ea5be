"""Many logs over few connections: everybody has a turn, nobody is left out, and few read at once."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from shoal.backends.kubernetes.turns import Turns
from tests.running import until


class Log:
    """Reads until it is paused, or its last line has come."""

    def __init__(self, name: int, book: Book) -> None:
        self.name = name
        self.book = book
        self.following = False
        self._pause = threading.Event()

    def turn(self) -> float | None:
        self.book.begin(self.name)
        self.following = True
        while not self.book.last.is_set() and not self._pause.wait(0.005):
            pass
        self.following = False
        self._pause.clear()
        self.book.end(self.name)
        return None if self.book.last.is_set() else 0.0

    def pause(self) -> None:
        self._pause.set()


class Book:
    """Who reads, and how often each has."""

    def __init__(self) -> None:
        self.last = threading.Event()
        self.turns: Counter[int] = Counter()
        self.over: set[int] = set()
        self.most = 0
        self._reading: set[int] = set()
        self._lock = threading.Lock()

    def begin(self, name: int) -> None:
        with self._lock:
            assert name not in self._reading, "one log is read by one thread"
            self._reading.add(name)
            self.turns[name] += 1
            self.most = max(self.most, len(self._reading))

    def end(self, name: int) -> None:
        with self._lock:
            self._reading.discard(name)
            if self.last.is_set():
                self.over.add(name)


def read(count: int, most: int) -> tuple[Book, Turns]:
    book, turns = Book(), Turns(most, turn=0.02)
    for name in range(count):
        turns.add(Log(name, book))
    return book, turns


def finish(book: Book, turns: Turns, count: int) -> None:
    book.last.set()
    until(lambda: len(book.over) == count, "the end of all logs")
    turns.close()


def test_where_there_is_room_a_log_is_read_in_one_turn() -> None:
    book, turns = read(5, most=5)
    until(lambda: len(book.turns) == 5, "a turn for each")
    finish(book, turns, 5)
    assert set(book.turns.values()) == {1}


def test_many_logs_share_few_places_and_all_come_again() -> None:
    book, turns = read(40, most=4)
    until(lambda: len(book.turns) == 40 and min(book.turns.values()) >= 2, "two turns for each")
    finish(book, turns, 40)
    assert book.most == 4


def test_who_waits_to_try_again_reads_at_once_when_it_has_reason_to() -> None:
    began: list[int] = []

    class Waits:
        following = False

        def turn(self) -> float | None:
            began.append(1)
            return 3600.0

        def pause(self) -> None: ...

    turns, waits = Turns(2), Waits()
    turns.add(waits)
    until(lambda: len(began) == 1, "its first turn")
    until(lambda: hurried(turns, waits, began), "its second turn")
    turns.close()


def hurried(turns: Turns, waits: Any, began: list[int]) -> bool:
    turns.hurry(waits)
    return len(began) >= 2
