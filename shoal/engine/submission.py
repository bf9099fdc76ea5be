"""What a person submits -> a row of the store: the file interpreted, checked against the cluster, its policy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.backends.backend import LOCAL, Site
from shoal.engine.admission import needs_of, never_fits
from shoal.engine.data import Resolver
from shoal.errors import FileProblems, Problem, Unavailable, UsageError
from shoal.frameworks import PS
from shoal.plan import Plan, plan
from shoal.spec import Document, Source, Spec, interpret
from shoal.spec.tree import Path, dotted
from shoal.spec.types import Shape, Snapshot
from shoal.spec.writing import to_yaml
from shoal.states import Policy


@dataclass(frozen=True)
class Submission:
    """The texts of the files, and where the caller stands."""

    sources: Sequence[Source]
    params: Sequence[str] = ()
    directory: str = ""  # the directory of the first file; without a file the caller's
    oversubscribe: bool = False
    rerun_of: str = ""
    cluster: str = LOCAL


@dataclass(frozen=True)
class Prepared:
    values: Mapping[str, Any]
    warnings: Sequence[Problem]
    plan: Plan
    secret_refs: Sequence[str] = field(default=())


def prepare(
    submission: Submission, site: Site, secrets: Mapping[str, Any], resolver: Resolver | None = None
) -> Prepared:
    """Everything that can be known to be wrong is said here, before anything is kept.

    `resolver` looks up data sets and commits. Where there is none, files that need one are refused.
    """
    document = interpret(submission.sources, submission.params)
    spec, planned = document.spec, plan(document.spec)
    local = submission.cluster == LOCAL
    problems = _secrets(document, secrets) if local else []
    cwd = _working_directory(document, submission.directory, problems)
    sources = _sources(document, submission.directory, secrets, resolver, problems)
    if problems:
        raise FileProblems(_in_order(problems, document.files), document.warnings)
    short = "" if submission.oversubscribe or not local else never_fits(needs_of(planned), site)
    if short:
        raise UsageError(
            f"the {len(planned.replicas)} replicas ask for {short}",
            hint="lower the requests; or --oversubscribe runs them all the same, without checking totals",
        )
    values = {
        "name": planned.name,
        "framework": planned.framework,
        "backend": planned.backend,
        "cluster": submission.cluster,
        "params": _json(spec.params),
        "tags": list(spec.tags),
        "sources": {
            "files": [{"name": source.name, "text": source.text} for source in submission.sources],
            "params": list(submission.params),
            "directory": submission.directory,
        },
        "resolved": to_yaml(document.root.plain()),
        "plan": _json({**planned.json(), "limits_from": _limits_from(document, planned)}),
        "policy": policy_of(planned).json(),
        "cwd": cwd,
        "oversubscribe": submission.oversubscribe,
        "timeout_queue": spec.timeout.queue,
        "rerun_of": submission.rerun_of or None,
        "provenance": {"command": planned.command, **sources},
    }
    return Prepared(
        values, [*document.warnings, *(_only_on_clusters(document) if local else ())], planned, planned.secret_refs
    )


def policy_of(planned: Plan) -> Policy:
    codes = planned.restart.on_exit_codes
    return Policy(
        deciders=frozenset(replica.name for replica in planned.replicas if replica.decides),
        servers=frozenset(replica.name for replica in planned.replicas if replica.role == PS),
        grace_stop=planned.grace.stop,
        grace_finish=planned.grace.finish,
        timeout_start=planned.timeout.start,
        timeout_run=planned.timeout.run,
        restart=planned.restart.policy,
        restart_max=planned.restart.max,
        on_exit_codes=frozenset(codes) if codes is not None else None,
    )


def _in_order(problems: Sequence[Problem], files: Sequence[str]) -> list[Problem]:
    """As the files have them, the first file first."""

    def place(problem: Problem) -> tuple[int, int, int]:
        where = problem.where
        if where is None or where.file not in files:
            return len(files), 0, 0
        return files.index(where.file), where.line, where.column

    return sorted(problems, key=place)


def _working_directory(document: Document, directory: str, problems: list[Problem]) -> str:
    """Empty for code that is fetched: then it is the experiment's own copy."""
    code = document.spec.code
    if isinstance(code, Snapshot):
        where = document.where(("code", "snapshot"))
        hint = "code: a directory, or {git: URL, ref: COMMIT}"
        problems.append(Problem("snapshots are not kept yet", path="code.snapshot", where=where, hint=hint))
        return ""
    if not isinstance(code, str):
        return ""
    place = os.path.join(directory, code)
    if os.path.isdir(place):  # False, and not an error, for names that no file can have
        return os.path.realpath(place)
    message = f"{place} is no directory"
    problems.append(Problem(message, path="code", where=document.where(("code",)), hint="name an existing one"))
    return ""


def _sources(
    document: Document,
    directory: str,
    secrets: Mapping[str, Any],
    resolver: Resolver | None,
    problems: list[Problem],
) -> dict[str, Any]:
    """{datasets, code}: the versions of everything that has to be brought here, once it is known to be there."""
    spec = document.spec
    if not spec.data and isinstance(spec.code, (str, Snapshot)):
        return {"datasets": [], "code": None}
    if resolver is None:
        raise Unavailable("data sets and code cannot be fetched here", hint="shoal run does it")
    named = [secrets[name] for name in spec.environment.secret_refs if name in secrets]
    resolver = resolver.seeing({key: value for section in named for key, value in section.items()})
    return {
        "datasets": resolver.mounts(document, directory, problems),
        "code": resolver.commit(document, directory, problems),
    }


def _secrets(document: Document, secrets: Mapping[str, Any]) -> list[Problem]:
    path = ("environment", "secret_refs")
    return [
        Problem(
            f"there is no secret {name!r}",
            path="environment.secret_refs",
            where=document.where((*path, number)),
            hint=f"add a section [{name}] to secrets.toml in the home; known: {', '.join(secrets) or 'none'}",
        )
        for number, name in enumerate(document.spec.environment.secret_refs)
        if name not in secrets
    ]


def _only_on_clusters(document: Document) -> list[Problem]:
    """What the local cluster does not do: one warning each, where it first stands in the file."""
    spec = document.spec
    found: list[tuple[Path, str]] = []
    if spec.backend == "kubeflow":
        found.append((("backend",), "kubeflow manages replicas on Kubernetes only: they run natively here"))
    if spec.build.image is not None:
        found.append((("build", "image"), "replicas run in your own environment here, not in an image"))
    if spec.environment.config_map_refs:
        found.append((("environment", "config_map_refs"), "ConfigMaps exist on Kubernetes only"))
    for key in ("node_selector", "tolerations", "affinity", "labels", "annotations"):
        places = [(*path, key) for path, shape in _shapes(spec) if getattr(shape, key)]
        found += [(place, f"{key} means nothing on this machine") for place in places[:1]]
    return [
        Problem(message, path=dotted(path), where=document.where(path), hint="it is used on a Kubernetes cluster")
        for path, message in found
    ]


def _shapes(spec: Spec) -> Iterator[tuple[Path, Shape]]:
    """Every place of the file that can say what a replica needs."""
    environment, replicas = spec.environment, spec.environment.replicas
    below: Path = ("environment", "replicas")
    yield ("environment",), environment
    yield (*below, "default_worker"), replicas.default_worker
    yield from (((*below, "worker", number), shape) for number, shape in enumerate(replicas.worker))
    yield (*below, "default_ps"), replicas.default_ps
    yield from (((*below, "ps", number), shape) for number, shape in enumerate(replicas.ps))


def _limits_from(document: Document, planned: Plan) -> dict[str, str]:
    """replica -> the place in the file that set its memory limit."""
    found = {}
    for replica in planned.replicas:
        if replica.resources.memory.limits is not None:
            path = tuple(
                int(step) if step.isdigit() else step
                for step in replica.resources_from.replace("[", ".").replace("]", "").split(".")
            )
            found[replica.name] = str(document.where((*path, "memory", "limits")))
    return found


def _json(value: Any) -> Any:
    """Values as JSON keeps them: tuples as lists, and what JSON cannot say as strings."""
    if isinstance(value, Mapping):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value
