"""The packing process, started when it is first needed and kept warm from then on."""

import asyncio
from types import TracebackType
from typing import Self

from cruise.packer.answer import Packing
from cruise.packer.problem import Problem
from cruise.runtime.packing.worker import PackWorker


class WarmSolver:
    """Solves packing problems in a process of its own, which most clusters never need, for as long as a context lasts.

    Implements `runtime.packing.Solver`.
    """

    def __init__(self) -> None:
        self._worker: asyncio.Future[PackWorker] | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})

    async def pack(self, problem: Problem, seconds: float, /) -> Packing:
        """Return the best packing that was found within `seconds`. Raises Unavailable."""
        worker = await self._started()
        return await worker.pack(problem, seconds)

    async def _started(self) -> PackWorker:
        if self._worker is None or self._keeping is None or self._keeping.done():
            self._worker = asyncio.get_running_loop().create_future()
            # A task of its own, since a worker's context has to be left in the task that entered it.
            self._keeping = asyncio.ensure_future(self._keep(self._worker))
        return await asyncio.shield(self._worker)

    async def _keep(self, started: "asyncio.Future[PackWorker]") -> None:
        try:
            async with PackWorker() as worker:
                started.set_result(worker)
                await asyncio.Event().wait()
        except Exception as error:
            if started.done():
                raise
            # Raised where it was waited for; the next problem starts a new process.
            started.set_exception(error)
