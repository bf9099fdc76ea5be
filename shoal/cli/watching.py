"""Watching an experiment run: its log, a live table of its replicas, its end; and what Ctrl-C does meanwhile.

Ctrl-C once stops the experiment gracefully, twice kills it. Killing the terminal stops nothing: experiments belong to
their shepherds.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from shoal.cli.following import frames
from shoal.cli.logs import Printer
from shoal.cli.wording import age, failure, how_it_ended, progress
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.client import Client

MOST_ROWS = 16


def announce(client: Client, created: dict[str, Any], *, detach: bool) -> None:
    """Says which experiment it is: on stdout when that is all there is to say."""
    from shoal.errors import Problem, Where, render

    for note in created["warnings"]:
        where = Where(note["where"]) if note["where"] else None
        print(render("warning", [Problem(note["message"], note["path"], where, note["hint"] or "")]), file=sys.stderr)
    experiment = created["experiment"]
    if detach:
        print(experiment["id"])
    else:
        print(f"experiment {experiment['id']} #{experiment['number']}", file=sys.stderr)
    try:
        print(f"console: {client.sign_in('/experiments/' + experiment['id'])}", file=sys.stderr)
    except ShoalError:
        return


def watch(client: Client, word: str) -> int:
    """Shows it until it is over; the exit code of the command."""
    interrupts = _Interrupts(client, word)
    signal.signal(signal.SIGINT, interrupts.one_more)
    final = _Screen().show(client, word)
    end = final["state"]
    ran = age(final["finished"] - final["started"]) if final["started"] and final["finished"] else "0s"
    print(f"\n{final['id']} {end} after {ran}{': ' + final['reason'] if final['reason'] else ''}", file=sys.stderr)
    if end == "failed" and final["first_failure"]:
        print("\n" + failure(final["first_failure"]), file=sys.stderr)
    if interrupts.count:
        return 130
    return 0 if end == "succeeded" else 1


class _Interrupts:
    """The first asks the experiment to stop, the second kills it, the third leaves it alone and goes."""

    def __init__(self, client: Client, word: str) -> None:
        self.client = client
        self.word = word
        self.count = 0

    def one_more(self, number: int, frame: Any) -> None:
        self.count += 1
        if self.count > 2:
            sys.exit(130)
        text = "stopping it; Ctrl-C again kills it" if self.count == 1 else "killing it"
        os.write(2, f"\n{text}\n".encode())  # and not print: the main thread may be in the middle of one
        # A thread: the main thread is in the middle of reading a stream.
        threading.Thread(target=self._stop, args=(None if self.count == 1 else 0.0,), daemon=True).start()

    def _stop(self, grace: float | None) -> None:
        from shoal.client import Client

        try:
            Client(self.client.home).stop(self.word, grace)
        except ShoalError as error:
            print(error.text(), file=sys.stderr)


class _Screen:
    """The log on stdout; on a terminal, a table of the replicas below it."""

    def __init__(self) -> None:
        self.live: Any = None
        self.printer = Printer()

    def show(self, client: Client, word: str) -> dict[str, Any]:
        """Shows it until it is over, and returns its end."""
        self._begin()
        try:
            for frame in frames(client, word):
                self._take(frame)
            end: dict[str, Any] = frame["end"]
            return end
        finally:
            self._finish()

    def _take(self, frame: dict[str, Any]) -> None:
        if "log" in frame or "gap" in frame:
            self.printer.show(frame)
        elif "state" not in frame:
            return
        elif self.live is not None:
            self.live.update(_Newest(frame["state"]))
        else:
            self._say(frame["state"])

    def _begin(self) -> None:
        if not (sys.stdout.isatty() and sys.stderr.isatty()):
            self.said = ""
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False, markup=False, soft_wrap=True)
        self.live = Live(console=console, transient=True, refresh_per_second=8, redirect_stderr=False)
        self.printer.out = lambda text: console.out(text, end="", highlight=False)
        self.live.start()

    def _say(self, state: dict[str, Any]) -> None:
        """Without a terminal: a line whenever the experiment's own state changes."""
        line = f"{state['id']} {state['state']}{': ' + state['reason'] if state['reason'] else ''}"
        if line != self.said:
            print(line, file=sys.stderr)
            self.said = line

    def _finish(self) -> None:
        self.printer.rest()
        if self.live is not None:
            self.live.stop()


class _Newest:
    """The table of a state, drawn anew whenever the screen is: how long replicas have run goes on counting."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def __rich__(self) -> Any:
        return _table(self.state)


def _table(state: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), title=_title(state), title_justify="left", title_style="bold")
    if len(state["replicas"]) > MOST_ROWS:
        table.add_column("state")
        table.add_column("replicas")
        for name, count in Counter(entry["state"] for entry in state["replicas"]).items():
            table.add_row(name, str(count))
        return table
    for column in ("replica", "rank", "state", "exit", "ran"):
        table.add_column(column)
    for entry in state["replicas"]:
        ran = age((entry["finished"] or time.time()) - entry["started"]) if entry["started"] else ""
        table.add_row(entry["replica"], str(entry["rank"]), entry["state"], how_it_ended(entry), ran)
    return table


def _title(state: dict[str, Any]) -> str:
    told = "; ".join(filter(None, (state["reason"], progress(state))))
    return f"{state['id']} {state['state']}{': ' + told if told else ''}"
