"""What the API takes and gives: the OpenAPI document is made from these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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


CALLER = "The caller's variables, given to every replica; of a caller that has none, a browser, the server's own."


class SourceFile(ApiModel):
    """The text of one experiment file."""

    name: Text = Field(description="How errors call it.", max_length=4096)
    text: Text = Field(description="YAML.", max_length=262_144)


class Scale(ApiModel):
    """A trial of `shoal scale`."""

    id: str = Field(description="Shared by all trials.", min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    workers: int = Field(description="How many workers this one has.", ge=0, le=1_000_000)


class NewExperiment(ApiModel):
    """An experiment to run: files as they were written, and where the caller stands."""

    files: list[SourceFile] = Field(description="Merged left to right.", min_length=1, max_length=32)
    params: list[Text] = Field([], description="`name=value`, as with -P.", max_length=256)
    directory: str = Field("/", description="What `code` is relative to: an absolute path on the server's machine.")
    environment: dict[str, str] | None = Field(None, description=CALLER)
    oversubscribe: bool = Field(False, description="Do not check totals; watch limits instead of enforcing them.")
    cluster: str = Field("local", description="Where to run: a cluster of config.toml.", max_length=64)
    scale: Scale | None = Field(None, description="Which trial of which `shoal scale` it is.")


class CheckFiles(ApiModel):
    """Files to look at without running them."""

    files: list[SourceFile] = Field(description="Merged left to right.", min_length=1, max_length=32)
    params: list[Text] = Field([], description="`name=value`, as with -P.", max_length=256)
    directory: str = Field("/", description="What `code` is relative to.")
    cluster: str = Field("local", description="For which cluster of config.toml.", max_length=64)


class CheckRequest(CheckFiles):
    whole: bool = Field(
        False,
        description="Also what only the server can tell: whether code, data and secrets are there, and whether the "
        "cluster takes it. The answer then has the request.",
    )
    oversubscribe: bool = Field(False, description="With `whole`: totals are not checked.")


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


class ProgressView(ApiModel):
    """How far a script says it is."""

    fraction: float = Field(description="From 0 to 1.")
    eta: float | None = Field(description="Seconds left, if it goes on as it went; none when it is over.")


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
    tags: list[str] = Field(description="From the file, its scripts, and people.")
    metrics: dict[str, Any] = Field(
        {},
        description="{last, min, max, step, time} of each metric, and `value` where its script chose what stands for "
        "it; NaN and the infinities are strings.",
    )
    progress: ProgressView | None = Field(None, description="When its script tells.")
    origin: str = Field("run", description="run, outside (a script that Shoal did not start) or import.")
    scale: Scale | None = Field(None, description="Which trial of which `shoal scale` it is.")
    first_failure: FirstFailure | None = Field(description="When it failed.")
    roles: dict[str, dict[str, int]] | None = Field(
        None, description='How many replicas of each role are in which state: {"worker": {"running": 7}}; if asked for.'
    )


class LossView(ApiModel):
    """What one process said and nobody can read any more."""

    replica: str = Field(description="`worker-2`")
    process: int = Field(description="Local rank.")
    attempt: int = Field(description="Which attempt.")
    dropped: int = Field(description="Calls that it could not write as fast as they came, or not at all.")
    gaps: int = Field(description="Places of its stream that are damaged.")
    damaged: int = Field(description="Bytes in them.")


class ExperimentDetail(ExperimentView):
    """One experiment with its replicas: the newest try of each in the newest attempt."""

    replicas: list[ReplicaView] = Field(description="In the order of their ranks.")
    history: list[ReplicaView] = Field([], description="Earlier attempts and tries.")
    command: str = Field(description="What each replica runs.")
    directory: str = Field(description="Where it runs.")
    description: str | None = Field(None, description="What the file says of itself.")
    resolved: str = Field(description="The file in the newest spelling, merged and filled in.")
    files: list[SourceFile] = Field(description="The files as they were written.")
    provenance: dict[str, Any] = Field(
        {}, description="Where it comes from: directory, git commit, packages, host, data sets; see /provenance."
    )
    summary: dict[str, Any] = Field({}, description="What its scripts set by hand: `summary` of wandb.")
    losses: list[LossView] = Field([], description="What scripts said and is not in the store, by process.")


class Created(ApiModel):
    """The new experiment, and what is dated or doubtful in its file."""

    experiment: ExperimentDetail
    warnings: list[Note]


class Planned(ApiModel):
    """What an experiment was meant to be."""

    replicas: list[dict[str, Any]] = Field(description="Role, index, rank, resources and placement of each.")
    policy: dict[str, Any] = Field(description="Who decides, graces, time-outs, restarts.")
    params: list[str] = Field(description="What was given by -P.")
    directory: str = Field(description="Where it was submitted.")
    request: str | None = Field(description="What the cluster is asked for, as a person would read it.")


class StopRequest(ApiModel):
    grace: float | None = Field(
        None, ge=0, le=86400, description="Seconds between SIGTERM and SIGKILL; default: the file's."
    )


PLAIN = r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$"  # not blank, and nothing that moves a terminal's cursor
Tag = Annotated[Text, Field(min_length=1, max_length=100, pattern=PLAIN)]


class TagRequest(ApiModel):
    """Words to find an experiment by; what is in both lists is removed."""

    add: list[Tag] = Field([], description="Those it has already stay where they are.", max_length=100)
    remove: list[Tag] = Field([], description="Those it does not have are no matter.", max_length=100)


class RankView(ApiModel):
    """What one rank does, or did last."""

    replica: str = Field(description="`worker-2`")
    state: str = Field(description="Its state.")
    reason: str = Field(description="Why.")
    exit_code: int | None = Field(description="When it is over.")
    signal: str | None = Field(description="When it was one.")
    last_line: str | None = Field(description="The last line of its log.")
    last_line_age: float | None = Field(description="Seconds since then.")
    last_metric_age: float | None = Field(description="Seconds since something that its scripts track was heard.")
    heartbeat_age: float | None = Field(description="Seconds since its launcher was heard, which samples resources.")
    pid: int | None = Field(description="The first process of its script that tracks anything, else its launcher.")


class StepTimes(ApiModel):
    """Seconds, over the last steps without the very first."""

    count: int = Field(description="Steps.")
    mean: float = Field(description="The mean.")
    p50: float = Field(description="Half of them are shorter.")
    p95: float = Field(description="19 of 20 are shorter.")
    max: float = Field(description="The longest.")


class RankScore(ApiModel):
    """How fast one process is, as a part of the best: below 0.75 in three windows in sequence, it is flagged."""

    relative: float | None = Field(description="The best rank's time divided by its own, in the newest window.")
    individual: float | None = Field(description="Its own best time divided by that of the newest window.")
    windows: int = Field(description="In how many windows it is known.")
    slow: int = Field(description="In how many of them it is flagged: slow beside the best rank.")
    slower: int = Field(description="In how many of them it is slower than it has been itself.")
    pattern: Literal["chronic", "one-off"] | None = Field(
        description="chronic: flagged in most windows; one-off: in some; null: it is not flagged."
    )
    now: bool = Field(description="Flagged in the newest window.")


class RankTimes(ApiModel):
    """The steps of one process."""

    rank: int = Field(description="Over all processes, from 0.")
    replica: str = Field(description="`worker-2`")
    process: int = Field(description="Local rank.")
    name: str = Field(description="`worker-2`, or `worker-2:1` for its process 1.")
    step_time: StepTimes | None = Field(description="From step to step.")
    busy: StepTimes | None = Field(description="Its own work before it waits for the others: shoal.step().")
    cpu: float | None = Field(description="Cores that its replica uses.")
    gpu: float | None = Field(
        description="In which part of the time its replica's GPUs are in use: 0 to 1, their mean."
    )
    score: RankScore | None = Field(
        description="By its own part of steps where several ranks mark it, else by step times."
    )


class SlowestRank(ApiModel):
    """The rank that the others wait for."""

    rank: int = Field(description="Over all processes, from 0.")
    replica: str = Field(description="`worker-2`")
    process: int = Field(description="Local rank.")
    name: str = Field(description="`worker-2`, or `worker-2:1` for its process 1.")
    excess: float | None = Field(description="Seconds of each step by which it is slower; none for a guess.")
    factor: float | None = Field(
        description="How many times the others' it takes; for a guess, of their use of CPU or GPUs."
    )
    pattern: Literal["chronic", "one-off"] | None = Field(
        description="Slow in most windows of steps, or in some; null for a guess."
    )


class Stragglers(ApiModel):
    """Which rank holds the others up, and what that rests on."""

    how: str = Field(description="busy (shoal.step), step_time, activity (a guess) or none.")
    guess: bool = Field(description="Whether it is only a guess.")
    slowest: SlowestRank | None = Field(description="None when no rank stands out, or nothing is known.")
    verdict: str = Field(description="All of it in one sentence.")
    spread: float | None = Field(description="How far the slowest and the fastest are apart, as a part of the median.")
    step_time_from: str | None = Field(description="The metric that step times are taken from.")
    window: int | None = Field(description="How many steps a window of the scores has.")
    ranks: list[RankTimes] = Field(description="In the order of their ranks.")


class Why(ApiModel):
    """Why an experiment is in its state, and what every rank did last."""

    id: str = Field(description="Of the experiment.")
    state: str = Field(description="Of the experiment.")
    reason: str = Field(description="Of the state.")
    first_failure: FirstFailure | None = Field(description="When it failed.")
    ranks: list[RankView] = Field(description="In the order of their ranks.")
    stragglers: Stragglers | None = Field(
        None, description="When several ranks have logged steps; not of an earlier attempt."
    )
    losses: list[LossView] = Field([], description="What scripts said and is not in the store, by process.")


class Rendered(ApiModel):
    """What would be applied on a cluster, as a person would read it."""

    text: str = Field(description="The request; secrets left out.")
    warnings: list[Note]


class PlannedReplica(ApiModel):
    """One replica that a file means."""

    model_config = ConfigDict(extra="allow")

    replica: str = Field(description="`worker-2`")
    role: str = Field(description="master, worker or ps.")
    index: int = Field(description="Within its role, from 0.")
    rank: int = Field(description="Over all roles, from 0.")
    n_trainers: int = Field(description="Processes in it.")
    decides: bool = Field(description="Whether its success is needed for the experiment's.")
    resources: dict[str, Any] = Field(description="cpu in cores, memory in MiB, gpu in devices: {requests, limits}.")
    resources_from: str | None = Field(None, description="Which key of the file says so.")


class Checked(ApiModel):
    """What files mean, or what is wrong with them; the rest of the plan is beside the replicas."""

    model_config = ConfigDict(extra="allow")

    ok: bool = Field(description="Whether it could run.")
    errors: list[Note] = Field([], description="Everything that is wrong.")
    warnings: list[Note] = Field([], description="What is dated or doubtful.")
    name: str | None = Field(None, description="Of the experiment.")
    framework: str | None = Field(None, description="tensorflow, pytorch, mxnet, jax or none.")
    command: str | None = Field(None, description="What each replica runs.")
    params: dict[str, Any] = Field({}, description="As resolved.")
    replicas: list[PlannedReplica] = Field([], description="In the order of their ranks.")
    totals: dict[str, Any] | None = Field(None, description="Sums of {requests, limits} over all replicas.")
    request: str | None = Field(None, description="What the cluster would be asked for, if that was wanted.")


class Template(ApiModel):
    """A file to begin with."""

    name: str = Field(description="`pytorch`")
    title: str = Field(description="What it shows, in a sentence.")
    text: str = Field(description="YAML, with its comments.")
    directory: str = Field(description="Where its scripts are, on the server's machine.")


class ServerView(ApiModel):
    version: str = Field(description="Of Shoal.")
    home: str = Field(description="Which home it serves.")
    pid: int = Field(description="Its process.")
    started: float = Field(description="UTC seconds.")
    unfinished: int = Field(description="Experiments that are not over.")
    kept: bool = Field(description="Whether it stays when it is idle.")
    console: bool = Field(description="Whether the web console is built.")
    engine: str = Field(description="Empty, or what keeps the engine from working.")


class ClusterView(ApiModel):
    """A cluster. What this machine has and what is taken is counted; other clusters have schedulers of their own."""

    name: str = Field(description="`local`, or as config.toml calls it.")
    kind: str = Field(description="local | kubernetes")
    context: str | None = Field(description="Kubernetes: of the kubeconfig; null: its current one.")
    namespace: str | None = Field(description="Kubernetes: where experiments run.")
    image: str | None = Field(description="Kubernetes: for files without build.image.")
    sink: str | None = Field(description="Kubernetes: `stdout`, or the server as pods reach it.")
    outputs_claim: str | None = Field(description="Kubernetes: what all replicas share; null: nothing.")
    unfinished: int = Field(description="Experiments on it that are not over.")
    cpu: float | None = Field(description="local: cores.")
    memory: float | None = Field(description="local: MiB.")
    gpus: list[int] | None = Field(description="local: devices.")
    used_cpu: float | None = Field(description="local: requested by experiments that run.")
    used_memory: float | None = Field(description="local: requested, MiB.")
    used_gpus: list[int] | None = Field(description="local: assigned devices.")


class FindingView(ApiModel):
    """One thing that was looked at on a cluster."""

    name: str = Field(description="What: `API server`, `rights`, `DNS`, …")
    state: Literal["ok", "note", "problem"] = Field(
        description="A note: what could not be found out, or is good to know."
    )
    text: str = Field(description="What was seen.")
    hint: str | None = Field(description="What to do about it.")
    unreachable: bool = Field(description="The cluster did not answer.")


class ClusterCheck(ApiModel):
    """What works on a cluster, and what does not."""

    cluster: str = Field(description="Its name.")
    ok: bool = Field(description="No finding is a problem.")
    findings: list[FindingView] = Field(description="In the order in which they were looked at.")


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
    environment: dict[str, str] | None = Field(None, description=CALLER)
    oversubscribe: bool = Field(False, description="Do not check totals.")
    exact: bool = Field(False, description="Refuse when its files or data are no longer what they were.")
    resume: bool = Field(False, description="Go on from its newest complete checkpoint.")
