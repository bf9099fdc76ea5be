"""`[clusters.NAME]` of config.toml: what is wrong is named, with a way out; what is right is taken as it is written."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from shoal.backends.kubernetes.api import Api
from shoal.backends.kubernetes.settings import Mount, Settings, settings
from shoal.errors import UsageError
from shoal.server import clusters

CONFIG = Path("/shoal/config.toml")


def read(text: str, name: str = "lab") -> Settings:
    return settings(name, tomllib.loads(text), CONFIG)


def test_an_empty_section_is_the_current_context_and_its_defaults() -> None:
    assert read("") == Settings("lab")
    assert (read("").namespace, read("").sink, read("").python) == ("default", "stdout", "python3")


def test_everything_is_taken_as_it_is_written() -> None:
    found = read("""
        kind = "kubernetes"
        kubeconfig = "/etc/lab.kubeconfig"
        context = "lab"
        namespace = "team-a"
        image = "registry/team/train:1"
        image_pull_policy = "IfNotPresent"
        image_pull_secrets = ["registry"]
        service_account = "trainer"
        node_selector = {pool = "a100"}
        tolerations = [{key = "gpu", operator = "Exists"}]
        security_context = {runAsNonRoot = true, capabilities = {drop = ["ALL"]}}
        pod_security_context = {fsGroup = 1000}
        sink = "https://shoal.lab:8443/"
        sink_ca = "/etc/ssl/lab.pem"
        outputs_claim = "outputs"
        outputs_path = "/mnt/outputs"
        python = "/opt/python/bin/python"
        cluster_domain = "cluster.local"
        [[mounts]]
        host_path = "/data"
        at = "/mnt/data"
    """)
    assert found.sink == "https://shoal.lab:8443"
    assert found.image_pull_secrets == ("registry",)
    assert found.security_context == {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}
    assert found.mounts == (Mount("/data", "/mnt/data"),)
    assert found.tolerations == ({"key": "gpu", "operator": "Exists"},)


def test_a_home_in_front_is_the_users() -> None:
    assert read('kubeconfig = "~/lab"').kubeconfig == str(Path.home() / "lab")


@pytest.mark.parametrize(
    ("text", "where", "said", "hint"),
    [
        pytest.param('namespce = "a"', "namespce", "no such setting", "did you mean namespace?", id="a slip"),
        pytest.param('carry = "5m"', "carry", "not a number of seconds", "carry = 300", id="a time in words"),
        pytest.param("carry = -1", "carry", "not a number of seconds", "carry = 300", id="a time before"),
        pytest.param("xyz = 1", "xyz", "no such setting", "known are carry, cluster_domain", id="an unknown key"),
        pytest.param("context = 1", "context", "not a text", 'context = "…"', id="a number for a name"),
        pytest.param('image = ""', "image", "not a text", "remove the line", id="an empty text"),
        pytest.param('namespace = "Team A"', "namespace", "not the name of a namespace", "lower case", id="namespace"),
        pytest.param('kubeconfig = "lab"', "kubeconfig", "not an absolute path", "~/", id="a path without a beginning"),
        pytest.param('image_pull_policy = "Sometimes"', "image_pull_policy", "no policy", "Always", id="a policy"),
        pytest.param('image_pull_secrets = "a"', "image_pull_secrets", "not a list", '["name"]', id="one for a list"),
        pytest.param('image_pull_secrets = ["A"]', "image_pull_secrets", "cannot be the name", "-", id="a Secret"),
        pytest.param('service_account = "a b"', "service_account", "cannot be the name", "-", id="an account"),
        pytest.param("node_selector = {a = 1}", "node_selector", "not a table of texts", "pool", id="a selector"),
        pytest.param('node_selector = ["a"]', "node_selector", "not a table of texts", "pool", id="a selector list"),
        pytest.param('tolerations = ["gpu"]', "tolerations", "not a list of tables", "Exists", id="tolerations"),
        pytest.param("security_context = true", "security_context", "not a table", "runAsNonRoot", id="a context"),
        pytest.param('sink = "server"', "sink", "is no sink", "https://host:port", id="a sink that is a word"),
        pytest.param('sink = "https://"', "sink", "is no sink", "https://host:port", id="a sink without a host"),
        pytest.param('sink = "https://a:b"', "sink", "is no sink", "https://host:port", id="a port that is none"),
        pytest.param('sink = "https://me@a"', "sink", "is no sink", "https://host:port", id="a sink with a user"),
        pytest.param('sink = "ftp://a"', "sink", "is no sink", "https://host:port", id="another protocol"),
        pytest.param('sink_ca = "/a.pem"', "sink_ca", "not a server with a certificate", "https", id="a CA alone"),
        pytest.param('outputs_path = "/a"', "outputs_path", "no outputs_claim", "outputs_claim", id="a path alone"),
        pytest.param('outputs_claim = "a/b"', "outputs_claim", "cannot be the name", "-", id="a claim"),
        pytest.param('mounts = {at = "/a"}', "mounts", "two absolute paths", "host_path", id="half a mount"),
        pytest.param('mounts = {host_path = "a", at = "/a"}', "mounts", "two absolute paths", "at", id="relative"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_where_it_stands(text: str, where: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(text)
    problem = raised.value.problems[0]
    assert problem.message.startswith(f"{CONFIG}: clusters.lab.{where}: ")
    assert said in problem.message
    assert hint in problem.hint


def test_the_name_of_a_cluster_is_one_that_can_be_typed() -> None:
    with pytest.raises(UsageError, match=r"clusters.The Lab: not a name for a cluster"):
        read("", name="The Lab")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("clusters = 1", "clusters is not a table", id="no table of clusters"),
        pytest.param("[clusters]\nlab = 1", "clusters.lab: not a Kubernetes cluster", id="no table of one"),
        pytest.param('[clusters.lab]\nkind = "mesos"', "clusters.lab: not a Kubernetes cluster", id="another kind"),
    ],
)
def test_a_section_is_a_kubernetes_cluster(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        clusters.backends(tmp_path, tomllib.loads(text), archive="", token="", on_change=lambda: None)


def test_local_is_no_cluster_of_the_file(tmp_path: Path) -> None:
    config = tomllib.loads("[clusters.local]\ngpus = 2\n[clusters.lab]\n")
    found = clusters.backends(tmp_path, config, archive="", token="", on_change=lambda: None)
    assert list(found) == ["lab"]


@pytest.mark.parametrize(
    ("kubeconfig", "text", "said"),
    [
        ("{place}/config", None, "cluster lab: {place}/config: there is no such file"),
        ("", None, "cluster lab: {place}/one:{place}/other: there is no such file"),
        ("{place}/config", "- a list", "cluster lab: {place}/config: not a kubeconfig: "),
        ("{place}/config", "contexts: []", "cluster lab: {place}/config: Invalid kube-config file."),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kubeconfig: str, text: str | None, said: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/one:{tmp_path}/other")
    if text is not None:
        (tmp_path / "config").write_text(text)
    api = Api(Settings("lab", kubeconfig=kubeconfig.format(place=tmp_path)))
    with pytest.raises(UsageError) as caught:
        api.get("Pod", "some")
    assert str(caught.value).startswith(said.format(place=tmp_path))
    assert caught.value.problems[0].hint == "set kubeconfig and context in [clusters.lab]"
