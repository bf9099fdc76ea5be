"""Speaks to one API server: paths and JSON. The official client brings kubeconfig files, credentials and TLS.

Its generated types are not used: what is rendered is what is sent, and what comes back is read as it is.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from shoal.backends.kubernetes.settings import Settings
from shoal.errors import ShoalError, Unavailable, UsageError

Object = dict[str, Any]

PATHS = {
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Event": "/api/v1/namespaces/{namespace}/events",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "TFJob": "/apis/kubeflow.org/v1/namespaces/{namespace}/tfjobs",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs",
    "MXJob": "/apis/kubeflow.org/v1/namespaces/{namespace}/mxjobs",
}
TIMEOUT = (5.0, 30.0)  # seconds to connect, and to answer
BRIEF = (5.0, 5.0)  # for what somebody waits for who can do without
# Seconds. A launcher tells something every five: what is silent for longer is asked anew. A log that begins with
# silence has no answer to close, and would keep its place for ever.
QUIET = 20.0
CHANGES = ("POST", "PATCH", "DELETE")
# A connection that nobody ends, as after a laptop has slept, is found dead within half a minute.
ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]


class Refused(ShoalError):
    """The API server answered, and said no."""

    def __init__(self, status: int, reason: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason


class Away(Unavailable):
    """Nobody answered at all."""


class Expired(Exception):
    """A watch cannot go on from there: list again."""


class Stream:
    """An answer that comes in pieces, over a connection of its own.

    `close` may be called by another thread, and ends the reading: nothing is given out that came afterwards. It takes
    TLS from the connection, and what is read then is still encrypted.
    """

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        """Raises Away when it is broken off."""
        from urllib3.exceptions import HTTPError

        try:
            for piece in self._answer.stream(1 << 16, decode_content=True):
                if self.closed:
                    break
                yield piece
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            if not self.closed:
                raise Away(f"broken off: {error}") from None
        finally:
            self._answer.close()

    def lines(self) -> Iterator[bytes]:
        """Whole lines, and the rest at the end unless it was cut off by `close`; without empty ones."""
        rest = b""
        for piece in self:
            rest += piece
            *whole, rest = rest.split(b"\n")
            yield from (line for line in whole if line)
        if rest and not self.closed:
            yield rest

    def close(self) -> None:
        self.closed = True
        with suppress(Exception):  # it is over already
            self._answer.shutdown()


class Api:
    """One connection pool. Threads may share it.

    `between` is called before and after every call that changes something: tests die there.
    """

    def __init__(self, settings: Settings, between: Callable[[object], None] = lambda point: None) -> None:
        self.settings = settings
        self.between = between
        self.calls: Counter[str] = Counter()  # `POST jobs`, `GET log`, … -> how many there were
        self.generation = 0  # how often the kubeconfig was read: it may lead to another cluster each time
        self._client: Any = None
        self._lock = threading.Lock()

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """The object as the server keeps it; Refused 409 when there is one of that name."""
        # Strict: a field that is spelt wrong is an error, and not left out without a word.
        query = {"fieldManager": "shoal", "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return self.ask("POST", self.path(obj["kind"]), body=obj, query=query)

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        try:
            return self.ask("GET", f"{self.path(kind, namespace)}/{name}")
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """A merge patch; silent when there is no such object."""
        try:
            self.ask("PATCH", f"{self.path(kind)}/{name}", body=dict(change), kind="application/merge-patch+json")
        except Refused as error:
            if error.status != 404:
                raise

    def delete(self, kind: str, name: str, *, grace: int | None = None, uid: str = "", namespace: str = "") -> None:
        """Silent when already gone, or when another object has that name by now."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            self.ask("DELETE", f"{self.path(kind, namespace)}/{name}", body=body)
        except Refused as error:
            if error.status not in (404, 409):
                raise

    def list(self, kind: str, selector: str = "", fields: str = "") -> tuple[list[Object], str]:
        """All that match, and the resource version from which a watch goes on. Expired when it took too long."""
        found: list[Object] = []
        query: dict[str, str] = {"limit": "500"}
        if selector:
            query["labelSelector"] = selector
        if fields:
            query["fieldSelector"] = fields
        while True:
            try:
                page = self.ask("GET", self.path(kind), query=query)
            except Refused as error:
                if error.status == 410:
                    raise Expired from None
                raise
            found += page.get("items", [])
            more = page["metadata"].get("continue")
            if not more:
                return found, page["metadata"]["resourceVersion"]
            query["continue"] = more

    def watch(self, kind: str, selector: str, version: str, seconds: int = 300) -> Stream:
        """Events from a version on, one a line (see `event`), until the server ends it. Expired when it is too old."""
        query = {
            "watch": "1",
            "labelSelector": selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        try:
            return Stream(
                self._request("GET", self.path(kind), query=query, stream=True, timeout=(5.0, seconds + 30.0))
            )
        except Refused as error:
            if error.status == 410:
                raise Expired from None
            raise

    def event(self, line: bytes) -> Object:
        """One event of a watch. Expired when the watch cannot go on."""
        event: Object = json.loads(line)
        if event.get("type") == "ERROR":
            if event["object"].get("code") == 410:
                raise Expired
            raise Unavailable(f"{self.settings.name}: {event['object'].get('message')}")
        return event

    def log(self, pod: str, *, follow: bool, container: str = "", since: str = "") -> Stream:
        """What a pod printed, each line after the time at which it did; from a time on, as `2026-11-15T23:00:00Z`."""
        query = {"follow": "true" if follow else "false", "timestamps": "true"}
        if container:
            query["container"] = container
        if since:
            query["sinceTime"] = since
        path = f"{self.path('Pod')}/{pod}/log"
        return Stream(self._request("GET", path, query=query, stream=True, timeout=(5.0, QUIET if follow else 60.0)))

    def run_inside(
        self, pod: str, container: str, command: Sequence[str], patience: float = 10.0
    ) -> tuple[str | None, str]:
        """Runs a command in a container that runs: what it prints, or None and why not; most have no right to it."""
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream.ws_client import websocket_call

        client = self._connected()
        with self._lock:
            self.calls["GET exec"] += 1
        headers: dict[str, str] = {}
        client.update_params_for_auth(headers, [], ["BearerToken"])
        query = [("command", list(command)), ("container", container), ("stdout", "true")]
        path = f"{client.configuration.host}{self.path('Pod')}/{pod}/exec"
        try:
            answer = websocket_call(
                client.configuration, "GET", path, query_params=query, headers=headers, _request_timeout=patience
            )
        except ApiException as error:
            return None, str(error.reason)
        return str(answer.data), ""

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        kind: str = "application/json",
        timeout: tuple[float, float] = TIMEOUT,
    ) -> Object:
        answer = self._request(method, path, body=body, query=query, kind=kind, timeout=timeout)
        found: Object = json.loads(answer.data) if answer.data else {}
        return found

    def address(self) -> str:
        """Of the API server, as the kubeconfig has it."""
        return str(self._connected().configuration.host)

    def path(self, kind: str, namespace: str = "") -> str:
        return PATHS[kind].format(namespace=namespace or self.settings.namespace)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        kind: str = "application/json",
        stream: bool = False,
        timeout: tuple[float, float | None] = TIMEOUT,
    ) -> Any:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        client = self._connected()
        with self._lock:
            self.calls[_called(method, path)] += 1
        what = f"{method} {path}" + (f"/{body.get('metadata', {}).get('name', '')}" if method == "POST" else "")
        if method in CHANGES:
            self.between(f"before {what}")
        headers = {"Accept": "application/json", "Content-Type": kind}
        if stream:
            headers["Connection"] = "close"  # whoever closes it late must not end what another does on it next
        client.update_params_for_auth(headers, [], ["BearerToken"])
        try:
            answer = client.request(
                method,
                client.configuration.host + path,
                query_params=list((query or {}).items()),
                headers=headers,
                body=body,
                _preload_content=not stream,
                _request_timeout=timeout,
            )
        except ApiException as error:
            if not error.status:
                raise self._away(error.reason) from None
            if error.status == 401:
                self._forget()
            raise _refused(self.settings.name, error) from None
        except (HTTPError, OSError) as error:
            raise self._away(error) from None
        if method in CHANGES:
            self.between(f"after {what}")
        return answer

    def _away(self, error: Any) -> Away:
        place = self._client.configuration.host if self._client is not None else ""
        return Away(
            f"cluster {self.settings.name}: {place} does not answer: {_plain(error)}",
            hint=f"shoal cluster check {self.settings.name} tells more",
        )

    def _connected(self) -> Any:
        with self._lock:
            return self._client or self._connect()

    def _forget(self) -> None:
        """Credentials have expired: the kubeconfig is read again for the next call, somebody may have logged in."""
        with self._lock:
            self._client = None

    def _connect(self) -> Any:
        if self._client is None:
            from kubernetes import client, config

            where = self.settings.kubeconfig or os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
            try:
                made = client.Configuration()
                load: Any = config.load_kube_config  # untyped
                load(where, self.settings.context or None, made)
            except Exception as error:  # noqa: BLE001  a file that is no kubeconfig fails anywhere in that library
                raise UsageError(
                    f"cluster {self.settings.name}: {_why_no_kubeconfig(where, error)}",
                    hint=f"set kubeconfig and context in [clusters.{self.settings.name}]",
                ) from None
            made.connection_pool_maxsize = 256  # more than logs are read at once
            made.retries = 0
            made.socket_options = ALIVE
            self._client = client.ApiClient(made)
            self.generation += 1
        return self._client


def _why_no_kubeconfig(where: str, error: Exception) -> str:
    from kubernetes.config.config_exception import ConfigException

    if not any(os.path.exists(part) for part in where.split(os.pathsep)):
        return f"{where}: there is no such file"
    if isinstance(error, (ConfigException, OSError)):
        return f"{where}: {error}"
    return f"{where}: not a kubeconfig: {type(error).__name__}: {' '.join(str(error).split())}"


def _called(method: str, path: str) -> str:
    """`GET`, `/api/v1/namespaces/lab/pods/name/log` -> `GET log`"""
    parts = path.partition("/namespaces/")[2].split("/")
    return f"{method} {parts[3] if len(parts) > 3 else parts[1] if len(parts) > 1 else path}"


def _refused(cluster: str, error: Any) -> ShoalError:
    try:
        told = json.loads(error.body)
        message, reason = str(told.get("message") or error.reason), str(told.get("reason") or "")
    except (ValueError, TypeError, AttributeError):
        message, reason = str(error.body or error.reason)[:500], ""
    if error.status == 401:
        return Unavailable(f"cluster {cluster}: the credentials are not accepted: {message}", hint="log in again")
    if error.status >= 500 or error.status == 429:
        return Unavailable(f"cluster {cluster}: {message}", hint="it is tried again")
    return Refused(error.status, reason, message)


def _plain(error: Any) -> str:
    """The innermost reason, the same each time: `Connection refused`."""
    while isinstance(getattr(error, "reason", None), BaseException):
        error = error.reason
    text = str(error)
    return (text.rpartition("] ")[2] or text)[:200]
