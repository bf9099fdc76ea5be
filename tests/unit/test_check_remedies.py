"""What `shoal cluster check` says to do, by the words in which a cluster refuses a pod."""

from __future__ import annotations

import pytest

from shoal.backends.kubernetes.checking import _remedy_for_none
from shoal.backends.kubernetes.settings import Settings

REFUSALS = {
    'error looking up service account team-a/trainer: serviceaccount "trainer" not found': (
        "kubectl create serviceaccount trainer -n team-a, or name another"
    ),
    "exceeded quota: small, requested: pods=1, used: pods=4, limited: pods=4": (
        "kubectl describe quota -n team-a tells what is left"
    ),
    'violates PodSecurity "restricted:latest": runAsNonRoot != true': (
        "security_context and pod_security_context in the settings can say what that policy asks for"
    ),
    'admission webhook "policy.example" denied the request': (
        "a policy of the namespace? kubectl get events -n team-a tells more"
    ),
}


@pytest.mark.parametrize(("why", "hint"), REFUSALS.items())
def test_a_pod_that_is_not_made_has_its_remedy(why: str, hint: str) -> None:
    settings = Settings("lab", namespace="team-a", service_account="trainer")
    assert _remedy_for_none(f'pods "shoal-probe-1-" is forbidden: {why}', settings) == hint


def test_an_account_that_is_not_named_is_the_default_one() -> None:
    hint = _remedy_for_none('serviceaccount "default" not found', Settings("lab", namespace="team-a"))
    assert hint == "kubectl create serviceaccount default -n team-a, or name another"
