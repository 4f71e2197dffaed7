"""Runs node passes over a random cluster through the ports, and records their calls."""

from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED
from cruise.decisions.usage.revisions import update_revisions
from cruise.domain.actions import Action, EvictPod, ResizePod
from cruise.domain.cluster import ClusterSnapshot, HorizontalPodAutoscaler, OomKill, Pod
from cruise.domain.original_resources import NO_REVISIONS
from cruise.domain.policy import Mode
from cruise.domain.usage import StatisticsTable
from cruise.errors import CruiseError
from cruise.runtime.admission import PodAdmitter
from cruise.runtime.node_pass import NodePassResult, run_node_pass
from cruise.runtime.ports import PassContext
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.evictions import PendingGrowths
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from tests.laws.random_clusters import START, DrawnCluster, build_statistics, build_table_at

T = TypeVar("T")
STEP_SECONDS = 60
PASS_SECONDS = 300
SETTLED_SECONDS = 120


@dataclass(frozen=True, slots=True)
class ObservedWrite:
    """An action that was sent, and the error that rejected it."""

    action: Action
    refusal: CruiseError | None


@dataclass(frozen=True, slots=True)
class ObservedCreation:
    """A pod as its controller created it, and after admission."""

    created: Pod
    admitted: Pod
    admitted_again: Pod


@dataclass(slots=True)
class ObservedPass:
    """One pass: its decisions, writes, the pods created until the next pass, and the cluster then and `meanwhile`."""

    result: NodePassResult
    table: StatisticsTable
    writes: Sequence[ObservedWrite]
    creations: Sequence[ObservedCreation] = ()
    after: ClusterSnapshot = field(default_factory=ClusterSnapshot)
    meanwhile: Sequence[ClusterSnapshot] = ()

    @property
    def before(self) -> ClusterSnapshot:
        """The cluster that the pass read."""
        return self.result.snapshot

    def evicted(self) -> list[EvictPod]:
        """Return the successful evictions."""
        return [one.action for one in self.writes if isinstance(one.action, EvictPod) and one.refusal is None]

    def resized(self) -> list[ResizePod]:
        """Return the successful resizes."""
        return [one.action for one in self.writes if isinstance(one.action, ResizePod) and one.refusal is None]


class PassRecorder:
    """A Cluster port over a simulated cluster that records all writes."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.writes: list[ObservedWrite] = []

    async def snapshot(self) -> ClusterSnapshot:
        return await self.cluster.snapshot()

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        return await self.cluster.read_pod(namespace, name)

    def get_cached_pod(self, namespace: str, name: str) -> Pod | None:
        return self.cluster.get_cached_pod(namespace, name)

    def get_cached_autoscalers(self) -> tuple[HorizontalPodAutoscaler, ...]:
        return self.cluster.get_cached_autoscalers()

    def watch_oom_kills(self) -> AsyncIterator[OomKill]:
        return self.cluster.watch_oom_kills()

    async def wait_for_write_turn(self) -> None:
        await self.cluster.wait_for_write_turn()

    async def perform(self, action: Action) -> None:
        try:
            await self.cluster.perform(action)
        except CruiseError as refusal:
            self.writes.append(ObservedWrite(action, refusal))
            raise
        self.writes.append(ObservedWrite(action, None))


class ObservedRun:
    """A random cluster with cruise in mode full and its webhook."""

    def __init__(self, drawn: DrawnCluster, seed: int) -> None:
        self.drawn = drawn
        self.cluster = cluster = SimulatedCluster(
            drawn.nodes,
            [one.workload for one in drawn.workloads],
            START,
            SimulationSettings(seed=seed, step_seconds=STEP_SECONDS, retention_seconds=STEP_SECONDS),
            admit=self._admit,
            budgets=drawn.budgets,
            autoscalers=drawn.autoscalers,
            vertical_autoscalers=drawn.vertical_autoscalers,
            limit_ranges=drawn.limit_ranges,
            namespace_annotations=drawn.namespace_annotations,
            quotas=drawn.quotas,
            node_autoscaling=drawn.node_autoscaling,
        )
        self._rows = build_statistics(drawn, _run_without_waiting(cluster.snapshot()).pods, seed)
        self._recorder = PassRecorder(cluster)
        self._store = InMemoryStore()
        self._usage = UsageState()
        self._revisions = NO_REVISIONS
        growths = PendingGrowths(lambda: cluster.now.timestamp())
        self._writer = ClusterWriter(self._recorder, self._store, drawn.policy, growths=growths)
        self._creations: list[ObservedCreation] = []
        # The first pass assumes an equal pass before it, so that evictions are tried from the start.
        self._before = self._earlier = ASSUME_UNCHANGED

    async def run_pass(self, moments: Sequence[int] = ()) -> ObservedPass:
        """Run a node pass, and advance the cluster until the next one.

        `moments` are the seconds after the writes at which the cluster is recorded.
        """
        table = self._measure(await self.cluster.snapshot())
        result = await run_node_pass(
            PassContext(self._recorder, self._store, self.drawn.policy, self.cluster.now),
            usage=self._usage,
            writer=self._writer,
            earlier=self._earlier,
        )
        self._before, self._earlier = self._earlier, result.for_next_pass
        seen = ObservedPass(result, table, tuple(self._recorder.writes))
        self._recorder.writes.clear()
        started_at, meanwhile = self.cluster.now, []
        for seconds in moments:
            self.cluster.advance(started_at + timedelta(seconds=seconds))
            meanwhile.append(await self.cluster.snapshot())
        seen.meanwhile = meanwhile
        self.cluster.advance(started_at + timedelta(seconds=PASS_SECONDS))
        seen.creations, self._creations = tuple(self._creations), []
        seen.after = await self.cluster.snapshot()
        return seen

    async def decide_again(self) -> NodePassResult:
        """Decide again with the input of the last pass, without writing."""
        self._measure(await self.cluster.snapshot())
        observing = replace(self.drawn.policy, mode=Mode.OBSERVE)
        return await run_node_pass(
            PassContext(self._recorder, self._store, observing, self.cluster.now),
            usage=self._usage,
            earlier=self._before,
        )

    def _measure(self, snapshot: ClusterSnapshot) -> StatisticsTable:
        """Replace a usage pass."""
        updated = update_revisions(self._revisions, snapshot.pods, {}, int(self.cluster.now.timestamp()))
        self._revisions = updated.revisions
        self._usage.table = replace(build_table_at(self._rows, self.cluster.now), revisions=self._revisions)
        return self._usage.table

    def _admit(self, pod: Pod) -> Pod:
        snapshot = _run_without_waiting(self.cluster.snapshot())
        table = replace(build_table_at(self._rows, self.cluster.now), revisions=self._revisions)
        admitter = PodAdmitter(snapshot, table, {}, self.drawn.policy, self.cluster.now)
        admitted, _ = admitter.admit(pod)
        self._creations.append(ObservedCreation(pod, admitted, admitter.admit(admitted)[0]))
        return admitted


def _run_without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("the simulated cluster never waits")
