"""The statistics of the database know what resized pods were created with."""

from dataclasses import replace
from datetime import timedelta

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.usage.revisions import update_revisions
from cruise.domain.actions import ContainerTarget, OriginalSizes, ReasonCode, SkippedPod
from cruise.domain.original_resources import NO_REVISIONS
from cruise.domain.policy import Mode, Policy
from cruise.runtime.usage.stored_statistics import read_statistics_for_pods
from cruise.simulation.store import InMemoryStore
from tests.builders import NOW, NOW_SECONDS, make_container, make_pod, make_snapshot, make_statistic_for, make_table

RESIZE = Policy(mode=Mode.RESIZE)


async def test_a_young_pod_that_was_resized_is_no_new_revision():
    young = make_pod("web-1", containers=(make_container(cpu=400),), created_at=NOW - timedelta(minutes=10))
    revisions = update_revisions(NO_REVISIONS, [young], {}, NOW_SECONDS, refresh=True).revisions
    store = InMemoryStore()
    await store.write_statistics(replace(make_table(make_statistic_for(young)), revisions=revisions))
    sizes = ContainerTarget("app", young.containers[0].role, young.containers[0].requests, young.containers[0].limits)
    await store.record_original_sizes([OriginalSizes(young.uid, young.namespace, young.name, (sizes,), NOW)])
    resized = replace(young, containers=(make_container(cpu=30),))

    async def check(pod):
        statistics = await read_statistics_for_pods(store, [pod])
        found = Eligibility(make_snapshot([pod]), statistics, {}, RESIZE, NOW).check(pod)
        return found.reason if isinstance(found, SkippedPod) else None

    assert await check(resized) is None
    # Another pod with these resources is one of another template.
    assert await check(replace(resized, uid="other")) is ReasonCode.NEW_TEMPLATE_REVISION
