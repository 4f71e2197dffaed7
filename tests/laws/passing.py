"""A few node passes over a drawn cluster, through the ports, and all that was seen of them."""

from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED
from cruise.decisions.usage.revisions import update_revisions
from cruise.domain.actions import Action, EvictPod, ResizePod
from cruise.domain.cluster import ClusterSnapshot, OomKill, Pod
from cruise.domain.original_resources import NO_REVISIONS
from cruise.domain.policy import Mode
from cruise.domain.usage import StatisticsTable
from cruise.errors import CruiseError
from cruise.runtime.admission import PodAdmitter
from cruise.runtime.node_pass import NodePassResult, run_node_pass
from cruise.runtime.ports import PassInput
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.evictions import PendingGrowths
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from tests.laws.drawn import START, DrawnCluster, statistics_of, table_at

T = TypeVar("T")
STEP_SECONDS = 60
PASS_SECONDS = 300
SETTLED_SECONDS = 120


@dataclass(frozen=True, slots=True)
class ObservedWrite:
    """An action as it was sent, and what it was refused with."""

    action: Action
    refusal: CruiseError | None


@dataclass(frozen=True, slots=True)
class ObservedCreation:
    """A pod as its controller made it, and as it was admitted."""

    made: Pod
    admitted: Pod
    admitted_again: Pod


@dataclass(slots=True)
class ObservedPass:
    """One pass: what it decided, what was sent, what was created until the next, and the cluster then."""

    result: NodePassResult
    table: StatisticsTable
    writes: Sequence[ObservedWrite]
    creations: Sequence[ObservedCreation] = ()
    after: ClusterSnapshot = field(default_factory=ClusterSnapshot)

    @property
    def before(self) -> ClusterSnapshot:
        """The cluster that was decided on."""
        return self.result.snapshot

    def evicted(self) -> list[EvictPod]:
        """Return the evictions that were done."""
        return [one.action for one in self.writes if isinstance(one.action, EvictPod) and one.refusal is None]

    def resized(self) -> list[ResizePod]:
        """Return the resizes that were done."""
        return [one.action for one in self.writes if isinstance(one.action, ResizePod) and one.refusal is None]


class PassRecorder:
    """The Cluster port over a simulated cluster, with all that was sent to it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.writes: list[ObservedWrite] = []

    async def snapshot(self) -> ClusterSnapshot:
        return await self.cluster.snapshot()

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        return await self.cluster.read_pod(namespace, name)

    def get_cached_pod(self, namespace: str, name: str) -> Pod | None:
        return self.cluster.get_cached_pod(namespace, name)

    def oom_kills(self) -> AsyncIterator[OomKill]:
        return self.cluster.oom_kills()

    async def perform(self, action: Action) -> None:
        try:
            await self.cluster.perform(action)
        except CruiseError as refusal:
            self.writes.append(ObservedWrite(action, refusal))
            raise
        self.writes.append(ObservedWrite(action, None))


class ObservedRun:
    """A drawn cluster under cruise in mode full, with the webhook."""

    def __init__(self, drawn: DrawnCluster, seed: int) -> None:
        self.drawn = drawn
        self.world = world = SimulatedCluster(
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
        self._rows = statistics_of(drawn, _at_once(world.snapshot()).pods, seed)
        self._recorder = PassRecorder(world)
        self._store = InMemoryStore()
        self._usage = UsageState()
        self._revisions = NO_REVISIONS
        grows = PendingGrowths(lambda: world.now.timestamp())
        self._writer = ClusterWriter(self._recorder, self._store, drawn.policy, growths=grows)
        self._creations: list[ObservedCreation] = []
        # The first pass goes by what it sees alone, so that evictions are tried from the start.
        self._before = self._earlier = ASSUME_UNCHANGED

    async def let_pass(self) -> ObservedPass:
        """Run a node pass, and let the cluster go on until the next is due."""
        table = self._measure(await self.world.snapshot())
        result = await run_node_pass(
            PassInput(self._recorder, self._store, self.drawn.policy, self.world.now),
            usage=self._usage,
            writer=self._writer,
            earlier=self._earlier,
        )
        self._before, self._earlier = self._earlier, result.for_next_pass
        seen = ObservedPass(result, table, tuple(self._recorder.writes))
        self._recorder.writes.clear()
        self.world.advance(self.world.now + timedelta(seconds=PASS_SECONDS))
        seen.creations, self._creations = tuple(self._creations), []
        seen.after = await self.world.snapshot()
        return seen

    async def decide_again(self) -> NodePassResult:
        """Decide once more from what the last pass knew of the one before, without doing anything."""
        self._measure(await self.world.snapshot())
        observing = replace(self.drawn.policy, mode=Mode.OBSERVE)
        return await run_node_pass(
            PassInput(self._recorder, self._store, observing, self.world.now), usage=self._usage, earlier=self._before
        )

    def _measure(self, snapshot: ClusterSnapshot) -> StatisticsTable:
        """Take the place of a usage pass."""
        learned = update_revisions(self._revisions, snapshot.pods, {}, int(self.world.now.timestamp()))
        self._revisions = learned.revisions
        self._usage.table = replace(table_at(self._rows, self.world.now), revisions=self._revisions)
        return self._usage.table

    def _admit(self, pod: Pod) -> Pod:
        snapshot = _at_once(self.world.snapshot())
        table = replace(table_at(self._rows, self.world.now), revisions=self._revisions)
        admitter = PodAdmitter(snapshot, table, {}, self.drawn.policy, self.world.now)
        admitted, _ = admitter.admit(pod)
        self._creations.append(ObservedCreation(pod, admitted, admitter.admit(admitted)[0]))
        return admitted


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of what never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("the simulated cluster never waits")
