"""`[clusters.NAME]` of config.toml -> Settings, with errors that name the key.

[clusters.lab]
context = "lab"                      # of the kubeconfig; default: its current context
namespace = "team-a"
image = "registry/team/train:1"      # where the file has no build.image
sink = "stdout"                      # or the server's address as pods reach it: "https://shoal.lab:8443"
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shoal.errors import UsageError

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
STDOUT = "stdout"
PULL_POLICIES = ("Always", "IfNotPresent", "Never")


@dataclass(frozen=True)
class Mount:
    """A directory of the nodes that every replica sees, read-only: data or environments that lie there already."""

    host_path: str
    at: str


@dataclass(frozen=True)
class Settings:
    name: str
    kubeconfig: str = ""
    context: str = ""
    namespace: str = "default"
    image: str = ""
    image_pull_policy: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    node_selector: Mapping[str, str] | None = None
    tolerations: tuple[Mapping[str, Any], ...] = ()
    security_context: Mapping[str, Any] | None = None  # of the container: runAsNonRoot, readOnlyRootFilesystem, …
    pod_security_context: Mapping[str, Any] | None = None  # of the pod: fsGroup, …
    sink: str = STDOUT
    sink_ca: str = ""  # a file with the certificate of the server's authority
    carry: float = 300.0  # seconds for a server that is away, or slow, once a command has ended
    outputs_claim: str = ""  # a PersistentVolumeClaim that all replicas can write
    outputs_path: str = ""  # where the server itself sees what is in that claim
    mounts: tuple[Mount, ...] = ()
    python: str = "python3"  # that runs the launcher in the image
    cluster_domain: str = ""  # default: the search path of the pods is enough


def settings(name: str, section: Mapping[str, Any], config: Path) -> Settings:
    """The settings of one cluster; UsageError names what is wrong and where."""
    known = {field.name for field in fields(Settings)} - {"name"}
    values: dict[str, Any] = {}
    if not LABEL.fullmatch(name):
        raise UsageError(f"{config}: clusters.{name}: not a name for a cluster", hint="lower case, digits and -")
    for key, value in section.items():
        where = f"{config}: clusters.{name}.{key}"
        if key == "kind":
            continue
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise UsageError(f"{where}: there is no such setting", hint=hint)
        _plain(where, value)
        check: Callable[[str, Any], Any] = CHECKS.get(key, _text)
        values[key] = check(where, value)
    if values.get("outputs_path") and not values.get("outputs_claim"):
        raise UsageError(
            f"{config}: clusters.{name}.outputs_path: there is no outputs_claim that it could show",
            hint='outputs_claim = "NAME" names it; without one, outputs are carried to the server',
        )
    if values.get("sink_ca") and not values.get("sink", "").startswith("https://"):
        raise UsageError(
            f"{config}: clusters.{name}.sink_ca: the sink is not a server with a certificate",
            hint='sink = "https://host:port"; or remove sink_ca',
        )
    return Settings(name=name, **values)


def _plain(where: str, value: Any) -> None:
    """TOML has dates, JSON has none."""
    if isinstance(value, dict):
        for key, below in value.items():
            _plain(f"{where}.{key}", below)
    elif isinstance(value, list):
        for below in value:
            _plain(where, below)
    elif not isinstance(value, (str, bool, int, float)):
        raise UsageError(f"{where}: {value} is a date", hint=f'as a text: "{value}"')


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        key = where.rpartition(".")[2]
        raise UsageError(f"{where}: not a text", hint=f'{key} = "…"; remove the line for the default')
    return value


def _namespace(where: str, value: Any) -> str:
    if not LABEL.fullmatch(_text(where, value)):
        raise UsageError(f"{where}: {value!r} is not the name of a namespace", hint="lower case, digits and -")
    return str(value)


def _object(where: str, value: Any) -> str:
    if not NAME.fullmatch(_text(where, value)):
        raise UsageError(f"{where}: {value!r} cannot be the name of an object", hint="lower case, digits, - and .")
    return str(value)


def _objects(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UsageError(f"{where}: not a list of names", hint='["name"]')
    return tuple(_object(where, entry) for entry in value)


def _sink(where: str, value: Any) -> str:
    hint = '"stdout", or the address of the server as pods reach it: "https://host:port"'
    if _text(where, value) == STDOUT:
        return STDOUT
    try:
        parts = urlsplit(value)
        named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        named = False
    if not named or parts.query or parts.fragment or parts.username:
        raise UsageError(f"{where}: {value!r} is no sink", hint=hint)
    return str(value).rstrip("/")


def _seconds(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 86400:
        raise UsageError(f"{where}: {value!r} is not a number of seconds", hint="0 to 86400: carry = 300")
    return float(value)


def _file(where: str, value: Any) -> str:
    found = os.path.expanduser(_text(where, value))
    if not os.path.isabs(found):
        raise UsageError(f"{where}: {value!r} is not an absolute path", hint='"/…" or "~/…"')
    return found


def _policy(where: str, value: Any) -> str:
    if value not in PULL_POLICIES:
        raise UsageError(f"{where}: {value!r} is no policy", hint=f"one of {', '.join(PULL_POLICIES)}")
    return str(value)


def _selector(where: str, value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise UsageError(f"{where}: not a table of texts", hint='node_selector = {pool = "a100"}')
    return value


def _tolerations(where: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise UsageError(f"{where}: not a list of tables", hint='tolerations = [{key = "gpu", operator = "Exists"}]')
    return tuple(value)


def _security(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        key = where.rpartition(".")[2]
        raise UsageError(f"{where}: not a table", hint=f"{key} = {{runAsNonRoot = true}}")
    return value


def _mounts(where: str, value: Any) -> tuple[Mount, ...]:
    return tuple(_mount(where, entry) for entry in (value if isinstance(value, list) else [value]))


def _mount(where: str, entry: Any) -> Mount:
    if not isinstance(entry, dict) or set(entry) != {"host_path", "at"} or not all(map(_absolute, entry.values())):
        raise UsageError(f"{where}: not a table of two absolute paths", hint='{host_path = "/data", at = "/data"}')
    return Mount(entry["host_path"], entry["at"])


def _absolute(path: Any) -> bool:
    return isinstance(path, str) and path.startswith("/")


CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "namespace": _namespace,
    "kubeconfig": _file,
    "image_pull_policy": _policy,
    "image_pull_secrets": _objects,
    "service_account": _object,
    "node_selector": _selector,
    "tolerations": _tolerations,
    "security_context": _security,
    "pod_security_context": _security,
    "sink": _sink,
    "sink_ca": _file,
    "carry": _seconds,
    "outputs_claim": _object,
    "outputs_path": _file,
    "mounts": _mounts,
}
