"""Which of several failures is the cause: what a lost connection looks like, and who is shown first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.states import (
    FAILED,
    RUNNING,
    SETTLE,
    Attempt,
    Decision,
    End,
    Policy,
    Status,
    StopReplica,
    first_failure_first,
    next_steps,
)
from tests.unit.test_states import failed

# What a replica prints last when its peer is gone. Its peer is the cause, whenever it ended.
SYMPTOMS = {
    "gloo: closed": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:51210"
    ),
    "gloo: reset": (
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Read error [10.0.0.4]:41276: "
        "Connection reset by peer"
    ),
    "gloo: written to a closed pair": (
        "RuntimeError: [enforce fail at pair.cc:446] writev [10.0.0.4]:41276: Broken pipe"
    ),
    "gloo: nobody to meet": (
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"
    ),
    "gloo: waited for a rank that was gone": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms "
        "for recv operation to complete"
    ),
    "gloo: pair closed": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:586] Application timeout caused pair closure"
    ),
    "nccl: remote error": (
        "torch.distributed.DistBackendError: NCCL error in: "
        "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, remote process exited or there was a network "
        "error, NCCL version 2.18.1"
    ),
    "nccl: its explanation": (
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
    ),
    "nccl: system error": (
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. It "
        "can be also caused by unexpected exit of a remote peer"
    ),
    "nccl: watchdog": (
        "[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, "
        "OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran for 600042 milliseconds before timing out."
    ),
    "c10d: the store is gone": "torch.distributed.DistNetworkError: Connection reset by peer",
    "c10d: nobody at the store": (
        "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/3 clients joined."
    ),
    "c10d: received nothing": (
        "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
        "key-value store by key '0', but store->get('0') got error: Connection reset by peer"
    ),
    "torchrun: rendezvous": (
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store "
        "has failed. See inner exception for details."
    ),
    "tensorflow: a server is gone": (
        "tensorflow.python.framework.errors_impl.UnavailableError: failed to connect to all addresses; last "
        "error: UNKNOWN: ipv4:127.0.0.1:20213: Failed to connect to remote host: Connection refused"
    ),
    "tensorflow: a socket": (
        "2024-05-02 10:11:12.131415: W tensorflow/core/distributed_runtime/eager/"
        "remote_tensor_handle_data.cc:77] Unable to destroy remote tensor handles: Socket closed"
    ),
    "tensorflow: a collective": (
        "tensorflow.python.framework.errors_impl.InternalError: Collective ops is aborted by: {{node "
        "CollectiveReduceV2}} worker 1 went down"
    ),
    "tensorflow: the status of grpc": "UNAVAILABLE: Error received from peer ipv4:10.0.0.7:20211",
    "jax: the coordinator": (
        "F external/xla/xla/pjrt/distributed/client.h:80] Terminating process because the JAX distributed "
        "service detected fatal errors. This most likely indicates that another task died"
    ),
    "jax: heartbeats": (
        "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats): /job:jax_worker/replica:0/task:2"
    ),
    "sockets: reset": "ConnectionResetError: [Errno 104] Connection reset by peer",
    "sockets: refused": "ConnectionRefusedError: [Errno 111] Connection refused",
    "sockets: pipe": "BrokenPipeError: [Errno 32] Broken pipe",
    "sockets: end of the stream": "EOFError",
    "sockets: end in the middle": (
        "asyncio.exceptions.IncompleteReadError: 12 bytes read on a total of 4096 expected bytes"
    ),
}


@pytest.mark.parametrize("line", SYMPTOMS.values(), ids=SYMPTOMS)
def test_a_lost_connection_is_a_symptom(line: str) -> None:
    cause = failed("worker-1", 12.0, line="ValueError: shapes (3,4) and (5,6) not aligned: 4 (dim 1) != 5 (dim 0)")
    symptom = replace(failed("worker-0", 11.0), lines=("Traceback (most recent call last):", line, "", "bye"))
    assert first_failure_first([symptom, cause]) == [cause, symptom]


CAUSES = {
    "an exception": "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x3072 and 512x10)",
    "memory of a device": "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "a call of CUDA inside NCCL": (
        "torch.distributed.DistBackendError: NCCL error in: "
        "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1331, unhandled cuda error (run with "
        "NCCL_DEBUG=INFO for details), NCCL version 2.18.6"
    ),
    "a wrong use of NCCL": "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
    "an empty pickle": "EOFError: Ran out of input",
    "a question nobody answers": "EOFError: EOF when reading a line",
    "an import": "ModuleNotFoundError: No module named 'torch'",
    "nothing printed": "",
}


@pytest.mark.parametrize("line", CAUSES.values(), ids=CAUSES)
def test_what_is_no_lost_connection_is_a_cause(line: str) -> None:
    cause = failed("worker-1", 12.0, line=line)
    symptom = failed("worker-0", 11.0, line=SYMPTOMS["gloo: closed"])
    assert first_failure_first([symptom, cause]) == [cause, symptom]


EXCEPTION = "ValueError: bad"
LOST = SYMPTOMS["sockets: reset"]
ORDER = {
    "a signal before an exception": [failed("b", 12, 139, "SIGSEGV"), failed("a", 10, line=EXCEPTION)],
    "a signal before a lost connection": [failed("b", 12, 137, "SIGKILL"), failed("a", 10, line=LOST)],
    "OOM before an exception, though its exit code is an ordinary one": [
        replace(failed("b", 12), reason="OOMKilled: reached 512 MiB of 512 MiB, set in a.yml:9:7"),
        failed("a", 10, line=EXCEPTION),
    ],
    "OOM before everything, whatever it printed": [
        replace(failed("b", 12, 137, "SIGKILL", line=LOST), reason="OOMKilled: reached 512 MiB of 512 MiB"),
        failed("a", 10, line=EXCEPTION),
    ],
    "a signal although the replica had lost a connection": [
        failed("b", 12, 139, "SIGSEGV", line=LOST),
        failed("a", 10, line=EXCEPTION),
    ],
    "an exception before a library that aborts because its peer is gone": [
        failed("b", 12, line=EXCEPTION),
        failed("a", 10, 134, "SIGABRT", line=SYMPTOMS["nccl: watchdog"]),
    ],
    "an abort of its own before an exception": [
        failed("b", 12, 134, "SIGABRT", line="terminate called after throwing an instance of 'std::bad_alloc'"),
        failed("a", 10, line=EXCEPTION),
    ],
    "an exception before a broken pipe": [failed("b", 12, line=EXCEPTION), failed("a", 10, 141, "SIGPIPE")],
    "the earlier of two signals": [failed("b", 10, 137, "SIGKILL"), failed("a", 11, 139, "SIGSEGV")],
    "the earlier of two exceptions": [failed("b", 10, line=EXCEPTION), failed("a", 11, line=EXCEPTION)],
    "the earlier of two lost connections": [failed("b", 10, line=LOST), failed("a", 11, line=LOST)],
    "at the same time, by name": [failed("a", 10, line=EXCEPTION), failed("b", 10, line=EXCEPTION)],
}


@pytest.mark.parametrize("expected", ORDER.values(), ids=ORDER)
def test_cause_before_symptom(expected: list[Status]) -> None:
    assert first_failure_first(expected) == expected
    assert first_failure_first(reversed(expected)) == expected


class TestASymptomWaitsForItsCause:
    """A rank that only lost its peer may end before the peer, which is still writing its traceback."""

    POLICY = Policy(deciders=frozenset({"worker-0", "worker-1"}))
    LOST = Status("worker-0", 0, FAILED, "", 1, "", "", 1.0, 10.0, ("ConnectionResetError: Connection reset by peer",))
    RUNS = Status("worker-1", 0, RUNNING, started=1.0)

    def decide(self, other: Status, now: float) -> Decision:
        return next_steps(Attempt({"worker-0": self.LOST, "worker-1": other}, began=0.0), self.POLICY, now)

    def test_it_waits_a_little(self) -> None:
        assert self.decide(self.RUNS, 10.1) == Decision((), 10.0 + SETTLE)

    def test_the_cause_is_blamed_when_it_comes(self) -> None:
        cause = Status("worker-1", 0, FAILED, "", 1, "", "", 1.0, 11.0, ("ValueError: enough",))
        (end,) = self.decide(cause, 11.0).steps
        assert isinstance(end, End)
        assert end.reason == "worker-1 failed: exit code 1"

    def test_without_a_cause_the_others_are_stopped_after_all(self) -> None:
        assert self.decide(self.RUNS, 10.0 + SETTLE).steps == (StopReplica("worker-1", "worker-0 failed"),)
