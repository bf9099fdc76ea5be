"""What the server does now and then by itself: it forgets experiments that `[retention]` does not keep."""

from __future__ import annotations

import sys
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal import home as homes
from shoal.engine import retention
from shoal.errors import ShoalError
from shoal.states import FINAL, LOST
from shoal.store import experiments as store
from shoal.store import files, streams

if TYPE_CHECKING:
    from shoal.server.context import Server

EVERY = 3600.0  # seconds between two looks


def is_over(row: store.Row) -> bool:
    """Whether an experiment can be forgotten: nobody writes to it any more."""
    return row["state"] in FINAL or (row["origin"] != "run" and row["state"] == LOST)


def forget(server: Server, row: store.Row) -> None:
    """Forgets an experiment that is over. What only it needed of blobs/ goes with `server.keeper.collect()`."""
    with server.ingest.removing(row["uid"]):
        with server.database.read() as connection:
            gone = [stream["stream"] for stream in streams.streams_of(connection, row["uid"])]
        server.engine.remove(row)
        server.memory.forget(gone)


def tidy(server: Server) -> list[str]:
    """Forgets what is not to be kept, and returns the ids. What goes wrong is said in server.log; nothing is raised."""
    gone: list[str] = []
    try:
        wanted = retention.rules(homes.config(server.home), server.home / "config.toml")
        if wanted is None:
            return []
        with server.database.read() as connection:
            rows, aliased = store.ages(connection), files.with_alias(connection)
        for uid in retention.expired(wanted, rows, aliased, time.time()):
            with server.database.read() as connection:  # it may have been tagged, promoted or removed meanwhile
                row = store.find(connection, uid)
                held = uid in files.with_alias(connection)
            if row is not None and is_over(row) and retention.TAG not in row["tags"] and not held:
                forget(server, row)
                gone.append(str(row["id"]))
        if gone:
            server.keeper.collect()
            print(f"retention: forgot {', '.join(gone)}", file=sys.stderr)
    except ShoalError as error:
        print(error.text(), file=sys.stderr)
    except Exception:  # noqa: BLE001  a full disk must not end the server; it looks again later
        with suppress(OSError):
            traceback.print_exc()
    return gone
