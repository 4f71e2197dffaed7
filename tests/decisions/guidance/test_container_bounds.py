"""Bounds of a container: what holds where no LimitRange is holds as well where one says nothing."""

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.guidance.container_bounds import container_bounds
from cruise.domain.annotations import Guidance
from cruise.domain.cluster import LimitRangeItem
from cruise.domain.policy import Bounds, Mode, Policy
from cruise.domain.resources import Amounts, Resources

sizes = st.one_of(st.none(), st.integers(0, 1 << 62))
amounts = st.builds(Amounts, sizes, sizes)


@given(st.builds(Bounds, amounts, amounts), st.builds(Resources, st.integers(0, 1 << 40), st.integers(0, 1 << 40)))
def test_a_limit_range_that_says_nothing_is_none(own, floor):
    guidance = Guidance(Mode.FULL, bounds=own)
    policy = Policy(floor=floor)
    silent = container_bounds(guidance, "app", (LimitRangeItem(of_pod=False),), policy)
    assert container_bounds(guidance, "app", (), policy) == silent
