"""The level of headroom, and how it meets a stated risk."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.sizing.headroom_level import (
    LEAST_LEVEL,
    MOST_LEVEL,
    REPORTED_DAYS,
    RISK_TARGET_SHARE,
    ObservedRisk,
    RequestsInEffect,
    compute_initial_level,
    compute_next_level,
    get_least_level,
    summarize_observed_risk,
)
from cruise.decisions.sizing.write_tolerances import UNSPENT_SHORTAGE_SHARE
from cruise.domain.policy import SEED_RULES, Policy
from cruise.domain.records import RiskDay
from cruise.domain.resources import ResourceName

CPU = ResourceName.CPU


def in_force(rows, nodes, count, requests):
    requests = np.array(requests, dtype=np.int64)
    rows, nodes = np.array(rows, dtype=np.int64), np.array(nodes, dtype=np.int64)
    return RequestsInEffect(0, rows, nodes, count, {one: requests for one in ResourceName})


def test_a_node_is_short_if_its_containers_together_exceeded_their_requests():
    samples = np.array([[100.0, 300.0], [100.0, 50.0], [100.0, 50.0]])
    found = in_force([0, 1, 2], [0, 0, 1], 2, [200, 149, 100]).flag_short_nodes(CPU, samples)
    assert found.tolist() == [True, False]
    assert in_force([0, 1, 2], [0, 0, 1], 2, [200, 150, 99]).flag_short_nodes(CPU, samples).tolist() == [False, True]


def test_a_container_without_samples_counts_on_neither_side():
    samples = np.array([[100.0], [np.nan]])
    assert in_force([0, 1, -1], [0, 0, 0], 1, [99, 500, 500]).flag_short_nodes(CPU, samples).tolist() == [True]


def test_a_node_without_samples_does_not_count():
    samples = np.array([[100.0], [np.nan]])
    assert in_force([0, 1], [0, 2], 3, [99, 500]).flag_short_nodes(CPU, samples).tolist() == [True]
    assert in_force([], [], 3, []).flag_short_nodes(CPU, np.empty((0, 2))).tolist() == []


def test_the_smaller_the_stated_risk_the_higher_the_initial_level():
    assert compute_initial_level(0.01) == 1.0
    asked = [0.5, 0.07, 0.02, 0.005, 1e-4, 1e-9]
    levels = [compute_initial_level(one) for one in asked]
    assert levels == sorted(levels)
    assert levels[-1] == MOST_LEVEL


def test_only_cpu_with_write_damping_has_levels_below_zero():
    policy = Policy()
    assert get_least_level(CPU, policy) == LEAST_LEVEL < 0
    assert get_least_level(ResourceName.MEMORY, policy) == 0
    assert get_least_level(CPU, replace(policy, rules=SEED_RULES)) == 0


@given(st.sampled_from([LEAST_LEVEL, 0.0]), st.data(), st.lists(st.booleans(), max_size=5), st.floats(1e-4, 0.5))
def test_the_level_is_within_its_bounds_and_moves_in_the_right_direction(least, data, short, asked):
    level = data.draw(st.floats(least, MOST_LEVEL))
    moved = compute_next_level(level, np.array(short, dtype=np.bool_), asked, least)
    assert least <= moved <= MOST_LEVEL
    if not short:
        assert moved == level
    elif sum(short) > RISK_TARGET_SHARE * asked * len(short):
        assert moved >= level
    else:
        assert moved <= level


def _daily(random, hours):
    return 1 + 0.6 * np.sin(hours / 24 * 2 * np.pi) + random.normal(0, 0.1, len(hours))


def _bursts(random, hours):
    return np.where(random.random(len(hours)) < 0.05, random.lognormal(0.7, 0.4, len(hours)), 1.0)


def _drift(random, hours):
    return np.exp(np.cumsum(random.normal(0, 0.02, len(hours))))


def _heavy(random, hours):
    return 1 + random.pareto(2.5, len(hours))


@pytest.mark.parametrize("asked", [0.07, 0.02])
@pytest.mark.parametrize("demand", [_daily, _bursts, _drift, _heavy])
def test_the_stated_risk_is_met_for_any_demand(demand, asked):
    """Requests follow the level late and in steps, as with damping; the level follows the requests in effect."""
    random = np.random.default_rng(7)
    nodes, passes = 6, 288 * 21
    used = np.stack([demand(random, np.arange(passes) / 12) for _ in range(nodes)], axis=1)
    level, requests, short = 1.0, np.full(nodes, 1.0), np.zeros(passes)
    for step in range(12, passes):
        usual, most = np.median(used[step - 12 : step], axis=0), used[max(0, step - 288) : step].max(axis=0)
        wanted = usual + max(level, 0.0) * (most - usual + 0.05 * usual)
        shrinks = (requests > 1.15 * wanted) & (step % 6 == 0)
        grows = wanted * (1 - UNSPENT_SHORTAGE_SHARE * max(-level, 0.0)) > requests
        requests = np.where(grows | shrinks, wanted, requests)
        passed = used[step] > requests
        short[step] = passed.mean()
        level = compute_next_level(level, passed, asked, LEAST_LEVEL)
    settled = short[288 * 7 :].mean()
    assert settled <= asked
    if LEAST_LEVEL < level < MOST_LEVEL:
        assert settled >= asked / 2


@pytest.mark.parametrize(
    ("short", "found"),
    [(0, (True, True)), (34, (True, True)), (35, (True, False)), (70, (True, False)), (71, (False, False))],
)
def test_an_observed_risk_is_compared_with_the_stated_one(short, found):
    kept = ObservedRisk(stated_risk=0.07, level=0.4, intervals=1000, intervals_short=short)
    assert kept.is_known
    assert (kept.is_within_stated_risk, kept.is_far_below_stated_risk) == found


def test_few_intervals_are_not_significant():
    assert not ObservedRisk(stated_risk=0.01, level=0.4, intervals=499, intervals_short=30).is_known
    assert ObservedRisk(stated_risk=0.01, level=0.4, intervals=0, intervals_short=0).observed == 0.0


def test_the_last_days_are_reported():
    one = RiskDay(CPU, 100, intervals=10, short=1, level=0.5)
    days = {day: replace(one, day=day) for day in range(90, 101)}
    found = summarize_observed_risk(days, 100, 0.7, 0.07)
    assert (found.intervals, found.intervals_short, found.level) == (10 * REPORTED_DAYS, REPORTED_DAYS, 0.7)
