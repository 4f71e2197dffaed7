"""Out-of-memory kills as they are seen, with the limits that were in force when they happened."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import replace

from cruise.domain.cluster import OomKill, Pod
from cruise.kube_json.objects.oom_kills import oom_kills_of
from cruise.kube_json.wire.pod_json import PodStatus

MOST_WAITING = 4096
"""Kills; a listener that is that far behind gets those that pods still show instead of every one in between."""


def kills_with_limits_before(
    pod: Pod, status: PodStatus | None, before: Pod | None, known: Sequence[OomKill]
) -> tuple[tuple[OomKill, ...], Sequence[OomKill]]:
    """Return all kills that a pod's status shows, and those among them that are new.

    `before` is the same pod as it was until now, and `known` are the kills that it showed: a kill is recognised by its
    container and time, whether the container's state shows it, its last state, or both. Its limit and request
    are those from before: a container that was started again may have others, and no status shows which it had.
    """
    shown = oom_kills_of(pod, status)
    if not shown:
        return (), ()
    by_key = {kill.key: kill for kill in known}
    kills: list[OomKill] = []
    fresh: list[OomKill] = []
    for kill in shown:
        earlier = by_key.get(kill.key)
        if earlier is None:
            earlier = by_key[kill.key] = _as_before(kill, before)
            fresh.append(earlier)
        if earlier not in kills:
            kills.append(earlier)
    return tuple(kills), fresh


def _as_before(kill: OomKill, before: Pod | None) -> OomKill:
    for container in before.containers if before is not None else ():
        if container.name == kill.container:
            limits, requests = container.actual_limits or container.limits, container.actual or container.requests
            return replace(kill, memory_limit_bytes=limits.memory_bytes, memory_request_bytes=requests.memory_bytes)
    return kill


class OomWatch:
    """Hands kills to every listener. `shown` returns those that pods still show."""

    def __init__(self, shown: Callable[[], Iterable[OomKill]], most_waiting: int = MOST_WAITING) -> None:
        self._shown = shown
        self._most_waiting = most_waiting
        self._listeners: list[_Listener] = []

    def report(self, kill: OomKill) -> None:
        """Hand on a kill, without waiting."""
        for listener in self._listeners:
            listener.report(kill, self._most_waiting)

    async def kills(self) -> AsyncGenerator[OomKill, None]:
        """Yield the kills that pods show at the beginning, then each as it is seen; some may come again."""
        listener = _Listener()
        self._listeners.append(listener)
        try:
            while True:
                if listener.behind:
                    listener.begin_anew()
                    for kill in list(self._shown()):
                        yield kill
                while listener.waiting and not listener.behind:
                    yield listener.waiting.popleft()
                if not listener.behind:
                    listener.news.clear()
                    await listener.news.wait()
        finally:
            self._listeners.remove(listener)


class _Listener:
    """What one listener has not yet taken; `behind` says that some of it was dropped."""

    def __init__(self) -> None:
        self.waiting: deque[OomKill] = deque()
        self.news = asyncio.Event()
        self.behind = True

    def begin_anew(self) -> None:
        self.waiting.clear()
        self.behind = False

    def report(self, kill: OomKill, most_waiting: int) -> None:
        if len(self.waiting) >= most_waiting:
            self.behind = True
        else:
            self.waiting.append(kill)
        self.news.set()
