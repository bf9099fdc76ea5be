"""What the shepherd is on a laptop, a thread of the server is for one cluster: it sees pods change, and acts.

What is decided is kept in the directory of the attempt (see `attempts`), so a server that dies loses nothing: the next
one lists the pods and goes on. Threads, and what they may touch:

    pods       one watch for all experiments (`watching`)
    tending    the statuses of all attempts, their files, every call that ends or restarts something
    creating   one for each attempt whose objects are being made, until they are
    log        one for each pod that is read (`following`), up to a limit (`turns`): the files of its try
    engine     calls `tend`, `statuses`, `wake`: takes the lock, and waits for no cluster
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.backends.kubernetes import explaining, observing, operating, stopping
from shoal.backends.kubernetes.anchors import Anchor, Anchors
from shoal.backends.kubernetes.api import Api, Refused
from shoal.backends.kubernetes.attempts import CREATED as CREATED_FILE
from shoal.backends.kubernetes.attempts import Tended, load
from shoal.backends.kubernetes.carried import collect
from shoal.backends.kubernetes.collecting import Judging
from shoal.backends.kubernetes.creating import create_anchor, create_one, create_owned
from shoal.backends.kubernetes.following import Follower
from shoal.backends.kubernetes.identity import Identity
from shoal.backends.kubernetes.settings import STDOUT
from shoal.backends.kubernetes.turns import Turns
from shoal.backends.kubernetes.watching import Key, Pods, Seen
from shoal.backends.local import files
from shoal.errors import ShoalError, Unavailable
from shoal.launcher.logfile import last_lines
from shoal.launcher.manifest import OUTPUTS
from shoal.launcher.replica import read_ending, read_json, write_json
from shoal.states import (
    FAILED,
    NOT_SUBMITTED,
    STOPPED,
    SUCCEEDED,
    TIMED_OUT,
    Attempt,
    Decision,
    End,
    Outcome,
    StartReplica,
    Status,
    StopReplica,
    next_steps,
)

SLOW = 5.0  # seconds without a start after which the cluster is asked why
AGAIN = 2.0  # seconds until something that failed is tried again
SELDOM = 10.0  # seconds until something that was refused is
SOON = 0.5  # seconds until one looks again for what nobody tells of

Object = dict[str, Any]
Found = dict[str, Seen]
"""replica -> the pod of its newest try"""


class Tender:
    """Looks after attempts. `resume_from` gives the checkpoint a replica of an attempt starts from."""

    def __init__(
        self,
        api: Api,
        anchors: Anchors,
        on_change: Callable[[], None],
        resume_from: Callable[[str, str], str] = lambda directory, replica: "",
    ) -> None:
        self.api = api
        self.identity = Identity(api)
        self.anchors = anchors
        self.on_change = on_change
        self.resume_from = resume_from
        self.pods = Pods(api, self._on_pods, lambda key: key in self._keys)
        self.turns = Turns()
        self.judging = Judging()
        self._attempts: dict[str, Tended] = {}  # directory -> attempt
        self._keys: dict[Key, str] = {}
        self._changed: set[str] = set()  # directories to look at
        self._due: dict[str, float] = {}  # directory -> when to look although nothing has happened
        self._leftovers: dict[Anchor, float] = {}  # what has to be removed -> when that is tried
        self._said: set[str] = set()
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None

    def tend(self, directory: str, objects: Sequence[Object] = ()) -> bool:
        """Looks after the attempt from now on. Silent when it does already, or when the attempt is over.

        `objects` are made if they are not there. Without them, an attempt of which not all was made is not looked
        after, and that is told.
        """
        with self._lock:
            if directory in self._attempts or os.path.exists(os.path.join(directory, files.RESULT)):
                return True
            request = read_json(os.path.join(directory, files.REQUEST))
            if request is None:
                return False
            attempt = load(directory, request)
            if attempt.created is None and not objects:
                return False
            self._attempts[directory] = attempt
            self._keys[attempt.key] = directory
            self._begin()
            if attempt.created is None:
                attempt.creating = True
                work = threading.Thread(target=self._create, args=(attempt, objects), name="creating", daemon=True)
                work.start()
            else:
                self.pods.need(True)
        self.wake(directory)
        return True

    def attempt(self, directory: str) -> Tended | None:
        """None when it is not looked after."""
        with self._lock:
            return self._attempts.get(directory)

    def statuses(self, directory: str) -> tuple[Status, ...]:
        """Of all tries."""
        attempt = self.attempt(directory)
        return (*attempt.history, *attempt.statuses.values()) if attempt is not None else ()

    def unreachable(self, directory: str) -> str:
        """Why nothing new can be said of an attempt."""
        attempt = self.attempt(directory)
        if attempt is None:
            return ""
        return attempt.trouble if attempt.creating else attempt.elsewhere or self.pods.unreachable

    def wake(self, directory: str) -> None:
        with self._lock:
            if directory in self._attempts:
                self._changed.add(directory)
        self._bell.set()

    def remove(self, anchor: Anchor) -> None:
        """Removes an attempt from the cluster, and tries until it is gone."""
        with self._lock:
            self._leftovers[anchor] = 0.0
            self._begin()
        self._bell.set()

    def close(self) -> None:
        self._ending = True
        self._bell.set()
        self.pods.close()
        self.turns.close()
        with self._lock:
            followers = [follower for attempt in self._attempts.values() for follower in attempt.followers.values()]
        for follower in followers:
            follower.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._tending, name="tending", daemon=True)
            self._thread.start()

    def _on_pods(self, key: Key | None) -> None:
        with self._lock:
            self._changed |= set(self._attempts) if key is None else {self._keys[key]} if key in self._keys else set()
        if key is None:
            self.on_change()  # the cluster is lost, or back
        self._bell.set()

    def _create(self, attempt: Tended, objects: Sequence[Object]) -> None:
        """Makes the objects, and tries until the cluster has taken or refused them, or somebody wants them no more."""
        while not self._ending:
            try:
                owner = self._anchor(attempt, objects[0])
                wanted = lambda: not self._ending and attempt.wish() is None  # noqa: E731
                if create_owned(self.api, objects[1:], owner, wanted):
                    told = {"owner": owner, **self.identity.note()}
                    write_json(attempt.path(CREATED_FILE), told)
                    with self._lock:
                        attempt.created = told
                        self.pods.need(True)
                break
            except Unavailable as error:
                if attempt.wish() is not None:
                    break  # what was made nevertheless is removed when the cluster can be reached
                self._in_trouble(attempt, error.problems[0].message)
            except ShoalError as error:
                attempt.refused = error.problems[0].message
                break
            except Exception as error:  # noqa: BLE001  a full disk, say
                with suppress(OSError):
                    traceback.print_exc()
                self._in_trouble(attempt, f"{type(error).__name__}: {error}")
        attempt.creating = False
        self.wake(attempt.directory)

    def _anchor(self, attempt: Tended, obj: Object) -> Object:
        anchor = Anchor(attempt.request["anchor"], attempt.uid, attempt.directory)
        new = self.anchors.note(anchor, self.identity.note())
        if self.identity.moved(self.anchors.where(anchor)):
            name = self.api.settings.name
            raise Refused(409, "Elsewhere", f"it was begun elsewhere: the context or namespace of {name} has changed")
        try:
            return create_anchor(self.api, obj, attempt.uid)
        except Refused:
            if new:
                self.anchors.forget(anchor)
            raise

    def _in_trouble(self, attempt: Tended, why: str) -> None:
        if attempt.trouble != why:
            attempt.trouble = why
            self.on_change()
        for _ in range(int(AGAIN / 0.1)):
            if not self._ending and attempt.wish() is None:
                time.sleep(0.1)

    def _tending(self) -> None:
        while not self._ending:
            with self._lock:
                times = [*self._due.values(), *self._leftovers.values()]
            self._bell.wait(max(0.0, min(times) - time.time()) if times else None)
            self._bell.clear()
            now = time.time()
            with self._lock:
                wanted = self._changed | {directory for directory, at in self._due.items() if at <= now}
                self._changed = set()
                attempts = [attempt for directory, attempt in self._attempts.items() if directory in wanted]
                leftovers = [anchor for anchor, at in self._leftovers.items() if at <= now]
            for attempt in attempts:
                if self._ending:
                    return
                at = self._guarded(lambda attempt=attempt: self._look(attempt))  # type: ignore[misc]
                with self._lock:
                    self._due.pop(attempt.directory, None)
                    if at is not None and attempt.directory in self._attempts:
                        self._due[attempt.directory] = at
            for anchor in leftovers:
                at = self._guarded(lambda anchor=anchor: self.anchors.remove(self.identity, anchor))  # type: ignore[misc]
                with self._lock:
                    if at is None:
                        self._leftovers.pop(anchor, None)
                    else:
                        self._leftovers[anchor] = at

    def _guarded(self, work: Callable[[], float | None]) -> float | None:
        """When to try again: one attempt's trouble is not that of the others."""
        try:
            return work()
        except Unavailable:
            return time.time() + AGAIN  # the watch tells whether the cluster is lost
        except ShoalError as error:
            if str(error) not in self._said:
                self._said.add(str(error))
                print(f"cluster {self.api.settings.name}: {error}", file=sys.stderr)
            return time.time() + SELDOM  # somebody may give us the right, or put the kubeconfig back
        except Exception:  # noqa: BLE001
            with suppress(OSError):
                traceback.print_exc()
            return time.time() + AGAIN

    def _look(self, attempt: Tended) -> float | None:
        """Sees what has changed, and does what follows from it; when to look again although nothing happens."""
        wish = attempt.wish()
        if attempt.created is None:
            if attempt.refused:
                self._end(attempt, End(FAILED, f"{NOT_SUBMITTED}: {attempt.refused}"))
            elif wish and not attempt.creating:
                self._end(attempt, End(STOPPED, wish["reason"]))
            return None
        if wish and wish["grace"] == 0 and (away := self.unreachable(attempt.directory)):
            self._end(attempt, End(STOPPED, f"{wish['reason']}; given up: {away}"))
            return None
        if not self.pods.listed or self.pods.unreachable or not self._is_ours(attempt):
            return None  # nothing follows from what was seen before: told when there is something new
        now = time.time()
        if self.pods.generation != self.api.generation and not self.pods.as_of(now):
            return None  # listed where another kubeconfig led
        found = self._find(attempt)
        times = [self._see(attempt, before, found, now) for before in list(attempt.statuses.values())]
        known = Attempt(attempt.causes(), attempt.began, wish["reason"] if wish else "")
        policy = operating.policy_now(attempt.statuses, found, attempt.policy) if attempt.operator else attempt.policy
        decision = next_steps(known, policy, now)
        if self._doubted(attempt, decision, now):
            return None
        for step in decision.steps:
            self._do(attempt, step, wish, found.get(getattr(step, "replica", "")))
        if attempt.operator and attempt.killed:
            stopping.withdraw(self.api, attempt)
        if attempt.directory not in self._attempts:
            return None  # it is over
        times += [decision.wake_at, self._explain(attempt, found, now), stopping.look_again(attempt, now)]
        return min((at for at in times if at is not None), default=None)

    def _is_ours(self, attempt: Tended) -> bool:
        """Whether the cluster is the one that the attempt was submitted to: contexts of a kubeconfig may change."""
        other = self.identity.moved(attempt.created or {})
        if other != bool(attempt.elsewhere):
            name = self.api.settings.name
            said = f"cluster {name} is not the one that this was submitted to: has its context or namespace changed?"
            attempt.elsewhere = said if other else ""
            self.on_change()
        return not other

    def _doubted(self, attempt: Tended, decision: Decision, now: float) -> bool:
        """Whether replicas would be ended because of what the clock says and the cluster did not.

        That is only known when the cluster has been asked since: a connection that is dead is as silent as one on
        which nothing happens.
        """
        late = any(isinstance(step, StopReplica) and step.reason.startswith(TIMED_OUT) for step in decision.steps)
        attempt.doubted = (attempt.doubted or now) if late else None
        return attempt.doubted is not None and not self.pods.as_of(attempt.doubted)

    def _find(self, attempt: Tended) -> Found:
        """The pod of every replica's newest try. One that an operator put in another's place is not it."""
        found: Found = {}
        names = {name: replica for replica, name in attempt.request["pods"].items()}
        for seen in sorted(self.pods.of(attempt.key), key=lambda seen: (not seen.gone, observing.age(seen.pod))):
            metadata = seen.pod["metadata"]
            labels = metadata.get("labels") or {}
            replica = names.get(metadata["name"]) if attempt.operator else labels.get("shoal/replica")
            status = attempt.statuses.get(replica or "")
            if status is None or (not attempt.operator and labels.get("shoal/try") != str(status.try_)):
                continue
            if attempt.uids.get(status.replica, metadata["uid"]) == metadata["uid"]:
                found[status.replica] = seen
            elif attempt.operator and not seen.gone:
                stopping.withdraw(self.api, attempt)
        return found

    def _see(self, attempt: Tended, before: Status, found: Found, now: float) -> float | None:
        """Takes note of one replica; when to look at it again although nothing is told of it."""
        if before.over:
            return None
        name = before.replica
        seen = found.get(name)
        pod = seen.pod if seen is not None else None
        gone = seen is not None and (seen.gone or self._lost_with_its_node(attempt, seen.pod, now))
        over = gone or (pod is not None and observing.ended(pod))
        place = files.try_directory(attempt.directory, name, before.try_)
        may_stay = bool(attempt.operator) and operating.may_stay(attempt.statuses, name, attempt.policy)
        ending = read_ending(place) if over or pod is None or may_stay else None
        follower = self._follow(attempt, before, pod, over, place, ending is not None)
        if follower is not None and gone:
            follower.gone = True
        after = observing.status_of(
            before,
            pod,
            gone=gone,
            ending=ending,
            stopping=attempt.stopping.get(name, ""),
            drained=follower is None or follower.over,
            limit=str(attempt.request.get("limits", {}).get(name, "")),
            again=may_stay and operating.starts_again(before, ending, attempt.policy),
        )
        if attempt.operator and pod is not None and after.started:
            attempt.know_pod(name, pod["metadata"]["uid"])
        if attempt.operator and after.over:
            after = operating.as_the_operator_ended_it(before, after, attempt.statuses, found, attempt.policy)
            if after.state == STOPPED and after.started and ending is None and gone:
                after = replace(after, reason=f"{after.reason}; its pod was gone before its log was read to the end")
        if after.over:
            after = replace(after, finished=after.finished or now)
            if after.state == FAILED:
                after = replace(after, lines=tuple(last_lines(os.path.join(place, "log"))))
            verdict = self.judging.verdict(place, lambda: self.wake(attempt.directory))
            if verdict is None:
                return None  # told when it is known
            after = replace(after, reason="; ".join(said for said in (after.reason, str(verdict)) if said))
            collect(place, os.path.join(os.path.dirname(attempt.directory), OUTPUTS), name, verdict.whole)
        if after != before:
            attempt.record(after)
            self.on_change()
        if after.over or pod is None:
            return None
        doomed = bool(pod["metadata"].get("deletionTimestamp"))
        if may_stay and attempt.request["sink"] != STDOUT:
            return now + AGAIN  # nobody tells that its exit.json has come
        return now + SOON if over else now + observing.LATE if doomed else None

    def _lost_with_its_node(self, attempt: Tended, pod: Object, now: float) -> bool:
        """Said by nobody: so the cluster is asked once more."""
        carry = self.api.settings.carry if attempt.request["sink"] != STDOUT else 0.0
        due = (observing.moment(pod["metadata"].get("deletionTimestamp")) or now) - carry
        return observing.lost_with_its_node(pod, now, carry) and self.pods.as_of(due + observing.LATE)

    def _follow(
        self, attempt: Tended, before: Status, pod: Object | None, over: bool, place: str, has_ending: bool
    ) -> Follower | None:
        """Who reads its log. With a server as sink that has everything when it has exit.json; else it is read, too."""
        key = (before.replica, before.try_)
        follower = attempt.followers.get(key)
        state = (observing.container_of(pod) or {}).get("state", {}) if pod is not None else {}
        wanted = attempt.request["sink"] == STDOUT or (over and not has_ending)
        if follower is None and pod is not None and wanted and ("running" in state or "terminated" in state):
            name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
            wake = lambda: self.wake(attempt.directory)  # noqa: E731
            follower = Follower(self.api, self.turns, name, container, place, wake, before.try_)
            attempt.followers[key] = follower
            follower.start()
        if follower is not None and (over or pod is None):
            follower.end()
        return follower

    def _do(self, attempt: Tended, step: Any, wish: Mapping[str, Any] | None, seen: Seen | None) -> None:
        if isinstance(step, StopReplica):
            self._stop(attempt, step, wish, seen)
        elif isinstance(step, StartReplica):
            self._start(attempt, step)
        elif isinstance(step, End):
            self._end(attempt, step)

    def _stop(self, attempt: Tended, step: StopReplica, wish: Mapping[str, Any] | None, seen: Seen | None) -> None:
        name = step.replica
        if attempt.operator and wish is None and operating.too_early(attempt.statuses, name, attempt.policy):
            return
        pod = seen.pod if seen is not None and not seen.gone else None
        over = stopping.ask(self.api, attempt, attempt.statuses[name], step.reason, wish, pod, time.time())
        if over is not None:
            attempt.record(over)
            self.on_change()
            self.wake(attempt.directory)

    def _start(self, attempt: Tended, step: StartReplica) -> None:
        """The same Job under another name; beside an operator, its launcher has begun again by itself."""
        started = Status(step.replica, step.try_, reason=step.reason)
        try:
            if attempt.operator:
                started = operating.started_again(step, time.time())
            else:
                checkpoint = self.resume_from(attempt.directory, step.replica)
                create_one(self.api, attempt.next_job(step.replica, step.try_, checkpoint))
        except Refused as error:
            said = f"cannot be started: {error.problems[0].message}"
            started = replace(started, state=FAILED, reason=said, finished=time.time())
        attempt.record(started)
        self.on_change()
        self.wake(attempt.directory)

    def _end(self, attempt: Tended, end: End) -> None:
        """Written down first: what is left in the cluster then is removed by whoever is there to do it."""
        for status in list(attempt.statuses.values()):
            if not status.over:
                attempt.record(replace(status, state=STOPPED, reason=end.reason, finished=time.time()))
        lost = next(
            (f"{s.replica}: {s.reason}" for s in attempt.statuses.values() if s.state == SUCCEEDED and s.reason), ""
        )
        outcome = Outcome(
            end.state,
            end.reason or lost,
            tuple(attempt.statuses.values()),
            end.failures,
            finished=max(status.finished or 0.0 for status in attempt.statuses.values()),
            began=attempt.began,
            history=tuple(attempt.history),
        )
        write_json(attempt.path(files.RESULT), outcome.json())
        for follower in attempt.followers.values():
            follower.close()
        with self._lock:
            self._attempts.pop(attempt.directory, None)
            self._keys.pop(attempt.key, None)
            self._due.pop(attempt.directory, None)
            if not any(other.created for other in self._attempts.values()):
                self.pods.need(False)
        self.pods.forget(attempt.key)
        for kept in Path(attempt.directory).glob("code-*.tar.gz"):
            kept.unlink(missing_ok=True)
        self.on_change()
        owner = str((attempt.created or {}).get("owner", {}).get("uid", ""))
        self.remove(Anchor(attempt.request["anchor"], attempt.uid, attempt.directory, owner))

    def _explain(self, attempt: Tended, found: Found, now: float) -> float | None:
        """Finds out what keeps replicas from starting; when to ask again."""
        waiting = explaining.silent(attempt, found)
        if not waiting:
            return None
        due = max(attempt.began, attempt.asked) + SLOW
        if now < due:
            return due
        attempt.asked = now
        over = False
        for status in explaining.explained(self.api, attempt, found, waiting, now):
            attempt.record(status)
            self.on_change()
            over = over or status.over
        return now if over else now + SLOW
