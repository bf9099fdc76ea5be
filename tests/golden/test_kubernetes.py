"""What is applied to a Kubernetes cluster, as `shoal plan FILE --on CLUSTER` prints it: every field of every object."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from shoal.backends.backend import Launch
from shoal.backends.kubernetes.request import Content, Fetched, KubernetesRequest, render
from shoal.backends.kubernetes.settings import Settings, settings
from shoal.engine.submission import policy_of
from shoal.plan import plan
from shoal.spec import load
from tests import golden
from tests.fixtures import HERE

PLAIN = 'namespace = "team-a"\nimage = "registry/team/train:1"\n'
FULL = """
namespace = "team-a"
image = "registry/team/train:1"
image_pull_policy = "Always"
image_pull_secrets = ["registry"]
service_account = "trainer"
node_selector = {zone = "north"}
tolerations = [{key = "shoal", operator = "Exists"}]
security_context = {runAsNonRoot = true, runAsUser = 1000, readOnlyRootFilesystem = true}
pod_security_context = {fsGroup = 1000}
sink = "https://shoal.lab:8443"
sink_ca = "/etc/ssl/lab.pem"
outputs_claim = "outputs"
python = "/opt/python/bin/python"
cluster_domain = "cluster.local"
mounts = [{host_path = "/data", at = "/mnt/data"}]
"""


def cluster(text: str) -> Settings:
    return settings("lab", tomllib.loads(text), Path("config.toml"))


def rendered(name: str, text: str, content: Content) -> KubernetesRequest:
    planned = plan(load([str(HERE / "experiments" / f"{name}.yml")]).spec)
    launch = Launch("e7k2m9", "00000000000000000000000000000001", 0, planned, policy_of(planned), "/code")
    return render(launch, cluster(text), content)


SMALL = Content(archive=b"x" * 1000, code=b"x" * 100)
CASES = [
    pytest.param("single", PLAIN, SMALL, id="single"),
    pytest.param("everything", PLAIN, SMALL, id="everything"),
    pytest.param("pytorch-two-nodes-eight-trainers", PLAIN, SMALL, id="pytorch-two-nodes-eight-trainers"),
    pytest.param("tensorflow-no-master", PLAIN, SMALL, id="tensorflow-no-master"),
    pytest.param("mxnet-small", PLAIN, SMALL, id="mxnet-small"),
    pytest.param("kubeflow", PLAIN, SMALL, id="kubeflow"),
    pytest.param(
        "everything",
        FULL,
        Content(
            archive=b"x" * 1000,
            fetched=Fetched("ab" * 32, 50_000_000),
            secrets={"s3-credentials": {"AWS_SECRET_ACCESS_KEY": "hidden"}},
            token="hidden",
            ca="-----BEGIN CERTIFICATE-----\n",
            resume_from={"master-0": "/shoal/claim/e7k2m9/step-3.pt"},
        ),
        id="everything-with-all-settings",
    ),
    pytest.param("single", PLAIN, Content(archive=b"x" * 1000, version=(1, 25)), id="single-on-an-old-cluster"),
]


def test_secrets_whose_names_become_the_same_stay_two(tmp_path: Path) -> None:
    file = tmp_path / "e.yml"
    file.write_text("run: {cmd: 'true'}\nenvironment: {secret_refs: [s3_keys, s3-keys]}\n")
    planned = plan(load([str(file)]).spec)
    launch = Launch("e7k2m9", "uid", 0, planned, policy_of(planned), "/code")
    secrets = {"s3_keys": {"A": "1"}, "s3-keys": {"B": "2"}}
    objects = render(launch, cluster(PLAIN), Content(archive=b"x", secrets=secrets)).objects
    kept = {obj["metadata"]["name"]: obj["stringData"] for obj in objects if obj["kind"] == "Secret"}
    assert sorted(kept.values(), key=str) == [{"A": "1"}, {"B": "2"}]
    (job,) = [obj for obj in objects if obj["kind"] == "Job"]
    assert all(name in str(job) for name in kept)


@pytest.mark.parametrize(("name", "text", "content"), CASES)
def test_a_file_means_these_objects(name: str, text: str, content: Content, request: pytest.FixtureRequest) -> None:
    shown = str(rendered(name, text, content))
    assert "hidden" not in shown
    golden.check(f"kubernetes/{request.node.callspec.id}.yaml", shown)


def test_the_same_is_rendered_each_time() -> None:
    assert rendered("everything", FULL, SMALL) == rendered("everything", FULL, SMALL)
