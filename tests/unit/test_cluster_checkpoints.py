"""Checkpoints of pods: which of them the next pod finds, and what is said of the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from shoal.backends.kubernetes.backend import KubernetesBackend
from shoal.backends.kubernetes.pods import WORK
from shoal.backends.kubernetes.settings import settings

CLAIM = {"outputs_claim": "outputs"}
IN_CLAIM = "/shoal/claim/e00001/step-3"
HERE = "claim outputs of namespace default on lab"
CASES = {
    "in a claim that the server does not see": (CLAIM, IN_CLAIM, f"e00001/ in {HERE}", ""),
    "in a claim, of a server that saw it": (CLAIM, IN_CLAIM, "", ""),
    "in another claim": (
        CLAIM,
        IN_CLAIM,
        "e00001/ in claim old of namespace default on lab",
        f"{IN_CLAIM} is in claim old of namespace default on lab, and pods now have {HERE}",
    ),
    "in a claim that is configured no more": (
        {},
        IN_CLAIM,
        f"e00001/ in {HERE}",
        f"{IN_CLAIM} is in {HERE}, and pods now have no outputs_claim on lab",
    ),
    "beside the claim": (
        CLAIM,
        "/tmp/step-3",
        "",
        "/tmp/step-3 did not outlive its pod: it was not in a claim",
    ),
    "in its pod": (
        {},
        f"{WORK}/try-0/outputs/step-3",
        "",
        f"{WORK}/try-0/outputs/step-3 did not outlive its pod: it was not in a claim",
    ),
}


def backend(home: Path, more: Mapping[str, str]) -> KubernetesBackend:
    return KubernetesBackend(home, settings("lab", {"namespace": "default", **more}, home / "config.toml"), archive="")


def experiment(home: Path, word: str) -> Path:
    place = home / "experiments" / word
    place.mkdir(parents=True)
    return place


@pytest.mark.parametrize("case", CASES)
def test_only_what_lies_in_the_claim_is_there_for_the_next_pod(tmp_path: Path, case: str) -> None:
    more, path, where, said = CASES[case]
    if where:
        (experiment(tmp_path, "e00001") / "elsewhere.json").write_text(json.dumps({"where": where}))
    assert backend(tmp_path, more).lacks(path, "e00001") == said


def test_where_the_server_sees_the_claim_it_looks(tmp_path: Path) -> None:
    seen = backend(tmp_path, {**CLAIM, "outputs_path": str(tmp_path / "disk")})
    assert seen.lacks(IN_CLAIM, "e00001") == f"{IN_CLAIM} is not in {HERE}"
    (tmp_path / "disk" / "e00001").mkdir(parents=True)
    (tmp_path / "disk" / "e00001" / "step-3").touch()
    assert seen.lacks(IN_CLAIM, "e00001") == ""


def test_what_goes_on_where_another_ended_begins_there(tmp_path: Path) -> None:
    """Where it was marked was looked at when it was asked for."""
    place = experiment(tmp_path, "e00002")
    given = {"step": 3, "paths": {"worker-0": IN_CLAIM}, "otherwise": IN_CLAIM}
    (place / "resume.json").write_text(json.dumps(given))
    made = backend(tmp_path, CLAIM)
    assert made.resume_from(str(place / "attempt-0"), "worker-0") == IN_CLAIM
    assert made.resume_from(str(place / "attempt-1"), "worker-1") == IN_CLAIM
