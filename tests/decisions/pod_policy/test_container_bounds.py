"""Bounds of a container without a LimitRange and with an empty one."""

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.pod_policy.container_bounds import compute_container_bounds
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.policy import Mode, Policy, RequestBounds
from cruise.domain.resources import Resources, StatedResources

sizes = st.one_of(st.none(), st.integers(0, 1 << 62))
amounts = st.builds(StatedResources, sizes, sizes)


@given(
    st.builds(RequestBounds, amounts, amounts), st.builds(Resources, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
)
def test_an_empty_limit_range_has_no_effect(own, floor):
    effective_policy = EffectivePolicy(Mode.FULL, bounds=own)
    policy = Policy(minimum_request=floor)
    empty = compute_container_bounds(effective_policy, "app", (LimitRangeItem(is_for_pod=False),), policy)
    assert compute_container_bounds(effective_policy, "app", (), policy) == empty
