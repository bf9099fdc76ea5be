"""The HTTP client: what the command line uses and Python users import.

    from shoal.client import Client

    client = Client()                                   # starts the server of this home when none lives
    experiment = client.show("e7k2m9")

`SHOAL_SERVER=https://…` and `SHOAL_TOKEN` point it at a remote server; then nothing is started.
"""

from __future__ import annotations

import os
import select
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from shoal import home as homes
from shoal.errors import FileProblems, Problem, ShoalError, Unavailable, UsageError, Where

if TYPE_CHECKING:
    from shoal.points import Curves

START_TIMEOUT = 30.0
END_TIMEOUT = 30.0
MOST_BUCKETS = 100_000
PATIENT = httpx.Timeout(60.0, read=3600.0)  # for what may look at every file of a data set, or ask a slow cluster

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
            if not token:
                raise UsageError(
                    "SHOAL_SERVER is set, and SHOAL_TOKEN is not", hint="server.json of its home has the token"
                )
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
        cluster: str = "local",
        scale: Mapping[str, Any] | None = None,
    ) -> Json:
        """A new experiment: {experiment, warnings}. Raises FileProblems with everything that is wrong."""
        body = {
            "files": [{"name": name, "text": text} for name, text in files],
            "params": list(params),
            "directory": directory,
            "environment": dict(environment),
            "oversubscribe": oversubscribe,
            "cluster": cluster,
            "scale": dict(scale) if scale else None,
        }
        return self._ask("POST", "/api/experiments", json=body, timeout=PATIENT)

    def experiments(
        self,
        query: str = "",
        *,
        sort: str = "",
        limit: int = 1000,
        before: int | None = None,
        states: Sequence[str] = (),
    ) -> list[Json]:
        """What a query finds, newest first unless `sort` says otherwise; at most 10,000 at once.

        `client.experiments("state:succeeded, metrics.loss:<0.3", sort="-metrics.acc")`
        """
        choice = {"q": query, "sort": sort, "limit": limit, "before": before, "state": list(states)}
        given = {name: value for name, value in choice.items() if value not in (None, "")}
        return list(self._ask("GET", "/api/experiments", params=given))  # type: ignore[arg-type]

    def show(self, word: str) -> Json:
        return self._ask("GET", _path(word))

    def why(self, word: str) -> Json:
        return self._ask("GET", _path(word, "why"))

    def stop(self, word: str, grace: float | None = None) -> Json:
        return self._ask("POST", _path(word, "stop"), json={"grace": grace})

    def rerun(
        self,
        word: str,
        params: Sequence[str],
        environment: Mapping[str, str],
        oversubscribe: bool = False,
        *,
        exact: bool = False,
        resume: bool = False,
    ) -> Json:
        body = {"params": list(params), "environment": dict(environment), "oversubscribe": oversubscribe}
        return self._ask("POST", _path(word, "rerun"), json={**body, "exact": exact, "resume": resume}, timeout=PATIENT)

    def tag(self, word: str, *tags: str, remove: Sequence[str] = ()) -> Json:
        """Adds tags to an experiment and removes others: `client.tag("e7k2m9", "baseline", remove=["try"])`."""
        return self._ask("POST", _path(word, "tags"), json={"add": list(tags), "remove": list(remove)})

    def remove(self, word: str) -> None:
        self._ask("DELETE", _path(word))

    def render(
        self, files: Sequence[tuple[str, str]], params: Sequence[str], directory: str, cluster: str = "local"
    ) -> Json:
        body = {
            "files": [{"name": name, "text": text} for name, text in files],
            "params": list(params),
            "directory": directory,
            "cluster": cluster,
        }
        return self._ask("POST", "/api/plan", json=body, timeout=PATIENT)

    def logs(self, word: str, **choice: Any) -> Iterator[Json]:
        """Lines in the order of time; `choice`: replica, attempt, tail, since, until, text, stream."""
        yield from self._lines(_path(word, "logs"), choice)

    def follow(self, word: str, replica: str | None = None, start: Sequence[str] = ()) -> Iterator[Json]:
        """Frames until the experiment is over; a broken connection raises Unavailable.

        `start` continues after what is known: `attempt:replica:try:end`, one for each log, from earlier frames.
        """
        yield from self._lines(_path(word, "follow"), {"replica": replica, "start": list(start)})

    def server(self) -> Json:
        return self._ask("GET", "/api/server")

    def clusters(self) -> list[Json]:
        return list(self._ask("GET", "/api/clusters"))  # type: ignore[arg-type]

    def check_cluster(self, name: str, *, pod: bool = True) -> Json:
        """{cluster, ok, findings}. `pod`: one is started there to look around."""
        path = f"/api/clusters/{_quoted(name)}/check"
        return self._ask("GET", path, params={"pod": pod}, timeout=PATIENT)

    def end_server(self) -> None:
        """Ends the server; that of this home has ended when this returns. Experiments go on."""
        written = None if self._remote else homes.read_server(self.home)
        if written is None:
            self._ask("POST", "/api/server/stop")
            return
        try:
            process = os.pidfd_open(written["pid"])
        except ProcessLookupError:
            return
        ended = select.poll()
        ended.register(process, select.POLLIN)
        try:
            self._ask("POST", "/api/server/stop")
            if not ended.poll(END_TIMEOUT * 1000):
                raise Unavailable(
                    f"the server of {self.home} takes long to end", hint=f"its process is {written['pid']}"
                )
        finally:
            os.close(process)

    def sign_in(self, page: str = "/") -> str:
        """A link that signs a browser in, once, within a minute, and shows this page of the console."""
        return str(self._ask("POST", "/api/sign-in", params={"next": page})["url"])

    def adopt(self, about: Mapping[str, Any]) -> Json:
        """Makes a run that Shoal did not start an experiment, or finds it, and reads what it wrote: {id, uid}."""
        return self._ask("POST", "/api/outside", json={"about": dict(about)})

    def access(self) -> tuple[str, str, ssl.SSLContext | None]:
        """(address, token, whom to trust) for those who speak to the server by themselves."""
        if self._remote:
            return self._url, os.environ.get("SHOAL_TOKEN", ""), None
        found = homes.read_server(self.home) or {}
        trusted = _trusted(found)
        return self._url, str(found.get("token", "")), trusted if isinstance(trusted, ssl.SSLContext) else None

    @property
    def is_remote(self) -> bool:
        """Whether the server is another machine's, which sees none of our files."""
        return bool(self._remote)

    def outputs(self, word: str, **choice: Any) -> list[Json]:
        """The files that replicas wrote, in the order of paths; `choice`: replica, under, hash."""
        found: list[Json] = []
        while True:
            after = found[-1]["path"] if found else ""
            page = self._ask("GET", _path(word, "outputs"), params={**choice, "after": after})
            found += page["files"]
            if not page["more"]:
                return found

    def elsewhere(self, word: str) -> str:
        """Where the outputs of an experiment are, when the server cannot see them; else nothing."""
        return str(self._ask("GET", _path(word, "outputs"), params={"limit": 1})["elsewhere"] or "")

    def output_url(self, word: str, path: str) -> str:
        """What `content` takes to read one of the outputs."""
        return _path(word, "outputs", _quoted(path))

    def blob_url(self, hash_: str) -> str:
        """What `content` takes to read a file of an artifact, a model or an image."""
        return f"/api/blobs/{hash_}"

    @contextmanager
    def content(self, url: str, start: int = 0) -> Iterator[Iterator[bytes]]:
        """The bytes of a file from `start` on, as they come."""
        headers = {"range": f"bytes={start}-"} if start else {}
        with self._streamed(url, headers=headers) as answer:
            if start and answer.status_code != 206:
                raise Unavailable("the server does not go on where the download broke off", hint="try again")
            yield answer.iter_bytes()

    def artifacts(self, word: str) -> list[Json]:
        """Every version of every artifact of an experiment."""
        return list(self._ask("GET", _path(word, "artifacts")))  # type: ignore[arg-type]

    def artifact(self, number: int) -> Json:
        """One version with its files; `number` is the `id` in the list."""
        return self._ask("GET", f"/api/artifacts/{number}")

    def models(self, name: str = "") -> list[Json]:
        """Every version of every model, or of those that a name or a pattern means."""
        return list(self._ask("GET", "/api/models", params={"name": name} if name else {}))  # type: ignore[arg-type]

    def model(self, name: str, version: str = "latest") -> Json:
        """One version with its files; `version` is a number, an alias or `latest`."""
        return self._ask("GET", f"/api/models/{_quoted(name)}/versions/{_quoted(version)}")

    def promote(self, name: str, version: str, alias: str) -> Json:
        """From now on the alias means this version."""
        return self._ask("PUT", f"/api/models/{_quoted(name)}/aliases/{_quoted(alias)}", json={"version": version})

    def demote(self, name: str, alias: str) -> None:
        self._ask("DELETE", f"/api/models/{_quoted(name)}/aliases/{_quoted(alias)}")

    def remove_model(self, name: str, version: str) -> None:
        self._ask("DELETE", f"/api/models/{_quoted(name)}/versions/{_quoted(version)}")

    def provenance(self, word: str) -> Json:
        """Where an experiment comes from, with the diff to its commit."""
        return self._ask("GET", _path(word, "provenance"))

    def datasets(self) -> list[Json]:
        return list(self._ask("GET", "/api/datasets"))  # type: ignore[arg-type]

    def dataset(self, word: str) -> Json:
        """One version with its manifest."""
        return self._ask("GET", _dataset_path(word))

    def add_dataset(self, name: str, uri: str, directory: str, environment: Mapping[str, str], **options: Any) -> Json:
        """Writes down what is there now: {dataset, new}. `options`: anonymous, endpoint, region."""
        body = {"name": name, "uri": uri, "directory": directory, "environment": dict(environment), **options}
        return self._ask("POST", "/api/datasets", json=body, timeout=PATIENT)

    def add_managed(self, name: str, files: Sequence[Mapping[str, Any]], *, single: bool) -> Json:
        """{dataset, new, missing}: the hashes that are missing have to be put first."""
        body = {"name": name, "files": [dict(file) for file in files], "single": single}
        return self._ask("POST", "/api/datasets/managed", json=body, timeout=PATIENT)

    def put_blob(self, hash_: str, content: Iterator[bytes], size: int) -> None:
        headers = {"content-type": "application/octet-stream", "content-length": str(size)}
        self._ask("PUT", f"/api/blobs/{hash_}", content=content, headers=headers, timeout=PATIENT)

    def dataset_content(self, word: str, path: str) -> Iterator[bytes]:
        """The bytes of one file of a data set that lies with the server."""
        with self._streamed(_dataset_path(word, "content"), params={"path": path}) as answer:
            yield from answer.iter_bytes(1 << 20)

    def remove_dataset(self, word: str) -> None:
        self._ask("DELETE", _dataset_path(word), timeout=PATIENT)

    def series(self, word: str, **choice: Any) -> list[Json]:
        """Every metric of every process with last value, minimum, maximum and steps.

        `choice`, here and below: name, replica (one or several, or patterns), process, attempt, kind.
        """
        return list(self._ask("GET", _path(word, "metrics"), params=_given(choice)))  # type: ignore[arg-type]

    def chart(self, word: str, **choice: Any) -> Json:
        """Curves in buckets; further choices: x, from, to, buckets, agg."""
        return self._ask("GET", _path(word, "series"), params=_given(choice))

    def points_url(self, word: str, **choice: Any) -> str:
        """What `content` takes to read every point; further choices: x, from, to, replaced, format."""
        return str(httpx.URL(_path(word, "points"), params=_given(choice)))

    def records(self, word: str, kind: str | None = None, name: str | None = None) -> list[Json]:
        """What scripts said beside points: params, text, tables, histograms, images, …"""
        choice = _given({"kind": kind, "name": name})
        return list(self._ask("GET", _path(word, "records"), params=choice))  # type: ignore[arg-type]

    def metrics(
        self,
        word: str,
        *names: str,
        replica: str | Sequence[str] | None = None,
        process: int | None = None,
        attempt: int | None = None,
        kind: str | None = None,
        x: str = "step",
        start: float | None = None,
        end: float | None = None,
        replaced: bool = False,
        agg: str | None = None,
    ) -> Curves:
        """Every point of an experiment's metrics, as arrays; `.to_pandas()` and `.to_polars()` make tables of them.

        Names and replicas may be patterns: `client.metrics("e7k2m9", "train/*", replica="worker-0")`. A later attempt
        replaces the steps from its first one on; `replaced` has those too. Resources (cpu, memory, …) have
        `kind="resource"`. `start` and `end` are the first and last x; with an x that is neither step nor time
        (relative, or the name of a metric) a curve has `xs` as well. With `agg` (min, mean, max, p50, p95) there is one
        curve for each name, over all ranks, at most about 100,000 points long.
        """
        from shoal.points import Curves, aggregated, curve

        replicas = [replica] if isinstance(replica, str) else list(replica or ())
        choice: Json = {"name": list(names), "replica": replicas, "process": process, "attempt": attempt, "kind": kind}
        choice |= {"x": x, "from": start, "to": end}
        given = {key: value for key, value in choice.items() if value not in (None, [])}
        if agg is not None:
            made = self._ask("GET", _path(word, "series"), params={**given, "agg": agg, "buckets": MOST_BUCKETS})
            return Curves(aggregated(entry, agg, x) for entry in made["series"])
        found = self._ask("GET", _path(word, "points"), params={**given, "replaced": replaced})
        return Curves(curve(entry) for entry in found)  # type: ignore[arg-type]

    def stragglers(self, word: str) -> Json:
        """Which rank the others wait for, and by how much: {slowest, verdict, ranks, …}."""
        return self._ask("GET", _path(word, "stragglers"))

    def stacks(self, word: str) -> Json:
        """Where every rank of a running experiment is: {verdict, odd, groups, tree, ranks, notes}."""
        return self._ask("GET", _path(word, "stacks"))

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

    def _lines(self, path: str, query: Mapping[str, Any]) -> Iterator[Json]:
        with self._streamed(path, params=_given(query), timeout=httpx.Timeout(60.0, read=None)) as answer:
            for line in answer.iter_lines():
                if line:
                    yield loads(line)

    @contextmanager
    def _streamed(self, path: str, **more: Any) -> Iterator[httpx.Response]:
        """An answer that is read as it comes; a connection that breaks meanwhile raises Unavailable."""
        answer = self._sent("GET", path, stream=True, **more)
        try:
            if answer.status_code >= 400:
                _raise_for(answer.status_code, answer.read())
            yield answer
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        finally:
            answer.close()

    def _sent(self, method: str, path: str, *, stream: bool = False, **more: Any) -> httpx.Response:
        """The answer. A connection that broke is made again, where asking twice does nothing twice; to the next server
        of the home, when the last one has ended."""
        try:
            return self._http.send(self._http.build_request(method, path, **more), stream=stream)
        except httpx.HTTPError as error:
            broken = isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)
            nobody = self._start and isinstance(error, httpx.ConnectError)
            if not (nobody or (method == "GET" and broken)):
                raise self._unreachable(error) from None
        if self._start:
            self._connect()
        try:
            return self._http.send(self._http.build_request(method, path, **more), stream=stream)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> Unavailable:
        said = str(error) or type(error).__name__
        return Unavailable(
            f"the server at {self._url} cannot be reached: {said}", hint="shoal server status tells more"
        )


def _given(choice: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choice.items() if value is not None and value != ()}


def _path(word: str, *more: str) -> str:
    if not word.strip():
        raise UsageError("no experiment is named", hint="an id, a number or a name; shoal ls lists them")
    return "/".join(["/api/experiments", _quoted(word).replace("/", "%2F"), *more])


def _quoted(path: str) -> str:
    """As a part of an address; nothing that would lead to another one."""
    from urllib.parse import quote

    if any(part in (".", "..") for part in path.split("/")):
        raise UsageError(f"{path[:200]!r} is no name or path of ours", hint="it has a part . or ..")
    return quote(path, safe="/")


def _dataset_path(word: str, *more: str) -> str:
    from urllib.parse import quote

    return "/".join(["/api/datasets", quote(word, safe=""), *more])


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
    raise _not_started(home, said)


def _not_started(home: Path, said: str) -> ShoalError:
    """What a server said that did not start; one that died says nothing."""
    hint = f"see {home / 'server.log'}"
    if said.startswith("error "):
        told = loads(said.removeprefix("error "))
        if told["usage"]:
            return UsageError(told["message"], hint=told["hint"])
        return Unavailable(f"the server of {home} did not start: {told['message']}", hint=told["hint"] or hint)
    reason = "it does not answer" if said == "ready" else "it died"
    return Unavailable(f"the server of {home} did not start: {reason}", hint=hint)


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
