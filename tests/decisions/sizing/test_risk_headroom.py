import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.sizing.headroom import USAGE_SHARE, RiskHeadroom
from cruise.decisions.sizing.headroom_level import LEAST_LEVEL, MOST_LEVEL, ObservedRisk
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from tests.decisions.sizing.demands import CPU, make_demand, make_joint_demand, make_past_demand, pods

MEMORY = ResourceName.MEMORY
levels = st.floats(LEAST_LEVEL, MOST_LEVEL)


def at(level, past):
    return RiskHeadroom(past, {one: ObservedRisk(0.07, level, 0, 0) for one in ResourceName})


def test_headroom_covers_the_last_hour_and_a_multiple_of_the_rises():
    demand = make_demand([100, 100], [300, 100])
    # The upper quartiles are 130 and 100, the maxima 150 and 190.
    past = make_past_demand([[100.0] * 8 + [130.0] * 3 + [150.0], [100.0] * 11 + [190.0]])
    spare = USAGE_SHARE * 230
    assert make_joint_demand(at(0.0, past), demand) == 30
    assert make_joint_demand(at(0.5, past), demand) == math.ceil(30 + 0.5 * (20 + 90) + 0.5 * spare)
    assert make_joint_demand(at(1.0, past), demand) == math.ceil(30 + 20 + 90 + spare)


def test_the_same_hours_of_other_days_raise_it_before_demand_does():
    demand, recent = make_demand([100], [900]), [[100.0] * 12]
    quiet = make_joint_demand(at(1.0, make_past_demand(recent, [[100.0] * 7])), demand)
    busy = make_joint_demand(
        at(1.0, make_past_demand(recent, [[100.0, 100.0, 600.0, 600.0, 600.0, 600.0, 900.0]])), demand
    )
    assert (quiet, busy) == (5, 505)


def test_memory_is_expected_to_stay_where_it_is():
    demand, past = make_demand([100], [300]), make_past_demand([[100.0] * 11 + [200.0]])
    model = at(0.0, past)
    assert model.get_columns_to_sum(CPU, np.array([0]), demand)[0, 0] == 0
    assert model.get_columns_to_sum(MEMORY, np.array([0]), demand)[0, 0] == 100


def test_it_is_at_most_the_peaks_plus_a_share_of_usage():
    demand, past = make_demand([100], [100]), make_past_demand([[100.0] * 11 + [200.0]])
    assert make_joint_demand(at(MOST_LEVEL, past), demand) == 100 + MOST_LEVEL * USAGE_SHARE * 100


def test_a_container_without_samples_is_expected_between_base_and_peak():
    demand, never = make_demand([100], [300]), make_past_demand([[np.nan] * 12])
    assert make_joint_demand(at(0.0, never), demand) == 0
    assert make_joint_demand(at(1.0, never), demand) == 300 + USAGE_SHARE * 100


def test_the_headroom_factor_multiplies_the_rise():
    past = make_past_demand([[100.0] * 11 + [300.0]])
    plain, none = make_demand([100], [200]), make_demand([100], [0])
    without = type(plain)(**{name: getattr(plain, name) for name in plain.__slots__} | {"headroom": none.headroom})
    assert at(1.0, past).get_columns_to_sum(CPU, np.array([0]), plain)[0].tolist() == [0, 200, 200]
    assert at(1.0, past).get_columns_to_sum(CPU, np.array([0]), without)[0].tolist() == [0, 0, 0]


def test_each_resource_has_its_own_risk():
    policy = Policy(cpu_risk=0.1, memory_risk=1e-2)
    assert [policy.get_risk(one) for one in (ResourceName.CPU, ResourceName.MEMORY)] == [0.1, 1e-2]


@given(pods(), levels, levels)
def test_it_is_never_negative_and_increases_with_the_level(drawn, one, other):
    demand, past = drawn
    less, more = (make_joint_demand(at(level, past), demand) for level in sorted((one, other)))
    assert 0 <= less <= more


@given(pods(), st.data())
def test_it_does_not_depend_on_the_order(drawn, data):
    demand, past = drawn
    rows = list(range(len(demand.base)))
    model = at(1.3, past)
    assert make_joint_demand(model, demand, data.draw(st.permutations(rows))) == pytest.approx(
        make_joint_demand(model, demand), abs=1
    )
