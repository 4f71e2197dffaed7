"""Admission for a simulated cluster, called within the process instead of through the webhook."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from cruise.decisions.admission.admission import Leave, Mutate
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Policy
from cruise.domain.usage import StatisticsTable
from cruise.runtime.admission.admission import admit_pod
from cruise.runtime.ports import Cluster, Store


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What admission decides from, as of the last statistics refresh."""

    snapshot: Snapshot
    statistics: StatisticsTable
    stored: StoredOverrides


class SimulatedAdmission:
    """Sizes pods that are created, from the last statistics."""

    def __init__(self, cluster: Cluster, store: Store, policy: Policy, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._store = store
        self._policy = policy
        self._clock = clock
        self._around: _Surroundings | None = None

    async def learn(self, statistics: StatisticsTable) -> None:
        """Decide from these statistics from now on."""
        self._around = _Surroundings(await self._cluster.snapshot(), statistics, await self._store.overrides())

    def admit(self, pod: Pod) -> Pod:
        """Return a pod as admission lets it be created; unchanged while nothing is known."""
        around = self._around
        if around is None:
            return pod
        admitted, decision = admit_pod(
            pod, around.snapshot, around.statistics, around.stored, self._policy, self._clock()
        )
        match decision:
            case Mutate():
                return admitted
            case Leave():
                return pod
