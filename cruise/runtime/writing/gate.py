"""What the passes of one process share when they write at the same time: the audit, evictions, and recent grows."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cruise.domain.actions import Action, ContainerTarget, EvictPod, Outcome, Reason, ResizePod, Verdict
from cruise.domain.cluster import Pod
from cruise.domain.resources import Amounts, Resources
from cruise.runtime.ports import Store

# How much older than its application a snapshot may be: a minute of the cache, and the time to decide.
_SNAPSHOT_SECONDS = 90.0
_GROWS_KEPT_SECONDS = 3600.0
_STILL_TOLD = timedelta(hours=1)
_MANY = 10_000

AT_ONCE = 16
# What waits for its turn was let through before: a pause must not find more than this much of a second in the queue.
_QUEUED_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Grow:
    """A resize that takes room on a node, from just before it is sent; `by` is whose it is."""

    by: object
    at: float
    growth: Resources
    targets: tuple[ContainerTarget, ...]

    def shows_in(self, pod: Pod) -> bool:
        """Tell whether a picture of the pod has these sizes in its spec."""
        spec = {container.name: container for container in pod.containers}
        return all(
            target.container in spec
            and _has(spec[target.container].requests, target.requests)
            and _has(spec[target.container].limits, target.limits)
            for target in self.targets
        )


def writes_at_once(per_second: float) -> int:
    """Return how many writes may be under way where so many requests are let through in a second."""
    return min(AT_ONCE, max(1, int(per_second * _QUEUED_SECONDS)))


class Gate:
    """One for all that write to a cluster in a process: they spend the same budgets and take the same room.

    `evicting` is held by whoever evicts, and no plan has more than `at_once` writes under way. Lines of the audit that
    the store did not take are kept for the next time.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, at_once: int = AT_ONCE) -> None:
        self.evicting = asyncio.Lock()
        self.at_once = at_once
        self._monotonic = monotonic
        self._grows: dict[str | None, dict[str, Grow]] = {}
        self._recording = asyncio.Lock()
        self._unrecorded: list[Outcome] = []
        self._told: dict[tuple[type[Action], str], tuple[Verdict, Reason, datetime]] = {}
        self._most_told = _MANY
        self._resting: dict[str, datetime] = {}
        self._reserved: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())

    # ---- room ----

    def now(self) -> float:
        """Return the time by the clock of this gate, in seconds."""
        return self._monotonic()

    def add_grow(self, by: object, action: ResizePod) -> Grow | None:
        """Remember a resize that is about to be sent; return the pod's last one, to be put back if it is not done."""
        on_node = self._grows.setdefault(action.node, {})
        oldest = self.now() - _GROWS_KEPT_SECONDS
        for uid in [uid for uid, grow in on_node.items() if grow.at < oldest]:
            del on_node[uid]
        before = on_node.get(action.uid)
        on_node[action.uid] = Grow(by, self.now(), action.growth, action.containers)
        return before

    def put_back_grow(self, action: ResizePod, before: Grow | None) -> None:
        """Forget a resize that was not done."""
        on_node = self._grows.get(action.node, {})
        on_node.pop(action.uid, None)
        if before is not None:
            on_node[action.uid] = before

    def grows_on(self, node: str | None, began: float) -> dict[str, Grow]:
        """Return by pod uid the grows on a node that a snapshot for an application begun then may not show."""
        on_node = self._grows.get(node, {})
        return {uid: grow for uid, grow in on_node.items() if grow.at >= began - _SNAPSHOT_SECONDS}

    # ---- rest ----

    def rest(self, uid: str, until: datetime, now: datetime) -> None:
        """Have the passes leave a pod alone until then: what it was just given is to show first."""
        self._resting = {one: end for one, end in self._resting.items() if end > now} | {uid: until}

    def rests(self, uid: str, now: datetime) -> bool:
        """Tell whether a pod is still to be left alone."""
        until = self._resting.get(uid)
        return until is not None and now < until

    # ---- packing ----

    def reserve(self, nodes: frozenset[str] = frozenset(), uids: frozenset[str] = frozenset()) -> None:
        """Have the node passes leave nodes and pods alone that a packing plan counts on; without any, let them go."""
        self._reserved = (nodes, uids)

    def is_reserved(self, action: ResizePod | EvictPod) -> bool:
        """Tell whether an action would touch what a packing plan counts on."""
        nodes, uids = self._reserved
        return action.node in nodes or action.uid in uids

    # ---- audit ----

    def note(self, outcome: Outcome) -> None:
        """Keep an outcome for the audit, unless it says of its pod what was said at the last turn too."""
        key = (type(outcome.action), _subject(outcome.action))
        if outcome.verdict in (Verdict.HELD, Verdict.REFUSED):
            before = self._told.get(key)
            self._told[key] = (outcome.verdict, outcome.reason, outcome.at)
            self._forget_old(outcome.at)
            if before is not None and before[:2] == (outcome.verdict, outcome.reason):
                if outcome.at - before[2] <= _STILL_TOLD:
                    return
        else:
            self._told.pop(key, None)
        self._unrecorded.append(outcome)

    async def record(self, store: Store) -> None:
        """Write to the audit what waits for it; what the store does not take goes on waiting."""
        async with self._recording:
            lines, self._unrecorded = self._unrecorded, []
            if not lines:
                return
            try:
                await store.record_outcomes(lines)
            except BaseException:
                self._unrecorded = [*lines, *self._unrecorded]
                raise

    @property
    def unrecorded(self) -> Sequence[Outcome]:
        """The lines that wait for the store."""
        return tuple(self._unrecorded)

    def _forget_old(self, now: datetime) -> None:
        if len(self._told) > self._most_told:
            self._told = {key: told for key, told in self._told.items() if now - told[2] <= _STILL_TOLD}
            self._most_told = max(_MANY, 2 * len(self._told))


def _has(stated: Amounts, wanted: Amounts) -> bool:
    """Tell whether what is wanted is stated; None wants nothing."""
    return wanted.cpu_millicores in (None, stated.cpu_millicores) and wanted.memory_bytes in (
        None,
        stated.memory_bytes,
    )


def _subject(action: Action) -> str:
    return action.uid if isinstance(action, ResizePod | EvictPod) else action.node
