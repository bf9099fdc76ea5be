from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.frameworks import FRAMEWORKS, PS
from shoal.plan import plan, preview
from shoal.spec.types import Spec


@given(st.sampled_from(list(FRAMEWORKS)), st.integers(0, 40), st.integers(0, 10), st.booleans(), st.integers(1, 8))
def test_ranks_have_no_gaps_and_roles_keep_their_order(
    framework: str, workers: int, ps: int, master: bool, trainers: int
) -> None:
    replicas = {"n_workers": workers, "n_ps": ps, "master": master or workers == 0, "n_trainers": trainers}
    spec = Spec.model_validate({"framework": framework, "run": {"cmd": "x"}, "environment": {"replicas": replicas}})
    planned = plan(spec)
    assert [replica.rank for replica in planned.replicas] == list(range(len(planned.replicas)))
    assert len({replica.name for replica in planned.replicas}) == len(planned.replicas)
    roles = [replica.role for replica in planned.replicas]
    assert roles == sorted(roles, key=["master", "worker", PS].index)
    assert any(replica.decides for replica in planned.replicas)
    last = planned.replicas[-1]
    if last.role in FRAMEWORKS[framework].ROLES:
        assert preview(planned, last)["SHOAL_REPLICA"] == last.name
