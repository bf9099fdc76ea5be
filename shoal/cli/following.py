"""Following an experiment across deaths of the server: experiments go on, and the next server knows them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shoal.errors import ShoalError, Unavailable

if TYPE_CHECKING:
    from shoal.client import Client

GIVE_UP_AFTER = 60.0  # seconds without a server
PAUSE = 0.5  # seconds between two tries to find one


def frames(client: Client, word: str, replica: str | None = None) -> Iterator[dict[str, Any]]:
    """What `Client.follow` tells, nothing of a log twice, until the frame that holds the end."""
    seen: dict[str, int] = {}  # attempt:replica:try -> how much of its log was told
    lost_at: float | None = None
    while True:
        try:
            for frame in client.follow(word, replica, [f"{key}:{end}" for key, end in seen.items()]):
                lost_at = None
                entry = frame.get("log") or frame.get("gap")
                if entry is not None:
                    seen[f"{entry['attempt']}:{entry['replica']}:{entry['try']}"] = entry["end"]
                yield frame
                if "end" in frame:
                    return
        except Unavailable:
            if lost_at is None:
                lost_at = time.monotonic()
            elif time.monotonic() - lost_at > GIVE_UP_AFTER:
                raise
            else:
                time.sleep(PAUSE)
            client = _again(client)


def _again(client: Client) -> Client:
    """A client of the server that lives now, or, while none starts, the old one."""
    try:
        return type(client)(client.home)
    except ShoalError:
        return client
