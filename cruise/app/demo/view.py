"""The demo as the API and its pages see it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from cruise import __version__
from cruise.app.serve.activity import Activity
from cruise.domain.actions import Outcome
from cruise.domain.callers import Intervention
from cruise.domain.cluster import Snapshot, WorkloadRef
from cruise.domain.policy import Policy
from cruise.domain.usage import StatisticsTable
from cruise.interfaces.http.figures import ControllerFigures
from cruise.interfaces.http.metrics import metrics_text
from cruise.interfaces.http.view import Rehearsing
from cruise.runtime.ports import Store
from cruise.runtime.revert import revert_workload
from cruise.runtime.sizing.node_pass import NodePass
from cruise.simulation.cluster.cluster import SimulatedCluster


@dataclass(frozen=True, slots=True)
class DemoView:
    """Implements `interfaces.http.view.ApiView`; its time is the simulation's."""

    cluster: SimulatedCluster
    store: Store
    policy: Policy
    activity: Activity
    rehearsals: Rehearsing | None = None

    def now(self) -> datetime:
        """Return the simulated time."""
        return self.cluster.now

    def figures(self) -> ControllerFigures:
        """Return how the controller is doing."""
        return self.activity.figures(self.policy.mode, True, 0.0)

    def last_pass(self) -> NodePass | None:
        """Return the last node pass."""
        return self.activity.node_pass

    async def snapshot(self) -> Snapshot:
        """Return the cluster as it is now."""
        return await self.cluster.snapshot()

    async def statistics(self) -> StatisticsTable:
        """Return the statistics as of their last refresh."""
        return self.activity.statistics or await self.store.read_statistics()

    async def revert(self, namespace: str, workload: WorkloadRef) -> Sequence[Outcome]:
        """Put one workload back. Raises Unavailable."""
        return await revert_workload(self.cluster, self.store, self.policy, self.now(), namespace, workload)

    async def announce(self, intervention: Intervention) -> None:
        """Tell nobody."""

    def reasons(self) -> Iterable[str]:
        """Return why there is nothing to see yet."""
        return () if self.activity.filled else ("waiting for the statistics",)

    def metrics(self) -> bytes:
        """Return what `/metrics` shows."""
        return metrics_text(__version__, self.now(), controller=self.figures())
