"""The experiment file as types: every key, what it means, what it may be and what it is when left out.

`shoal check`, the JSON Schema and the reference page are all made from this file. Values are read strictly: a number in
quotes is a string, not a number.
"""

import math
import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from shoal.frameworks import FRAMEWORKS, setters_of_variables

MOST_REPLICAS = 100_000
MOST_CPUS = 10_000
MOST_MIB = 100 * 1024 * 1024
MOST_GPUS = 1024
LONGEST_SECONDS = 10 * 365 * 86400.0


def wrong(message: str, hint: str = "") -> PydanticCustomError:
    """An error whose words are shown to the user as they are."""
    return PydanticCustomError("shoal", "{message}", {"message": message, "hint": hint})


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(f"{what} is a number, not {shown(value)}", hint="write a number, without quotes")
    if math.isnan(value):
        raise wrong(f"{what} is not a number (NaN)", hint="write a number")
    return value


def _positive(value: float, what: str, most: float, unit: str, none: str, suspect: str) -> None:
    if value == 0:
        raise wrong(f"{what} cannot be 0", hint=none)
    if value < 0:
        raise wrong(f"{what} cannot be negative", hint=none)
    if value > most:
        raise wrong(f"{value:,.10g} {unit} is more than any machine has", hint=suspect)


def _cpu(value: Any) -> float:
    if isinstance(value, str) and re.fullmatch(r"[0-9]+m", value):
        raise wrong(f"cpu is a number of cores, not {value!r}", hint=f"write {int(value[:-1]) / 1000:g}")
    cores = _number(value, "cpu")
    _positive(
        cores, "cpu", MOST_CPUS, "cores", "leave cpu out to ask for none", "cpu counts whole cores: 0.5 is half of one"
    )
    return cores


_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti)")
_MIB_PER = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}


def _memory(value: Any) -> float:
    if isinstance(value, str):
        match = _MEMORY.fullmatch(value)
        if match is None:
            number = re.match(r"[0-9]+", value)
            near = f"{number.group()}Gi" if number and value.upper().rstrip("B").endswith("G") else "512Mi"
            raise wrong(
                f"memory is a number of MiB or one with a unit (Ki, Mi, Gi, Ti), not {value!r}", hint=f"write {near}"
            )
        value = float(match.group(1)) * _MIB_PER[match.group(2)]
    mib = _number(value, "memory")
    _positive(
        mib,
        "memory",
        MOST_MIB,
        "MiB",
        "leave memory out to ask for none",
        "a plain number is MiB, not bytes: 2 GiB is 2048 or 2Gi",
    )
    return int(mib) if float(mib).is_integer() else mib


def _gpu(value: Any) -> int:
    devices = _number(value, "gpu")
    _positive(devices, "gpu", MOST_GPUS, "GPUs", "leave gpu out to ask for none", "gpu counts devices")
    if not float(devices).is_integer():
        raise wrong(f"gpu is a whole number of devices, not {value!r}", hint="a GPU cannot be shared; ask for 1")
    return int(devices)


_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


def _duration(value: Any) -> float:
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None or not value:
            raise wrong(f"{value!r} is not a duration", hint="write 30s, 10m, 12h, 2d or 1h30m")
        value = sum(float(part or 0) * unit for part, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))
    seconds = float(_number(value, "a duration"))
    if seconds < 0:
        raise wrong("a duration cannot be negative", hint="write 30s, 10m, 12h, 2d or 1h30m")
    if seconds > LONGEST_SECONDS:
        raise wrong("longer than ten years", hint="leave it out for no limit")
    return seconds


_DURATION_SCHEMA = {
    "anyOf": [
        {
            "type": "string",
            "minLength": 1,
            "pattern": r"^(\d+(\.\d+)?d)?(\d+(\.\d+)?h)?(\d+(\.\d+)?m)?(\d+(\.\d+)?s)?$",
        },
        {"type": "number", "minimum": 0, "maximum": LONGEST_SECONDS},
    ]
}
_CPU_SCHEMA = {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_CPUS}
_GPU_SCHEMA = {"type": "integer", "minimum": 1, "maximum": MOST_GPUS}
_MEMORY_SCHEMA = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_MIB},
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti)$"},
    ]
}

Cores = Annotated[float, BeforeValidator(_cpu), WithJsonSchema(_CPU_SCHEMA)]
Mebibytes = Annotated[float, BeforeValidator(_memory), WithJsonSchema(_MEMORY_SCHEMA)]
Devices = Annotated[int, BeforeValidator(_gpu), WithJsonSchema(_GPU_SCHEMA)]
Seconds = Annotated[float, BeforeValidator(_duration), WithJsonSchema(_DURATION_SCHEMA)]

# Scalars that end up in an environment or a label are text: the tree hands them over as they were typed.
Text = Annotated[
    str,
    BeforeValidator(lambda value: _without_nul(value)),
    WithJsonSchema({"type": ["string", "number", "boolean"], "not": {"type": "string", "pattern": "\\x00"}}),
]
NonEmpty = Annotated[str, Field(min_length=1)]
FreeForm = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]

WHO_SETS = setters_of_variables()
RESERVED_PREFIXES = {"SHOAL_": "", "POLYAXON_": ", for scripts that come from Polyaxon"}
DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


def _without_nul(value: Any) -> Any:
    """No command and no variable of a process can hold one."""
    if isinstance(value, str) and "\0" in value:
        raise wrong("a NUL character, which no process can be given", hint="remove \\0")
    return value


def _variable(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise wrong(f"{name!r} cannot be the name of a variable", hint="letters, digits and _ only, no digit first")
    for prefix, purpose in RESERVED_PREFIXES.items():
        if name.startswith(prefix):
            raise wrong(f"{name} is set by Shoal in every replica{purpose}", hint=f"choose a name without {prefix}")
    if name in WHO_SETS:
        raise wrong(
            f"{name} is set by Shoal for framework {WHO_SETS[name]}, differently in each replica",
            hint="remove it; `shoal check --env worker-0` shows its value",
        )
    if name in DEVICE_VARIABLES:
        raise wrong(f"{name} is set by the cluster from the replica's gpu resources", hint="ask with resources.gpu")
    return name


_VARIABLE_SCHEMA = {
    "type": "string",
    "pattern": r"^(?!SHOAL_|POLYAXON_)[A-Za-z_][A-Za-z0-9_]*$",
    "not": {"enum": [*sorted(WHO_SETS), *DEVICE_VARIABLES]},
}
Variable = Annotated[str, BeforeValidator(_variable), WithJsonSchema(_VARIABLE_SCHEMA)]


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(f"a name is text, not {shown(value)}", hint='quote it, if it is meant: name: "7"')
    if not re.fullmatch(r"[-a-zA-Z0-9_]+", value):
        raise wrong(f"{shown(value)} cannot be a name", hint="letters, digits, - and _ only")
    if len(value) > 128:
        raise wrong("longer than 128 characters", hint="put the rest into description")
    return value


Name = Annotated[
    str, BeforeValidator(_name), WithJsonSchema({"type": "string", "pattern": "^[-a-zA-Z0-9_]+$", "maxLength": 128})
]


def _relative_path(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise wrong(f"a path is text, not {shown(value)}", hint="for example at: cifar10")
    if value.startswith("/") or ".." in value.split("/") or "\0" in value:
        raise wrong(
            f"{value!r} leaves the data directory", hint="a path below SHOAL_DATA, without / at the start and .."
        )
    return value


Below = Annotated[str, BeforeValidator(_relative_path), WithJsonSchema({"type": "string", "minLength": 1})]


def shown(value: Any) -> str:
    """A value as an error calls it."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…'"


class Strict(BaseModel):
    """No unknown keys, no silent conversions, no changes afterwards.

    Validators are built once, for `Spec`, when it is first used; defaults are therefore made by `model_construct`.
    Building one per class would make every command slower.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Cpu(Strict):
    """CPU of one replica, in cores."""

    requests: Cores | None = Field(None, description="Cores kept free for the replica. Default: its limits.")
    limits: Cores | None = Field(None, description="Cores it can use at most. Default: no limit.")


class Memory(Strict):
    """Memory of one replica, in MiB or with a unit (`2Gi`)."""

    requests: Mebibytes | None = Field(None, description="Memory kept free for the replica. Default: its limits.")
    limits: Mebibytes | None = Field(None, description="Memory at which the replica is ended. Default: no limit.")


class Gpu(Strict):
    """GPUs of one replica, in whole devices."""

    requests: Devices | None = Field(None, description="Devices assigned to the replica. Default: its limits.")
    limits: Devices | None = Field(
        None, description="The same number in the words of Kubernetes. Default: its requests."
    )


class Resources(Strict):
    """What one replica needs of a machine."""

    cpu: Cpu = Field(Cpu.model_construct(), description="Cores; 0.5 is half of one.")
    memory: Memory = Field(Memory.model_construct(), description="MiB, or a number with Ki, Mi, Gi or Ti.")
    gpu: Gpu = Field(Gpu.model_construct(), description="Whole devices.")


class Shape(Strict):
    """What one replica needs and where it may be placed."""

    resources: Resources | None = Field(
        None, description="cpu, memory and gpu of the replica. Default: nothing is reserved or limited."
    )
    node_selector: dict[str, Text] | None = Field(
        None, description="Labels a Kubernetes node must have. Default: any node."
    )
    tolerations: tuple[FreeForm, ...] | None = Field(None, description="Kubernetes tolerations. Default: none.")
    affinity: FreeForm | None = Field(None, description="Kubernetes affinity. Default: none.")
    labels: dict[str, Text] | None = Field(
        None, description="Labels on the cluster's objects. Default: only Shoal's own."
    )
    annotations: dict[str, Text] | None = Field(
        None, description="Annotations on the cluster's objects. Default: none."
    )


class IndexedShape(Shape):
    """The shape of one replica, picked by its index."""

    index: int = Field(description="Which replica of the role, counted from 0.", ge=0, lt=MOST_REPLICAS)


class Replicas(Strict):
    """How many replicas of each role take part, and what each of them needs.

    Properties are resolved one by one: that of the `worker` entry with the replica's index, else that of
    `default_worker`, else nothing. They are not merged, and workers never inherit the master's.
    """

    n_workers: int = Field(0, ge=0, le=MOST_REPLICAS, description="Workers beside the master.")
    n_ps: int = Field(0, ge=0, le=MOST_REPLICAS, description="Parameter servers.")
    n_trainers: int | None = Field(
        None,
        ge=1,
        le=MOST_GPUS,
        description="Processes that the command starts in each replica (NUM_TRAINERS). "
        "Default: with PyTorch the replica's GPUs, at least 1; else 1.",
    )
    default_worker: Shape = Field(
        Shape.model_construct(), description="What every worker needs, unless `worker` says otherwise."
    )
    worker: tuple[IndexedShape, ...] = Field((), description="What single workers need.")
    default_ps: Shape = Field(
        Shape.model_construct(), description="What every parameter server needs, unless `ps` says otherwise."
    )
    ps: tuple[IndexedShape, ...] = Field((), description="What single parameter servers need.")
    master: bool = Field(True, description="Whether there is a master; false: workers (and parameter servers) only.")


class Environment(Shape):
    """The replicas and what they run in. The keys of a shape that stand here are the master's."""

    env_vars: dict[Variable, Text] = Field(
        {}, description="Variables every replica gets.", json_schema_extra={"additionalProperties": False}
    )
    secret_refs: tuple[NonEmpty, ...] = Field((), description="Secrets whose keys every replica gets as variables.")
    config_map_refs: tuple[NonEmpty, ...] = Field(
        (), description="Kubernetes ConfigMaps whose keys every replica gets as variables."
    )
    replicas: Replicas = Field(Replicas.model_construct(), description="The replicas beside the master.")


class Git(Strict):
    """Code from a git repository."""

    git: NonEmpty = Field(description="The repository's URL.")
    ref: NonEmpty = Field("HEAD", description="Branch, tag or commit.")


class Snapshot(Strict):
    """Code that an earlier experiment kept."""

    snapshot: NonEmpty = Field(description="The snapshot's hash.")


class Build(Strict):
    """What a replica's container is made from; on clusters only."""

    image: NonEmpty | None = Field(None, description="The container image. Default: the cluster's.")


def _steps(value: Any) -> Any:
    """One command, or steps joined by && as Polyaxon did; without the line breaks and \\ at the end."""
    steps = [value] if isinstance(value, str) else value
    if not isinstance(steps, (list, tuple)) or not all(isinstance(step, str) for step in steps):
        raise wrong(
            f"the command is text or a list of steps, not {shown(value)}",
            hint="quote a step that YAML takes for something else",
        )
    for step in steps:
        _without_nul(step)
    stripped = [re.sub(r"[\\\s]+\Z", "", step).lstrip() for step in steps]
    if not stripped or not all(stripped):
        raise wrong(
            "an empty command" if len(stripped) < 2 else "a step of the command is empty",
            hint="for example cmd: python train.py",
        )
    return " && ".join(stripped)


_STEP_SCHEMA = {"type": "string", "pattern": r"^[^\x00]*[^\\\s\x00][^\x00]*$"}
Command = Annotated[
    str,
    BeforeValidator(_steps),
    WithJsonSchema(
        {
            "anyOf": [
                _STEP_SCHEMA,
                {"type": "array", "minItems": 1, "items": _STEP_SCHEMA},
            ]
        }
    ),
]


class Run(Strict):
    """What every replica runs."""

    cmd: Command = Field(
        description="What `bash -c` runs in each replica, or a list of steps joined by `&&`. `{{ name }}` is a param."
    )


class Dataset(Strict):
    """A data set kept by Shoal."""

    dataset: NonEmpty = Field(description="Name and version: `cifar10@v1`; without a version the newest.")
    at: Below | None = Field(None, description="Path below SHOAL_DATA. Default: the data set's name.")


class External(Strict):
    """Data kept elsewhere."""

    uri: NonEmpty = Field(description="`s3://bucket/prefix`, `gs://bucket/prefix` or a path.")
    at: Below | None = Field(None, description="Path below SHOAL_DATA. Default: the last part of the URI.")
    anonymous: bool = Field(False, description="Whether to read a public bucket without credentials.")


class Restart(Strict):
    """What happens after a failure."""

    policy: Literal["never", "replica", "experiment"] = Field(
        "never",
        description="`experiment` starts all replicas again, `replica` the failed one, where the framework allows it.",
    )
    max: int = Field(3, ge=1, le=1000, description="How often at most.")
    on_exit_codes: tuple[Annotated[int, Field(ge=1, le=255)], ...] | None = Field(
        None, description="Only after these exit codes. Default: after any failure."
    )


class Timeout(Strict):
    """How long each part of an experiment's life may take; one value alone is `run`."""

    queue: Seconds | None = Field(None, description="Waiting for a place. Default: no limit.")
    start: Seconds | None = Field(None, description="From the first replica's start until all run. Default: no limit.")
    run: Seconds | None = Field(None, description="Running, per attempt. Default: no limit.")

    @model_validator(mode="before")
    @classmethod
    def _one_value_is_run(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"run": value}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        schema: dict[str, Any] = handler(core)
        target = handler.resolve_ref_schema(schema)
        each = dict(target)
        target.clear()
        target.update(
            {"title": each.pop("title"), "description": each.pop("description"), "anyOf": [_DURATION_SCHEMA, each]}
        )
        return schema


class Grace(Strict):
    """How long replicas get to end by themselves."""

    stop: Seconds = Field(30.0, description="Between SIGTERM and SIGKILL.")
    finish: Seconds = Field(300.0, description="For the other replicas, once those that decide have succeeded.")


class Logging(Strict):
    """What a script that comes from Polyaxon reads as its log level."""

    level: Literal["DEBUG", "INFO", "WARN", "WARNING", "ERROR", "FATAL"] = Field(
        "INFO", description="Given as POLYAXON_LOG_LEVEL."
    )
    formatter: str | None = Field(None, description="Accepted and not used. Default: none.")


def _form(value: Any) -> str:
    """Which form of `code` or `data` a value takes, told by a key it holds."""
    if not isinstance(value, dict):
        return "<path>"
    return next((f"<{key}>" for key in ("snapshot", "uri", "dataset") if key in value), "<git>")


# Tags in angle brackets never stand in a file, so the path of an error can leave them out.
Code = Annotated[
    Annotated[NonEmpty, Tag("<path>")] | Annotated[Git, Tag("<git>")] | Annotated[Snapshot, Tag("<snapshot>")],
    Discriminator(lambda value: tag if (tag := _form(value)) in ("<path>", "<snapshot>") else "<git>"),
]
Data = Annotated[
    Annotated[Dataset, Tag("<dataset>")] | Annotated[External, Tag("<uri>")],
    Discriminator(lambda value: tag if (tag := _form(value)) == "<uri>" else "<dataset>"),
]

FrameworkName = Literal["tensorflow", "pytorch", "mxnet", "jax", "none"]
assert set(FrameworkName.__args__) == set(FRAMEWORKS)  # type: ignore[attr-defined]


def _version(value: Any) -> Any:
    if isinstance(value, bool) or value != 1:
        raise wrong(f"version {shown(value)} is not known", hint="write version: 1")
    return 1


Version = Annotated[Literal[1], BeforeValidator(_version)]


class Spec(Strict):
    """One experiment: what runs, in how many replicas, with which resources, and what happens when one fails."""

    version: Version = Field(1, description="The version of this format.")
    kind: Literal["experiment"] = Field("experiment", description="The kind of this file.")
    name: Name | None = Field(
        None, description="Letters, digits, - and _. Default: none; the experiment's id is shown instead."
    )
    description: str | None = Field(None, description="A sentence for people. Default: none.")
    tags: tuple[NonEmpty, ...] = Field((), description="Words to find the experiment by.")
    framework: FrameworkName = Field(
        "none", description="Which variables the replicas get to find each other; needed for more than one replica."
    )
    backend: Literal["native", "kubeflow"] = Field(
        "native", description="Who manages the replicas on a Kubernetes cluster."
    )
    params: dict[str, Any] = Field(
        {},
        description="Values for `{{ name }}`, given to every replica as SHOAL_PARAMS; override with `-P name=value`.",
    )
    code: Code = Field(
        ".",
        description="Where the command runs: a directory, `{git: URL, ref: main}` or `{snapshot: HASH}`.",
    )
    build: Build = Field(Build.model_construct(), description="The container image; on clusters only.")
    run: Run = Field(description="What every replica runs.")
    environment: Environment = Field(Environment.model_construct(), description="The replicas and what they run in.")
    data: tuple[Data, ...] = Field((), description="Data sets that every replica finds below SHOAL_DATA.")
    restart: Restart = Field(Restart.model_construct(), description="What happens after a failure.")
    timeout: Timeout = Field(
        Timeout.model_construct(), description="How long it may take; one value alone limits the run."
    )
    grace: Grace = Field(Grace.model_construct(), description="How long replicas get to end by themselves.")
    logging: Logging = Field(Logging.model_construct(), description="For scripts that come from Polyaxon.")
