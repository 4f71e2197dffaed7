"""Admission for a simulated cluster, called within the process instead of through the webhook."""

from collections.abc import Callable
from datetime import datetime

from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Policy
from cruise.domain.usage import StatisticsTable
from cruise.runtime.admission.admission import Admitter
from cruise.runtime.ports import Cluster, Store


class SimulatedAdmission:
    """Sizes pods that are created, from snapshot, statistics and overrides as of the last statistics refresh."""

    def __init__(self, cluster: Cluster, store: Store, policy: Policy, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._store = store
        self._policy = policy
        self._clock = clock
        self._known: tuple[Snapshot, StatisticsTable, StoredOverrides] | None = None

    async def learn(self, statistics: StatisticsTable) -> None:
        """Decide from these statistics from now on."""
        self._known = (await self._cluster.snapshot(), statistics, await self._store.overrides())

    def admit(self, pod: Pod) -> Pod:
        """Return a pod as admission lets it be created; unchanged while nothing is known."""
        if self._known is None:
            return pod
        created, _ = Admitter(*self._known, self._policy, self._clock()).admit(pod)
        return created
