"""The cluster's sums on their way into the store, once an hour."""

import asyncio

from cruise.app.serve.activity import Activity
from cruise.decisions.scan.savings import sum_savings
from cruise.domain.cluster_hours import ClusterHour, hour_of
from cruise.runtime.ports import Store
from cruise.runtime.revert import known_sizes


class HourlySums:
    """What of the passes is kept as history: of each clock hour the first that knew what is used."""

    def __init__(self) -> None:
        self._kept = -1

    async def keep(self, store: Store, activity: Activity) -> None:
        """Store the last pass's sums, if those of its hour are not. Raises Unavailable."""
        done, moment = activity.node_pass, activity.history[-1] if activity.history else None
        if done is None or moment is None or moment.used is None or moment.at != done.at:
            return
        hour = hour_of(done.at)
        if hour == self._kept:
            return
        stored, keys = await store.original_sizes(), await store.signing_keys()
        # All pods of a large cluster take a second, for which nothing else should wait.
        savings = await asyncio.to_thread(lambda: sum_savings(done.snapshot, known_sizes(done.snapshot, stored, keys)))
        await store.record_cluster_hour(
            ClusterHour(hour, moment.allocatable, moment.requested, moment.used, savings.saved)
        )
        self._kept = hour
