"""What a process knows of the resizes of earlier processes."""

from dataclasses import replace
from datetime import timedelta

from cruise.decisions.eviction.ranking import NO_EARLIER_PASSES, CompletedResize
from cruise.domain.actions import OriginalSizes
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.runtime.node_pass import add_stored_resizes
from cruise.simulation.store import InMemoryStore
from tests.builders import NOW, TRACKING, make_pod

POLICY = Policy()
PRESENT = [replace(make_pod(name), uid=name) for name in ("lately", "yesterday", "never")]
HOUR = timedelta(hours=1)


async def store_resizes(**ages: timedelta) -> InMemoryStore:
    store = InMemoryStore()
    await store.record_original_sizes([OriginalSizes(uid, "shop", uid, (), NOW - age) for uid, age in ages.items()])
    return store


async def test_the_last_resize_of_each_pod_within_a_day_counts_for_both_resources():
    store = await store_resizes(lately=HOUR, yesterday=25 * HOUR)
    found = await add_stored_resizes(NO_EARLIER_PASSES, store, PRESENT, POLICY, NOW)
    at = NOW - HOUR
    assert found.resized == {("lately", resource): at for resource in ResourceName}
    assert found.recent_resizes == (CompletedResize("lately", at),)
    tracking = replace(POLICY, rules=TRACKING)
    assert await add_stored_resizes(NO_EARLIER_PASSES, store, PRESENT, tracking, NOW) == NO_EARLIER_PASSES


async def test_pods_that_are_gone_count_as_writes_by_minute_and_nothing_else_of_them_is_kept():
    gone = {f"gone-{number}": 2 * HOUR + timedelta(milliseconds=number) for number in range(5000)}
    store = await store_resizes(lately=HOUR, **gone)
    found = await add_stored_resizes(NO_EARLIER_PASSES, store, PRESENT, POLICY, NOW)
    assert {uid for uid, _ in found.resized} == {"lately"}
    assert sum(write.number for write in found.recent_resizes) == 5001
    assert len(found.recent_resizes) <= 3
