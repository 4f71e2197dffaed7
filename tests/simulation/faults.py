"""Faults between cruise and a cluster: slow responses, 429 storms, rejections and timeouts."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from cruise.domain.actions import Action
from cruise.domain.cluster import ClusterSnapshot, HorizontalPodAutoscaler, OomKill, Pod
from cruise.errors import CruiseError, UnavailableError
from cruise.simulation.cluster.cluster import SimulatedCluster


@dataclass(slots=True)
class ClusterFaults:
    """What a cluster does to those who ask it; all of it may be changed at any time.

    Answers take `read_seconds` and `write_seconds` of real time, which is spent before a write is done, and a write
    waits `turn_seconds` for the rate limit, and for `answering` if there is one. `refuse` returns what an action is
    refused with. After `answered_writes` more writes nothing answers; those that fail so are done `all_the_same` or
    not.
    """

    read_seconds: float = 0.0
    write_seconds: float = 0.0
    turn_seconds: float = 0.0
    answering: asyncio.Event | None = None
    refuse: Callable[[Action], CruiseError | None] = lambda action: None
    answered_writes: float = float("inf")
    all_the_same: bool = False
    sent: list[Action] = field(default_factory=list)
    read: list[tuple[str, str]] = field(default_factory=list)
    in_progress: int = 0
    max_in_progress: int = 0


class FaultyCluster:
    """The Cluster port over a simulated cluster, with faults."""

    def __init__(self, cluster: SimulatedCluster, faults: ClusterFaults) -> None:
        self.cluster = cluster
        self.faults = faults

    async def snapshot(self) -> ClusterSnapshot:
        return replace(await self.cluster.snapshot(), taken_at=time.monotonic())

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        self.faults.read.append((namespace, name))
        await asyncio.sleep(self.faults.read_seconds)
        return await self.cluster.read_pod(namespace, name)

    def get_cached_pod(self, namespace: str, name: str) -> Pod | None:
        return self.cluster.get_cached_pod(namespace, name)

    def get_cached_autoscalers(self) -> tuple[HorizontalPodAutoscaler, ...]:
        return self.cluster.get_cached_autoscalers()

    def watch_oom_kills(self) -> AsyncIterator[OomKill]:
        return self.cluster.watch_oom_kills()

    async def wait_for_write_turn(self) -> None:
        await asyncio.sleep(self.faults.turn_seconds)

    async def perform(self, action: Action) -> None:
        faults = self.faults
        faults.sent.append(action)
        faults.in_progress += 1
        faults.max_in_progress = max(faults.max_in_progress, faults.in_progress)
        try:
            await asyncio.sleep(faults.write_seconds)
            if faults.answering is not None:
                await faults.answering.wait()
            rejection = faults.refuse(action)
            if rejection is not None:
                raise rejection
            lost = faults.answered_writes <= 0
            faults.answered_writes -= 1
            if not lost or faults.all_the_same:
                await self.cluster.perform(action)
            if lost:
                raise UnavailableError("no answer in 10 s")
        finally:
            faults.in_progress -= 1
