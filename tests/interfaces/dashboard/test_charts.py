"""The cards at the top of a page say what their figures mean."""

import pytest

from cruise.domain.prices import ResourcePrices
from cruise.interfaces.dashboard.charts import build_reclaimable_card
from tests.builders import make_resources

PRICES = ResourcePrices(cpu_core_hour=0.03, memory_gib_hour=0.004)
REQUESTED = make_resources(4000, 8192)


@pytest.mark.parametrize("prices", [None, PRICES])
def test_a_reclaimable_amount_below_zero_says_that_requests_will_grow(prices):
    grows = build_reclaimable_card(make_resources(-500, -1024), REQUESTED, prices, "workloads")
    assert grows.note.startswith("below zero: requests will grow by so much; ")
    assert grows.figures[0].value.startswith("−")
    shrinks = build_reclaimable_card(make_resources(500, 1024), REQUESTED, prices, "workloads")
    assert "grow" not in shrinks.note


def test_one_resource_below_zero_is_explained_where_its_sign_shows():
    amount = make_resources(2000, -64)
    assert "will grow" in build_reclaimable_card(amount, REQUESTED, None, "workloads").note
    assert "will grow" not in build_reclaimable_card(amount, REQUESTED, PRICES, "workloads").note
