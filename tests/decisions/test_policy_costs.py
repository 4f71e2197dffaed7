"""The cost of a policy, and how its order depends on prices."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.policy_costs import (
    RankChange,
    compute_policy_cost,
    find_rank_changes_at_varied_prices,
    rank_by_cost,
)
from cruise.domain.backtest import ObjectivePrices, ResourceScore
from tests.backtest_results import make_score

PRICES = ObjectivePrices(
    core_hour=0.03, gibibyte_hour=0.004, starved_minute=0.01, oom_kill=1.0, eviction=0.05, resize=0.0002
)


def score(cores: float = 0.0, gibibytes: float = 0.0, starved: float = 0.0, **others):
    figures = {"oom": 0.0, "resizes": 0.0, "evictions": 0.0, "moves": 0.0, **others}
    return replace(
        make_score(**figures),
        cpu=ResourceScore(0.5, starved, 0.0, cores * 1000),
        memory=ResourceScore(0.5, 0.0, 0.0, gibibytes * (1 << 30)),
    )


def test_each_cause_costs_its_price():
    cost = compute_policy_cost(score(0.5, 2.0, 0.001, oom=3.0, evictions=12.0, moves=2.0, resizes=4.0), PRICES)
    assert cost.cpu_slack == pytest.approx(0.5 * 24 * 1000 * 0.03)
    assert cost.memory_slack == pytest.approx(2 * 24 * 1000 * 0.004)
    assert cost.starvation == pytest.approx(1440 * 0.01)
    assert cost.oom_kills == pytest.approx(3)
    assert cost.evictions == pytest.approx(10 * 0.05), "consolidation's moves are not the policy's"
    assert cost.resizes == pytest.approx(4000 * 0.0002)
    assert cost.total == pytest.approx(sum(cost.by_cause.values()))


def test_memory_that_was_not_recorded_costs_nothing():
    cost = compute_policy_cost(replace(score(0.5, 2.0, oom=3.0), memory=None), PRICES)
    assert (cost.memory_slack, cost.oom_kills) == (0, 0)


def test_policies_are_ranked_by_cost_without_those_that_know_the_future():
    policies = {"vpa": score(0.5), "cruise": score(0.2), "oracle": score(0.0), "clairvoyant": score(0.1)}
    assert rank_by_cost(policies, PRICES) == ["cruise", "vpa"]


def test_a_price_that_changes_the_ranking_is_reported_with_the_pair():
    # A tenth of a core costs 72 for 1,000 container-days, ten kills more cost 10.
    policies = {"careful": score(0.02), "bold": score(0.0, oom=10.0)}
    assert rank_by_cost(policies, PRICES) == ["bold", "careful"]
    assert find_rank_changes_at_varied_prices(policies, PRICES) == [
        RankChange("core_hour", 1 / 3, [("careful", "bold")]),
        RankChange("oom_kill", 3.0, [("careful", "bold")]),
    ]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 50)), min_size=2, max_size=5))
def test_a_policy_that_is_better_in_everything_is_never_ranked_lower(rows: list[tuple[float, float]]):
    policies = {f"p{at}": score(cores, oom=kills) for at, (cores, kills) in enumerate(rows)}
    for change in find_rank_changes_at_varied_prices(policies, PRICES):
        for cheaper, dearer in change.swaps:
            one, other = policies[cheaper], policies[dearer]
            assert one.cpu.mean_slack < other.cpu.mean_slack or one.oom_per_1000_container_days < (
                other.oom_per_1000_container_days
            )


def test_the_defaults_are_the_settings():
    from cruise.settings.settings import Settings

    settings, prices = Settings(), ObjectivePrices()
    assert (
        settings.price_starved_minute,
        settings.price_oom_kill,
        settings.price_eviction,
        settings.price_resize,
    ) == (prices.starved_minute, prices.oom_kill, prices.eviction, prices.resize)
