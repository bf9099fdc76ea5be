"""What is handed to the Kubeflow operator, judged by the schemas of its own releases.

1.8.1 comes from its Go module; 1.7.0 and 1.9.4 are judged too where ../shared/kubeflow-crds is. An API server drops
fields that a schema does not know, without a word: here each is an error.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from shoal.backends.backend import Launch
from shoal.backends.kubernetes import kubeflow
from shoal.backends.kubernetes.request import Content, render
from shoal.backends.kubernetes.settings import Mount, Settings
from shoal.engine.submission import policy_of
from shoal.plan import Plan, plan
from shoal.spec import load
from tests import fixtures
from tests.clusters.kubernetes import binaries
from tests.conftest import ROOT
from tests.environments import CannotMake
from tests.fixtures import RIGHT

ADORNED_FILES = sorted((Path(fixtures.__file__).parent / "kubeflow").glob("*.yml"))
OTHERS = ROOT.parent / "shared" / "kubeflow-crds"
RELEASES = [binaries.OPERATOR, *(("1.7.0", "1.9.4") if OTHERS.is_dir() else ())]
SERVED = [kind.plural for kind in kubeflow.KINDS.values()]

# Files of tests/fixtures/experiments that no release of the operator can run, and why.
ONE_TEMPLATE = "has one template for all of"
REFUSED = {
    "everything": ONE_TEMPLATE,
    "jax-three": "is not run through Kubeflow",
}

PLAIN = Settings("lab", image="team/train:1")
ADORNED = Settings(
    "lab",
    namespace="team-a",
    image="team/train:1",
    image_pull_policy="Always",
    image_pull_secrets=("registry",),
    service_account="trainer",
    node_selector={"pool": "a100"},
    tolerations=({"key": "gpu", "operator": "Exists"},),
    sink="https://shoal.lab:8443",
    outputs_claim="outputs",
    mounts=(Mount("/data", "/data"),),
)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("settings", [PLAIN, ADORNED], ids=["few settings", "all settings"])
@pytest.mark.parametrize("path", [*RIGHT, *ADORNED_FILES], ids=lambda path: path.stem)
def test_an_operator_understands_every_field(path: Path, settings: Settings, release: str) -> None:
    planned = kubeflow_plan(path)
    if why := refused(path):
        assert why in kubeflow.refusal(planned, SERVED)
        return
    assert kubeflow.refusal(planned, SERVED) == ""
    rendered = render(launch(planned), settings, Content(archive=b"zip", code=b"tar", token="t", ca="ca"))
    (job,) = [obj for obj in rendered.objects if obj["apiVersion"] == "kubeflow.org/v1"]
    known = schema(release, job["kind"])
    if known is None:
        assert (job["kind"], release) == ("MXJob", "1.9.4")
        assert "does not serve MXJob" in kubeflow.refusal(planned, ["tfjobs", "pytorchjobs", "jaxjobs"])
        return
    found = jsonschema.Draft202012Validator(known).iter_errors(json.loads(json.dumps(job)))
    assert [f"{error.json_path}: {error.message}" for error in found] == []


@pytest.mark.slow
def test_a_field_that_no_release_knows_is_found() -> None:
    planned = kubeflow_plan(next(path for path in RIGHT if path.stem == "kubeflow"))
    job = kubeflow.custom_object(launch(planned), PLAIN, render(launch(planned), PLAIN, Content(b"zip")).parts)
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["hostnames"] = "no"
    for release in RELEASES:
        with pytest.raises(jsonschema.ValidationError, match="hostnames"):
            jsonschema.validate(job, schema(release, "PyTorchJob"))


def kubeflow_plan(path: Path) -> Plan:
    return replace(plan(load([str(path)]).spec), backend="kubeflow")


def refused(path: Path) -> str:
    """Why a file cannot be run; the large examples have entries for single replicas, in every spelling."""
    if path.stem in REFUSED:
        return REFUSED[path.stem]
    return ONE_TEMPLATE if "-large-" in path.stem else ""


def launch(planned: Plan) -> Launch:
    return Launch("e7k2m9", "uid", 0, planned, policy_of(planned), "/work")


@cache
def schema(release: str, kind: str) -> Mapping[str, Any] | None:
    """That of a kind, in which nothing is allowed that is not described; none when the release has no such kind."""
    plural = f"{kind.lower()}s"
    if release == binaries.OPERATOR:
        try:
            text = (binaries.operator_manifests() / "crds" / f"kubeflow.org_{plural}.yaml").read_bytes()
        except CannotMake as error:
            pytest.skip(str(error))
    else:
        path = OTHERS / f"v{release}" / f"{plural}.yaml.gz"
        if not path.exists():
            return None
        text = gzip.decompress(path.read_bytes())
    crd = yaml.load(text, yaml.CSafeLoader)  # in C: the files are long
    (version,) = [entry for entry in crd["spec"]["versions"] if entry["name"] == "v1"]
    return strict(version["schema"]["openAPIV3Schema"])


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of a CRD as JSON Schema: fields that would be pruned are errors."""
    found = {key: strict(value) if isinstance(value, dict) else value for key, value in schema.items()}
    for key in ("allOf", "anyOf", "oneOf"):
        if key in found:
            found[key] = [strict(entry) for entry in found[key]]
    described = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if described and "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    return found
