"""Which cluster answers: the name in config.toml, a context and even an address may come to mean another one.

A namespace has a uid that no other cluster has. Where we may not look at namespaces, address and namespace have to do.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from shoal.backends.kubernetes.api import Api, Refused


class Identity:
    """Asks a cluster who it is: once for each reading of the kubeconfig. Calls may raise Unavailable."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._known: dict[str, str] = {}  # namespace -> its uid; empty when we may not look
        self._generation = 0  # for which that was asked
        self._lock = threading.Lock()

    def note(self) -> dict[str, str]:
        """Where something is made now, to be kept with it."""
        namespace = self.api.settings.namespace
        return {"identity": self.of(namespace), "namespace": namespace, "address": self.api.address()}

    def differs(self, note: Mapping[str, Any]) -> bool:
        """Whether what answers now is not the cluster of that note. Silent when a note tells too little."""
        namespace = str(note.get("namespace") or self.api.settings.namespace)
        there, here = str(note.get("identity") or ""), self.of(namespace)
        if there and here:
            return there != here
        address = str(note.get("address") or "")
        return bool(address) and address != self.api.address()

    def moved(self, note: Mapping[str, Any]) -> bool:
        """Whether settings lead to another cluster or namespace by now than those of that note."""
        here = self.api.settings.namespace
        return str(note.get("namespace") or here) != here or self.differs(note)

    def of(self, namespace: str) -> str:
        """The uid of a namespace; empty when there is none, or we may not look."""
        self.api.address()  # connected
        generation = self.api.generation
        with self._lock:
            if generation != self._generation:
                self._known, self._generation = {}, generation
            elif namespace in self._known:
                return self._known[namespace]
        try:
            found = str(self.api.ask("GET", f"/api/v1/namespaces/{namespace}")["metadata"]["uid"])
        except Refused:
            found = ""
        with self._lock:
            if self.api.generation == self._generation == generation:
                self._known[namespace] = found
        return found
