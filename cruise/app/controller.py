"""The controller: every pass as a job over one cluster, one usage source and one store."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cruise.app.jobs import Jobs
from cruise.decisions.admission import Leave, Mutate
from cruise.decisions.scope import StoredOverrides
from cruise.domain.actions import Outcome
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.policy import Policy
from cruise.domain.usage import StatisticsTable
from cruise.runtime.admission import admit_pod
from cruise.runtime.node_load import NodeLoads, node_load_pass
from cruise.runtime.oom import OomReactor, Reaction
from cruise.runtime.ports import Cluster, Store, UsageSource
from cruise.runtime.reconcile import NodePass, node_pass
from cruise.runtime.usage import usage_pass
from cruise.runtime.usage_reading import ReadingProgress, UsageReading
from cruise.runtime.usage_state import UsageState

_KEPT = 500
_NODE_LOAD_INTERVAL = timedelta(minutes=1)
_PRUNE_INTERVAL = timedelta(hours=1)


@dataclass(slots=True)
class Doings:
    """What the controller did last, for those who look on."""

    node_pass: NodePass | None = None
    outcomes: deque[Outcome] = field(default_factory=lambda: deque(maxlen=_KEPT))
    reactions: deque[Reaction] = field(default_factory=lambda: deque(maxlen=_KEPT))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What admission decides from, as of the last statistics refresh."""

    snapshot: Snapshot
    statistics: StatisticsTable
    stored: StoredOverrides


class Controller:
    """Statistics refresh, node pass, node load, OOM reactor and pruning, with `clock` as their time.

    `pace` is how many seconds of that clock pass in a second: 1 but for a simulation.
    """

    def __init__(
        self,
        cluster: Cluster,
        source: UsageSource,
        store: Store,
        policy: Policy,
        clock: Callable[[], datetime],
        reading: UsageReading,
        pace: float = 1.0,
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._store = store
        self._policy = policy
        self._clock = clock
        self._pace = pace
        self._loads = NodeLoads()
        self._reactor = OomReactor(cluster, store, policy)
        self._reading = reading
        self._usage = UsageState()
        self._surroundings: Surroundings | None = None
        self.doings = Doings()

    async def refresh_statistics(self, on_progress: Callable[[ReadingProgress], None] | None = None) -> None:
        """Read what is new and write the statistics; the first time this fills the past."""
        statistics = await usage_pass(
            self._cluster,
            self._source,
            self._store,
            self._usage,
            self._policy,
            self._clock(),
            self._reading,
            on_progress,
        )
        self._surroundings = Surroundings(await self._cluster.snapshot(), statistics, await self._store.overrides())

    async def rightsize(self) -> None:
        """Run one node pass."""
        done = await node_pass(self._cluster, self._store, self._policy, self._clock())
        self.doings.node_pass = done
        self.doings.outcomes.extend(done.outcomes)

    async def watch_load(self) -> None:
        """Read the nodes' loads once."""
        outcomes = await node_load_pass(
            self._cluster, self._source, self._store, self._loads, self._policy, self._clock()
        )
        self.doings.outcomes.extend(outcomes)

    async def react_to_kills(self) -> None:
        """React to every out-of-memory kill, until cancelled."""
        async for kill in self._cluster.oom_kills():
            reaction = await self._reactor.react(kill, self._clock())
            if reaction is not None:
                self.doings.reactions.append(reaction)
                if reaction.outcome is not None:
                    self.doings.outcomes.append(reaction.outcome)

    def admit(self, pod: Pod) -> Pod:
        """Return a pod as admission lets it be created; unchanged while nothing is known."""
        around = self._surroundings
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

    async def run(self, stop: asyncio.Event) -> None:
        """Run all passes until `stop`. Raises what none of them expected."""
        async with Jobs() as jobs, asyncio.TaskGroup() as tasks:
            reactor = tasks.create_task(jobs.guard("oom reactor", self.react_to_kills))
            interval = self._policy.pass_interval / self._pace
            jobs.every(interval, "statistics", self.refresh_statistics, delay=timedelta(0))
            # Half an interval later, so that a pass sees statistics that are young and whole.
            jobs.every(interval, "node pass", self.rightsize, delay=interval / 2)
            jobs.every(_NODE_LOAD_INTERVAL / self._pace, "node load", self.watch_load, delay=interval)
            jobs.every(_PRUNE_INTERVAL / self._pace, "prune", self._prune, delay=interval)
            await jobs.until(stop)
            reactor.cancel()

    async def _prune(self) -> None:
        await self._store.prune(self._clock())
