"""What a process knows of the writes of those before it."""

from dataclasses import replace
from datetime import timedelta

from cruise.decisions.eviction.earlier import NOTHING_SEEN, PodWrite
from cruise.domain.actions import OriginalSizes
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.runtime.sizing.stored_writes import with_stored_writes
from cruise.simulation.store.store import MemoryStore
from tests.builders import NOW, TRACKING

POLICY = Policy()


async def test_the_last_resize_of_each_pod_within_a_day_counts_for_both_resources():
    store = MemoryStore()
    ages = {"lately": timedelta(hours=1), "yesterday": timedelta(hours=25)}
    await store.remember_original_sizes([OriginalSizes(uid, "shop", uid, (), NOW - age) for uid, age in ages.items()])
    found = await with_stored_writes(NOTHING_SEEN, store, POLICY, NOW)
    at = NOW - timedelta(hours=1)
    assert found.resized == {("lately", resource): at for resource in ResourceName}
    assert found.writes == (PodWrite("lately", at),)
    assert await with_stored_writes(NOTHING_SEEN, store, replace(POLICY, rules=TRACKING), NOW) == NOTHING_SEEN
