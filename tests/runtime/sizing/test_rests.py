"""Until when pods rest that an earlier process resized."""

from dataclasses import replace
from datetime import timedelta

from cruise.domain.actions import OriginalSizes
from cruise.domain.policy import Policy
from cruise.runtime.sizing.rests import resting
from cruise.simulation.store.store import MemoryStore
from tests.builders import NOW, TRACKING

POLICY = Policy()


async def test_pods_that_were_resized_within_a_day_rest_until_it_is_over():
    store = MemoryStore()
    ages = {"lately": timedelta(hours=1), "yesterday": timedelta(hours=25)}
    await store.remember_original_sizes([OriginalSizes(uid, "shop", uid, (), NOW - age) for uid, age in ages.items()])
    assert await resting(store, POLICY, NOW) == {"lately": NOW + timedelta(hours=23)}
    assert await resting(store, replace(POLICY, rules=TRACKING), NOW) == {}
