"""The average price of a core-hour and a GiB-hour of a cluster's nodes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.prices import estimate_prices
from cruise.domain.annotations import INSTANCE_TYPE, SPOT_NODE_LABELS
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


def test_with_stated_prices_of_zero_the_nodes_prices_count():
    nodes = [make_node(Resources(4000, 16 << 30)), make_node(Resources(4000, 16 << 30), "own")]
    free = ResourcePrices(0, 0)
    found = estimate_prices(nodes, PriceSettings(free, {"small": 1.0}))
    assert found is not None
    assert found.compute_hourly_cost(Resources(8000, 32 << 30)) == pytest.approx(1.0)
    assert estimate_prices(nodes, PriceSettings(free)) == free


@pytest.mark.parametrize(("label", "value"), SPOT_NODE_LABELS.items())
def test_a_spot_node_has_the_price_of_its_type_on_spot_if_one_is_stated(label: str, value: str):
    size = Resources(4000, 16 << 30)
    usual, spot = make_node(size), replace(make_node(size), labels={INSTANCE_TYPE: "small", label: value})
    for nodes, paid in (([usual], 0.2), ([spot], 0.07), ([usual, spot], 0.27)):
        found = estimate_prices(nodes, PriceSettings(nodes={"small": 0.2, "small/spot": 0.07}))
        assert found is not None
        assert found.compute_hourly_cost(sum((node.allocatable for node in nodes), Resources())) == pytest.approx(paid)
    other = replace(spot, labels={**spot.labels, label: "on-demand"})
    for node in (spot, other):
        assert estimate_prices([node], PriceSettings(nodes={"small": 0.2})) == estimate_prices(
            [usual], PriceSettings(nodes={"small": 0.2})
        )


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "google.com/tpu"])
@pytest.mark.parametrize("stated", [None, STATED])
def test_the_price_of_an_accelerator_is_no_price_of_cores(resource, stated):
    plain = make_node(Resources(4000, 16 << 30))
    other = replace(make_node(Resources(8000, 64 << 30), "huge"), allocatable_extended={resource: 1})
    settings = PriceSettings(stated, {"small": 0.2, "huge": 30.0})
    found = estimate_prices([plain, other], settings)
    assert found is not None
    if stated is None:
        assert found == estimate_prices([plain], settings)
    else:
        paid = 0.2 + stated.compute_hourly_cost(other.allocatable)
        assert found.compute_hourly_cost(plain.allocatable + other.allocatable) == pytest.approx(paid)
