"""What the API takes and gives: the OpenAPI document is made from these."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _whole(text: str) -> str:
    """JSON can say half a character (`"\\ud800"`), which can be neither kept nor shown."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half a character, a lone surrogate") from None
    return text


Text = Annotated[str, AfterValidator(_whole)]


class ApiModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SourceFile(ApiModel):
    """The text of one experiment file."""

    name: Text = Field(description="How errors call it.", max_length=4096)
    text: Text = Field(description="YAML.", max_length=262_144)


class NewExperiment(ApiModel):
    """An experiment to run: files as they were written, and where the caller stands."""

    files: list[SourceFile] = Field(description="Merged left to right.", min_length=1, max_length=32)
    params: list[Text] = Field([], description="`name=value`, as with -P.", max_length=256)
    directory: str = Field("/", description="What `code` is relative to: an absolute path on the server's machine.")
    environment: dict[str, str] = Field({}, description="The caller's variables, given to every replica.")
    oversubscribe: bool = Field(False, description="Do not check totals; watch limits instead of enforcing them.")


class CheckFiles(ApiModel):
    """Files to look at without running them."""

    files: list[SourceFile] = Field(description="Merged left to right.", min_length=1, max_length=32)
    params: list[Text] = Field([], description="`name=value`, as with -P.", max_length=256)
    directory: str = Field("/", description="What `code` is relative to.")


class Note(ApiModel):
    """A problem or a warning: what, where, and one hint."""

    message: str = Field(description="What is wrong.")
    path: str = Field("", description="The key, e.g. `environment.replicas.n_ps`.")
    where: str | None = Field(None, description="`file:line:column`.")
    hint: str | None = Field(None, description="One way on.")


class ErrorBody(ApiModel):
    """Every error of the API."""

    what: str = Field(description="What went wrong, in one sentence.")
    where: str | None = Field(None, description="`file:line:column`, when it is about a file.")
    hint: str | None = Field(None, description="One way on.")
    problems: list[Note] = Field([], description="All problems of a file, the first of which is above.")


class FirstFailure(ApiModel):
    """The failure to look at: the cause, not its symptoms."""

    replica: str = Field(description="`worker-2`")
    process: int | None = Field(description="Local rank of the process, when it is known.")
    attempt: int = Field(description="In which attempt.")
    try_: int = Field(0, alias="try", description="In which try of the replica.")
    exit_code: int | None = Field(description="A signal is 128 + its number.")
    signal: str | None = Field(description="`SIGKILL`")
    reason: str | None = Field(description="`OOMKilled: …`, `its launcher was killed …`")
    time: float | None = Field(description="When, UTC seconds.")
    lines: list[str] = Field(description="The last lines of its log.")


class ReplicaView(ApiModel):
    """One try of one replica."""

    replica: str = Field(description="`worker-2`")
    role: str = Field(description="master, worker or ps.")
    index: int = Field(description="Within its role, from 0.")
    rank: int = Field(description="Over all roles, from 0.")
    attempt: int = Field(description="Which attempt.")
    try_: int = Field(alias="try", description="Which start within the attempt.")
    state: str = Field(description="created, running, succeeded, failed, stopped or lost.")
    reason: str = Field(description="Why it is in this state.")
    exit_code: int | None = Field(description="A signal is 128 + its number.")
    signal: str | None = Field(description="`SIGKILL`")
    node: str = Field(description="Where it runs.")
    started: float | None = Field(description="UTC seconds.")
    finished: float | None = Field(description="UTC seconds.")


class ExperimentView(ApiModel):
    """One experiment."""

    id: str = Field(description="Short, to show and type.")
    uid: str = Field(description="Long, for ever unique.")
    number: int = Field(description="Counted per home.")
    name: str | None = Field(description="From the file.")
    state: str = Field(description="queued, starting, running, restarting, succeeded, failed, stopped or lost.")
    reason: str = Field(description="Why it is in this state; what it waits for, in numbers.")
    framework: str = Field(description="tensorflow, pytorch, mxnet, jax or none.")
    backend: str = Field(description="native or kubeflow.")
    cluster: str = Field(description="Where it runs.")
    attempt: int = Field(description="The newest attempt, from 0.")
    created: float = Field(description="UTC seconds.")
    started: float | None = Field(description="UTC seconds.")
    finished: float | None = Field(description="UTC seconds.")
    params: dict[str, Any] = Field(description="As resolved.")
    tags: list[str] = Field(description="From the file.")
    metrics: dict[str, Any] = Field({}, description="Last, minimum, maximum and step of each metric.")
    first_failure: FirstFailure | None = Field(description="When it failed.")


class ExperimentDetail(ExperimentView):
    """One experiment with its replicas: the newest try of each in the newest attempt."""

    replicas: list[ReplicaView] = Field(description="In the order of their ranks.")
    history: list[ReplicaView] = Field([], description="Earlier attempts and tries.")
    command: str = Field(description="What each replica runs.")
    directory: str = Field(description="Where it runs.")
    resolved: str = Field(description="The file in the newest spelling, merged and filled in.")
    files: list[SourceFile] = Field(description="The files as they were written.")


class Created(ApiModel):
    """The new experiment, and what is dated or doubtful in its file."""

    experiment: ExperimentDetail
    warnings: list[Note]


class StopRequest(ApiModel):
    grace: float | None = Field(
        None, ge=0, le=86400, description="Seconds between SIGTERM and SIGKILL; default: the file's."
    )


class RankView(ApiModel):
    """What one rank does, or did last."""

    replica: str = Field(description="`worker-2`")
    state: str = Field(description="Its state.")
    reason: str = Field(description="Why.")
    exit_code: int | None = Field(description="When it is over.")
    signal: str | None = Field(description="When it was one.")
    last_line: str | None = Field(description="The last line of its log.")
    last_line_age: float | None = Field(description="Seconds since then.")


class Why(ApiModel):
    """Why an experiment is in its state, and what every rank did last."""

    id: str = Field(description="Of the experiment.")
    state: str = Field(description="Of the experiment.")
    reason: str = Field(description="Of the state.")
    first_failure: FirstFailure | None = Field(description="When it failed.")
    ranks: list[RankView] = Field(description="In the order of their ranks.")


class Rendered(ApiModel):
    """What would be applied on a cluster, as a person would read it."""

    text: str = Field(description="The request; secrets left out.")
    warnings: list[Note]


class ServerView(ApiModel):
    version: str = Field(description="Of Shoal.")
    home: str = Field(description="Which home it serves.")
    pid: int = Field(description="Its process.")
    started: float = Field(description="UTC seconds.")
    unfinished: int = Field(description="Experiments that are not over.")
    kept: bool = Field(description="Whether it stays when it is idle.")
    engine: str = Field(description="Empty, or what keeps the engine from working.")


class ClusterView(ApiModel):
    """What the local cluster has, and what is taken."""

    name: str = Field(description="local")
    cpu: float = Field(description="Cores.")
    memory: float = Field(description="MiB.")
    gpus: list[int] = Field(description="Devices.")
    used_cpu: float = Field(description="Requested by experiments that are not over.")
    used_memory: float = Field(description="Requested, MiB.")
    used_gpus: list[int] = Field(description="Assigned devices.")


class EventView(ApiModel):
    """One change of a state."""

    number: int = Field(description="The cursor: ask for what comes after it.")
    time: float = Field(description="UTC seconds.")
    id: str = Field(description="Of the experiment.")
    attempt: int = Field(description="Which attempt.")
    replica: str | None = Field(description="None when the experiment itself changed.")
    try_: int | None = Field(alias="try", description="Of the replica.")
    from_state: str = Field(description="Before.")
    to_state: str = Field(description="After.")
    reason: str = Field(description="Why.")


class SignInCode(ApiModel):
    url: str = Field(description="Opens the console once, signed in; valid for a minute.")


class RerunRequest(ApiModel):
    params: list[Text] = Field([], description="`name=value`, beside those it had.", max_length=256)
    environment: dict[str, str] = Field({}, description="The caller's variables, given to every replica.")
    oversubscribe: bool = Field(False, description="Do not check totals.")
