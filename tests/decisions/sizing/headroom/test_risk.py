import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.sizing.headroom.risk import USE_SHARE, Risk
from cruise.decisions.sizing.headroom.risk_level import LEAST_LEVEL, MOST_LEVEL, KeptRisk
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from tests.decisions.sizing.headroom.demands import CPU, demand_of, past_of, pods, together

MEMORY = ResourceName.MEMORY
levels = st.floats(LEAST_LEVEL, MOST_LEVEL)


def at(level, past):
    return Risk(past, {one: KeptRisk(0.07, level, 0, 0) for one in ResourceName})


def test_headroom_goes_from_the_bases_to_the_last_hour_and_its_multiple_of_the_rises():
    demand = demand_of([100, 100], [300, 100])
    # The upper quartiles are 130 and 100, the maxima 150 and 190.
    past = past_of([[100.0] * 8 + [130.0] * 3 + [150.0], [100.0] * 11 + [190.0]])
    spare = USE_SHARE * 230
    assert together(at(0.0, past), demand) == 30
    assert together(at(0.5, past), demand) == math.ceil(30 + 0.5 * (20 + 90) + 0.5 * spare)
    assert together(at(1.0, past), demand) == math.ceil(30 + 20 + 90 + spare)


def test_the_same_hours_of_other_days_raise_it_before_demand_does():
    demand, recent = demand_of([100], [900]), [[100.0] * 12]
    quiet = together(at(1.0, past_of(recent, [[100.0] * 7])), demand)
    busy = together(at(1.0, past_of(recent, [[100.0, 100.0, 600.0, 600.0, 600.0, 600.0, 900.0]])), demand)
    assert (quiet, busy) == (5, 505)


def test_memory_is_expected_to_stay_where_it_is():
    demand, past = demand_of([100], [300]), past_of([[100.0] * 11 + [200.0]])
    model = at(0.0, past)
    assert model.extras(CPU, np.array([0]), demand)[0, 0] == 0
    assert model.extras(MEMORY, np.array([0]), demand)[0, 0] == 100


def test_it_ends_at_the_peaks_but_for_a_share_of_what_is_used():
    demand, past = demand_of([100], [100]), past_of([[100.0] * 11 + [200.0]])
    assert together(at(MOST_LEVEL, past), demand) == 100 + MOST_LEVEL * USE_SHARE * 100


def test_a_container_without_samples_is_expected_between_base_and_peak():
    demand, never = demand_of([100], [300]), past_of([[np.nan] * 12])
    assert together(at(0.0, never), demand) == 0
    assert together(at(1.0, never), demand) == 300 + USE_SHARE * 100


def test_a_factor_of_the_headroom_is_one_of_the_rise():
    past = past_of([[100.0] * 11 + [300.0]])
    plain, none = demand_of([100], [200]), demand_of([100], [0])
    without = type(plain)(**{name: getattr(plain, name) for name in plain.__slots__} | {"headroom": none.headroom})
    assert at(1.0, past).extras(CPU, np.array([0]), plain)[0].tolist() == [0, 200, 200]
    assert at(1.0, past).extras(CPU, np.array([0]), without)[0].tolist() == [0, 0, 0]


def test_each_resource_has_its_own_risk():
    policy = Policy(cpu_risk=0.1, memory_risk=1e-2)
    assert [policy.risk_of(one) for one in (ResourceName.CPU, ResourceName.MEMORY)] == [0.1, 1e-2]


@given(pods(), levels, levels)
def test_it_is_never_below_zero_and_grows_with_the_level(drawn, one, other):
    demand, past = drawn
    less, more = (together(at(level, past), demand) for level in sorted((one, other)))
    assert 0 <= less <= more


@given(pods(), st.data())
def test_it_does_not_depend_on_the_order(drawn, data):
    demand, past = drawn
    rows = list(range(len(demand.base)))
    model = at(1.3, past)
    assert together(model, demand, data.draw(st.permutations(rows))) == pytest.approx(together(model, demand), abs=1)
