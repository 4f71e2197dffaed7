"""A run of the model, step by step on the simulated cluster with the real passes and the real writer.

A call that a replica makes where the model expects another one, an end that the model does not have, and sizes, open
intents or spent budgets that are not the model's fail the replay as `Differs`; a broken law fails it as `LawBroken`.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED
from cruise.domain.actions import EvictPod, PodItem, ReasonCode, ResizePod
from cruise.domain.cluster import ClusterSnapshot, OomKill
from cruise.errors import ConflictError, CruiseError, DatabaseRestoredError, NotFoundError, UnavailableError
from cruise.runtime.node_pass import run_node_pass
from cruise.runtime.oom import OomReactor
from cruise.runtime.ports import PassContext
from cruise.simulation.store import InMemoryStore
from tests.protocol.replicas import Construction, Replica, number_of
from tests.protocol.scene import ALLOCATABLE, EVICTABLE, RESIZED, UNIT, World
from tests.protocol.spin import Event

MINUTE_SECONDS = 61.0
_PATIENCE_SECONDS = 20.0
_UNIT_BYTES = UNIT << 20
_GROWTH_STEPS = {0: 16, 1: 32, 2: 64}
_EVICTION_STEPS = {3: 4, 4: 8}
_SHRINK_STEP, _WITHDRAWAL_STEP = 1, 2


class Differs(AssertionError):
    """The code does not do what the model does."""


class LawBroken(AssertionError):
    """A law of the protocol does not hold on the simulated cluster."""


@dataclass(slots=True)
class Write:
    """A write under way: what was decided and what was sent, by which leader, and the snapshot of the decision."""

    action: ResizePod | EvictPod
    sent: ResizePod | EvictPod
    term: int
    seen: ClusterSnapshot
    outcome: CruiseError | None = None
    has_landed: bool = False
    is_known_to_database: bool = True


class Replay:
    """One run; `play` takes its events one after the other. Where not `compares`, laws alone are looked at."""

    def __init__(
        self, construction: Construction | None = None, *, compares: bool = True, world: World | None = None
    ) -> None:
        self.world = world or World()
        self.database = InMemoryStore()
        self.counts = dict.fromkeys(("events", "passes", "writes"), 0)
        self._compares = compares
        self._clock = 1000.0
        self._news = asyncio.Event()
        self._terms = 0
        self._is_restored = False
        self._refused_units: int | None = None
        self._killed: OomKill | None = None
        self._evicted: list[str] = []
        self._writes: dict[int, Write] = {}
        self._construction = construction or Construction()
        self._replicas = [Replica(self, self._construction, number) for number in (0, 1)]

    def monotonic(self) -> float:
        return self._clock

    def changed(self) -> None:
        self._news.set()

    async def play(self, events: Sequence[Event]) -> None:
        """Take every event, and compare the two after each step of the model."""
        try:
            for at, event in enumerate(events):
                self.counts["events"] += 1
                try:
                    await getattr(self, f"_{event.word}")(*event.arguments)
                    if event.state is not None and self._compares:
                        await self._compare(event.state)
                except AssertionError as error:
                    error.add_note("; ".join(map(str, events[: at + 1])))
                    raise
        finally:
            for replica in self._replicas:
                await replica.die()

    # ---- the replicas ----

    async def _acquire(self, number: str) -> None:
        self._terms += 1
        replica = self._replicas[int(number)]
        replica.leads, replica.term = True, self._terms
        replica.audit.expect_unknown_intents()
        # What the first usage pass of a leader reads of the database's past.
        with suppress(DatabaseRestoredError):
            history = await self.database.read_epoch_and_lost_usage()
            replica.usage.evictions_lost_until = history.lost_until
            replica.usage.history_lost_until = 0 if history.regained else history.lost_until

    async def _notice(self, number: str) -> None:
        usage, at = self._replicas[int(number)].usage, int(self.world.cluster.now.timestamp())
        await usage.forget(self.database, at)

    async def _regain(self, number: str) -> None:
        await self._replicas[int(number)].usage.record_regained_usage(self.database, ())

    async def _expire(self, number: str) -> None:
        self._replicas[int(number)].leads = False

    async def _crash(self, number: str) -> None:
        await self._replicas[int(number)].die()
        self._let_travel(int(number))

    async def _plan(self, number: str, todo: str, *goals: str) -> None:
        replica = self._replicas[int(number)]
        self.counts["passes"] += 1

        async def run(one: Replica) -> object:
            world = self.world.cluster
            return await run_node_pass(
                PassContext(one.cluster, one.store, one.construction.policy, world.now),
                usage=one.usage,
                writer=one.writer,
                earlier=ASSUME_UNCHANGED,
            )

        replica.begin(run)
        await self._until_at(replica, "reconcile" if int(todo) or replica.audit.has_unresolved else None)
        self._compare_decisions(replica, int(todo), [int(goal) for goal in goals])
        await self._until_pause_is_seen(replica)

    async def _react(self, number: str, todo: str) -> None:
        replica, kill = self._replicas[int(number)], self._killed
        assert kill is not None
        self.counts["passes"] += 1

        # A usage pass has stored what the reactor reads.
        await self.database.write_statistics(self.world.statistics())

        async def run(one: Replica) -> object:
            policy = one.construction.policy
            reactor = OomReactor(one.cluster, one.store, policy, one.writer, one.exclusions, one.usage)
            return await reactor.react(kill, self.world.cluster.now)

        replica.begin(run)
        await self._until_at(replica, "reconcile" if int(todo) else None)
        self._compare_decisions(replica, int(todo), [0, 0, 2])
        await self._until_pause_is_seen(replica)

    async def _reconcile(self, number: str) -> None:
        replica = self._replicas[int(number)]
        replica.go_on()
        await self._until(lambda: replica.gate is not None or replica.is_idle)

    async def _begin(self, number: str, pod: str, how: str) -> None:
        replica = self._replicas[int(number)]
        await self._until_at(replica, "begin", int(pod))
        replica.commit_is_unseen = how == "unseen"
        replica.go_on(UnavailableError("no connection") if how == "fails" else None)
        if how == "ok":
            await self._until(lambda: replica.gate is not None or replica.is_idle)
        else:
            await self._until_failed(replica)

    async def _send(self, number: str, pod: str) -> None:
        replica = self._replicas[int(number)]
        await self._until_at(replica, "send", int(pod))
        replica.go_on()
        await self._until_at(replica, "answer", int(pod))
        await self._judge_sending(replica)
        sent = replica.construction.as_sent(replica.sent)
        assert isinstance(sent, ResizePod | EvictPod)
        self._writes[int(number)] = Write(replica.sent, sent, replica.term, replica.writer.snapshot)
        self.counts["writes"] += 1

    async def _skip(self, number: str, pod: str) -> None:
        replica = self._replicas[int(number)]
        await self._until_at(replica, "send", int(pod))
        replica.go_on()
        await self._until(lambda: replica.gate is not None or replica.is_idle)
        if replica.gate is not None and (replica.gate.step, replica.gate.pod) == ("answer", int(pod)):
            raise Differs(f"replica {number} writes to {pod}, which the model does not")

    async def _abort(self, number: str) -> None:
        replica = self._replicas[int(number)]
        await self._until(lambda: replica.gate is not None or replica.is_idle)
        if not replica.is_idle:
            replica.go_on()
        await self._until_failed(replica)

    async def _answer(self, number: str, pod: str, how: str) -> None:
        replica = self._replicas[int(number)]
        await self._until_at(replica, "answer", int(pod))
        replica.has_answer = True
        write = self._writes.pop(int(number))
        if write.action.reason is ReasonCode.WITHDRAWN and write.outcome is None:
            decided_on = next(one for one in replica.writer.snapshot.pods if one.uid == write.action.uid)
            self._refused_units = (decided_on.containers[0].requests.memory_bytes or 0) // _UNIT_BYTES
        replica.go_on(write.outcome)
        await self._until(lambda: replica.recording is not None)

    async def _record(self, number: str, pod: str) -> None:
        replica = self._replicas[int(number)]
        replica.record()
        await self._until(lambda: replica.gate is not None or replica.is_idle)

    async def _lost(self, number: str, pod: str) -> None:
        replica = self._replicas[int(number)]
        await self._until_at(replica, "answer", int(pod))
        self._let_travel(int(number))
        replica.go_on(UnavailableError("no answer in 10 s"))
        await self._until_failed(replica)

    async def _end(self, number: str) -> None:
        replica = self._replicas[int(number)]
        await self._until(lambda: replica.is_idle or replica.gate is not None)
        if not replica.is_idle or replica.error() is not None:
            raise Differs(f"replica {number} is at {replica.gate}, failed with {replica.error()!r}; the model is done")

    # ---- the world ----

    async def _land(self, slot: str, pod: str, how: str) -> None:
        write = self._writes[int(slot)]
        record = self.world.record(int(pod))
        before, size, version = self.world.progress(int(pod)), record.pod.containers, record.pod.resource_version
        has_row = await self._has_row(write)
        error: CruiseError | None = None
        try:
            await self.world.cluster.perform(write.sent)
        except (ConflictError, NotFoundError) as refusal:
            error = refusal
        write.outcome, write.has_landed = error, True
        if (error is None) != (how == "done"):
            raise Differs(f"the write to {pod} ended with {error!r}; in the model it is {how}")
        if int(slot) > 1:
            del self._writes[int(slot)]
        if error is not None:
            return
        self._judge(
            "law_fence",
            write.term >= self._terms or write.action.resource_version in ("", version),
            "the pod had changed",
        )
        self._judge("law_row", has_row, "it has no row")
        if isinstance(write.action, EvictPod):
            self._judge("law_once", before == 0, "it was evicted before")
            self._evicted.append(write.action.uid)
            self._judge("law_budget", len(self._evicted) <= 1, f"{len(self._evicted)} evictions")
        elif size != self.world.record(int(pod)).pod.containers and write.action.needs_capacity:
            counted = self.world.counted() - self.world.count_unseen(write.seen)
            room = counted <= ALLOCATABLE or (self._is_restored and self._terms > 1)
            self._judge("law_room", room, f"{counted} of {ALLOCATABLE} units are requested")

    async def _drop(self, slot: str, pod: str) -> None:
        del self._writes[int(slot)]

    async def _gone(self, number: str) -> None:
        self.world.end(3 + int(number))

    async def _actual(self, pod: str) -> None:
        if not self.world.put_in_force(int(pod)):
            raise Differs(f"the resize of {pod} is deferred; in the model it is put in force")

    async def _deferred(self, pod: str) -> None:
        self.world.put_off(int(pod))

    async def _infeasible(self, pod: str) -> None:
        self.world.refuse(int(pod))

    async def _tick(self) -> None:
        self._clock += MINUTE_SECONDS

    async def _pause(self) -> None:
        await self.database.set_paused(True)
        for replica in self._replicas:
            await self._until_pause_is_seen(replica)

    async def _resume(self) -> None:
        await self.database.set_paused(False)

    async def _restore(self) -> None:
        paused = await self.database.is_paused()
        known = self.database.epoch
        self.database, self._is_restored = InMemoryStore(), True
        self._refused_units = None
        if self._construction.notices_older_database:
            # Usage passes advance it all the time.
            self.database.expect_epoch(known + 1)
        await self.database.set_paused(paused)
        for write in self._writes.values():
            write.is_known_to_database = False

    async def _rise(self) -> None:
        self.world.base["a"] = 3
        for replica in self._replicas:
            replica.usage.table = self.world.statistics()

    async def _kill(self) -> None:
        self._killed = self.world.kill()

    async def _guest(self) -> None:
        self.world.add_guest()

    def _let_travel(self, number: int) -> None:
        """Leave a write under way that nobody waits for any more."""
        write = self._writes.pop(number, None)
        if write is not None and not write.has_landed:
            self._writes[2 + number] = write

    # ---- what is compared ----

    def _compare_decisions(self, replica: Replica, todo: int, goals: list[int]) -> None:
        decided = 0
        for action in replica.writer.actions if not (todo == 0 and replica.is_idle) else ():
            assert isinstance(action, ResizePod | EvictPod)
            number = number_of(action.pod)
            if replica.exclusions.explain_exclusion(action, self.world.cluster.now) is not None:
                continue
            if isinstance(action, EvictPod):
                decided |= _EVICTION_STEPS[number]
                continue
            memory = action.containers[0].requests.memory_bytes
            if memory != goals[number] * _UNIT_BYTES:
                raise Differs(f"{action.pod} is to get {memory}, in the model {goals[number]} units")
            if action.reason is ReasonCode.WITHDRAWN:
                decided |= _WITHDRAWAL_STEP
            else:
                decided |= _GROWTH_STEPS[number] if number or action.needs_capacity else _SHRINK_STEP
        if decided != todo:
            raise Differs(f"replica {replica.number} decides {decided:07b}, the model {todo:07b}")

    async def _compare(self, state: str) -> None:
        deadline = asyncio.get_running_loop().time() + 2
        while (seen := await self._seen()) != state:
            # What is closed without an outcome is closed with the next look at the audit.
            if asyncio.get_running_loop().time() > deadline:
                raise Differs(f"the cluster and the database are at {seen}, the model is at {state}")
            await asyncio.sleep(0.002)

    async def _seen(self) -> str:
        left = {
            number_of(one.action.pod)
            for one in await self.database.read_open_intents()
            if isinstance(one.action, PodItem)
        }
        hour = self.world.cluster.now - timedelta(hours=1)
        lines = await self.database.read_evictions_since(hour)
        spent = {number_of(one.action.pod) for one in lines if isinstance(one.action, EvictPod)}
        numbers = range(len(RESIZED) + len(EVICTABLE))
        intents = "".join(str(int(number in left)) for number in numbers)
        return f"{self.world.seen()} {intents} {''.join(str(int(number in spent)) for number in (3, 4))}"

    async def _has_row(self, write: Write) -> bool:
        lines = await self.database.read_outcomes(self.world.cluster.now - timedelta(hours=1))
        known = [*(one.action for one in await self.database.read_open_intents()), *(one.action for one in lines)]
        return not write.is_known_to_database or self._is_restored or write.action in known

    async def _judge_sending(self, replica: Replica) -> None:
        action, snapshot = replica.sent, replica.writer.snapshot
        taken_at = snapshot.taken_at
        assert taken_at is not None
        self._judge("law_pause", not replica.saw_pause, "writing is paused")
        fresh = self._clock - taken_at <= 60
        if isinstance(action, ResizePod) and number_of(action.pod) == 0:
            memory = action.containers[0].requests.memory_bytes or 0
            fresh = fresh and memory >= self.world.base["a"] * _UNIT_BYTES
        if isinstance(action, ResizePod) and action.reason is not ReasonCode.WITHDRAWN and number_of(action.pod) == 1:
            asked = (action.containers[0].requests.memory_bytes or 0) // _UNIT_BYTES
            is_new = self._refused_units is None or asked < self._refused_units
            self._judge("law_refused", is_new, f"{asked} units were infeasible")
        self._judge("law_fresh", fresh, f"{action} by a snapshot of {self._clock - taken_at:.0f} s ago")

    def _judge(self, law: str, holds: bool, why: str) -> None:
        if not holds:
            raise LawBroken(f"{law}: {why}")

    # ---- waiting ----

    async def _until_at(self, replica: Replica, step: str | None, pod: int | None = None) -> None:
        """Wait until a replica takes a step, None for the end of its pass."""
        await self._until(lambda: replica.gate is not None or replica.is_idle)
        gate = replica.gate
        is_there = replica.is_idle if step is None else gate is not None and (gate.step, gate.pod) == (step, pod)
        if not is_there:
            at = "the end" if gate is None else f"{gate.step} {gate.pod}"
            raise Differs(f"replica {replica.number} is at {at} ({replica.ended()}), the model at {step} {pod}")

    async def _until_failed(self, replica: Replica) -> None:
        await self._until(lambda: replica.is_idle or replica.gate is not None)
        if not replica.is_idle or not isinstance(replica.error(), CruiseError):
            raise Differs(f"replica {replica.number} goes on, {replica.error()!r}; in the model its plan fails")

    async def _until_pause_is_seen(self, replica: Replica) -> None:
        """A pause is seen within a second: here before anything else happens."""
        # A plan without actions, which only compares intents, does not read the pause.
        if await self.database.is_paused() and replica.writer.actions:
            # After its last write a plan only records, and does not read the pause again.
            await self._until(lambda: replica.is_idle or replica.saw_pause or replica.writer.has_finished)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not condition():
                self._news.clear()
                await self._news.wait()
