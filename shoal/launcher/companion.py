"""What goes on beside the command of a replica: samples of what it uses, its TensorBoard files, the way to a sink.

One thread of the launcher, started after the command. Whatever fails here is written into `companion.err` of the try,
once, and harms neither the command nor its log.

Standard library only and clean for Python 3.8: this file travels into replicas.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from shoal import __version__
from shoal.frameworks.topology import ROLES
from shoal.launcher import processes, tensorboard
from shoal.launcher.limits import Group
from shoal.launcher.nvml import Gpus
from shoal.launcher.sampling import Sampler
from shoal.launcher.shipping import Shipper, shipper

ERRORS = "companion.err"


class Companion:
    """Made before the command starts, started after it. `done` is called by its thread when all has been carried."""

    def __init__(
        self,
        directory: str,
        env: Mapping[str, str],
        uid: str,
        *,
        memory_limit: Optional[int] = None,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self.directory = directory
        self.over = False  # everything has been carried, or has been given up
        self._env = env
        self._uid = uid
        self._limit = memory_limit
        self._done = done
        self._said: Set[str] = set()
        self._bell = threading.Event()
        self._quiet = threading.Event()  # set when the streams of this thread are over
        self._ending = False
        self._last = False
        self._thread: Optional[threading.Thread] = None
        self._sampler: Optional[Sampler] = None
        self._follower: Optional[tensorboard.Follower] = None
        self._shipper: Optional[Shipper] = None
        self._guard("tensorboard", self._make_follower)

    def start(self, group: Optional[Group]) -> None:
        """Begins: there must be no fork of this process after it."""

        def run() -> None:
            thread = threading.Thread(target=self._run, args=(group,), name="companion", daemon=True)
            thread.start()
            self._thread = thread

        self._guard("thread", run)

    def settle(self, timeout: float = 5.0) -> None:
        """The command is gone: the last sample, the last look at its files. Returns when its own streams are over."""
        self._ending = True
        self._bell.set()
        if self._thread is not None:
            self._quiet.wait(timeout)

    def finish(self, patience: Optional[float] = None) -> None:
        """The log is closed and exit.json is there: all that is left is to carry it away. `done` tells when it is.

        `patience`: seconds for that in place of the sink's own, when somebody waits for the end.
        """
        if patience is not None:
            self.limit(patience)
        self._last = True
        self._bell.set()
        if self._thread is None:
            self.over = True

    def limit(self, patience: float) -> None:
        """What is not carried in so many seconds stays here: somebody waits for the end."""
        if self._shipper is not None:
            self._shipper.limit(patience)

    def hurry(self) -> None:
        """What is not carried by now stays here."""
        if self._shipper is not None:
            self._shipper.deadline = self._shipper.mirror.until = 0.0
        self._bell.set()

    def _make_follower(self) -> None:
        outputs = self._env.get("SHOAL_OUTPUTS", "")
        own = self._env.get("SHOAL_REPLICA_OUTPUTS", "")
        if not (outputs or own):
            return
        self._follower = tensorboard.Follower(
            os.path.join(self.directory, "streams"),
            header(self._env),
            own=own,
            shared=outputs,
            others=replicas(self._env),
            uid=self._uid,
            pids=lambda: self._sampler.pids if self._sampler is not None else (),
        )

    def _make_sampler(self, group: Optional[Group]) -> None:
        self._sampler = Sampler(
            os.path.join(self.directory, "streams"),
            header(self._env),
            os.getpid(),
            group=group,
            memory_limit=self._limit,
            gpus=Gpus(self._env.get("CUDA_VISIBLE_DEVICES")),
        )

    def _make_shipper(self) -> None:
        self._shipper = shipper(self.directory, self._env)

    def _run(self, group: Optional[Group]) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the thread that waits for them
        try:
            self._guard("sampling", lambda: self._make_sampler(group))
            self._guard("shipping", self._make_shipper)
            self._beside_the_command()
            self._guard("sampling", self._sampler.close if self._sampler is not None else _nothing)
            self._guard("tensorboard", self._follower.close if self._follower is not None else _nothing)
            self._quiet.set()
            while not self._last:
                self._bell.wait()
                self._bell.clear()
            if self._shipper is not None:
                self._guard("shipping", self._shipper.finish)
        finally:
            self._quiet.set()
            self.over = True
            self._guard("end", self._done)

    def _beside_the_command(self) -> None:
        now = time.monotonic()
        due: Dict[str, float] = {}
        if self._sampler is not None:
            due["sampling"] = now + self._sampler.pause
        if self._follower is not None:
            due["tensorboard"] = now + tensorboard.OFTEN
        if self._shipper is not None:
            due["shipping"] = now
        while not self._ending:
            wait = min(due.values()) - time.monotonic() if due else None
            if wait is None or wait > 0:
                self._bell.wait(wait)
                self._bell.clear()
                continue
            name = min(due, key=due.__getitem__)
            due[name] = time.monotonic() + self._work(name)

    def _work(self, name: str) -> float:
        """Does one piece of work; seconds until its next."""
        if name == "sampling" and self._sampler is not None:
            self._guard(name, self._sampler.sample)
            return self._sampler.pause
        if name == "tensorboard" and self._follower is not None:
            self._guard(name, self._follower.look)
            return tensorboard.OFTEN
        if self._shipper is not None:
            self._guard(name, self._shipper.carry)
            return self._shipper.pause
        return 1.0

    def _guard(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  nothing here may harm the command
            said = f"{name}: {type(error).__name__}: {error}"
            if said in self._said:
                return
            self._said.add(said)
            try:
                with open(os.path.join(self.directory, ERRORS), "a", encoding="utf-8", errors="replace") as file:
                    file.write(f"{time.time():.3f} {said}\n{traceback.format_exc()}\n")
            except OSError:
                return


def header(env: Mapping[str, str]) -> Dict[str, Any]:
    """What the launcher's own streams say of themselves."""
    return {
        "experiment": env.get("SHOAL_EXPERIMENT", ""),
        "replica": env.get("SHOAL_REPLICA", ""),
        "role": env.get("SHOAL_ROLE", ""),
        "index": _number(env.get("SHOAL_INDEX")),
        "attempt": _number(env.get("SHOAL_ATTEMPT")),
        "try": _number(env.get("SHOAL_TRY")),
        "rank": rank(env),
        "process": 0,
        "world": None,
        "restart": 0,
        "host": socket.gethostname(),
        "boot": processes.boot_id(),
        "pid": os.getpid(),
        "pid_start": processes.start_time(os.getpid()),
        "started": time.time(),
        "parent": None,
        "sdk": __version__,
        "program": sys.argv[:1],
    }


def replicas(env: Mapping[str, str]) -> List[str]:
    """The names of all replicas, in the order of their ranks."""
    try:
        addresses = json.loads(env.get("SHOAL_CLUSTER_SPEC") or "{}")
        return [f"{role}-{index}" for role in ROLES for index in range(len(addresses.get(role, ())))]
    except (ValueError, AttributeError, TypeError):
        return []


def rank(env: Mapping[str, str]) -> int:
    """The rank of the replica among all, parameter servers last; 0 when it is alone."""
    names = replicas(env)
    name = env.get("SHOAL_REPLICA", "")
    return names.index(name) if name in names else 0


def _number(text: Optional[str]) -> int:
    return int(text) if text is not None and text.isdigit() else 0


def _nothing() -> None:
    return
