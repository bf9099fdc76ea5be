"""A Kubernetes cluster as a backend: renders objects, applies them, and has a tender look after what runs."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from shoal.backends.backend import Handle, Launch, Observation, Site
from shoal.backends.kubernetes import asking, checking, kubeflow
from shoal.backends.kubernetes.anchors import Anchors
from shoal.backends.kubernetes.api import BRIEF, Api, Refused
from shoal.backends.kubernetes.carried import ELSEWHERE
from shoal.backends.kubernetes.checking import Finding
from shoal.backends.kubernetes.code import Packed, packed
from shoal.backends.kubernetes.pods import CLAIM, quantity
from shoal.backends.kubernetes.preparing import Preparing
from shoal.backends.kubernetes.request import Content, KubernetesRequest, render
from shoal.backends.kubernetes.settings import Settings
from shoal.backends.kubernetes.tending import Tender
from shoal.backends.local import files
from shoal.errors import Unavailable, UsageError
from shoal.launcher import checkpoints
from shoal.launcher.manifest import OUTPUTS
from shoal.launcher.replica import read_json, write_json
from shoal.launcher.stacks import Answer
from shoal.states import Outcome

Object = dict[str, Any]
NEWEST = (1, 99)
PROBE = "probe"  # no experiment has this uid: its token allows nothing


class KubernetesBackend:
    """One `[clusters.NAME]`. Nothing is asked of the cluster until somebody uses it."""

    def __init__(
        self,
        home: Path,
        settings: Settings,
        *,
        archive: str,
        on_change: Callable[[], None] = lambda: None,
        token_of: Callable[[str], str] = lambda uid: "",
        secrets: Callable[[], Mapping[str, Mapping[str, str]]] = dict,
        between: Callable[[object], None] = lambda point: None,
    ) -> None:
        self.home = home
        self.settings = settings
        self.archive = archive
        self.api = Api(settings, between)
        self.anchors = Anchors(home / "clusters" / settings.name)
        self.tender = Tender(self.api, self.anchors, on_change, self.resume_from)
        self.preparing = Preparing(on_change, self.sweep)
        self.token_of = token_of
        self.secrets = secrets
        self._version: tuple[int, int] | None = None
        self._assumed = ""

    def probe(self) -> Site:
        """A cluster has a scheduler of its own: nothing is counted here."""
        return Site(float("inf"), float("inf"), (), self.settings.name)

    def render(self, launch: Launch, site: Site) -> KubernetesRequest:
        if launch.plan.backend == "kubeflow":
            kubeflow.check(launch.plan, self.served())
        found = packed(launch.cwd, self.settings, self.home) if os.path.isdir(launch.cwd) else Packed()
        content = Content(
            archive=Path(self.archive).read_bytes(),
            code=found.code,
            fetched=found.fetched,
            cwd="" if os.path.isdir(launch.cwd) else launch.cwd,  # the launcher says that it is not there
            secrets=self.secrets(),
            token=self.token_of(launch.uid),
            ca=self._authority(),
            version=self.version(),
            resume_from=self._resumed(launch),
        )
        return replace(render(launch, self.settings, content), file=found.file)

    def _authority(self) -> str:
        """The certificate that pods trust when they send to the server."""
        if not self.settings.sink_ca:
            return ""
        try:
            return Path(self.settings.sink_ca).read_text()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "not a text"
            where = f"clusters.{self.settings.name}.sink_ca: {self.settings.sink_ca}"
            raise UsageError(f"{where}: {why}", hint="a file with certificates, PEM") from None

    def version(self) -> tuple[int, int]:
        """Of the API server: (1, 34). The newest, while nobody can ask: older ones pass over what they do not know."""
        if self._version is None:
            try:
                found = self.api.ask("GET", "/version", timeout=BRIEF)
                self._version = _number(found.get("major")), _number(found.get("minor"))
            except (Refused, Unavailable) as error:
                self._assumed = f"{error.problems[0].message}: taken for the newest Kubernetes"
                return NEWEST
        self._assumed = ""
        return self._version

    def assumed(self) -> str:
        return self._assumed

    def check(self, *, pod: bool = True) -> list[Finding]:
        """What works there, and what does not. `pod`: one is started to look around."""
        archive = Path(self.archive).read_bytes()
        content = {"archive": archive, "token": self.token_of(PROBE), "ca": ""}
        if pod and self.settings.sink_ca and os.path.exists(self.settings.sink_ca):
            content["ca"] = self._authority()
        return list(checking.check(self.api, self.settings, self.served, content, pod=pod))

    def served(self) -> list[str]:
        """Which of Kubeflow's kinds the cluster knows, by their plurals."""
        try:
            found = self.api.ask("GET", "/apis/kubeflow.org/v1")
        except Refused as error:
            if error.status == 404:
                return []
            raise
        return [entry["name"] for entry in found.get("resources", ()) if "/" not in entry["name"]]

    def start(self, launch: Launch, site: Site) -> Handle:
        handle = self._handle(launch)
        directory = self.directory(handle)
        if not (directory / files.RESULT).exists() and not self.tender.tend(str(directory)):
            directory.mkdir(parents=True, exist_ok=True)
            replicas = [replica.name for replica in launch.plan.replicas]
            self.preparing.begin(str(directory), replicas, lambda: self.submit(self.render(launch, site)))
        return handle

    def _handle(self, launch: Launch) -> Handle:
        return f"k8s:{self.settings.name}/{self.settings.namespace}/{launch.experiment}/{launch.attempt}"

    def submit(self, request: KubernetesRequest) -> Handle:
        """Written down, and made in the cluster by a thread: nobody waits for it here."""
        launch = request.launch
        handle = self._handle(launch)
        directory = self.directory(handle)
        if (directory / files.RESULT).exists():
            return handle
        directory.mkdir(parents=True, exist_ok=True)
        self._outputs(directory.parent, launch.experiment)
        if request.file is not None and request.fetched is not None:
            _keep_code(request.file, directory / request.fetched.kept_as)
        if not (directory / files.REQUEST).exists():
            write_json(str(directory / files.REQUEST), self._kept(request))
        self.tender.tend(str(directory), request.objects)
        return handle

    def _outputs(self, directory: Path, experiment: str) -> None:
        """The place of the outputs: ours, a link to where the claim is seen here, or a word on where they are."""
        settings, place = self.settings, directory / OUTPUTS
        if settings.outputs_path and not os.path.lexists(place):
            place.symlink_to(Path(settings.outputs_path) / experiment)
        elif not settings.outputs_path:
            place.mkdir(exist_ok=True)
        if settings.outputs_claim and not settings.outputs_path:
            write_json(str(directory / ELSEWHERE), {"where": f"{experiment}/ in {self._claim()}"})

    def _claim(self) -> str:
        settings = self.settings
        return f"claim {settings.outputs_claim} of namespace {settings.namespace} on {settings.name}"

    def _kept(self, request: KubernetesRequest) -> Object:
        """What the next server needs to go on. No secrets: those are in the cluster only."""
        launch = request.launch
        pods: dict[str, str] = {}
        if launch.plan.backend == "kubeflow":
            pods = {name: host.partition(".")[0] for name, host in kubeflow.hosts(launch, self.settings).items()}
        return {
            "kind": "kubernetes",
            "cluster": self.settings.name,
            "uid": launch.uid,
            "experiment": launch.experiment,
            "attempt": launch.attempt,
            "policy": launch.policy.json(),
            "began": time.time(),
            "sink": self.settings.sink,
            "carry": self.settings.carry,
            "anchor": request.objects[0]["metadata"]["name"],
            "replicas": [replica.name for replica in launch.plan.replicas],
            "pods": pods,
            "operator": kubeflow.KINDS[launch.plan.framework].kind if pods else "",
            "jobs": {
                obj["metadata"]["labels"]["shoal/replica"]: obj for obj in request.objects if obj["kind"] == "Job"
            },
            "limits": _limits(launch),
        }

    def observe(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        return {handle: self._observe(handle) for handle in handles}

    def _observe(self, handle: Handle) -> Observation:
        directory = str(self.directory(handle))
        wish = read_json(os.path.join(directory, files.STOP))
        grace = wish["grace"] if wish is not None else None
        result = read_json(os.path.join(directory, files.RESULT))
        if result is not None:
            outcome = Outcome.of(result)
            return Observation((*outcome.history, *outcome.statuses), outcome, stop_grace=grace)
        trouble = self.preparing.trouble(directory)
        if trouble is not None:
            return Observation(unreachable=trouble, stop_grace=grace)
        if not self.tender.tend(directory):
            return Observation(missing=True, stop_grace=grace)
        unreachable = self.tender.unreachable(directory)
        if unreachable:
            return Observation(unreachable=unreachable, stop_grace=grace)
        return Observation(self.tender.statuses(directory), stop_grace=grace)

    def stop(self, handle: Handle, reason: str, grace: float) -> None:
        directory = str(self.directory(handle))
        if os.path.isdir(directory):
            write_json(os.path.join(directory, files.STOP), {"reason": reason, "grace": grace})
            self.tender.wake(directory)

    def stacks(self, handle: Handle) -> tuple[list[Answer], list[str]]:
        away = self._observe(handle).unreachable
        attempt = self.tender.attempt(str(self.directory(handle)))
        if away or attempt is None:
            return [], [away] if away else []
        return asking.stacks(self.api, attempt, self.tender.pods.of(attempt.key))

    def sweep(self) -> None:
        """Has removed what a server left in the cluster that died after the end of an attempt. Waits for nothing."""
        for anchor in self.anchors.noted():
            directory = Path(anchor.directory)
            if not directory.exists() or (directory / files.RESULT).exists():
                self.tender.remove(anchor)

    def resume_from(self, directory: str, replica: str) -> str:
        """The checkpoint from which the next start of a replica goes on; empty when there is none that it could see."""
        return checkpoints.path_for(self._newest(os.path.dirname(directory)), replica)

    def _resumed(self, launch: Launch) -> dict[str, str]:
        choice = self._newest(str(self.home / "experiments" / launch.experiment))
        found = {replica.name: checkpoints.path_for(choice, replica.name) for replica in launch.plan.replicas}
        return {name: path for name, path in found.items() if path}

    def _newest(self, experiment: str) -> checkpoints.Choice | None:
        word = os.path.basename(experiment)
        return checkpoints.newest(experiment, lambda path: not self.lacks(path, word))

    def lacks(self, path: str, experiment: str) -> str:
        """Only what lies in the claim is there for another pod."""
        settings = self.settings
        claim = self._claim() if settings.outputs_claim else f"no outputs_claim on {settings.name}"
        if not path.startswith(f"{CLAIM}/"):
            return f"{path} did not outlive its pod: it was not in a claim"
        if settings.outputs_claim and settings.outputs_path:
            there = os.path.exists(os.path.join(settings.outputs_path, path[len(CLAIM) + 1 :]))
            return "" if there else f"{path} is not in {claim}"
        told = (read_json(str(self.home / "experiments" / experiment / ELSEWHERE)) or {}).get("where")
        kept = str(told or "").partition(" in ")[2] or (claim if settings.outputs_claim else "a claim")
        return f"{path} is in {kept}, and pods now have {claim}" if kept != claim else ""

    def directory(self, handle: Handle) -> Path:
        experiment, attempt = handle.split("/")[-2:]
        return self.home / "experiments" / experiment / f"attempt-{attempt}"

    def close(self) -> None:
        self.preparing.close()
        self.tender.close()


def _keep_code(file: IO[bytes], target: Path) -> None:
    """For replicas to fetch; in place before any of them can ask."""
    temporary = target.with_suffix(".new")
    file.seek(0)
    with temporary.open("wb") as kept:
        shutil.copyfileobj(file, kept)
    temporary.rename(target)


def _number(text: Any) -> int:
    """`34+` -> 34"""
    found = re.match(r"\d+", str(text or ""))
    return int(found.group()) if found else 0


def _limits(launch: Launch) -> dict[str, str]:
    """replica -> its memory limit, as a person reads it."""
    found = {}
    for replica in launch.plan.replicas:
        if replica.resources.memory.limits is not None:
            said, where = f"{quantity(replica.resources.memory.limits)} MiB", launch.limits_from.get(replica.name, "")
            found[replica.name] = f"{said}, set in {where}" if where else said
    return found
