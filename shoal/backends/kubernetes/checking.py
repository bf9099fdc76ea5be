"""`shoal cluster check`: what works on a cluster, what does not, and what to do about it."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shoal.backends.kubernetes import observing
from shoal.backends.kubernetes.api import Api, Refused
from shoal.backends.kubernetes.pods import ARCHIVE, CLAIM, RUN, WORK, Object, frame
from shoal.backends.kubernetes.request import config_map, secret
from shoal.backends.kubernetes.rights import KUBEFLOW, RIGHTS, Right, review
from shoal.backends.kubernetes.settings import STDOUT, Settings
from shoal.errors import ShoalError, Unavailable
from shoal.launcher.probe import MARK

OK, NOTE, PROBLEM = "ok", "note", "problem"
ROLE = "shoal cluster role | kubectl apply -n {} -f -"
OLDEST = (1, 24)
PATIENCE = 90.0  # seconds for a pod to be placed, to pull its image and to look around
NO_POD = 10.0  # seconds after which somebody asks why there is none
LABEL = "shoal/probe"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. A note is what could not be found out, or is good to know."""

    name: str
    state: str
    text: str
    hint: str = ""
    unreachable: bool = False


def check(
    api: Api, settings: Settings, served: Callable[[], Sequence[str]], content: Mapping[str, Any], *, pod: bool
) -> Iterator[Finding]:
    """`content`: `archive` (bytes), `token` and `ca` of a pod that looks around; `pod`: whether to start one."""
    try:
        found = api.ask("GET", "/version")
    except Unavailable as error:
        hint = "is its address right, and do you reach it?"
        if "credentials" in _said(error):
            hint = "log in to the cluster anew, or name another context"
        yield Finding("API server", PROBLEM, _said(error), hint, True)
        return
    except ShoalError as error:
        yield Finding("API server", PROBLEM, _said(error), error.problems[0].hint or "see the kubeconfig")
        return
    yield _version(found)
    try:
        missing, kinds = _missing(api, settings.namespace), served()
    except Refused as error:
        yield Finding("rights", PROBLEM, _said(error), "ask who runs the cluster")
        return
    namespace = _namespace(api, settings)
    yield namespace
    yield _rights(missing, settings, kinds)
    yield _kubeflow(kinds)
    yield _capacity(api)
    yield _image(settings)
    yield from _secrets(api, settings)
    if settings.outputs_claim:
        yield _claim(api, settings)
    else:
        carried = "what replicas write is carried to the server when they end"
        if settings.sink == STDOUT:
            carried = "each replica has its own; small files are carried in its log"
        yield Finding("outputs", NOTE, f"not shared: {carried}", "set outputs_claim to a claim that many can write")
    yield _sink(settings)
    possible = namespace.state != PROBLEM and not any(right.group != KUBEFLOW for right in missing)
    if pod and settings.image and possible:
        yield from Probe(api, settings, content).findings()


def _version(found: Mapping[str, Any]) -> Finding:
    numbers = tuple(int(re.sub(r"\D.*", "", str(found.get(part) or "0")) or 0) for part in ("major", "minor"))
    said = f"Kubernetes {str(found.get('gitVersion', '')).removeprefix('v') or '.'.join(map(str, numbers))}"
    if numbers < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        return Finding("API server", PROBLEM, f"{said} is older than {wanted}", "upgrade the cluster")
    return Finding("API server", OK, said)


def _missing(api: Api, namespace: str) -> list[Right]:
    return [
        right
        for right in RIGHTS
        if not api.ask(
            "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review(right, namespace)
        ).get("status", {}).get("allowed")
    ]  # fmt: skip


def _namespace(api: Api, settings: Settings) -> Finding:
    """Asked by what would be done there: nobody needs a right to look at namespaces for that."""
    name = settings.namespace
    try:
        api.create(config_map(f"shoal-check-{secrets.token_hex(4)}", {}, {}, {}), dry_run=True)
    except Refused as error:
        if error.status == 404:
            return Finding("namespace", PROBLEM, f"there is no namespace {name}", f"kubectl create namespace {name}")
        return Finding("namespace", NOTE, f"{name}: whether it exists is not known: {_said(error)}", "see rights")
    return Finding("namespace", OK, name)


def _rights(missing: Sequence[Right], settings: Settings, kinds: Sequence[str]) -> Finding:
    needed = [right for right in RIGHTS if _needed(right, settings, kinds)]
    lacking = [right for right in missing if right in needed]
    if lacking:
        text = f"we may not {', '.join(map(str, lacking[:6]))}" + (" and more" if len(lacking) > 6 else "")
        return Finding("rights", PROBLEM, f"{text} in {settings.namespace}", ROLE.format(settings.namespace))
    return Finding("rights", OK, f"all {len(needed)} that are needed in {settings.namespace}")


def _needed(right: Right, settings: Settings, kinds: Sequence[str]) -> bool:
    if right.group == KUBEFLOW:
        return right.resource in kinds
    return right.resource != "persistentvolumeclaims" or bool(settings.outputs_claim)


def _kubeflow(kinds: Sequence[str]) -> Finding:
    ours = [kind for kind in ("tfjobs", "pytorchjobs", "mxjobs") if kind in kinds]
    if ours:
        return Finding("Kubeflow", OK, f"serves {', '.join(ours)}")
    return Finding("Kubeflow", NOTE, "none of its kinds is served here", "backend: native needs none of them")


def _capacity(api: Api) -> Finding:
    try:
        nodes = api.ask("GET", "/api/v1/nodes").get("items", [])
    except Refused:
        return Finding("capacity", NOTE, "nodes may not be listed by us", "the scheduler knows; who runs it can tell")
    ready = [node for node in nodes if _is_ready(node) and not node.get("spec", {}).get("unschedulable")]
    if not ready:
        return Finding("capacity", PROBLEM, f"none of {len(nodes)} nodes is ready", "kubectl get nodes tells more")
    free = [node.get("status", {}).get("allocatable", {}) for node in ready]
    cpu = sum(quantity(entry.get("cpu", "0")) for entry in free)
    memory = sum(quantity(entry.get("memory", "0")) for entry in free) / 2**30
    gpus = sum(quantity(entry.get("nvidia.com/gpu", "0")) for entry in free)
    return Finding("capacity", OK, f"{len(ready)} nodes ready: {cpu:g} cores, {memory:.0f} GiB, {gpus:g} GPUs")


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(entry.get("type") == "Ready" and entry.get("status") == "True" for entry in conditions)


UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
         "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}  # fmt: skip


def quantity(text: str) -> float:
    """`500m` -> 0.5, `2Gi` -> 2147483648; 0 for what is no quantity."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", str(text))
    return float(match.group(1)) * UNITS[match.group(2)] if match and match.group(2) in UNITS else 0.0


def _image(settings: Settings) -> Finding:
    if not settings.image:
        hint = f"set image in [clusters.{settings.name}]; no pod is tried without one"
        return Finding("image", NOTE, "none is set: every file needs build.image", hint)
    return Finding("image", OK, settings.image)


def _secrets(api: Api, settings: Settings) -> Iterator[Finding]:
    for name in settings.image_pull_secrets:
        try:
            found = api.get("Secret", name)
        except Refused:
            text = f"{name}: whether it exists is not known: we may not read Secrets, and need not"
            yield Finding("image pull secret", NOTE, text, "a pod that cannot pull its image says so")
            continue
        if found is None:
            hint = f"kubectl create secret docker-registry {name} -n {settings.namespace} …"
            yield Finding("image pull secret", PROBLEM, f"there is no Secret {name}", hint)
        elif not str(found.get("type", "")).startswith("kubernetes.io/dockerc"):
            hint = "kubectl create secret docker-registry makes one of the right type"
            yield Finding("image pull secret", PROBLEM, f"{name} is a Secret of type {found.get('type')}", hint)
        else:
            yield Finding("image pull secret", OK, name)


def _claim(api: Api, settings: Settings) -> Finding:
    name = settings.outputs_claim
    try:
        found = api.get("PersistentVolumeClaim", name)
    except Refused:
        return Finding("outputs", NOTE, f"claim {name}: we may not look at it", ROLE.format(settings.namespace))
    if found is None:
        hint = f"create it in {settings.namespace}, with accessModes: [ReadWriteMany]"
        return Finding("outputs", PROBLEM, f"there is no claim {name}", hint)
    modes = found.get("spec", {}).get("accessModes") or []
    phase = found.get("status", {}).get("phase", "Pending")
    if "ReadWriteMany" not in modes:
        hint = "replicas on several nodes need a claim with ReadWriteMany"
        return Finding("outputs", PROBLEM, f"claim {name} is {', '.join(modes) or 'of no mode'}", hint)
    if phase == "Lost":
        return Finding("outputs", PROBLEM, f"claim {name} is Lost: its volume is gone", "make it anew")
    note = "" if phase == "Bound" else ", bound when a pod uses it"
    return Finding("outputs", OK, f"claim {name}, shared by all replicas{note}")


def _sink(settings: Settings) -> Finding:
    if settings.sink == STDOUT:
        return Finding("sink", OK, "stdout: logs and metrics come through the API server")
    if settings.sink.startswith("http://"):
        text = f"{settings.sink} is not encrypted: what replicas send can be read on its way"
        return Finding("sink", NOTE, text, "shoal serve --tls-cert … and https://")
    if settings.sink_ca and not os.path.exists(settings.sink_ca):
        return Finding("sink", PROBLEM, f"sink_ca: there is no {settings.sink_ca}", "name a file of certificates, PEM")
    return Finding("sink", OK, settings.sink)


class Probe:
    """One Job with one pod, made as those of replicas are; it looks around, tells, and is removed."""

    def __init__(self, api: Api, settings: Settings, content: Mapping[str, Any]) -> None:
        self.api = api
        self.settings = settings
        self.content = content
        self.name = f"shoal-probe-{secrets.token_hex(4)}"

    def findings(self) -> Iterator[Finding]:
        try:
            self._tidy()
            anchor = self.api.create(self.objects()[0])
            owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": self.name, "uid": anchor["metadata"]["uid"]}
            for obj in self.objects()[1:]:
                self.api.create({**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner]}})
            yield from self._told()
        except Refused as error:
            mistyped = error.status in (400, 422)
            hint = "correct it in the settings" if mistyped else "a policy of the namespace? security_context may help"
            yield Finding("pod", PROBLEM, _said(error), hint)
        finally:
            self.api.delete("ConfigMap", self.name)

    def objects(self) -> list[Object]:
        """The anchor first."""
        labels = {"app.kubernetes.io/managed-by": "shoal", LABEL: self.name}
        run = {"probe": True, "work": WORK, "name": "kubernetes.default.svc"}
        if self.settings.outputs_claim:
            run["claim"] = CLAIM
        texts = {RUN: json.dumps(run)}
        if self.content.get("ca"):
            texts["ca.pem"] = self.content["ca"]
        objects = [config_map(self.name, labels, {ARCHIVE: self.content["archive"]}, texts)]
        if self.settings.sink != STDOUT:
            objects.append(secret(f"{self.name}-sink", labels, {"token": self.content["token"]}))
        spec = frame(self.settings, self.name, container="shoal", image=self.settings.image)
        small = {"cpu": "100m", "memory": "128Mi"}
        spec["containers"][0]["resources"] = {"requests": small, "limits": small}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": int(PATIENCE) + 30,
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        return [*objects, job]

    def _tidy(self) -> None:
        """Removes what a check left whose server was killed."""
        for found in self.api.list("ConfigMap", LABEL)[0]:
            made = observing.moment(found["metadata"].get("creationTimestamp")) or 0.0
            if datetime.now(UTC).timestamp() - made > 10 * PATIENCE:
                self.api.delete("ConfigMap", found["metadata"]["name"])

    def _told(self) -> Iterator[Finding]:
        began = time.monotonic()
        pod: Object | None = None
        while time.monotonic() - began < PATIENCE:
            pods = self.api.list("Pod", f"{LABEL}={self.name}")[0]
            pod = pods[0] if pods else None
            if pod is None and time.monotonic() - began > NO_POD:
                why = self._why_none()
                if why:
                    yield Finding("pod", PROBLEM, f"none was made: {why}", _remedy_for_none(why, self.settings))
                    return
            if pod is not None and pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                yield from self._seen(pod, time.monotonic() - began)
                return
            if pod is not None and _hopeless(observing.pending(pod)):
                break
            time.sleep(0.3)
        why = observing.pending(pod) if pod is not None else ""
        yield Finding("pod", PROBLEM, f"did not start: {why or 'nobody says why'}", _remedy(why, self.settings))

    def _why_none(self) -> str:
        events = self.api.list("Event", fields=f"reason=FailedCreate,involvedObject.name={self.name}")[0]
        return str(events[-1].get("message") or "") if events else ""

    def _seen(self, pod: Object, seconds: float) -> Iterator[Finding]:
        text = b"".join(self.api.log(pod["metadata"]["name"], follow=False)).decode("utf-8", "replace")
        said = [line.partition(" ")[2] for line in text.strip().splitlines()]  # without their times
        line = next((line for line in said if line.startswith(MARK)), "")
        if not line:
            main = observing.container_of(pod) or {}
            ended = main.get("state", {}).get("terminated") or {}
            said = said[-1:] or [ended.get("message") or f"exit code {ended.get('exitCode')}"]
            hint = f"the image needs Python 3.8 as {self.settings.python}; python in the settings names another"
            yield Finding("pod", PROBLEM, f"could not run the launcher: {said[0]}", hint)
            return
        found = json.loads(line[len(MARK) :])
        yield Finding(
            "pod", OK, f"ran after {seconds:.0f} s on {pod['spec'].get('nodeName')}: Python {found['version']}, "
            f"user {found['user']}"
        )  # fmt: skip
        yield from _from_inside(found, self.settings)


def _from_inside(found: Mapping[str, str], settings: Settings) -> Iterator[Finding]:
    looked = [
        ("bash", "commands are run by bash", "put bash into the image"),
        ("work", "/shoal/work can be written", "runAsUser, or fsGroup in pod_security_context"),
        ("claim", "the claim can be written", "fsGroup in pod_security_context, or the owner of the volume"),
        ("dns", "replicas can find each other", "is DNS of the cluster running? cluster_domain may be needed"),
    ]
    for name, fine, hint in looked:
        if name in found:
            wrong = found[name]
            yield Finding(name.replace("dns", "DNS"), PROBLEM if wrong else OK, wrong or fine, hint if wrong else "")
    if "server" in found:
        wrong = found["server"]
        text = f"{settings.sink} from a pod: {wrong}" if wrong else f"{settings.sink} is reached from a pod"
        yield Finding("server", PROBLEM if wrong else OK, text, _server_hint(wrong) if wrong else "")


def _server_hint(wrong: str) -> str:
    if wrong.startswith("421"):
        return "add that name to hosts in [server] of config.toml, and start the server anew"
    if wrong.startswith("401"):
        return "the server of another home answers there: use its address for this home's server"
    if "CERTIFICATE_VERIFY_FAILED" in wrong:
        return "sink_ca names the certificate of its authority; the certificate must hold the name in sink"
    return "shoal serve --host ADDRESS --port N listens there; is the way open (firewall, NetworkPolicy)?"


def _hopeless(why: str) -> bool:
    return why.split(":")[0] in ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName",
                                 "CreateContainerConfigError", "CreateContainerError")  # fmt: skip


def _remedy(why: str, settings: Settings) -> str:
    word = why.split(":")[0]
    if "Image" in word:
        return f"is {settings.image} right? private registries need image_pull_secrets"
    if word == "CreateContainerConfigError":
        return "a Secret or a user is missing: security_context, image_pull_secrets"
    if word == "Unschedulable":
        return "node_selector and tolerations, or wait until there is room"
    return f"kubectl describe pod -n {settings.namespace} -l {LABEL} tells more"


def _remedy_for_none(why: str, settings: Settings) -> str:
    """Why a Job makes no pod stands in its events: whoever refused it says so there."""
    if "serviceaccount" in why:
        name = settings.service_account or "default"
        return f"kubectl create serviceaccount {name} -n {settings.namespace}, or name another"
    if "quota" in why:
        return f"kubectl describe quota -n {settings.namespace} tells what is left"
    if "PodSecurity" in why:
        return "security_context and pod_security_context in the settings can say what that policy asks for"
    return f"a policy of the namespace? kubectl get events -n {settings.namespace} tells more"


def _said(error: ShoalError) -> str:
    return error.problems[0].message.partition("\n")[0]
