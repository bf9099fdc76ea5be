"""Launch + Settings -> every object that would be applied. Pure.

`str(request)` is what a person would apply by hand: YAML that an API server takes, the archive and the code left out,
secrets too.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from shoal.backends.backend import Launch
from shoal.backends.kubernetes import kubeflow, native
from shoal.backends.kubernetes.pods import (
    ARCHIVE,
    CA,
    CLAIM,
    CODE_FILE,
    PORT,
    RUN,
    WORK,
    Object,
    Parts,
    base_name,
    labels,
)
from shoal.backends.kubernetes.settings import STDOUT, Settings
from shoal.errors import UsageError
from shoal.launcher.shipping import OUTPUTS_IN_LOG
from shoal.plan import topology

LARGEST_CODE = 900 * 1024  # bytes of one ConfigMap that the API server takes, with room for the rest
LARGEST_FETCHED = 1 << 30  # bytes of code that replicas fetch from the server
MIB = 1 << 20


@dataclass(frozen=True)
class Fetched:
    """Code that is too large for a ConfigMap: replicas fetch it from the server, and compare."""

    sha256: str
    size: int

    @property
    def kept_as(self) -> str:
        """Its name in the directory of an attempt."""
        return f"code-{self.sha256}.tar.gz"


@dataclass(frozen=True)
class Content:
    """What comes along beside the plan: bytes, and values that must not be shown."""

    archive: bytes
    code: bytes = b""
    fetched: Fetched | None = None  # in place of code
    cwd: str = ""  # within the code
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # those the home keeps
    token: str = ""
    ca: str = ""
    resume_from: Mapping[str, str] = field(default_factory=dict)  # replica -> a checkpoint
    version: tuple[int, int] = (1, 34)  # of the API server


@dataclass(frozen=True)
class KubernetesRequest:
    """The anchor first: it owns all the others."""

    launch: Launch
    settings: Settings
    objects: tuple[Object, ...]
    parts: Parts
    fetched: Fetched | None = None
    file: IO[bytes] | None = None  # what is fetched

    def __str__(self) -> str:
        from ruamel.yaml import YAML

        yaml = YAML()
        yaml.default_flow_style = False
        yaml.representer.ignore_aliases = lambda *values: True
        yaml.width = 120
        target = io.StringIO()
        yaml.dump_all([_shown(obj, self.settings.namespace) for obj in self.objects], target)
        claim, fetched = self.settings.outputs_claim, self.fetched
        notes = [f"outputs: shared, in the claim {claim}" if claim else f"outputs: not shared: {self._carried()}"]
        if fetched is not None:
            notes.append(f"code: {fetched.size} bytes, fetched from the server by each replica")
        for mount in self.launch.data:
            notes.append(f"data: {mount.label}, {mount.size} bytes, fetched from the server by each replica")
        return "".join(f"# {note}\n" for note in notes) + target.getvalue()

    def _carried(self) -> str:
        if self.settings.sink == STDOUT:
            return f"each replica has its own; small files, {OUTPUTS_IN_LOG // MIB} MiB in all, are carried in its log"
        return "each replica has its own, which is carried to the server"


def render(launch: Launch, settings: Settings, content: Content) -> KubernetesRequest:
    """Everything but the owner references, which need the anchor's uid."""
    if not (launch.plan.image or settings.image):
        raise UsageError(
            f"cluster {settings.name}: there is no image to run in",
            hint=f"write build: {{image: …}} in the file, or image in [clusters.{settings.name}]",
        )
    if launch.data and settings.sink == STDOUT:
        raise UsageError(
            f"cluster {settings.name}: {launch.data[0].label} cannot be brought there: replicas have no server to "
            "fetch it from",
            hint=f'set sink = "https://…" in [clusters.{settings.name}], or mount what the nodes have: mounts',
        )
    base, mine = base_name(launch), labels(launch)
    kept = _secret_names(base, [name for name in launch.plan.secret_refs if name in content.secrets])
    parts = Parts(code=bool(content.code), secrets=kept, version=content.version)
    objects: list[Object] = [config_map(base, mine, {ARCHIVE: content.archive}, _texts(launch, settings, content))]
    if content.code:
        objects.append(config_map(f"{base}-code", mine, {CODE_FILE: content.code}, {}))
    for name, called in kept.items():
        objects.append(secret(called, mine, content.secrets[name]))
    if settings.sink != STDOUT:
        objects.append(secret(f"{base}-sink", mine, {"token": content.token}))
    if launch.plan.backend == "kubeflow":
        objects.append(kubeflow.custom_object(launch, settings, parts))
    else:
        objects.append(native.service(launch))
        objects += [native.job(launch, replica, settings, parts) for replica in launch.plan.replicas]
    return KubernetesRequest(launch, settings, tuple(objects), parts, content.fetched)


def too_large(settings: Settings, what: str = "the code") -> UsageError:
    """Why code cannot be brought there."""
    ways = "list what is not needed in .shoalignore, or put the code into the image"
    if settings.sink == STDOUT:
        most = f"{LARGEST_CODE // 1024} KiB packed, and replicas have no server to fetch it from"
        return UsageError(
            f"{what} is more than {most}", hint=f'{ways}, or set sink = "https://…" in [clusters.{settings.name}]'
        )
    return UsageError(f"{what} is more than {LARGEST_FETCHED // MIB} MiB packed", hint=ways)


def _texts(launch: Launch, settings: Settings, content: Content) -> dict[str, str]:
    found = {RUN: json.dumps(run_json(launch, settings, content), indent=1)}
    if content.ca and settings.sink != STDOUT:
        found[CA] = content.ca
    return found


def run_json(launch: Launch, settings: Settings, content: Content) -> dict[str, Any]:
    """What the launcher in every pod reads."""
    plan = launch.plan
    if plan.backend == "kubeflow":
        hosts = kubeflow.hosts(launch, settings)
        peers = topology(plan, lambda replica: (hosts[replica.name], kubeflow.PORT))
    else:
        peers = topology(plan, lambda replica: (native.host(launch, replica, settings), PORT))
    limits = {
        replica.name: {
            "memory": int(replica.resources.memory.limits * MIB),
            "from": launch.limits_from.get(replica.name, ""),
        }
        for replica in plan.replicas
        if replica.resources.memory.limits is not None
    }
    return {
        "experiment": launch.experiment,
        "uid": launch.uid,
        "attempt": launch.attempt,
        "name": plan.name,
        "framework": plan.framework,
        "command": plan.command,
        "cwd": content.cwd,
        "params": _plain(plan.params),
        "env_vars": dict(plan.env_vars),
        "log_level": plan.log_level,
        "grace": plan.grace.stop,
        "work": WORK,
        "outputs": f"{CLAIM}/{launch.experiment}" if settings.outputs_claim else "",  # else each has its own
        "code": content.fetched.__dict__ if content.fetched is not None else None,
        "mounts": [{"at": mount.at, "file": mount.file, "label": mount.label} for mount in launch.data],
        "resume_from": dict(content.resume_from),
        "limits": limits,
        "operator": kubeflow.rules(launch.policy) if plan.backend == "kubeflow" else None,
        "replicas": [dict(task.__dict__) for task in peers.tasks],
    }


def _plain(value: Any) -> Any:
    """Params as JSON can say them; the launcher writes NaN and infinities as strings anyway."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def config_map(name: str, mine: Mapping[str, str], binary: Mapping[str, bytes], texts: Mapping[str, str]) -> Object:
    """One that does not change any more."""
    found: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": dict(mine)}}
    found["immutable"] = True
    if texts:
        found["data"] = dict(texts)
    found["binaryData"] = {key: base64.b64encode(data).decode() for key, data in binary.items()}
    return found


def secret(name: str, mine: Mapping[str, str], values: Mapping[str, str]) -> Object:
    """Values that stand in no pod and no plan."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": dict(mine)},
        "type": "Opaque",
        "stringData": dict(values),
    }


def _secret_names(base: str, names: Sequence[str]) -> dict[str, str]:
    """What each secret is called in the cluster. `s3_keys` and `s3-keys` stay two."""
    found: dict[str, str] = {}
    for name in names:
        called = f"{base}-secret-{_dns(name)}"
        again = f"{called}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        found[name] = again if called in found.values() else called
    return found


def _dns(name: str) -> str:
    """As part of the name of an object: `S3_KEYS` -> `s3-keys`."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "x"


def _shown(obj: Object, namespace: str) -> Object:
    """The object as a person reads it."""
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.scalarstring import LiteralScalarString

    found = dict(obj)
    found["metadata"] = {"name": obj["metadata"]["name"], "namespace": namespace, **obj["metadata"]}
    if "data" in found:
        found["data"] = {name: LiteralScalarString(text) for name, text in found["data"].items()}
    if "binaryData" in found:
        left_out = CommentedMap(dict.fromkeys(found["binaryData"], ""))
        for key, data in found["binaryData"].items():
            left_out.yaml_add_eol_comment(f"{len(base64.b64decode(data))} bytes", key)
        found["binaryData"] = left_out
    if "stringData" in found:
        found["stringData"] = dict.fromkeys(found["stringData"], "<secret>")
    return found
