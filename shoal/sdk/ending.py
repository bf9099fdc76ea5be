"""How a process ends, and that nothing is lost by it: exit, exception, SIGTERM, the end of a multiprocessing child.

The exit code is not told to functions of atexit, and outside Shoal nobody else sees it: so sys.exit is watched.

SIGTERM does afterwards what it did before: it ends the process by that signal, also while the main thread hangs in C
code, where no handler of Python can run. Handlers of the script's own are called; a signal that is ignored stays so.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import weakref
from typing import Any, Optional

from shoal.sdk import session as sessions
from shoal.sdk.values import last_line

PATIENCE = 5.0  # seconds for the last words after SIGTERM

_watched: Optional[int] = None  # the process that is watched already
_hook: Any = None  # what sys.excepthook was
_handler: Any = None  # what handled SIGTERM before
_exit: Any = None  # what sys.exit was
_leaving: Any = None  # weakly, a mark on the newest SystemExit
_left_with: Any = None  # the argument of the sys.exit that ended the script
_forking = threading.local()  # `mask`: the signals that the thread kept back before it forks


def watch() -> None:
    """Makes sure of the end of this process. Called when a session begins."""
    global _watched, _hook, _exit
    if _watched == os.getpid():
        return
    _watched = os.getpid()
    # Once, also when others have put theirs before ours since: a fork that did it again would be in a circle with them.
    if _hook is None:
        _hook, sys.excepthook = sys.excepthook, _on_exception
    if _exit is None:
        _exit, sys.exit = sys.exit, _on_sys_exit
    _watch_multiprocessing()
    _watch_sigterm()


def terminated(session: Any) -> None:
    """SIGTERM came while this thread, not the main one, was waiting: it writes what is left, and ends the process."""
    if callable(_handler) or _current_handler() is not _on_sigterm:
        session.flush(PATIENCE)
        return
    _die()


def _on_exit() -> None:
    error = sessions.state.error = sessions.state.error or _exit_code()
    sessions.end("exception" if error else "exited", error)
    sessions.state.exiting = True


def _on_exception(kind: Any, error: Any, trace: Any) -> None:
    sessions.state.error = last_line(error)
    (_hook or sys.__excepthook__)(kind, error, trace)


class _Mark:
    """Dies with the exception that carries it."""


def _on_sys_exit(status: Any = None) -> Any:
    """The script may catch its SystemExit and go on. Where it ends tells: without a frame below, it was at the top."""
    global _leaving
    try:
        _exit(status)
    except SystemExit as error:
        if threading.current_thread() is threading.main_thread():
            error.__dict__["shoal"] = mark = _Mark()

            def gone(_: Any) -> None:
                global _left_with
                _left_with = status if sys._getframe().f_back is None else None

            _leaving = weakref.ref(mark, gone)
            del mark
        raise


def _exit_code() -> str:
    """`exit code 3`, or the words that were given instead; empty when all was well."""
    if _left_with is None or isinstance(_left_with, int):
        code = (_left_with or 0) & 255  # more of it the system does not tell
        return f"exit code {code}" if code else ""
    return last_line(SystemExit(_left_with)).partition(": ")[2] or "exit code 1"


def _watch_multiprocessing() -> None:
    """A child of multiprocessing leaves without the functions of atexit, but not without these."""
    processes: Any = sys.modules.get("multiprocessing.process")
    if processes is None or processes.parent_process() is None:
        return
    try:
        from multiprocessing.util import Finalize

        Finalize(None, _on_child_exit, exitpriority=100)
    except Exception:  # noqa: BLE001  no reason to stop a training
        return


def _on_child_exit() -> None:
    error = sys.exc_info()[1]
    if isinstance(error, Exception):
        sessions.state.error = last_line(error)
    _on_exit()


def _watch_sigterm() -> None:
    global _handler
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGTERM"):
        return
    before = signal.getsignal(signal.SIGTERM)
    if before is _on_sigterm or before is None or before == signal.SIG_IGN:
        return
    try:
        sessions.bell.listen()
        signal.signal(signal.SIGTERM, _on_sigterm)
    except (ValueError, OSError):  # not the main interpreter
        return
    _handler = before


def _on_sigterm(number: int, frame: Any) -> None:
    session = sessions.state.session
    if session is not None and session.later(lambda: _on_sigterm(number, frame)):
        return  # the signal came in the middle of our own writing
    if callable(_handler):
        if session is not None:
            session.flush(PATIENCE)
        _handler(number, frame)
    elif _current_handler() is _on_sigterm:
        _die()
    elif session is not None:  # another handler calls us along the way: it decides what happens
        session.flush(PATIENCE)


def _die() -> None:
    """Last words, then the end that SIGTERM makes."""
    try:
        # A child that its parent ends (a pool, the workers of a loader) has not failed.
        child = sessions.state.origin is not None or sessions.state.parent is not None
        sessions.end("exited" if child else "exception", "ended by SIGTERM")
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        else:
            _restore_default()
        os.kill(os.getpid(), signal.SIGTERM)


def _restore_default() -> None:
    """signal.signal works in the main thread only, and that one may never come back."""
    try:
        import ctypes

        restore = ctypes.CDLL(None).signal
        restore.argtypes, restore.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        restore(int(signal.SIGTERM), None)  # SIG_DFL is 0
    except (ImportError, OSError, AttributeError):
        os._exit(128 + signal.SIGTERM)


def _current_handler() -> Any:
    return signal.getsignal(signal.SIGTERM)


def _before_fork() -> None:
    """A child has our handler, and the pipe that it rings, until it knows that it is one. Ended before, it ends us."""
    if _watched is not None and _current_handler() is _on_sigterm:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork() -> None:
    """What came meanwhile comes now."""
    mask = _forking.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _in_child() -> None:
    """A fork ends as it would without us, until it says something itself."""
    try:
        if _watched is not None and _current_handler() is _on_sigterm:
            signal.signal(signal.SIGTERM, _handler if callable(_handler) else signal.SIG_DFL)
    except (ValueError, OSError):
        pass
    _after_fork()


atexit.register(_on_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
