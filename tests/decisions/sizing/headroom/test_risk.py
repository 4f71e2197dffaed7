import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.sizing.headroom.margins import UNKNOWN, Margin
from cruise.decisions.sizing.headroom.outcome import Expectation, largest_sums
from cruise.decisions.sizing.headroom.risk import BASE_SHARE, Risk, forecast_of
from cruise.domain.policy import HeadroomStart, Policy
from cruise.domain.resources import ResourceName
from cruise.runtime.sizing.score_history import ScoreHistory
from tests.decisions.sizing.headroom.demands import CPU, demand_of, past_of, pods, together


def risk_of(past, margin):
    return Risk(past, {one: margin for one in ResourceName})


def test_headroom_is_what_has_risen_and_the_margin_times_the_scale():
    demand = demand_of([100, 100], [300, 100])
    past = past_of([[100.0] * 11 + [150.0], [100.0, 190.0] + [50.0] * 10])
    recent = math.sqrt(50**2 + 90**2)
    scale = math.sqrt(400 * recent) + BASE_SHARE * 200 + 1
    assert together(risk_of(past, Margin(2.0, True)), demand) == math.ceil(50 + 2 * scale)


def test_until_there_is_a_margin_all_headrooms_are_kept():
    demand = demand_of([100, 100], [300, 100])
    past = past_of([[100.0] * 12, [100.0] * 12])
    assert together(risk_of(past, UNKNOWN), demand) == 400
    assert together(risk_of(past, Margin(100.0, False)), demand) > 400
    assert together(risk_of(past, Margin(0.01, True)), demand) < 400


def test_the_largest_single_headroom_stands_in_until_a_week_was_seen():
    demand, past = demand_of([100, 100], [300, 100]), past_of([[100.0] * 12, [100.0] * 12])
    for margin, found in ((UNKNOWN, 300), (Margin(9.0, True), 300), (Margin(0.01, True, settled=True), 1)):
        margins = {one: margin for one in ResourceName}
        assert together(Risk(past, margins, HeadroomStart.SHARED_MAX), demand) == found


def test_each_resource_has_its_own_risk():
    policy = Policy(headroom_risk=1e-2, headroom_cpu_risk=0.1)
    assert [policy.risk_of(one) for one in (ResourceName.CPU, ResourceName.MEMORY)] == [0.1, 1e-2]
    assert Policy(headroom_risk=1e-2, headroom_cpu_risk=None).risk_of(ResourceName.CPU) == 1e-2


def test_who_was_not_sampled_may_spike_by_its_whole_headroom():
    demand = demand_of([100], [300])
    sampled, never = past_of([[100.0] * 11 + [400.0]]), past_of([[np.nan] * 12])
    margin = Margin(1.0, True)
    assert together(risk_of(never, margin), demand) == together(risk_of(sampled, margin), demand) - 300


@given(pods(), st.floats(1e-3, 100), st.floats(1e-3, 100))
def test_it_is_never_below_zero_and_grows_with_the_margin(drawn, one, other):
    demand, past = drawn
    less, more = (together(risk_of(past, Margin(score, True)), demand) for score in sorted((one, other)))
    assert 0 <= less <= more


@given(pods(), st.data())
def test_it_neither_depends_on_the_order_nor_falls_with_another_pod(drawn, data):
    demand, past = drawn
    rows = list(range(len(demand.base)))
    model = risk_of(past, Margin(3.0, True))
    assert together(model, demand, data.draw(st.permutations(rows))) == pytest.approx(together(model, demand), abs=1)
    fewer = rows[1:]
    if fewer:
        assert together(model, demand, fewer) <= together(model, demand)


def test_a_node_scores_by_the_largest_sum_of_its_containers():
    samples = np.array([[1.0, 5.0], [4.0, np.nan], [7.0, 7.0], [np.nan, np.nan]])
    rows, nodes = np.array([0, 1, 2, 3, -1]), np.array([0, 0, 1, 2, 1])
    assert largest_sums(samples, rows, nodes, 4).tolist() == pytest.approx([5.0, 7.0, math.nan, math.nan], nan_ok=True)
    bases = {one: np.array([2, 4, 0, 0]) for one in ResourceName}
    extras = {one: np.zeros((4, 3)) for one in ResourceName}
    expected = Expectation.of(0, rows, nodes, bases, extras)
    assert expected.scores(CPU, samples).tolist() == pytest.approx([3 / 1.1, 3 / 1.2])


def test_nobody_sampled_is_no_score():
    assert np.isnan(largest_sums(np.empty((0, 3)), np.array([-1]), np.array([0]), 1)).all()


@pytest.mark.parametrize("risk", [1e-2, 3e-3])
def test_demand_passes_what_a_node_has_no_more_often_than_asked_though_pods_move(risk):
    """Nodes of twenty pods of all sizes, drawn anew every day; one in a hundred minutes a pod multiplies its use."""
    random = np.random.default_rng(11)
    nodes, containers, days, passes = 12, 120, 16, 60
    size = random.lognormal(5, 1, containers)
    history, short, intervals = ScoreHistory(), 0, 0
    for day in range(days):
        node_of = random.permutation(np.arange(containers) % nodes)
        for _ in range(passes):
            base = (size * random.uniform(0.8, 1.2, containers)).astype(np.int64)
            demand = demand_of(base, (size * 2).astype(np.int64))
            past = past_of(np.repeat((base * random.uniform(1, 1.3, containers))[:, None], 12, axis=1))
            used = size * random.uniform(0.5, 1.2, containers)
            used *= np.where(random.random(containers) < 0.01, random.lognormal(1, 0.5, containers), 1)
            model = Risk(past, history.margins(day * 86400, lambda _: risk))
            extras = np.zeros((nodes, 3))
            np.add.at(extras, node_of, model.extras(CPU, np.arange(containers), demand))
            bases = np.bincount(node_of, weights=base, minlength=nodes).astype(np.int64)
            largest = np.zeros(nodes, dtype=np.int64)
            np.maximum.at(largest, node_of, demand.headroom)
            headroom = model.of_nodes(CPU, bases, largest, extras)
            together_used = np.bincount(node_of, weights=used, minlength=nodes)
            if day >= 8:
                short += int((together_used > bases + headroom).sum())
                intervals += nodes
            history.add(CPU, day * 86400, forecast_of(bases, extras).scores(together_used.astype(np.float64)))
    deviation = math.sqrt(intervals * risk)
    assert 0 < short <= intervals * risk + 4 * deviation
