"""Who occupies what on a cluster, what waits, and for what."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from shoal.client import Client
from tests.api.speaking import Served
from tests.running import until

HOLDS = """\
name: {name}
framework: none
run: {{cmd: sleep 1000}}
environment:
  resources: {{cpu: {{requests: {cpu}}}, memory: {{requests: 64Mi}}}}
grace: {{stop: 0s}}
"""
NOBODY = """\
{{apiVersion: v1, kind: Config, current-context: lab, users: [{{name: me, user: {{}}}}],
 clusters: [{{name: lab, cluster: {{server: 'http://127.0.0.1:9'}}}}],
 contexts: [{{name: lab, context: {{cluster: lab, user: me}}}}]}}
"""


def clusters(served: Served) -> dict[str, Any]:
    return {entry["name"]: entry for entry in served.client.clusters()}


def test_a_machine_tells_who_holds_it_and_who_waits(alone: Served) -> None:
    cores = len(os.sched_getaffinity(0))
    assert clusters(alone)["local"]["experiments"] == []
    holder = alone.run(HOLDS.format(name="holder", cpu=cores))
    until(lambda: alone.client.show(holder)["state"] == "running", "the start")
    first, second = (alone.run(HOLDS.format(name=name, cpu=1)) for name in ("first", "second"))
    until(lambda: "behind" in alone.client.show(second)["reason"], "the queue")

    found = clusters(alone)["local"]
    assert (found["used_cpu"], found["cpu"], found["unreachable_since"]) == (cores, cores, None)
    holds, waits, waits_too = found["experiments"]
    assert (holds["id"], holds["state"], holds["position"], holds["waits"]) == (holder, "running", None, None)
    assert (holds["cpu"], holds["memory"], holds["gpu"]) == (cores, 64, 0)
    (master,) = holds["replicas"]
    assert (master["replica"], master["state"], master["cpu"], master["devices"]) == ("master-0", "running", cores, [])
    assert master["node"]
    assert (waits["id"], waits["position"], waits["waits"]) == (first, 1, "resources")
    assert waits["sentence"] == f"It waits for 1 cpu (0 of {cores} free)."
    assert waits["created"] <= waits["since"]
    assert (waits_too["id"], waits_too["position"], waits_too["waits"]) == (second, 2, "order")
    number = alone.client.show(first)["number"]
    assert (
        waits_too["sentence"] == f"It is behind #{number} in the queue: first in, first out, so that nothing starves."
    )

    alone.client.stop(holder, 0.0)
    until(lambda: alone.client.show(first)["state"] == "running", "the start of the next")
    left = {entry["id"]: entry["waits"] for entry in clusters(alone)["local"]["experiments"]}
    assert holder not in left
    assert left[first] is None


def test_a_cluster_that_does_not_answer_says_since_when(home: Path, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(NOBODY.format())
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[clusters.lab]\nkubeconfig = "{tmp_path}/kubeconfig"\nimage = "train:1"\n')
    alone = Served(home, Client(home))
    (tmp_path / "code").mkdir()
    word = alone.run("run: {cmd: sleep 1000}\n", tmp_path / "code", cluster="lab")
    found = until(lambda: c if (c := clusters(alone)["lab"])["unreachable_since"] else None, "the loss")
    assert found["kind"] == "kubernetes"
    (waits,) = found["experiments"]
    assert (waits["id"], waits["state"], waits["waits"], waits["position"]) == (word, "lost", "unreachable", None)
    assert waits["sentence"].startswith("Its cluster does not answer: ")
    assert found["unreachable_since"] == waits["since"]
    assert clusters(alone)["local"]["experiments"] == []
