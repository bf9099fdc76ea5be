"""What Shoal knows by name and does not do: the reason, and the way to say it here."""

from __future__ import annotations

from shoal.errors import Problem
from shoal.spec.tree import Node, Path, dotted

_HERE = "here: kind: experiment, framework, environment.replicas, run: {cmd: …}"
_POLYAXON_2 = f"this is the format of Polyaxon 1 and 2; {_HERE}"

KINDS = {
    "group": "Shoal has no hyperparameter search; run the file once per choice: shoal run FILE -P lr=0.1",
    "job": "a job is an experiment with one replica: kind: experiment, run: {cmd: …}",
    "build": "Shoal builds no images; build one with your own tools and name it as build.image",
    "notebook": "Shoal runs commands that end; start a notebook with your own tools",
    "tensorboard": "the console shows metrics; TensorBoard can read an experiment's outputs directory",
    "pipeline": "Shoal runs single experiments; chain them in a script: shoal run a.yml && shoal run b.yml",
    "component": _POLYAXON_2,
    "operation": _POLYAXON_2,
}

RUN_KINDS = {
    "tfjob": "framework: tensorflow, backend: kubeflow, and environment.replicas: {n_workers: …, n_ps: …}",
    "pytorchjob": "framework: pytorch, backend: kubeflow, and environment.replicas: {n_workers: …}",
    "mxjob": "framework: mxnet, backend: kubeflow, and environment.replicas: {n_workers: …, n_ps: …}",
}

FRAMEWORKS = {
    "horovod": (
        "Horovod is started by mpirun over ssh, which Shoal does not set up",
        "framework: pytorch with torchrun, or framework: none and your own mpirun in run.cmd",
    ),
    "mpi": ("mpirun over ssh is not set up by Shoal", "framework: none and your own mpirun in run.cmd"),
}

BACKENDS = {
    "mpi": ("the MPI operator is not supported", "backend: native, and your own mpirun in run.cmd"),
    "other": ("only native and kubeflow manage replicas", "backend: native"),
    "external": ("only native and kubeflow manage replicas", "backend: native"),
}

KEYS: dict[Path, tuple[str, str]] = {
    ("hptuning",): ("Shoal has no hyperparameter search", "run the file once per choice: shoal run FILE -P lr=0.1"),
    ("matrix",): ("Shoal has no hyperparameter search", "run the file once per choice: shoal run FILE -P lr=0.1"),
    ("settings",): ("this section of Polyaxon 0.0 is gone", "put what it holds at the top: tags, params, …"),
    ("model",): ("models are not described in the file", "write the model in your script and name it in run.cmd"),
    ("train",): ("training is not described in the file", "write it in your script and name it in run.cmd"),
    ("eval",): ("evaluation is not described in the file", "write it in your script and name it in run.cmd"),
    ("inputs",): ("inputs are not declared", "params: {name: value}, with the default as the value"),
    ("outputs",): ("outputs are not declared", "write to $SHOAL_OUTPUTS; everything in it is kept"),
    ("termination",): ("Polyaxon 1 and 2 say this", "restart: {policy: experiment, max: 3} and timeout: {run: 12h}"),
    ("component",): ("Polyaxon 1 and 2 say this", "kind: experiment with its own run.cmd"),
    ("hooks",): ("Polyaxon 1 and 2 say this", "call what you need after shoal run: its exit code is the experiment's"),
    ("plugins",): ("Polyaxon 1 and 2 say this", "remove it: logs, metrics and outputs are always kept"),
    ("environment", "persistence"): ("volumes are not named in the file", "data: [{uri: /path, at: name}]"),
    ("environment", "data_refs"): ("volumes are not named in the file", "data: [{dataset: name@v1, at: name}]"),
    ("environment", "artifact_refs"): ("outputs have one place", "write to $SHOAL_OUTPUTS"),
    ("environment", "outputs"): ("other outputs are not mounted", "data: [{uri: /path/to/outputs, at: previous}]"),
    ("environment", "service_account"): ("this belongs to the cluster", "set it in the cluster's settings"),
    ("environment", "image_pull_secrets"): ("this belongs to the cluster", "set it in the cluster's settings"),
    ("build", "dockerfile"): ("Shoal builds no images", "build one with your own tools and name it as build.image"),
    ("build", "context"): ("Shoal builds no images", "build one with your own tools and name it as build.image"),
    ("build", "build_steps"): ("Shoal builds no images", "make run.cmd a list of steps"),
    ("build", "lang_env"): ("Shoal builds no images", "environment.env_vars: {LANG: C.UTF-8}"),
    ("build", "env_vars"): ("Shoal builds no images", "environment.env_vars: {NAME: value}"),
    ("build", "ref"): ("code does not come from a build", "code: {git: URL, ref: main}"),
    ("build", "commit"): ("code does not come from a build", "code: {git: URL, ref: COMMIT}"),
    ("build", "branch"): ("code does not come from a build", "code: {git: URL, ref: BRANCH}"),
    ("build", "nocache"): ("Shoal builds no images", "remove it"),
    ("build", "backend"): ("Shoal builds no images", "remove it"),
    ("build", "environment"): ("Shoal builds no images", "remove it"),
    ("run", "build_steps"): ("Shoal builds no images", "make run.cmd a list of steps"),
}  # fmt: skip

REPLICAS_KEYS = {
    "default_worker_config": "session configurations of TensorFlow 1 are set in the script",
    "default_ps_config": "session configurations of TensorFlow 1 are set in the script",
    "worker_configs": "session configurations of TensorFlow 1 are set in the script",
    "ps_configs": "session configurations of TensorFlow 1 are set in the script",
    "run_config": "session configurations of TensorFlow 1 are set in the script",
    "delay_workers_by_global_step": "the start of workers is not delayed: all replicas start together",
}


def another_kind(root: Node) -> Problem | None:
    """The one problem to show when the file is not an experiment of this format at all."""
    kind = root.get("kind")
    if kind is not None and isinstance(kind.value, str) and kind.value in KINDS:
        return Problem(f"{kind.value} is not supported", path="kind", where=kind.where, hint=KINDS[kind.value])
    run_kind = root.get("run", "kind")
    if run_kind is not None:
        hint = RUN_KINDS.get(str(run_kind.value), _HERE)
        return Problem(
            f"run.kind {run_kind.text} is the format of Polyaxon 1 and 2",
            path="run.kind",
            where=run_kind.where,
            hint=hint,
        )
    version = root.get("version")
    if version is not None and version.value in (1.05, 1.1, 2):
        return Problem(
            f"version {version.text} is the format of Polyaxon 1 and 2",
            path="version",
            where=version.where,
            hint="here: version: 1, kind: experiment, framework, environment.replicas, run: {cmd: …}",
        )
    return None


def refuse(root: Node) -> tuple[Node, list[Problem]]:
    """The tree without what is refused by name, and a problem for each of them."""
    problems: list[Problem] = []

    def refused(path: Path, reason: str, hint: str) -> None:
        nonlocal root
        node = root.get(*path)
        if node is not None:
            problems.append(Problem(f"not supported: {reason}", path=dotted(path), where=node.name_where, hint=hint))
            root = root.drop(*path)

    for path, (reason, hint) in KEYS.items():
        refused(path, reason, hint)
    for key, reason in REPLICAS_KEYS.items():
        refused(("environment", "replicas", key), reason, "remove it")
        refused(("environment", key), reason, "remove it")
    for path in _tpus(root):
        refused(path, "TPUs are not known to Shoal", "remove it; on Kubernetes, node_selector can pick TPU nodes")
    for key, table in (("framework", FRAMEWORKS), ("backend", BACKENDS)):
        node = root.get(key)
        if node is not None and isinstance(node.value, str) and node.value in table:
            reason, hint = table[node.value]
            problems.append(
                Problem(f"{node.value} is not supported: {reason}", path=key, where=node.where, hint=f"use {hint}")
            )
            root = root.put((key,), Node("none" if key == "framework" else "native", node.where, node.key))
    return root, problems


def _tpus(root: Node) -> list[Path]:
    shapes: list[Path] = [("environment",)]
    for key in ("default_worker", "default_ps"):
        shapes.append(("environment", "replicas", key))
    for key in ("worker", "ps"):
        entries = root.get("environment", "replicas", key)
        if entries is not None:
            shapes += [("environment", "replicas", key, number) for number in range(len(entries.sequence or ()))]
    return [(*shape, "resources", "tpu") for shape in shapes]
