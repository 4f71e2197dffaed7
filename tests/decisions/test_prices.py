"""The average price of a core-hour and a GiB-hour of a cluster's nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.prices import estimate_prices
from cruise.domain.annotations import INSTANCE_TYPE
from cruise.domain.cluster import Node
from cruise.domain.prices import HOURS_A_MONTH, LIST_PRICES, PriceSettings, ResourcePrices
from cruise.domain.resources import Resources

STATED = ResourcePrices(0.03, 0.004)
prices = st.floats(0.001, 100)
sizes = st.builds(Resources, st.integers(100, 200_000), st.integers(1 << 28, 1 << 40))
types = st.sampled_from(["small", "large", "huge"])


def make_node(size: Resources, instance_type: str = "small") -> Node:
    return Node("n", size, labels={INSTANCE_TYPE: instance_type})


@given(st.lists(st.builds(make_node, sizes, types), min_size=1), st.dictionaries(types, prices), st.booleans())
def test_all_that_can_be_requested_costs_what_the_nodes_cost(nodes, by_type, is_stated):
    found = estimate_prices(nodes, PriceSettings(STATED if is_stated else None, by_type))
    priced = [node for node in nodes if is_stated or node.labels[INSTANCE_TYPE] in by_type]
    if not priced:
        assert found is None
        return
    assert found is not None
    paid = sum(by_type.get(node.labels[INSTANCE_TYPE], STATED.compute_hourly_cost(node.allocatable)) for node in priced)
    everything = sum((node.allocatable for node in priced), Resources())
    assert found.compute_hourly_cost(everything) == pytest.approx(paid)
    ratio = STATED if is_stated else LIST_PRICES
    assert found.cpu_core_hour / found.memory_gib_hour == pytest.approx(ratio.cpu_core_hour / ratio.memory_gib_hour)


def test_without_prices_nothing_is_known_and_without_node_prices_the_stated_ones_hold():
    nodes = [make_node(Resources(4000, 16 << 30))]
    assert estimate_prices(nodes, PriceSettings()) is None
    assert estimate_prices(nodes, PriceSettings(nodes={"other": 1.0})) is None
    assert estimate_prices(nodes, PriceSettings(STATED)) == STATED
    assert estimate_prices([], PriceSettings(STATED, {"small": 1.0})) == STATED


def test_a_month_of_a_core_and_a_gibibyte():
    month = STATED.compute_monthly_cost(Resources(1000, 1 << 30))
    assert month == pytest.approx(0.034 * HOURS_A_MONTH)
