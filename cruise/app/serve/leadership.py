"""Leader election: the process that leads runs the passes and writes; no other process does."""

import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import cast

import structlog

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.leases import LeaderLease
from cruise.domain.actions import WriteIntent
from cruise.domain.packing_plan import PackingPlan
from cruise.domain.policy import Mode
from cruise.domain.usage import OomRecord, StatisticsTable, UsageUpdate
from cruise.errors import UnavailableError
from cruise.runtime.ports import StorePort

log = structlog.get_logger()

LEASE_NAME = "cruise-serve"


def uses_leader_election(mode: Mode) -> bool:
    """Return whether processes elect a leader: only then does cruise write to the cluster."""
    return mode >= Mode.RESIZE


def create_lease_contender(
    client: KubernetesClient, namespace: str, duration: timedelta, epoch: Callable[[], int] = lambda: 0
) -> LeaderLease:
    """Return this process's leader election, which stores the database's `epoch` in the Lease."""
    identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    return LeaderLease(client, namespace, LEASE_NAME, identity, duration=duration, epoch=epoch)


async def run_while_leading(
    lease: LeaderLease | None,
    work: Callable[[], Awaitable[None]],
    get_stall_reason: Callable[[], str | None] = lambda: None,
) -> None:
    """Run `work` while this process leads; without a Lease, immediately and until cancelled.

    Leadership is released if `get_stall_reason` reports that the work is stuck.
    """
    if lease is None:
        log.info("no election: in this mode nothing is written to the cluster, and one process is enough")
        await work()
        return
    await lease.lead(work, get_stall_reason)


def fence_store(store: StorePort, may_write: Callable[[], bool]) -> StorePort:
    """Return the database such that only the leader writes usage, statistics, kills and plans.

    Late writes of a former leader raise UnavailableError, so that they cannot overwrite those of the next one. Its
    audit lines are accepted.
    """
    return cast(StorePort, _FencedStore(store, may_write))


@contextmanager
def fence_store_to_term(store: StorePort) -> Iterator[StorePort]:
    """Yield the database fenced to one term: what it leaves under way writes nothing in a later one of the process."""
    is_over = False
    try:
        yield fence_store(store, lambda: not is_over)
    finally:
        is_over = True


class _FencedStore:
    """A database whose writes are guarded; other methods are unchanged."""

    def __init__(self, store: StorePort, may_write: Callable[[], bool]) -> None:
        self._store = store
        self._may_write = may_write

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def write_statistics(self, table: StatisticsTable) -> None:
        """Write if this process leads."""
        self._guard()
        await self._store.write_statistics(table)

    async def read_open_intents(self) -> Sequence[WriteIntent]:
        """Read if this process leads: the next leader must learn of every write that a former one left open."""
        self._guard()
        return await self._store.read_open_intents()

    async def record_intents(self, intents: Sequence[WriteIntent]) -> None:
        """Write if this process leads: a write without an intent is not sent."""
        self._guard()
        await self._store.record_intents(intents)

    async def record_usage(self, update: UsageUpdate) -> None:
        """Write if this process leads."""
        self._guard()
        await self._store.record_usage(update)

    async def record_lost_usage(self, until: int, *, regained: bool = False) -> None:
        """Write if this process leads."""
        self._guard()
        await self._store.record_lost_usage(until, regained=regained)

    async def record_oom_kill(self, record: OomRecord) -> bool:
        """Write if this process leads: other kills are left to the next leader."""
        self._guard()
        return await self._store.record_oom_kill(record)

    async def write_packing_plan(self, plan: PackingPlan) -> None:
        """Write if this process leads: the next leader has resumed or dropped the plan."""
        self._guard()
        await self._store.write_packing_plan(plan)

    def _guard(self) -> None:
        if not self._may_write():
            raise UnavailableError("another process leads: what this one still had under way is dropped")
