"""`shoal.init` and what it returns."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import shoal
from shoal.sdk import calls, session
from shoal.sdk.identity import SHOAL, myself
from shoal.sdk.replicas import replica
from shoal.sdk.values import clean_name, last_line, mapping, plain, said
from shoal.sdk.warning import warn

# Arguments that only a script for wandb gives.
OF_WANDB = frozenset(
    ("project", "entity", "group", "job_type", "notes", "id", "resume", "reinit", "settings", "save_code", "anonymous")
)
# Names of wandb that live on the run too; shoal.sdk.wandb has them.
FROM_WANDB = ("alert", "config", "define_metric", "summary", "unwatch", "watch")


class Run:
    """The recording of this process. Its functions are those of the module; as a context manager it is finished."""

    log = staticmethod(calls.log)
    step = staticmethod(calls.step)
    params = staticmethod(calls.params)
    tag = staticmethod(calls.tag)
    artifact = staticmethod(calls.artifact)
    model = staticmethod(calls.model)
    checkpoint = staticmethod(calls.checkpoint)
    image = staticmethod(calls.image)
    text = staticmethod(calls.text)
    table = staticmethod(calls.table)
    histogram = staticmethod(calls.histogram)
    progress = staticmethod(calls.progress)
    finish = staticmethod(calls.finish)
    replica = replica

    def __init__(self, name: str = "", tags: Sequence[str] = ()) -> None:
        self._name = name
        self._tags = tuple(tags)

    @property
    def name(self) -> str:
        """As the script calls it. A run outside Shoal can be renamed; the name of an experiment is in its file."""
        return self._name

    @name.setter
    def name(self, name: Any) -> None:
        before, self._name = self._name, said(name)
        if self._name == before or session.state.disabled:
            return
        if myself().starter == SHOAL:
            warn("run.name", "run.name: the experiment keeps the name that its file gives it")
        else:
            session.current().event("name", name=self._name)

    @property
    def tags(self) -> Tuple[str, ...]:
        """Those that it was given; when others are set, they are recorded too."""
        return self._tags

    @tags.setter
    def tags(self, tags: Any) -> None:
        before, self._tags = self._tags, tuple(calls.words(() if tags is None else tags))
        new = [tag for tag in self._tags if tag not in before]
        if new:
            calls.tag(new)
        if not set(before) <= set(self._tags) and not session.state.disabled:
            warn("run.tags", "run.tags: what was given stays; the console and Client.tag take tags away")

    @property
    def id(self) -> str:
        """The id of the experiment, or the key of the run outside Shoal."""
        return replica.experiment

    @property
    def dir(self) -> str:
        """Where this replica's outputs go."""
        return str(replica.outputs)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            calls.finish()
        else:
            calls._finish("exception", last_line(error))

    def __getattr__(self, name: str) -> Any:
        if name in FROM_WANDB:
            from shoal.sdk import wandb

            return getattr(wandb, name)
        raise AttributeError(f"the run has no {name!r}")

    def __repr__(self) -> str:
        return f"<shoal run {self.id or self.name}>"


def init(
    name: Optional[str] = None,
    *,
    params: Any = None,
    tags: Union[str, Sequence[str], None] = None,
    directory: Optional[str] = None,
    config: Any = None,
    mode: Optional[str] = None,
    **more: Any,
) -> Run:
    """Begins the recording; not needed, since the first call of any function does.

    Outside Shoal it names the run and may put it elsewhere than into the home: `shoal sync DIRECTORY` brings it in.
    Arguments of wandb are understood: `config` is `params`, `mode="disabled"` records nothing, `project`, `group`,
    `job_type` and `notes` are kept beside the run, others are ignored. With one of them, and in a script that says
    `import shoal as wandb`, steps are counted as wandb counts them. While a run is open, it is returned again.

    >>> import shoal
    >>> with shoal.init("digits", params={"lr": 0.1}, tags=["small"]) as run:
    ...     run.log(loss=0.5)
    """
    from shoal.sdk import wandb  # which needs Run

    state = session.state
    of_wandb = config is not None or mode is not None or not OF_WANDB.isdisjoint(more)
    for_wandb = of_wandb or _is_called_wandb(sys._getframe().f_back)
    if more.get("reinit") in (True, "finish_previous") and wandb.run is not None:
        calls.finish()
    # A fork knows the run of its parent and begins its own; a disabled one is no reason not to begin another.
    opened = wandb.run if state.session is not None or state.off else None
    if opened is not None and for_wandb and state.instead is not None:
        unused = _is_another(name) or any(given is not None for given in (config, params, tags))
        if unused and not state.disabled:
            warn("open run", "init: a run is open and goes on as it began; shoal.finish() first, or reinit=True")
        return opened
    state.disabled = state.off or mode == "disabled"
    configured = _values(config)
    words = calls.words(() if tags is None else tags)
    try:
        _record(name, {**configured, **_values(params)}, words, directory, more)
    except Exception as error:  # noqa: BLE001  nothing that is recorded is worth a training
        warn("init", f"init: {calls._reason(error)}")
    if for_wandb:
        run: Run = wandb.begin(name=name, tags=words, config=configured, mode=mode, **more)
        state.instead = wandb.log  # which counts steps as wandb does
    else:
        run = opened or Run(said(name or ""), words)
    wandb.run = run
    state.adjust()
    return run


def _is_called_wandb(caller: Any) -> bool:
    """Whether the caller has said `import shoal as wandb`."""
    known = () if caller is None else (caller.f_globals, caller.f_locals)
    return any(names.get("wandb") is shoal for names in known)


def _is_another(name: Any) -> bool:
    return bool(name) and clean_name(name) != session.state.about.get("name", "")


def _record(name: Any, values: Dict[str, Any], words: List[str], directory: Any, more: Any) -> None:
    state = session.state
    if state.disabled:
        return
    if state.session is None:
        _begin(name, values, words, directory, more)
    elif _is_another(name):
        warn("open run", f"init: a run is open and goes on, without the name {said(name)!r}; shoal.finish() first")
    elif directory is not None:
        warn("init", "init: the recording has begun already, so the directory is not used")
    if values:
        calls.params(values)
    if words:
        calls.tag(words)


def _begin(name: Any, values: Any, words: Any, directory: Any, more: Any) -> None:
    state = session.state
    if state.ended:
        state.run, state.ended = None, False  # another run begins; a stream of its own inside a replica
        state.runs += 1
    kept = {key: plain(more[key]) for key in ("project", "group", "job_type", "notes") if more.get(key) is not None}
    state.about = {"name": clean_name(name) if name else "", "params": plain(values), "tags": words, **kept}
    state.directory = None if directory is None else str(directory)
    mine = session.current()
    mine.wanted = True
    mine.place()  # it exists when init returns


def _values(given: Any) -> Dict[str, Any]:
    if isinstance(given, str):
        warn("config file", f"init: {given!r} names a file, which is not read; hand over a dict")
        return {}
    try:
        return mapping(given)
    except Exception as error:  # noqa: BLE001  a mapping of a user's own class
        warn("params", f"init: {calls._reason(error)}")
        return {}
