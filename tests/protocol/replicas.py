"""A replica of cruise whose every call to the API server and the database waits until the model takes the same step."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cruise.app.serve.leadership import fence_store
from cruise.domain.actions import Action, EvictPod, Outcome, ReasonCode, RefusedResize, ResizePod, WriteIntent
from cruise.domain.cluster import ClusterSnapshot, HorizontalPodAutoscaler, OomKill, Pod
from cruise.domain.policy import Policy
from cruise.errors import CruiseError, UnavailableError
from cruise.runtime.ports import StorePort
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.action_runner import ActionRunner
from cruise.runtime.writing.api_answers import PauseState, WriteTimeouts
from cruise.runtime.writing.audit import AuditQueue
from cruise.runtime.writing.evictions import EvictionLock, PendingGrowths, WriteExclusions
from cruise.runtime.writing.writer import ClusterWriter, WritePhase
from cruise.simulation.store import InMemoryStore
from tests.protocol.scene import EVICTABLE, POLICY, RESIZED, World

WAITS = WriteTimeouts(poll=0.002, pause_check=60.0, response=0.001)


class Surroundings(Protocol):
    """What replicas share: the cluster, the database as it is now, and a clock; `changed` is called at every gate."""

    world: World
    database: InMemoryStore

    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set."""

    def changed(self) -> None:
        """Take note that a replica waits, or is done."""


@dataclass(slots=True)
class Gate:
    """A call that waits: the step that it is, the pod's number in the model, and the way on."""

    step: str
    pod: int | None
    way_on: asyncio.Future[None]


class Construction:
    """How replicas are built; what is seeded as a fault is built otherwise."""

    policy: Policy = POLICY
    notices_older_database = True
    resumes_plans = True

    def writer(self, replica: "Replica") -> "WatchedWriter":
        """Return what applies the next plan."""
        return self.built(replica)

    def built(self, replica: "Replica", **other: Any) -> "WatchedWriter":
        """Return a writer as serve builds it, but for some of its parts."""
        parts: dict[str, Any] = {
            "audit": replica.audit,
            "evictions": replica.evictions,
            "growths": replica.grows,
            "exclusions": replica.exclusions,
            "latest": replica.usage.get_latest_statistics,
            "concurrent": 1,
            "timeouts": WAITS,
        }
        return WatchedWriter(replica.cluster, replica.store, self.policy, **(parts | other))

    def may_write(self, replica: "Replica") -> bool:
        """Tell whether a replica may write, as its Lease has it."""
        return replica.leads

    def as_sent(self, action: Action) -> Action:
        """Return a write as it goes to the API server."""
        return action

    def as_seen(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return a snapshot as passes get it."""
        return snapshot

    def spent(self, lines: Sequence[Outcome]) -> Sequence[Outcome]:
        """Return what the database says of the evictions of the last hour."""
        return lines

    def unanswered(self, lines: Sequence[Outcome]) -> Sequence[Outcome]:
        """Return what the database says of resizes without an answer."""
        return lines

    def refused(self, known: Mapping[str, RefusedResize]) -> Mapping[str, RefusedResize]:
        """Return what the database says of refused resizes."""
        return known

    def left_open(self, intents: Sequence[WriteIntent]) -> Sequence[WriteIntent]:
        """Return what the database says of open intents."""
        return intents


class WatchedWriter(ClusterWriter):
    """The writer, which keeps what it was given last, and tells when nothing more will be written."""

    actions: Sequence[Action] = ()
    snapshot: ClusterSnapshot = ClusterSnapshot()
    has_finished = False

    async def apply_plan(
        self, actions: Sequence[Action], snapshot: ClusterSnapshot, *args: Any, **named: Any
    ) -> list[Outcome]:
        self.actions, self.snapshot = actions, snapshot
        return await super().apply_plan(actions, snapshot, *args, **named)

    async def _run(self, run: ActionRunner, phases: Iterable[WritePhase], pause: PauseState) -> None:
        finish = run.finish

        def finish_and_tell() -> None:
            self.has_finished = True
            finish()

        run.finish = finish_and_tell  # type: ignore[method-assign]
        await super()._run(run, phases, pause)


class Replica:
    """One process: what it has in memory, and where it waits."""

    def __init__(self, around: Surroundings, construction: Construction, number: int) -> None:
        self.around = around
        self.construction = construction
        self.number = number
        self.leads = False
        self.term = 0
        self.sent: ResizePod | EvictPod
        self.start()

    def start(self) -> None:
        """Begin with nothing in memory."""
        self.gate: Gate | None = None
        self.recording: Gate | None = None
        self.task: asyncio.Task[object] | None = None
        self.is_dead = self.has_begun = self.has_answer = self.saw_pause = self.commit_is_unseen = False
        self.audit, self.usage, self.exclusions = AuditQueue(), UsageState(), WriteExclusions()
        self.evictions, self.grows = EvictionLock(), PendingGrowths(self.around.monotonic)
        # As the controller joins them.
        usage = self.usage
        self.exclusions.history_incomplete = lambda: usage.history_lost_until > 0
        self.evictions.lost_until = lambda: usage.evictions_lost_until
        self.cluster = _Cluster(self)
        self.store: StorePort = _Store(self)  # type: ignore[assignment]
        self.writer = self.construction.writer(self)

    def begin(self, pass_with: Callable[["Replica"], Coroutine[Any, Any, object]]) -> None:
        """Run a pass beside the model."""
        self.has_begun = self.has_answer = self.saw_pause = False
        self.writer = self.construction.writer(self)
        self.usage.table = self.around.world.statistics()
        self.task = asyncio.ensure_future(pass_with(self))
        self.task.add_done_callback(lambda task: self.around.changed())

    async def die(self) -> None:
        """End at once, without another call."""
        self.is_dead = True
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.leads = False
        self.start()

    @property
    def is_idle(self) -> bool:
        """Tell whether no pass is under way."""
        return self.task is None or self.task.done()

    def error(self) -> BaseException | None:
        """Return what the last pass ended with."""
        return self.task.exception() if self.task is not None and self.task.done() else None

    def ended(self) -> str:
        """Say how the last pass ended, if it did."""
        if self.task is None or not self.task.done():
            return "its pass goes on"
        return repr(self.error() or getattr(self.task.result(), "outcome", "done"))

    async def wait(self, step: str, pod: int | None = None) -> None:
        """Wait until the model takes this step."""
        if self.is_dead:
            raise UnavailableError("this process is gone")
        gate = Gate(step, pod, asyncio.get_running_loop().create_future())
        if step == "record":
            self.recording = gate
        else:
            assert self.gate is None, f"replica {self.number} wants to {step}, and to {self.gate} at the same time"
            self.gate = gate
        self.around.changed()
        await gate.way_on

    def go_on(self, error: CruiseError | None = None) -> None:
        """Let the call go on that waits, or fail."""
        gate, self.gate = self.gate, None
        assert gate is not None
        gate.way_on.set_result(None) if error is None else gate.way_on.set_exception(error)

    def record(self) -> None:
        """Let the outcome of the last write be stored."""
        gate, self.recording, self.has_answer = self.recording, None, False
        assert gate is not None
        gate.way_on.set_result(None)


def number_of(pod: str) -> int:
    """Return the model's number of a pod."""
    return (*RESIZED, *EVICTABLE).index(pod.split("-")[0])


class _Cluster:
    """The API server as one replica reaches it; what is sent arrives when the model says so."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._cluster = replica.around.world.cluster

    async def snapshot(self) -> ClusterSnapshot:
        snapshot = self._replica.construction.as_seen(await self._cluster.snapshot())
        return replace(snapshot, taken_at=self._replica.around.monotonic())

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        if self._replica.has_begun:
            await self._replica.wait("send", number_of(name))
        return await self._cluster.read_pod(namespace, name)

    def get_cached_pod(self, namespace: str, name: str) -> Pod | None:
        return self._cluster.get_cached_pod(namespace, name)

    def get_cached_autoscalers(self) -> tuple[HorizontalPodAutoscaler, ...]:
        return self._cluster.get_cached_autoscalers()

    def watch_oom_kills(self) -> AsyncIterator[OomKill]:
        return self._cluster.watch_oom_kills()

    async def wait_for_write_turn(self) -> None:
        pass

    async def perform(self, action: Action) -> None:
        assert isinstance(action, ResizePod | EvictPod)
        replica = self._replica
        if not replica.construction.may_write(replica):
            raise UnavailableError("no longer the leader")
        replica.sent = action
        await replica.wait("answer", number_of(action.pod))


class _Store:
    """The database as one replica reaches it: fenced as in serve, and each statement of the protocol at its time."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    @property
    def _database(self) -> StorePort:
        replica = self._replica
        if replica.is_dead:
            raise UnavailableError("this process is gone")
        return fence_store(replica.around.database, lambda: replica.construction.may_write(replica))

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)

    async def read_open_intents(self) -> Sequence[WriteIntent]:
        await self._replica.wait("reconcile")
        return self._replica.construction.left_open(await self._database.read_open_intents())

    async def read_evictions_since(self, since: Any) -> Sequence[Outcome]:
        return self._replica.construction.spent(await self._database.read_evictions_since(since))

    async def read_refused_resizes(self) -> Mapping[str, RefusedResize]:
        return self._replica.construction.refused(await self._database.read_refused_resizes())

    async def read_unanswered_resizes(self, since: Any) -> Sequence[Outcome]:
        return self._replica.construction.unanswered(await self._database.read_unanswered_resizes(since))

    async def is_paused(self) -> bool:
        paused = await self._database.is_paused()
        self._replica.saw_pause = self._replica.saw_pause or paused
        self._replica.around.changed()
        return paused

    async def record_intents(self, intents: Sequence[WriteIntent]) -> None:
        replica, first = self._replica, intents[0].action
        assert isinstance(first, ResizePod | EvictPod)
        await replica.wait("begin", number_of(first.pod))
        await self._database.record_intents(intents)
        if replica.commit_is_unseen:
            replica.commit_is_unseen = False
            raise UnavailableError("no answer in 10 s")
        replica.has_begun = True
        if isinstance(first, ResizePod) and not first.needs_capacity and first.reason is ReasonCode.RIGHTSIZED:
            # Its pod is not read again, so this is the last that is waited for before it is sent.
            await replica.wait("send", number_of(first.pod))

    async def record_outcomes(self, outcomes: Sequence[Outcome], completed: Collection[int] = ()) -> None:
        if self._replica.has_answer and (outcomes or completed):
            await self._replica.wait("record")
        await self._database.record_outcomes(outcomes, completed)
        self._replica.around.changed()
