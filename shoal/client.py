"""The HTTP client: what the command line uses and Python users import.

    from shoal.client import Client

    client = Client()                                   # starts the server of this home when none lives
    experiment = client.show("e7k2m9")

`SHOAL_SERVER=https://…` and `SHOAL_TOKEN` point it at a remote server; then nothing is started.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from json import dumps, loads
from pathlib import Path
from typing import Any

import httpx

from shoal import home as homes
from shoal.errors import FileProblems, Problem, ShoalError, Unavailable, UsageError, Where

START_TIMEOUT = 30.0

Json = dict[str, Any]


class NotFound(ShoalError):
    """There is no such experiment."""

    exit_code = 2


class Client:
    """One connection to one server."""

    def __init__(self, home: Path | None = None, *, start: bool = True) -> None:
        self.home = (home or homes.path()).absolute()
        self._remote = os.environ.get("SHOAL_SERVER")
        self._start = start and not self._remote
        self._connect()

    def _connect(self) -> None:
        """Finds the server, or starts one."""
        verify: ssl.SSLContext | bool = True
        if self._remote:
            self._url, token = self._remote.rstrip("/"), os.environ.get("SHOAL_TOKEN", "")
        else:
            found = find_or_start(self.home) if self._start else alive(self.home)
            if found is None:
                raise Unavailable(f"no server runs for {self.home}", hint="any command that needs one starts it")
            self._url, token, verify = found["url"], found["token"], _trusted(found)
        try:
            self._http = httpx.Client(
                base_url=self._url,
                headers={"authorization": f"Bearer {token}"},
                timeout=httpx.Timeout(60.0),
                trust_env=False,
                verify=verify,
            )
        except (httpx.InvalidURL, UnicodeError) as error:
            raise UsageError(
                f"SHOAL_SERVER or SHOAL_TOKEN cannot be used: {error}", hint="SHOAL_SERVER=https://host:port"
            ) from None

    def create(
        self,
        files: Sequence[tuple[str, str]],
        params: Sequence[str],
        directory: str,
        environment: Mapping[str, str],
        *,
        oversubscribe: bool = False,
    ) -> Json:
        """A new experiment: {experiment, warnings}. Raises FileProblems with everything that is wrong."""
        body = {
            "files": [{"name": name, "text": text} for name, text in files],
            "params": list(params),
            "directory": directory,
            "environment": dict(environment),
            "oversubscribe": oversubscribe,
        }
        return self._ask("POST", "/api/experiments", json=body)

    def experiments(self, limit: int = 100, states: Sequence[str] = ()) -> list[Json]:
        """The newest first."""
        return list(self._ask("GET", "/api/experiments", params={"limit": limit, "state": list(states)}))  # type: ignore[arg-type]

    def show(self, word: str) -> Json:
        return self._ask("GET", _path(word))

    def why(self, word: str) -> Json:
        return self._ask("GET", _path(word, "why"))

    def stop(self, word: str, grace: float | None = None) -> Json:
        return self._ask("POST", _path(word, "stop"), json={"grace": grace})

    def rerun(
        self, word: str, params: Sequence[str], environment: Mapping[str, str], oversubscribe: bool = False
    ) -> Json:
        body = {"params": list(params), "environment": dict(environment), "oversubscribe": oversubscribe}
        return self._ask("POST", _path(word, "rerun"), json=body)

    def remove(self, word: str) -> None:
        self._ask("DELETE", _path(word))

    def render(self, files: Sequence[tuple[str, str]], params: Sequence[str], directory: str) -> Json:
        body = {
            "files": [{"name": name, "text": text} for name, text in files],
            "params": list(params),
            "directory": directory,
        }
        return self._ask("POST", "/api/plan", json=body)

    def logs(self, word: str, **choice: Any) -> Iterator[Json]:
        """Lines in the order of time; `choice`: replica, attempt, tail, since, until, text, stream."""
        yield from self._stream(_path(word, "logs"), choice)

    def follow(self, word: str, replica: str | None = None, start: Sequence[str] = ()) -> Iterator[Json]:
        """Frames until the experiment is over; a broken connection raises Unavailable.

        `start` continues after what is known: `attempt:replica:try:end`, one for each log, from earlier frames.
        """
        yield from self._stream(_path(word, "follow"), {"replica": replica, "start": list(start)})

    def server(self) -> Json:
        return self._ask("GET", "/api/server")

    def clusters(self) -> list[Json]:
        return list(self._ask("GET", "/api/clusters"))  # type: ignore[arg-type]

    def end_server(self) -> None:
        self._ask("POST", "/api/server/stop")

    def sign_in(self) -> str:
        return str(self._ask("POST", "/api/sign-in")["url"])

    def _ask(self, method: str, path: str, json: Json | None = None, **more: Any) -> Json:
        if json is not None:
            # In ASCII: variables of the caller may hold bytes that are no text, and UTF-8 cannot say those.
            more |= {"content": dumps(json), "headers": {"content-type": "application/json"}}
        answer = self._sent(method, path, **more)
        _raise_for(answer.status_code, answer.content)
        try:
            found: Json = answer.json() if answer.content else {}
        except ValueError:
            raise self._unreachable(ValueError("what answers there is not Shoal")) from None
        return found

    def _sent(self, method: str, path: str, **more: Any) -> httpx.Response:
        """The answer. A server that just ended is followed by another, where asking again cannot do anything twice."""
        try:
            return self._http.request(method, path, **more)
        except httpx.HTTPError as error:
            harmless = isinstance(error, httpx.ConnectError) or (
                method == "GET" and isinstance(error, httpx.NetworkError)
            )
            if not (self._start and harmless):
                raise self._unreachable(error) from None
        self._connect()
        try:
            return self._http.request(method, path, **more)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _stream(self, path: str, query: Mapping[str, Any]) -> Iterator[Json]:
        params = {name: value for name, value in query.items() if value is not None}
        timeout = httpx.Timeout(60.0, read=None)
        try:
            with self._http.stream("GET", path, params=params, timeout=timeout) as answer:
                if answer.status_code >= 400:
                    _raise_for(answer.status_code, answer.read())
                for line in answer.iter_lines():
                    if line:
                        yield loads(line)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> Unavailable:
        said = str(error) or type(error).__name__
        return Unavailable(
            f"the server at {self._url} cannot be reached: {said}", hint="shoal server status tells more"
        )


def _path(word: str, *more: str) -> str:
    from urllib.parse import quote

    return "/".join(["/api/experiments", quote(word, safe=""), *more])


def _raise_for(status: int, content: bytes) -> None:
    """The server's error as the error it is here."""
    if status < 400:
        return
    try:
        body = loads(content)
        what, hint = body["what"], body.get("hint") or ""
    except (ValueError, KeyError, TypeError):
        raise Unavailable(f"the server answered {status}", hint="is another program listening there?") from None
    problems = [problem for problem in body.get("problems", []) if problem.get("where")]
    if problems:
        raise FileProblems([_problem(problem) for problem in problems])
    kind = {404: NotFound, 409: UsageError, 422: UsageError}.get(status, Unavailable)
    raise kind(what, hint=hint)


def _problem(data: Mapping[str, Any]) -> Problem:
    file, line, column = [*str(data["where"]).rsplit(":", 2), "", ""][:3]
    where = Where(file, int(line), int(column)) if line.isdigit() and column.isdigit() else Where(str(data["where"]))
    return Problem(data["message"], data.get("path", ""), where, data.get("hint") or "")


def alive(home: Path) -> Json | None:
    """server.json, when the server it speaks of answers."""
    written = homes.read_server(home)
    if written is None or not _lives(home, written["pid"]):
        return None
    try:
        answer = httpx.get(
            f"{written['url']}/api/server",
            headers={"authorization": f"Bearer {written['token']}"},
            timeout=5.0,
            trust_env=False,
            verify=_trusted(written),
        )
        # A home that was copied holds the server.json of another.
        return written if answer.status_code == 200 and os.path.samefile(answer.json()["home"], home) else None
    except (httpx.HTTPError, OSError, ValueError, LookupError, TypeError):
        return None


def _lives(home: Path, pid: int) -> bool:
    """Whether the writer of server.json lives: else anybody may have taken its port, and must not see the token."""
    process = Path("/proc", str(pid))
    try:
        ours = process.stat().st_uid == (home / homes.SERVER_FILE).stat().st_uid
        return ours and bool((process / "cmdline").read_bytes())  # that of a zombie is empty
    except OSError:
        return False


def _trusted(written: Json) -> ssl.SSLContext | bool:
    """For `shoal serve --tls-cert`: the very certificate that the server of this home wrote down, whatever its name."""
    if not written.get("certificate"):
        return False  # plain HTTP on loopback: nothing to verify, and no certificates to load
    context = ssl.create_default_context(cadata=written["certificate"])
    context.check_hostname = False
    context.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def find_or_start(home: Path) -> Json:
    """The server of this home; started when none lives. Two commands that start one at once get the same."""
    found = alive(home)
    if found is not None:
        return found
    homes.prepare(home)
    deadline = time.monotonic() + START_TIMEOUT
    refused = True
    while refused and time.monotonic() < deadline:
        said = _start(home)
        refused = "already serves" in said  # somebody who is about to answer, or about to end: then we try again
        patience = min(deadline, time.monotonic() + 0.5) if refused else deadline
        while (said == "ready" or refused) and time.monotonic() < patience:
            found = alive(home)
            if found is not None:
                return found
            time.sleep(0.02)
    reason = said.removeprefix("error ") if said != "ready" else "it does not answer"
    raise Unavailable(f"the server of {home} did not start: {reason or 'it died'}", hint=f"see {home / 'server.log'}")


def _start(home: Path) -> str:
    """Starts a detached server and returns what it says: ready, or an error."""
    reader, writer = os.pipe()
    try:
        with open(home / "server.log", "ab") as log:
            subprocess.Popen(
                [sys.executable, "-m", "shoal.server", "--home", str(home), "--ready-fd", str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[writer],
                cwd="/",
            )
    except OSError as error:
        os.close(writer)
        os.close(reader)
        raise Unavailable(f"{home}: {error.strerror}", hint="is the home read-only, or the disk full?") from None
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read().decode()
