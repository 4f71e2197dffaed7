import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.sizing.headroom import JointPeakHeadroom
from tests.decisions.sizing.demands import make_demand, make_joint_demand, make_past_demand, pods


def spikes(*at):
    """Return an hour of use of 10, with 110 in some of the twelve parts."""
    return [110.0 if part in at else 10.0 for part in range(12)]


@pytest.mark.parametrize(("other", "headroom"), [(spikes(3), 200), (spikes(8), 100)])
def test_pods_that_peak_together_need_capacity_for_both(other, headroom):
    demand = make_demand([10, 10], [100, 100])
    assert make_joint_demand(JointPeakHeadroom(make_past_demand([spikes(3), other])), demand) == headroom


def test_the_hours_of_other_days_count_too():
    demand = make_demand([10, 10], [300, 400])
    past = make_past_demand([spikes(), spikes()], [[310, 10], [410, 10]])
    assert make_joint_demand(JointPeakHeadroom(past), demand) == 700


def test_a_missing_sample_counts_as_peak_and_a_missing_hour_as_nothing():
    demand = make_demand([10, 10], [100, 50])
    never = [np.nan] * 12
    assert make_joint_demand(JointPeakHeadroom(make_past_demand([spikes(3), never])), demand) == 150
    assert (
        make_joint_demand(JointPeakHeadroom(make_past_demand([spikes(3), spikes()], [[np.nan], [60]])), demand) == 100
    )


@given(pods())
def test_it_is_between_the_largest_single_headroom_and_all_of_them(drawn):
    demand, past = drawn
    found = make_joint_demand(JointPeakHeadroom(past), demand)
    assert demand.headroom.max() <= found <= demand.headroom.sum()


@given(pods(), st.data())
def test_it_neither_depends_on_the_order_nor_falls_with_another_pod(drawn, data):
    demand, past = drawn
    rows = list(range(len(demand.base)))
    model = JointPeakHeadroom(past)
    assert make_joint_demand(model, demand, data.draw(st.permutations(rows))) == make_joint_demand(model, demand)
    fewer = rows[1:]
    if fewer:
        need = demand.base.sum() + make_joint_demand(model, demand)
        assert demand.base[fewer].sum() + make_joint_demand(model, demand, fewer) <= need
