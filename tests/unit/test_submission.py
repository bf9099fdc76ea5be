"""What a person submits: everything wrong is said, with its place, before anything is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.backends.backend import Site
from shoal.engine.submission import Prepared, Submission, policy_of, prepare
from shoal.errors import FileProblems, Problem, Unavailable, UsageError
from shoal.plan import plan
from shoal.spec import Source, interpret
from shoal.states import Policy
from tests.fixtures import BASE, read

SITE = Site(4.0, 16384.0, (0,), "here")


def submit(tmp_path: Path, text: str, *params: str, **more: object) -> Prepared:
    sources = [Source("a.yml", BASE + text)]
    return prepare(Submission(sources, params, str(tmp_path), **more), SITE, {"aws": {}, "wandb": {}})


def problems(tmp_path: Path, text: str) -> tuple[Problem, ...]:
    with pytest.raises(FileProblems) as caught:
        submit(tmp_path, text)
    return caught.value.problems


WRONG = {
    "the code is not there": (
        "code: src\n",
        ["a.yml:4:7: code: {directory}/src is no directory"],
    ),
    "the code is a file": ("code: a.txt\n", ["a.yml:4:7: code: {directory}/a.txt is no directory"]),
    "an unknown secret, at its own place": (
        "environment:\n  secret_refs: [aws, gcs]\n",
        ["a.yml:5:22: environment.secret_refs: there is no secret 'gcs'"],
    ),
    "all unknown secrets": (
        "environment:\n  secret_refs:\n    - gcs\n    - hub\n",
        [
            "a.yml:6:7: environment.secret_refs: there is no secret 'gcs'",
            "a.yml:7:7: environment.secret_refs: there is no secret 'hub'",
        ],
    ),
    "a snapshot of code": ("code: {snapshot: abc}\n", ["a.yml:4:18: code.snapshot: snapshots are not kept yet"]),
    "all of it at once, in the order of the file": (
        "code: src\nenvironment: {secret_refs: [gcs]}\n",
        [
            "a.yml:4:7: code: {directory}/src is no directory",
            "a.yml:5:29: environment.secret_refs: there is no secret 'gcs'",
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_located(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "a.txt").touch()
    found = problems(tmp_path, text)
    assert [problem.line() for problem in found] == [line.format(directory=tmp_path) for line in expected]
    assert all(problem.hint for problem in found)


def test_the_hint_names_the_secrets_there_are(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "environment: {secret_refs: [gcs]}\n")
    assert problem.hint == "add a section [gcs] to secrets.toml in the home; known: aws, wandb"


@pytest.mark.parametrize("text", ["code: {git: 'https://example.org/a.git'}\n", "data: [{dataset: cifar10}]\n"])
def test_what_has_to_be_fetched_needs_somebody_who_knows_where_it_is(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unavailable, match="cannot be fetched here"):
        submit(tmp_path, text)


LARGE = "framework: none\nenvironment: {replicas: {n_workers: 3, default_worker: {resources: {cpu: {requests: 2}}}}}\n"


def test_what_can_never_fit_is_an_error_with_the_sum_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        submit(tmp_path, LARGE)
    (problem,) = caught.value.problems
    assert problem.message == "the 4 replicas ask for 6 cpu, and this machine has 4"
    assert "--oversubscribe" in problem.hint


def test_oversubscribed_it_is_kept_all_the_same(tmp_path: Path) -> None:
    assert submit(tmp_path, LARGE, oversubscribe=True).values["oversubscribe"] is True


ONLY = "it is used on a Kubernetes cluster"
WARNINGS = {
    "nothing special": ("", []),
    "kubeflow": (
        "framework: tensorflow\nbackend: kubeflow\n",
        ["a.yml:5:10: backend: kubeflow manages replicas on Kubernetes only: they run natively here"],
    ),
    "an image": (
        "build: {image: 'a:1'}\n",
        ["a.yml:4:16: build.image: replicas run in your own environment here, not in an image"],
    ),
    "config maps": (
        "environment: {config_map_refs: [a, b]}\n",
        ["a.yml:4:32: environment.config_map_refs: ConfigMaps exist on Kubernetes only"],
    ),
    "labels of the master": (
        "environment: {labels: {team: vision}}\n",
        ["a.yml:4:23: environment.labels: labels means nothing on this machine"],
    ),
    "labels of all roles: one warning": (
        "framework: none\nenvironment: {labels: {a: b}, replicas: {n_workers: 1, default_worker: {labels: {a: c}}}}\n",
        ["a.yml:5:23: environment.labels: labels means nothing on this machine"],
    ),
    "a selector of one worker stands where it was written": (
        "framework: none\nenvironment:\n  replicas:\n    n_workers: 2\n    worker:\n"
        "    - {index: 1, node_selector: {gpu: a100}}\n",
        ["a.yml:9:33: environment.replicas.worker[0].node_selector: node_selector means nothing on this machine"],
    ),
    "one of each kind": (
        "framework: tensorflow\nenvironment:\n  tolerations: [{key: a}]\n  replicas:\n    n_workers: 1\n    n_ps: 1\n"
        "    default_worker: {affinity: {nodeAffinity: {}}}\n    default_ps: {annotations: {a: b}}\n",
        [
            "a.yml:6:16: environment.tolerations: tolerations means nothing on this machine",
            "a.yml:10:32: environment.replicas.default_worker.affinity: affinity means nothing on this machine",
            "a.yml:11:31: environment.replicas.default_ps.annotations: annotations means nothing on this machine",
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), WARNINGS.values(), ids=WARNINGS)
def test_what_only_clusters_do_is_a_warning_each(tmp_path: Path, text: str, expected: list[str]) -> None:
    warnings = [warning for warning in submit(tmp_path, text).warnings if warning.hint == ONLY]
    assert [warning.line() for warning in warnings] == expected


def test_warnings_of_the_file_come_first(tmp_path: Path) -> None:
    prepared = submit(tmp_path, "build: {image: 'a:1'}\n", "new=1")
    assert [warning.path for warning in prepared.warnings] == ["params.new", "build.image"]


LIMITS = {
    "no limit": ("environment: {resources: {memory: {requests: 10}}}\n", {}),
    "a limit of another kind": ("environment: {resources: {cpu: {limits: 1}}}\n", {}),
    "the master's": (
        "environment:\n  resources:\n    memory:\n      requests: 10\n      limits: 20\n",
        {"master-0": "a.yml:8:15"},
    ),
    "of all workers, and of one": (
        "framework: none\nenvironment:\n  replicas:\n    n_workers: 3\n    default_worker:\n"
        "      resources: {memory: {limits: 64}}\n    worker:\n    - index: 2\n      resources: {cpu: {limits: 1}}\n"
        "    - index: 1\n      resources: {memory: {limits: 1Gi}}\n",
        {"worker-0": "a.yml:9:36", "worker-1": "a.yml:14:36"},
    ),
    "parameter servers": (
        "framework: tensorflow\nenvironment:\n  replicas:\n    n_ps: 2\n"
        "    default_ps: {resources: {memory: {limits: 9}}}\n",
        {"ps-0": "a.yml:8:47", "ps-1": "a.yml:8:47"},
    ),
}


@pytest.mark.parametrize(("text", "expected"), LIMITS.values(), ids=LIMITS)
def test_the_line_that_set_a_memory_limit(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    assert submit(tmp_path, text).values["plan"]["limits_from"] == expected


def test_a_limit_that_a_second_file_sets_is_found_there(tmp_path: Path) -> None:
    second = "environment:\n  resources: {memory: {limits: 2}}\n"
    first = BASE + "environment: {resources: {memory: {limits: 1}}}\n"
    sources = [Source("a.yml", first), Source("b.yml", second)]
    prepared = prepare(Submission(sources, (), str(tmp_path)), SITE, {})
    assert prepared.values["plan"]["limits_from"] == {"master-0": "b.yml:2:32"}


ALL = "replicas: {n_workers: 2, n_ps: 1}"
NO_PS = "replicas: {n_workers: 2}"
POLICIES = {
    "tensorflow": ("tensorflow", ALL, {"master-0"}, {"ps-0"}),
    "tensorflow without a master": (
        "tensorflow",
        "replicas: {n_workers: 2, n_ps: 1, master: false}",
        {"worker-0"},
        {"ps-0"},
    ),
    "pytorch": ("pytorch", NO_PS, {"master-0", "worker-0", "worker-1"}, set()),
    "jax": ("jax", NO_PS, {"master-0", "worker-0", "worker-1"}, set()),
    "mxnet": ("mxnet", ALL, {"worker-0", "worker-1"}, {"ps-0"}),
    "none": ("none", ALL, {"master-0"}, {"ps-0"}),
    "none without a master": ("none", "replicas: {n_workers: 2, master: false}", {"worker-0", "worker-1"}, set()),
    "one replica": ("none", "replicas: {}", {"master-0"}, set()),
}


@pytest.mark.parametrize(("framework", "replicas", "deciders", "servers"), POLICIES.values(), ids=POLICIES)
def test_who_decides_and_who_serves(framework: str, replicas: str, deciders: set[str], servers: set[str]) -> None:
    policy = policy_of(plan(read(f"{BASE}framework: {framework}\nenvironment: {{{replicas}}}\n").spec))
    assert (policy.deciders, policy.servers) == (deciders, servers)
    assert policy == Policy(frozenset(deciders), frozenset(servers)), "the defaults are those of the file"


def test_the_policy_says_what_the_file_says(tmp_path: Path) -> None:
    text = (
        "framework: none\n"
        "restart: {policy: replica, max: 7, on_exit_codes: [3, 137]}\n"
        "timeout: {queue: 1h, start: 2m, run: 3s}\n"
        "grace: {stop: 0, finish: 1m}\n"
    )
    values = submit(tmp_path, text).values
    expected = Policy(
        frozenset({"master-0"}),
        grace_stop=0.0,
        grace_finish=60.0,
        timeout_start=120.0,
        timeout_run=3.0,
        restart="replica",
        restart_max=7,
        on_exit_codes=frozenset({3, 137}),
    )
    assert Policy.of(json.loads(json.dumps(values["policy"]))) == expected
    assert values["timeout_queue"] == 3600.0


NOT_IN_JSON = """\
params: {lr: .nan, most: .inf, least: -.inf, deep: {list: [1, .nan, {a: .inf}]}, text: NaN, none: '', yes: true}
environment: {affinity: {weight: .nan}, tolerations: [{seconds: .inf}]}
"""


def test_numbers_that_json_cannot_say_are_kept_as_words(tmp_path: Path) -> None:
    values = submit(tmp_path, NOT_IN_JSON, "lr2=.nan").values
    for part in ("params", "plan", "policy", "sources"):
        json.dumps(values[part], allow_nan=False)
    assert values["params"] == {
        "lr": "NaN",
        "most": "Infinity",
        "least": "-Infinity",
        "deep": {"list": [1, "NaN", {"a": "Infinity"}]},
        "text": "NaN",
        "none": "",
        "yes": True,
        "lr2": "NaN",
    }
    assert values["plan"]["params"] == values["params"]


def test_the_resolved_file_means_the_same_experiment(tmp_path: Path) -> None:
    text = (
        "params: {lr: 0.1, big: 1.0e+30, n: .nan, word: '{{ lr }}'}\nname: a-b\ntags: [x]\n"
        "framework: pytorch\nenvironment: {env_vars: {A: '08', B: '{{ lr }}'}, replicas: {n_workers: 1}}\n"
    )
    prepared = submit(tmp_path, text, "lr=0.25")
    again = plan(interpret([Source("experiment", prepared.values["resolved"])], filled=True).spec)
    assert {**again.json(), "params": None} == {**prepared.plan.json(), "params": None}
    assert str(again.params) == str(prepared.plan.params)
    assert again.env_vars == {"A": "08", "B": "0.25"}


def test_what_is_kept(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    text = "name: digits\ntags: [a, b]\ncode: src\nparams: {lr: 0.1}\nenvironment: {secret_refs: [aws]}\n"
    prepared = submit(tmp_path, text, "lr=0.5", rerun_of="f00")
    values = prepared.values
    assert {key: values[key] for key in ("name", "framework", "backend", "cluster", "tags", "params", "rerun_of")} == {
        "name": "digits",
        "framework": "none",
        "backend": "native",
        "cluster": "local",
        "tags": ["a", "b"],
        "params": {"lr": 0.5},
        "rerun_of": "f00",
    }
    assert values["cwd"] == str((tmp_path / "src").resolve())
    assert values["sources"] == {
        "files": [{"name": "a.yml", "text": BASE + text}],
        "params": ["lr=0.5"],
        "directory": str(tmp_path),
    }
    assert list(prepared.secret_refs) == ["aws"]
    assert submit(tmp_path, "").values["rerun_of"] is None
    assert submit(tmp_path, "").values["cwd"] == str(tmp_path.resolve())
