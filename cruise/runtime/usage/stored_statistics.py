"""The statistics of the database, for a process that runs no usage pass."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from cruise.decisions.usage.revisions import OriginalResources, add_resized_pods
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Pod
from cruise.domain.usage import StatisticsTable
from cruise.runtime.ports import StorePort


async def read_statistics_for_pods(store: StorePort, pods: Sequence[Pod]) -> StatisticsTable:
    """Return the statistics of the database, which know the template revisions of the pods. Raises UnavailableError.

    A pod that was resized, and that the webhook did not create, does not show what it was created with.
    """
    statistics = await store.read_statistics()
    if statistics.revisions is None:
        return statistics
    originals = await read_original_resources(store, _list_unrecorded(pods))
    return replace(statistics, revisions=add_resized_pods(statistics.revisions, pods, originals))


async def read_original_resources(store: StorePort, uids: Collection[str] | None) -> OriginalResources:
    """Return what resized pods were created with, of all pods or of some."""
    stored = await store.read_original_sizes(uids)
    return {
        uid: {target.container: (target.requests, target.limits) for target in one.containers}
        for uid, one in stored.items()
    }


def _list_unrecorded(pods: Iterable[Pod]) -> list[str]:
    return [pod.uid for pod in pods if pod.workload is not None and ORIGINAL_RESOURCES not in pod.annotations]
