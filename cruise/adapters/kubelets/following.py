"""Reading every kubelet once a minute, each at a moment of its own, for as long as somebody asks for the usage."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cruise.adapters.kubelets.source import KubeletSource
from cruise.errors import one_refusal

_STEP_SECONDS = 60
_FEW = 16


@asynccontextmanager
async def followed(
    source: KubeletSource, clock: Callable[[], float], every_seconds: int = _STEP_SECONDS
) -> AsyncIterator[None]:
    """Keep on reading the source's nodes; `clock` gives Unix seconds."""
    with one_refusal():
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(_follow(source, clock, every_seconds))
            yield
            following.cancel()


async def _follow(source: KubeletSource, clock: Callable[[], float], every_seconds: int) -> None:
    second = int(clock())
    async with asyncio.TaskGroup() as looks:
        while True:
            now = int(clock())
            # A second that was slept through has its nodes read now; of a longer time each once.
            for late in range(max(second, now - every_seconds) + 1, now + 1):
                looks.create_task(source.look(source.due(late, every_seconds), clock))
            second = now
            await asyncio.sleep(1 - clock() % 1)


async def look_once(source: KubeletSource, clock: Callable[[], float]) -> None:
    """Read all nodes. Raises BadInput or Unavailable where none of the first few can be read.

    Of thousands that do not answer, the rest would take an hour.
    """
    nodes = list(source.nodes)
    few = nodes[:_FEW]
    await source.look(few, clock)
    source.refuse_silence(few, int(clock()))
    await source.look(nodes[_FEW:], clock)


async def look_twice(source: KubeletSource, clock: Callable[[], float], apart_seconds: float) -> None:
    """Read all nodes twice, some seconds apart: the least that tells a rate.

    It ends with the first minute at which both are known. Raises as `look_once` does.
    """
    first = clock()
    await look_once(source, clock)
    await asyncio.sleep(max(0.0, first + apart_seconds - clock()))
    await source.look(source.nodes, clock)
    await asyncio.sleep(-clock() % _STEP_SECONDS)
