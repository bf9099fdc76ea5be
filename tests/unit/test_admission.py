"""What fits, what is missing in numbers, and who gets which device."""

from __future__ import annotations

import pytest

from shoal.backends.backend import Site
from shoal.engine.admission import Needs, assign, needs_of, never_fits, shortage
from shoal.plan import Plan, plan
from tests.fixtures import BASE, HERE, read

SITE = Site(4.0, 16384.4, (0, 1, 2), "here")

NEEDS = {
    "nothing is asked for": ("", Needs()),
    "requests are summed over all replicas": (
        "environment: {resources: {cpu: {requests: 1}, memory: {requests: 1Gi}}, "
        "replicas: {n_workers: 2, default_worker: {resources: {cpu: {requests: 0.5}, gpu: {requests: 1}}}}}",
        Needs(2.0, 1024.0, 2),
    ),
    "a replica that says only its limits requests as much": (
        "environment: {resources: {cpu: {limits: 2}, memory: {limits: 512}, gpu: {limits: 1}}}",
        Needs(2.0, 512.0, 1),
    ),
    "limits above requests do not count": (
        "environment: {resources: {cpu: {requests: 1, limits: 3}, memory: {requests: 100, limits: 900}}}",
        Needs(1.0, 100.0),
    ),
    "tenths add up": (
        "environment: {resources: {cpu: {requests: 0.1}}, "
        "replicas: {n_workers: 2, default_worker: {resources: {cpu: {requests: 0.1}}}}}",
        Needs(0.3),
    ),
}


def planned(text: str, framework: str = "none") -> Plan:
    return plan(read(f"{BASE}framework: {framework}\n{text}").spec)


@pytest.mark.parametrize(("text", "needs"), NEEDS.values(), ids=NEEDS)
def test_what_an_experiment_asks_for(text: str, needs: Needs) -> None:
    assert needs_of(planned(text)) == needs


MISSING = {
    "everything is free": (Needs(4, 16384, 3), Needs(), ""),
    "nothing is asked for, and nothing is free": (Needs(), Needs(4, 16384, 3), ""),
    "what is not asked for may be short": (Needs(cpu=1), Needs(0, 99999, 3), ""),
    "cpu": (Needs(cpu=2), Needs(cpu=3), "2 cpu (1 of 4 free)"),
    "part of a core": (Needs(cpu=0.5), Needs(cpu=3.75), "0.5 cpu (0.25 of 4 free)"),
    "memory": (Needs(memory=8192), Needs(memory=10000), "8192 MiB of memory (6384 of 16384 free)"),
    "devices": (Needs(gpu=2), Needs(gpu=2), "2 gpu (1 of 3 free)"),
    "all at once": (
        Needs(2, 8192, 2),
        Needs(3, 10000, 2),
        "2 cpu (1 of 4 free), 8192 MiB of memory (6384 of 16384 free), 2 gpu (1 of 3 free)",
    ),
    "more is used than there is: nothing is free": (Needs(cpu=1), Needs(cpu=9), "1 cpu (0 of 4 free)"),
    "tenths that do not add up exactly fit": (Needs(cpu=0.1 + 0.2), Needs(cpu=3.7), ""),
}


@pytest.mark.parametrize(("needs", "used", "words"), MISSING.values(), ids=MISSING)
def test_what_is_missing_now(needs: Needs, used: Needs, words: str) -> None:
    assert shortage(needs, used, SITE) == words


NEVER = {
    "all of it fits exactly": (Needs(4, 16384, 3), ""),
    "cpu": (Needs(cpu=4.5), "4.5 cpu, and this machine has 4"),
    "memory": (Needs(memory=20000), "20000 MiB of memory, and this machine has 16384"),
    "a terabyte is written out": (Needs(memory=1048577), "1048577 MiB of memory, and this machine has 16384"),
    "devices": (Needs(gpu=7), "7 gpu, and this machine has 3"),
    "all at once": (
        Needs(11, 20000, 7),
        "11 cpu, and this machine has 4; 20000 MiB of memory, and this machine has 16384; "
        "7 gpu, and this machine has 3",
    ),
}


@pytest.mark.parametrize(("needs", "words"), NEVER.values(), ids=NEVER)
def test_what_can_never_fit(needs: Needs, words: str) -> None:
    assert never_fits(needs, SITE) == words


def test_what_never_fits_is_short_too() -> None:
    for needs, words in NEVER.values():
        assert bool(shortage(needs, Needs(), SITE)) == bool(words)


def test_sums_of_needs() -> None:
    assert Needs(1, 2, 3) + Needs(0.5, 1, 1) == Needs(1.5, 3, 4)


TWO_EACH = """
environment:
  resources: {gpu: {requests: 1}}
  replicas:
    n_workers: 2
    worker:
    - {index: 0, resources: {gpu: {limits: 2}}}
    - {index: 1, resources: {gpu: {limits: 2}}}
"""
DEVICES = {
    "each its own": ([0, 1, 2, 3, 4], False, {"master-0": (0,), "worker-0": (1, 2), "worker-1": (3, 4)}),
    "from those that are free": ([1, 3, 5, 6, 7, 9], False, {"master-0": (1,), "worker-0": (3, 5), "worker-1": (6, 7)}),
    "too few": ([0, 1, 2, 3], False, None),
    "none": ([], False, None),
    "oversubscribed, and there are enough": (
        [0, 1, 2, 3, 4],
        True,
        {"master-0": (0,), "worker-0": (1, 2), "worker-1": (3, 4)},
    ),
    "oversubscribed: what is absent stays absent": (
        [4, 5],
        True,
        {"master-0": (4,), "worker-0": (5,), "worker-1": ()},
    ),
    "oversubscribed without any": ([], True, {"master-0": (), "worker-0": (), "worker-1": ()}),
}


@pytest.mark.parametrize(("free", "oversubscribe", "expected"), DEVICES.values(), ids=DEVICES)
def test_who_gets_which_device(
    free: list[int], oversubscribe: bool, expected: dict[str, tuple[int, ...]] | None
) -> None:
    before = list(free)
    devices = assign(planned(TWO_EACH), free, oversubscribe=oversubscribe)
    assert devices == expected
    assert free == before, "an argument was changed"
    given = [device for several in (devices or {}).values() for device in several]
    assert len(given) == len(set(given))


def test_without_a_request_there_is_no_device() -> None:
    assert assign(planned("environment: {replicas: {n_workers: 1}}"), [0, 1], oversubscribe=False) == {
        "master-0": (),
        "worker-0": (),
    }


def test_the_large_example_asks_for_what_admission_counts() -> None:
    """Whatever fits by its sum can be assigned: the two count alike."""
    large = plan(read((HERE / "experiments" / "tensorflow-large-newest.yml").read_text()).spec)
    needs = needs_of(large)
    assert len(large.replicas) == 11
    assert needs.gpu == 7
    assert assign(large, range(7), oversubscribe=False) is not None
    assert assign(large, range(6), oversubscribe=False) is None
    assert never_fits(needs, Site(2.0, 1e9, (), "here")).endswith("7 gpu, and this machine has 0")
