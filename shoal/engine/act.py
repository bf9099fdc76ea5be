"""Does what `decide` says, and sleeps until something happens.

One thread. It is woken by datagrams of shepherds, by the API, by the end of a shepherd (a pidfd) and by deadlines; it
does not poll. Each action is one short transaction or one call of a backend, and safe to repeat.
"""

from __future__ import annotations

import os
import random
import selectors
import shutil
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from shoal.backends.backend import LOCAL, Backend, Launch, Observation
from shoal.backends.local import files
from shoal.backends.local.backend import LocalBackend
from shoal.engine import admission
from shoal.engine.data import mounted
from shoal.engine.decide import (
    FETCHING,
    Action,
    Admit,
    AskToStop,
    Experiment,
    Explain,
    Finish,
    Record,
    Restart,
    Snapshot,
    Stage,
    StopWish,
    Submit,
    decide,
)
from shoal.engine.places import experiment_directory
from shoal.engine.staging import Stager
from shoal.errors import ShoalError, Unavailable, UsageError
from shoal.plan import Plan, plan
from shoal.spec import Source, interpret
from shoal.states import FAILED, FINAL, NOT_SUBMITTED, QUEUED, RESTARTING, STARTING, Outcome, Policy, Status
from shoal.store import experiments as store
from shoal.store import files as tracked_files
from shoal.store import streams
from shoal.store.database import Database, LeaseLost

PORTS = range(20000, 32000)  # below the range from which systems take ports for outgoing connections


class Engine:
    """Carries experiments from the queue to their end. `between` is called between any two steps that leave a trace."""

    def __init__(
        self,
        home: Path,
        database: Database,
        backend: LocalBackend,
        between: Callable[[object], None] = lambda point: None,
        clusters: Mapping[str, Backend] = MappingProxyType({}),
    ) -> None:
        self.home = home
        self.database = database
        self.backend = backend
        self.backends: dict[str, Backend] = {LOCAL: backend, **clusters}
        self.between = between
        self.site = backend.probe()
        self.on_round: list[Callable[[], None]] = []  # called after every round: something may have changed
        self.failure = ""
        self.stager = Stager(home, database, self.wake)
        self._plans: dict[str, Plan] = {}
        self._ending = False
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._watched: dict[int, int] = {}  # pid -> pidfd
        self._datagrams = self._listen()
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)

    def start(self) -> None:
        self._tidy()
        for backend in self.backends.values():
            backend.sweep()
        self._thread.start()

    def _tidy(self) -> None:
        """What a server that was killed left undone: variables of experiments that are over, or were never kept."""
        with self.database.read() as connection:
            for file in (self.home / "experiments").glob("*/environment.json"):
                row = store.find(connection, file.parent.name)
                if row is None:
                    shutil.rmtree(file.parent, ignore_errors=True)
                elif row["state"] in FINAL:
                    file.unlink(missing_ok=True)

    def wake(self) -> None:
        with suppress(BlockingIOError):  # it is awake already
            self._wake_writer.send(b".")

    def close(self) -> None:
        self._ending = True
        self.wake()
        self._thread.join(timeout=10)
        for backend in self.backends.values():
            backend.close()
        self.stager.close()
        self._datagrams.close()

    def _listen(self) -> socket.socket:
        """The socket that shepherds tell of changes. Its path is named relative to the home, as paths must be short."""
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(self.home)
            if os.path.exists(files.WAKE):
                os.unlink(files.WAKE)
            receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            receiver.bind(files.WAKE)
            os.chmod(files.WAKE, 0o600)
        finally:
            os.fchdir(here)
            os.close(here)
        receiver.setblocking(False)
        self._selector.register(receiver, selectors.EVENT_READ)
        return receiver

    def _loop(self) -> None:
        while not self._ending:
            try:
                wake_at = self.round()
                self.failure = ""
            except LeaseLost:
                os._exit(3)  # another server has taken over this home: this one must not touch it any more
            except Unavailable as error:  # a cluster: it tries again
                self.failure = str(error)
                wake_at = time.time() + 2.0
            except Exception:  # noqa: BLE001  a full disk must not end the engine: it tries again
                self.failure = traceback.format_exc()
                with suppress(OSError):
                    traceback.print_exc()
                wake_at = time.time() + 1.0
            for tell in self.on_round:
                tell()
            self._sleep(wake_at)

    def _sleep(self, wake_at: float | None) -> None:
        timeout = None if wake_at is None else max(0.0, wake_at - time.time())
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._wake_reader or key.fileobj is self._datagrams:
                _drain(key.fileobj)
            else:
                pid = key.data
                self._selector.unregister(key.fileobj)
                os.close(self._watched.pop(pid))

    def round(self) -> float | None:
        """Acts until nothing is left to do; returns when to look again although nothing happens."""
        while not self._ending:
            decision = decide(self.snapshot(), time.time())
            failures: list[Exception] = []
            for action in decision.actions:
                self.between(action)
                try:
                    self.act(action)
                except LeaseLost:
                    raise
                except Exception as error:  # noqa: BLE001  one experiment's trouble is not that of the others
                    failures.append(error)
            if failures:
                raise failures[0]
            if not decision.actions:
                return decision.wake_at
        return None

    def snapshot(self) -> Snapshot:
        with self.database.read() as connection:
            rows = store.unfinished(connection)
            recorded = {row["uid"]: store.replicas_of(connection, row["uid"], row["attempt"]) for row in rows}
        observed: dict[str, Observation] = {}
        for cluster in {row["cluster"] for row in rows}:
            handles = [row["handle"] for row in rows if row["handle"] and row["cluster"] == cluster]
            observed.update(self._observe(cluster, handles))
        self._watch([row["handle"] for row in rows if row["handle"] and row["cluster"] == LOCAL])
        waiting = self.home / files.WAITING
        if any(row["state"] == QUEUED for row in rows):
            waiting.touch()
        else:
            waiting.unlink(missing_ok=True)
        return Snapshot(tuple(self._experiment(row, recorded[row["uid"]], observed) for row in rows), self.site)

    def _observe(self, cluster: str, handles: list[str]) -> Mapping[str, Observation]:
        """A cluster that cannot be asked is not one whose replicas are dead."""
        try:
            return self.backend_of(cluster).observe(handles)
        except ShoalError as error:
            if cluster == LOCAL:
                raise
            why, unknown = error.problems[0].message, cluster not in self.backends
            return {handle: Observation(unreachable=why, unknown=unknown) for handle in handles}

    def backend_of(self, cluster: str) -> Backend:
        if cluster not in self.backends:
            known = ", ".join(self.backends)
            hint = f"known are {known}; config.toml is read when the server starts: shoal server stop"
            raise UsageError(f"there is no cluster {cluster!r}", hint=hint)
        return self.backends[cluster]

    def _experiment(self, row: store.Row, replicas: Any, observed: Mapping[str, Observation]) -> Experiment:
        return Experiment(
            uid=row["uid"],
            number=row["number"],
            state=row["state"],
            reason=row["reason"],
            attempt=row["attempt"],
            policy=Policy.of(row["policy"]),
            needs=admission.needs_of(self.plan_of(row)) if row["cluster"] == LOCAL else admission.Needs(),
            queues=row["cluster"] == LOCAL,
            oversubscribe=row["oversubscribe"],
            created=row["created"],
            timeout_queue=row["timeout_queue"],
            handle=row["handle"],
            stop=StopWish(row["stop"]["reason"], row["stop"]["grace"]) if row["stop"] else None,
            recorded={
                (r["replica"], r["try"]): Status(
                    r["replica"], r["try"], r["state"], r["reason"], r["exit_code"], r["signal"], r["node"],
                    r["started"], r["finished"],
                )
                for r in replicas
            },
            observation=observed.get(row["handle"]) if row["handle"] else None,
            staging=None if row["handle"] or row["state"] == QUEUED else self.stager.look(row),
        )  # fmt: skip

    def plan_of(self, row: store.Row) -> Plan:
        if row["uid"] not in self._plans:
            self._plans[row["uid"]] = plan(interpret([Source("experiment", row["resolved"])], filled=True).spec)
        return self._plans[row["uid"]]

    def _watch(self, handles: list[str]) -> None:
        """The end of a shepherd or its twin wakes the engine."""
        for pid in {pid for handle in handles for pid in self.backend.pids(handle)} - set(self._watched):
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:
                continue
            self._watched[pid] = descriptor
            self._selector.register(descriptor, selectors.EVENT_READ, pid)

    def act(self, action: Action) -> None:
        match action:
            case Admit(uid):
                self._admit(uid)
            case Explain(uid, reason):
                with self.database.write() as connection:
                    store.change(connection, store.get(connection, uid), QUEUED, reason)
            case Stage(uid):
                with self.database.read() as connection:
                    row = store.get(connection, uid)
                self.stager.begin(row)
            case Submit(uid, attempt):
                self._submit(uid, attempt)
            case Record(uid, _, statuses, state, reason):
                self._record(uid, statuses, state, reason)
            case AskToStop(uid, handle, reason, grace):
                self.backend_of(self._cluster(uid)).stop(handle, reason, grace)
            case Restart(uid, attempt, outcome, reason):
                self._restart(uid, attempt, outcome, reason)
            case Finish(uid, state, reason, outcome):
                self._finish(uid, state, reason, outcome)

    def _admit(self, uid: str) -> None:
        with self.database.write() as connection:
            row = store.get(connection, uid)
            if row["state"] == QUEUED and self._take(connection, row):
                store.change(connection, row, STARTING, "")

    def _take(self, connection: Any, row: store.Row) -> bool:
        """Devices and ports for every replica, or nothing at all; a cluster with a scheduler sees to that itself."""
        if row["cluster"] != LOCAL:
            return True
        planned = self.plan_of(row)
        taken = {entry["unit"] for entry in store.allocated(connection, "gpu")}
        free = [gpu for gpu in self.site.gpus if gpu not in taken]
        devices = admission.assign(planned, free, oversubscribe=row["oversubscribe"])
        if devices is None:
            return False
        used = {entry["unit"] for entry in store.allocated(connection, "port")}
        ports = free_ports(len(planned.replicas), used)
        units = [("gpu", gpu, name) for name, gpus in devices.items() for gpu in gpus]
        units += [("port", port, replica.name) for port, replica in zip(ports, planned.replicas, strict=True)]
        try:
            store.allocate(connection, row["uid"], units)
        except IntegrityError:
            return False
        return True

    def _submit(self, uid: str, attempt: int) -> None:
        with self.database.read() as connection:
            row = store.get(connection, uid)
            ports = {entry["replica"]: entry["unit"] for entry in store.allocated(connection, "port", uid)}
            devices: dict[str, tuple[int, ...]] = {}
            for entry in store.allocated(connection, "gpu", uid):
                devices[entry["replica"]] = (*devices.get(entry["replica"], ()), entry["unit"])
        launch = Launch(
            experiment=row["id"],
            uid=uid,
            attempt=attempt,
            plan=self.plan_of(row),
            policy=Policy.of(row["policy"]),
            cwd=row["cwd"],
            oversubscribe=row["oversubscribe"],
            ports=ports,
            devices=devices,
            limits_from=row["plan"].get("limits_from", {}),
            data=mounted(row["provenance"]),
        )
        try:
            backend = self.backend_of(row["cluster"])
            handle = backend.start(launch, self.site)
        except Unavailable as error:
            with self.database.write() as connection:
                row = store.get(connection, uid)
                store.change(connection, row, row["state"], error.problems[0].message)
            raise
        except ShoalError as error:  # the cluster will never take it
            self._finish(uid, FAILED, f"{NOT_SUBMITTED}: {error.problems[0].message}", None)
            return
        except (OSError, SQLAlchemyError):
            raise  # a full disk, say: it is tried again
        except Exception as error:
            if (self.home / "experiments" / row["id"] / f"attempt-{attempt}" / files.REQUEST).exists():
                raise  # some of it may run
            traceback.print_exc()
            said = f"{NOT_SUBMITTED}: a mistake in Shoal: {type(error).__name__}: {error}"
            self._finish(uid, FAILED, said, None)
            return
        self.between("submitted, and the handle not kept yet")
        if row["handle"] != handle:
            with self.database.write() as connection:
                row = store.get(connection, uid)
                if row["attempt"] == attempt and row["state"] not in FINAL:
                    reason = "" if row["reason"].startswith(FETCHING) else row["reason"]
                    store.change(connection, row, row["state"], reason, handle=handle)

    def _cluster(self, uid: str) -> str:
        with self.database.read() as connection:
            return str(store.get(connection, uid)["cluster"])

    def _record(self, uid: str, statuses: tuple[Status, ...], state: str, reason: str) -> None:
        with self.database.write() as connection:
            row = store.get(connection, uid)
            store.record(connection, row, self._places(row), statuses)
            started = (
                {} if row["started"] else {"started": min((s.started for s in statuses if s.started), default=None)}
            )
            store.change(connection, row, state, reason, **{k: v for k, v in started.items() if v})

    def _places(self, row: store.Row) -> dict[str, store.Row]:
        return {replica["replica"]: replica for replica in row["plan"]["replicas"]}

    def _restart(self, uid: str, attempt: int, outcome: Outcome, reason: str) -> None:
        with self.database.write() as connection:
            row = store.get(connection, uid)
            if row["attempt"] != attempt:
                return
            store.release(connection, uid)
            if not self._take(connection, row):
                raise RuntimeError(f"{row['id']}: nothing free for the next attempt, although it was just released")
            failure = _failure(outcome, attempt) or row["first_failure"]
            store.change(connection, row, RESTARTING, reason, attempt=attempt + 1, handle=None, first_failure=failure)

    def _finish(self, uid: str, state: str, reason: str, outcome: Outcome | None) -> None:
        with self.database.write() as connection:
            row = store.get(connection, uid)
            if row["state"] in FINAL:
                return
            failure = _failure(outcome, row["attempt"]) if state == FAILED else None
            if state == FAILED and failure is None:
                failure = row["first_failure"]
            store.release(connection, uid)
            finished = outcome.finished if outcome is not None else time.time()
            store.change(connection, row, state, reason, finished=finished, first_failure=failure)
        self.between("finished, and the environment not removed yet")
        self._plans.pop(uid, None)
        self.stager.forget(uid)
        (self.home / "experiments" / row["id"] / "environment.json").unlink(missing_ok=True)

    def remove(self, row: store.Row) -> None:
        """Forgets a finished experiment and frees its space."""
        from shoal.store import series  # numpy, which the server does without until something is tracked

        with self.database.write() as connection:
            series.remove(connection, row["uid"])
            tracked_files.remove(connection, row["uid"])
            streams.remove(connection, row["uid"])
            store.remove(connection, row["uid"])
        shutil.rmtree(experiment_directory(self.home, row), ignore_errors=True)
        self.database.give_back()


def _failure(outcome: Outcome | None, attempt: int) -> dict[str, Any] | None:
    """The first failure as everybody shows it."""
    if outcome is None or not outcome.failures:
        return None
    first = outcome.failures[0]
    return {
        "replica": first.replica,
        "process": None,
        "attempt": attempt,
        "try": first.try_,
        "exit_code": first.exit_code,
        "signal": first.signal or None,
        "reason": first.reason or None,
        "time": first.finished,
        "lines": list(first.lines),
    }


def free_ports(count: int, taken: set[int]) -> list[int]:
    """Ports nobody listens on now and no experiment of this home holds."""
    candidates = [port for port in PORTS if port not in taken]
    random.shuffle(candidates)  # two homes on one machine rarely meet
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            break
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    if len(found) < count:
        raise RuntimeError(f"only {len(found)} of {count} ports are free between {PORTS[0]} and {PORTS[-1]}")
    return found


def _drain(reader: socket.socket) -> None:
    try:
        while reader.recv(4096):
            pass
    except BlockingIOError:
        pass
