"""Writes that the watch may not show yet: nothing is decided on the state before them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import assert_never

from cruise.adapters.kube.cache import ClusterCache
from cruise.domain.actions import Action, ContainerTarget, EvictPod, ResizePod, TaintNode, UntaintNode
from cruise.domain.cluster import Pod
from cruise.domain.resources import StatedResources

MAX_WAIT_SECONDS = 1.0
_LOOK_SECONDS = 0.01
# Of so many reads at a time a server hardly notices; they are counted against the client's rate besides.
_READS_AT_ONCE = 16

ObjectKey = tuple[str, str, str]
"""Plural of the kind, namespace and name."""


class PendingWrites:
    """Writes whose effect the cache does not show yet. `read` reads one object anew, and puts it into the cache."""

    def __init__(
        self,
        cache: ClusterCache,
        read: Callable[[ObjectKey], Awaitable[None]],
        patience_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        self._cache = cache
        self._patience_seconds = patience_seconds
        self._read = read
        self._certain: dict[ObjectKey, Action] = {}
        self._doubtful: set[ObjectKey] = set()

    def add(self, action: Action, certain: bool) -> None:
        """Note a write; one that is not `certain` may have been done or not."""
        place = _place(action)
        if certain:
            self._certain[place] = action
        else:
            self._doubtful.add(place)

    async def settle(self) -> None:
        """Wait a little for the watches, then read what they still do not show. Raises what reading raises.

        What is written meanwhile is not waited for.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_seconds
        hidden, doubtful = self._hidden(dict(self._certain)), set(self._doubtful)
        while hidden and loop.time() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
            hidden = self._hidden(hidden)
        places = list(hidden.keys() | doubtful)
        for start in range(0, len(places), _READS_AT_ONCE):
            together = [self._read_anew(place) for place in places[start : start + _READS_AT_ONCE]]
            for failure in await asyncio.gather(*together, return_exceptions=True):
                if failure is not None:
                    raise failure

    async def _read_anew(self, place: ObjectKey) -> None:
        written = self._certain.get(place)
        await self._read(place)
        self._doubtful.discard(place)
        if self._certain.get(place) is written:
            self._certain.pop(place, None)

    def _hidden(self, awaited: Mapping[ObjectKey, Action]) -> Mapping[ObjectKey, Action]:
        """Return those of the writes that the cache does not show, and forget the others."""
        hidden = {}
        for place, action in awaited.items():
            if self._certain.get(place) is not action:
                continue
            if _shows(self._cache, action):
                del self._certain[place]
            else:
                hidden[place] = action
        return hidden


def _place(action: Action) -> ObjectKey:
    match action:
        case ResizePod() | EvictPod():
            return "pods", action.namespace, action.pod
        case TaintNode() | UntaintNode():
            return "nodes", "", action.node
        case _:
            assert_never(action)


def _shows(cache: ClusterCache, action: Action) -> bool:
    """Tell whether the cache's object is as the action left it, or another by now."""
    match action:
        case ResizePod():
            pod = cache.pods.get(action.namespace, action.pod)
            return pod is None or pod.uid != action.uid or pod.terminating or _has(pod, action.containers)
        case EvictPod():
            pod = cache.pods.get(action.namespace, action.pod)
            return pod is None or pod.uid != action.uid or pod.terminating or pod.is_finished
        case TaintNode() | UntaintNode():
            node = cache.get_node(action.node)
            return node is None or (action.taint in node.taints) == isinstance(action, TaintNode)
        case _:
            assert_never(action)


def _has(pod: Pod, targets: Iterable[ContainerTarget]) -> bool:
    containers = {container.name: container for container in pod.containers}
    for target in targets:
        container = containers.get(target.container)
        if container is None:
            return False
        if not (_holds(container.requests, target.requests) and _holds(container.limits, target.limits)):
            return False
    return True


def _holds(amounts: StatedResources, target: StatedResources) -> bool:
    return target.cpu_millicores in (None, amounts.cpu_millicores) and target.memory_bytes in (
        None,
        amounts.memory_bytes,
    )
