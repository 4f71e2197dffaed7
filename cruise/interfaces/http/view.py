"""What the API shows, and how it asks for it."""

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from cruise.domain.actions import Outcome
from cruise.domain.callers import Caller, Intervention
from cruise.domain.cluster import Snapshot, WorkloadRef
from cruise.domain.policy import Policy
from cruise.domain.rehearsal import Proposal, Rehearsal
from cruise.domain.usage import StatisticsTable
from cruise.errors import Unavailable
from cruise.interfaces.http.figures import ControllerFigures
from cruise.runtime.ports import Store
from cruise.runtime.sizing.node_pass import NodePass

_STORE_SECONDS = 10.0

T = TypeVar("T")


class Rehearsing(Protocol):
    """Who replays proposals: `app.serve.rehearsals.Rehearsals`."""

    def last(self) -> Rehearsal | None:
        """Return the one that runs, else the last one."""
        ...

    async def begin(self, proposal: Proposal, caller: Caller) -> Rehearsal:
        """Begin one. Raises BadInput for what cannot be tried, Throttled while another one runs, Unavailable."""
        ...

    async def cancel(self) -> None:
        """End the one that runs, if one does."""
        ...


class ApiView(Protocol):
    """A running controller as the API sees it."""

    @property
    def store(self) -> Store:
        """The store."""
        ...

    @property
    def policy(self) -> Policy:
        """The policy that decides."""
        ...

    def now(self) -> datetime:
        """Return the time of the controller."""
        ...

    def figures(self) -> ControllerFigures:
        """Return how the controller is doing; whether it is paused may be left open."""
        ...

    def last_pass(self) -> NodePass | None:
        """Return the last node pass of this process, None before the first one and where another process leads."""
        ...

    async def snapshot(self) -> Snapshot:
        """Return the cluster as it is known now. Raises Unavailable."""
        ...

    async def statistics(self) -> StatisticsTable:
        """Return the statistics as of their last refresh. Raises Unavailable."""
        ...

    @property
    def rehearsals(self) -> Rehearsing | None:
        """Who replays proposals, None where there is no history to replay."""
        ...

    async def revert(self, namespace: str, workload: WorkloadRef) -> Sequence[Outcome]:
        """Put one workload back as `runtime.revert.revert_workload` does. Raises Unavailable."""
        ...

    async def announce(self, intervention: Intervention) -> None:
        """Let those who look at the cluster see what somebody did; raises nothing."""
        ...


async def in_time(answer: Awaitable[T]) -> T:
    """Wait for the store no longer than a person would. Raises Unavailable."""
    try:
        async with asyncio.timeout(_STORE_SECONDS):
            return await answer
    except TimeoutError as error:
        raise Unavailable(f"the store did not answer within {_STORE_SECONDS:g} s") from error
