"""What a process knows of the resizes of earlier processes."""

from dataclasses import replace
from datetime import timedelta

from cruise.decisions.eviction.ranking import NO_EARLIER_PASSES, CompletedResize
from cruise.domain.actions import OriginalSizes
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.runtime.node_pass import add_stored_resizes
from cruise.simulation.store import InMemoryStore
from tests.builders import NOW, TRACKING

POLICY = Policy()


async def test_the_last_resize_of_each_pod_within_a_day_counts_for_both_resources():
    store = InMemoryStore()
    ages = {"lately": timedelta(hours=1), "yesterday": timedelta(hours=25)}
    await store.record_original_sizes([OriginalSizes(uid, "shop", uid, (), NOW - age) for uid, age in ages.items()])
    found = await add_stored_resizes(NO_EARLIER_PASSES, store, POLICY, NOW)
    at = NOW - timedelta(hours=1)
    assert found.resized == {("lately", resource): at for resource in ResourceName}
    assert found.recent_resizes == (CompletedResize("lately", at),)
    assert await add_stored_resizes(NO_EARLIER_PASSES, store, replace(POLICY, rules=TRACKING), NOW) == NO_EARLIER_PASSES
