"""The clusters of a home: `[clusters.NAME]` of config.toml, beside the machine itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query
from fastapi import Path as InPath
from pydantic import Field

from shoal import home as homes
from shoal.backends.backend import LOCAL, Backend
from shoal.backends.kubernetes.backend import KubernetesBackend
from shoal.backends.kubernetes.settings import settings
from shoal.engine.admission import Needs, needs_of
from shoal.engine.waiting import waits
from shoal.errors import UsageError
from shoal.plan import Replica, totals
from shoal.server import types
from shoal.server.trust import write_token
from shoal.states import CREATED, LOST, QUEUED
from shoal.store import experiments as store

if TYPE_CHECKING:
    from shoal.server.context import Server


def gpus_of_local(place: Path, config: Mapping[str, Any]) -> int | None:
    """`[clusters.local] gpus`: how many this machine has; None when they are to be counted."""
    section = _sections(place, config).get(LOCAL, {})
    where = f"{place / 'config.toml'}: clusters.{LOCAL}"
    if not isinstance(section, dict):
        raise UsageError(f"{where}: not a table", hint=f"write [clusters.{LOCAL}]")
    for key, value in section.items():
        if key != "gpus":
            raise UsageError(f"{where}.{key}: there is no such setting", hint="known is gpus")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UsageError(f"{where}.gpus: not a number of devices", hint="gpus = 2")
    found: int | None = section.get("gpus")
    return found


def backends(
    place: Path,
    config: Mapping[str, Any],
    *,
    archive: str,
    token: str,
    on_change: Callable[[], None],
    between: Callable[[object], None] = lambda point: None,
) -> dict[str, Backend]:
    """name -> backend. Nothing is asked of a cluster here; what is wrong in the file is said."""
    sections = _sections(place, config)
    found: dict[str, Backend] = {}
    for name, section in sections.items():
        if name == LOCAL:
            continue
        if not isinstance(section, dict) or section.get("kind", "kubernetes") != "kubernetes":
            raise UsageError(f"{place / 'config.toml'}: clusters.{name}: not a Kubernetes cluster", hint="remove kind")
        found[name] = KubernetesBackend(
            place,
            settings(name, section, place / "config.toml"),
            archive=archive,
            on_change=on_change,
            token_of=lambda uid: write_token(token, uid),
            secrets=lambda: homes.secrets(place),
            between=between,
        )
    return found


def _sections(place: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    sections: Any = config.get("clusters", {})
    if not isinstance(sections, dict):
        raise UsageError(f"{place / 'config.toml'}: clusters is not a table", hint="write [clusters.NAME]")
    return sections


class Requested(types.ApiModel):
    """What is asked for: requests, not limits."""

    cpu: float = Field(description="Cores.")
    memory: float = Field(description="MiB.")
    gpu: int = Field(description="Devices.")


class Occupied(Requested):
    """One replica, and what it holds."""

    replica: str = Field(description="`worker-2`")
    state: str = Field(description="Its state; created while it was not seen to run.")
    node: str = Field(description="Where it runs; empty while that is not known.")
    devices: list[int] = Field(description="local: the GPUs that are its own.")


class Occupant(Requested):
    """An experiment that is not over: what it holds, or what it waits for."""

    id: str = Field(description="Short, to show and type.")
    number: int = Field(description="Counted per home.")
    name: str | None = Field(description="From the file.")
    state: str = Field(description="queued, starting, running, restarting or lost.")
    reason: str = Field(description="Why, in the words of whoever decided.")
    created: float = Field(description="UTC seconds.")
    since: float = Field(description="When it came into its state, UTC seconds.")
    position: int | None = Field(description="In the queue of this machine, from 1; null when it waits in none.")
    waits: str | None = Field(
        description="resources, order (behind another one), new, data, cluster (its scheduler), start or unreachable; "
        "null when it runs."
    )
    sentence: str = Field(description="The same in a sentence, with numbers.")
    oversubscribe: bool = Field(description="It counts for nothing but the devices it was given.")
    replicas: list[Occupied] = Field(description="In the order of their ranks.")


class ClusterState(types.ClusterView):
    """A cluster and everything that is on it or waits for it."""

    unreachable_since: float | None = Field(description="Since when it has not answered, UTC seconds; null: it does.")
    experiments: list[Occupant] = Field(description="The oldest first: the order of the queue.")


def add_routes(app: FastAPI, server: Server) -> None:
    @app.get("/api/clusters", response_model=list[ClusterState], tags=["clusters"])
    def clusters() -> Any:
        """The clusters of this home, who occupies what, and what waits for what. A check asks a cluster itself."""
        with server.database.read() as connection:
            rows = store.unfinished(connection)
            devices = store.allocated(connection, "gpu")
            since = store.in_state_since(connection, [row["uid"] for row in rows])
            replicas = {row["uid"]: store.replicas_of(connection, row["uid"], row["attempt"]) for row in rows}
        found = []
        for name, backend in server.engine.backends.items():
            mine = [row for row in rows if row["cluster"] == name]
            gpus = [entry["unit"] for entry in devices]
            shown = _local(server, mine, gpus) if name == LOCAL else _kubernetes(backend)
            away = [since[row["uid"]] for row in mine if row["state"] == LOST and row["uid"] in since]
            found.append(
                {
                    **shown,
                    "unfinished": len(mine),
                    "unreachable_since": min(away, default=None),
                    "experiments": _occupants(server, mine, replicas, since, devices),
                }
            )
        return found

    @app.get("/api/clusters/{name}/check", response_model=types.ClusterCheck, tags=["clusters"])
    def check(
        name: Annotated[str, InPath(description="As config.toml calls it.")],
        pod: Annotated[bool, Query(description="Start a small pod there that looks around.")] = True,
    ) -> Any:
        """Look at a cluster: version, rights, kinds, capacity, names, and what a pod of it can reach."""
        from shoal.server.context import Missing

        backend = server.engine.backends.get(name)
        if backend is None:
            known = ", ".join(server.engine.backends)
            raise Missing(f"there is no cluster {name[:80]!r}", hint=f"known are {known}; {READ_AT_START}")
        if not isinstance(backend, KubernetesBackend):
            site = server.engine.site
            text = f"{site.cpu:g} cores, {site.memory / 1024:.0f} GiB, {len(site.gpus)} GPUs"
            found = [{"name": "capacity", "state": "ok", "text": text, "hint": None, "unreachable": False}]
        else:
            found = [{**entry.__dict__, "hint": entry.hint or None} for entry in backend.check(pod=pod)]
        return {"cluster": name, "ok": all(entry["state"] != "problem" for entry in found), "findings": found}


READ_AT_START = "config.toml is read when the server starts: shoal server stop"
ELSEWHERE = dict.fromkeys(("cpu", "memory", "gpus", "used_cpu", "used_memory", "used_gpus"))
HERE = dict.fromkeys(("context", "namespace", "image", "sink", "outputs_claim"))


def _occupants(
    server: Server,
    rows: Iterable[store.Row],
    replicas: Mapping[str, Sequence[store.Row]],
    since: Mapping[str, float],
    devices: Iterable[store.Row],
) -> list[dict[str, Any]]:
    given: dict[tuple[str, str], list[int]] = defaultdict(list)
    for entry in devices:
        given[entry["uid"], entry["replica"]].append(entry["unit"])
    found = []
    queue = 0
    for row in rows:
        uid, queued = row["uid"], row["cluster"] == LOCAL and row["state"] == QUEUED
        queue += queued
        planned = server.engine.plan_of(row).replicas
        newest = {entry["replica"]: entry for entry in replicas[uid]}
        why = waits(row["state"], row["reason"])
        found.append(
            {
                **{key: row[key] for key in ("id", "number", "state", "reason", "created", "oversubscribe")},
                **_requested(planned),
                "name": row["name"] or None,
                "since": since.get(uid, row["created"]),
                "position": queue if queued else None,
                "waits": why and why[0],
                "sentence": why[1] if why else "",
                "replicas": [
                    _occupied(replica, newest.get(replica.name), given[uid, replica.name]) for replica in planned
                ],
            }
        )
    return found


def _occupied(replica: Replica, seen: store.Row | None, devices: list[int]) -> dict[str, Any]:
    return {
        **_requested([replica]),
        "replica": replica.name,
        "state": seen["state"] if seen else CREATED,
        "node": seen["node"] if seen else "",
        "devices": devices,
    }


def _requested(replicas: Iterable[Replica]) -> dict[str, float]:
    return {kind: amount["requests"] for kind, amount in totals(replicas).items()}


def _local(server: Server, rows: Sequence[store.Row], gpus: list[int]) -> dict[str, Any]:
    site = server.engine.site
    running = [row for row in rows if row["state"] != QUEUED and not row["oversubscribe"]]
    used = sum((needs_of(server.engine.plan_of(row)) for row in running), Needs())
    return {
        **HERE,
        "name": LOCAL,
        "kind": "local",
        "cpu": site.cpu,
        "memory": round(site.memory),
        "gpus": list(site.gpus),
        "used_cpu": used.cpu,
        "used_memory": used.memory,
        "used_gpus": gpus,
    }


def _kubernetes(backend: Any) -> dict[str, Any]:
    known = backend.settings
    shown = {key: getattr(known, key) or None for key in HERE}
    return {**ELSEWHERE, **shown, "name": known.name, "kind": "kubernetes"}
