"""The contract of backends, as it is, on a real cluster: with Jobs, and with an operator."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.backends.backend import Launch
from shoal.backends.kubernetes.backend import KubernetesBackend
from shoal.backends.kubernetes.pods import CLAIM
from shoal.backends.kubernetes.settings import Settings
from shoal.engine.submission import policy_of
from shoal.launcher.archive import archive
from shoal.plan import plan
from shoal.spec import Source, interpret
from tests.clusters.kubernetes.cluster import IMAGE, Cluster
from tests.clusters.kubernetes.conftest import Namespace, new_namespace
from tests.clusters.kubernetes.test_outputs import claim
from tests.contract import test_backends as contract
from tests.contract.test_backends import (  # noqa: F401  they are the tests of this file
    test_a_command_that_cannot_start_fails_with_the_reason,
    test_a_replica_is_restarted_alone_where_the_policy_says_so,
    test_a_stop_in_the_first_moments_is_not_lost,
    test_another_backend_adopts_what_one_started,
    test_logs_are_complete_after_the_end,
    test_stopping_twice_is_silent_and_so_is_stopping_what_is_gone,
    test_stopping_what_was_never_there_is_silent,
    test_submitting_twice_is_one_run,
    test_the_crash_of_one_replica_is_seen_with_its_exit_code,
    test_time_is_limited,
    test_what_nobody_started_is_missing,
)


class KubernetesPlace:
    """A namespace; what tests share with replicas lies in its claim."""

    def __init__(self, namespace: Namespace, home: Path, work: Path) -> None:
        self.namespace = namespace
        self.home = home
        self.work = work
        self.backends: list[KubernetesBackend] = []
        self.code = home / "code"
        self.code.mkdir(parents=True)
        (self.code / "train.py").touch()
        self.backend = self.new_backend()

    def new_backend(self) -> KubernetesBackend:
        settings = Settings(
            name="lab",
            kubeconfig=str(self.namespace.kubeconfig),
            namespace=self.namespace.name,
            image=IMAGE,
            image_pull_policy="Never",
            outputs_claim="outputs",
        )
        made = KubernetesBackend(self.home, settings, archive=archive(str(self.home / "launcher")))
        for other in self.backends:
            other.close()
        self.backends.append(made)
        return made

    def launch(self, text: str) -> Launch:
        planned = plan(interpret([Source("test.yml", text)]).spec)
        name = "e" + secrets.token_hex(3)
        return Launch(name, secrets.token_hex(16), 0, planned, policy_of(planned), str(self.code))

    def seen(self, path: Path) -> str:
        return f"{CLAIM}/{path.relative_to(self.work.parent)}"

    def printed(self, handle: str, replica: str) -> list[bytes]:
        return contract.printed(self.home, handle, replica)

    def nothing_left(self) -> None:
        self.namespace.becomes_empty()


class KubeflowPlace(KubernetesPlace):
    """The same through the operator."""

    def launch(self, text: str) -> Launch:
        return super().launch(f"backend: kubeflow\n{text}")


@pytest.fixture(scope="module")
def shared(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Namespace, Path]]:
    place = tmp_path_factory.mktemp("contract")
    with new_namespace(cluster, place) as namespace:
        claim(namespace, place / "disk")
        try:
            yield namespace, place / "disk"
        finally:
            cluster.ask("DELETE", f"/api/v1/persistentvolumes/{namespace.name}")


@pytest.fixture(params=[KubernetesPlace, KubeflowPlace], ids=["native", "kubeflow"])
def place(request: pytest.FixtureRequest, shared: tuple[Namespace, Path], tmp_path: Path) -> Iterator[KubernetesPlace]:
    namespace, disk = shared
    work = disk / secrets.token_hex(4)
    work.mkdir()
    made = request.param(namespace, tmp_path / "home", work)
    yield made
    for backend in made.backends:
        backend.close()


@pytest.fixture(params=range(2))
def round_number(request: pytest.FixtureRequest) -> int:
    return int(request.param)
