"""Writes that the watch may not show yet; no decision uses the state before them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import assert_never

from cruise.adapters.kube.cache import ClusterCache
from cruise.domain.actions import Action, ContainerTarget, EvictPod, ResizePod, TaintNode, UntaintNode
from cruise.domain.cluster import Pod
from cruise.domain.resources import StatedResources

MAX_WAIT_SECONDS = 1.0
_POLL_SECONDS = 0.01
# The client's rate limit counts them too.
_PARALLEL_READS = 16

ObjectKey = tuple[str, str, str]
"""Plural of the kind, namespace and name."""


class PendingWrites:
    """Writes whose effect the cache does not show yet; `read` reads one object into the cache."""

    def __init__(
        self,
        cache: ClusterCache,
        read: Callable[[ObjectKey], Awaitable[None]],
        timeout_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        self._cache = cache
        self._timeout_seconds = timeout_seconds
        self._read = read
        self._certain: dict[ObjectKey, Action] = {}
        self._uncertain: set[ObjectKey] = set()

    def add(self, action: Action, certain: bool) -> None:
        """Add a write; it is not `certain` whether the server applied it if its answer was lost."""
        key = _get_key(action)
        if certain:
            self._certain[key] = action
        else:
            self._uncertain.add(key)

    async def settle(self) -> None:
        """Wait shortly for the watches, then read the objects that they do not show yet.

        Later writes are not waited for. Raises what reading raises.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_seconds
        hidden, uncertain = self._select_hidden(dict(self._certain)), set(self._uncertain)
        while hidden and loop.time() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
            hidden = self._select_hidden(hidden)
        keys = list(hidden.keys() | uncertain)
        for start in range(0, len(keys), _PARALLEL_READS):
            reads = [self._read_again(key) for key in keys[start : start + _PARALLEL_READS]]
            for failure in await asyncio.gather(*reads, return_exceptions=True):
                if failure is not None:
                    raise failure

    async def _read_again(self, key: ObjectKey) -> None:
        written = self._certain.get(key)
        await self._read(key)
        self._uncertain.discard(key)
        if self._certain.get(key) is written:
            self._certain.pop(key, None)

    def _select_hidden(self, pending: Mapping[ObjectKey, Action]) -> Mapping[ObjectKey, Action]:
        """Return the writes that the cache does not show, and forget the others."""
        hidden = {}
        for key, action in pending.items():
            if self._certain.get(key) is not action:
                continue
            if _shows(self._cache, action):
                del self._certain[key]
            else:
                hidden[key] = action
        return hidden


def _get_key(action: Action) -> ObjectKey:
    match action:
        case ResizePod() | EvictPod():
            return "pods", action.namespace, action.pod
        case TaintNode() | UntaintNode():
            return "nodes", "", action.node
        case _:
            assert_never(action)


def _shows(cache: ClusterCache, action: Action) -> bool:
    """Return whether the cache shows the write, or a later state of the object."""
    match action:
        case ResizePod():
            pod = cache.pods.get(action.namespace, action.pod)
            return pod is None or pod.uid != action.uid or pod.terminating or _has_targets(pod, action.containers)
        case EvictPod():
            pod = cache.pods.get(action.namespace, action.pod)
            return pod is None or pod.uid != action.uid or pod.terminating or pod.is_finished
        case TaintNode() | UntaintNode():
            node = cache.get_node(action.node)
            return node is None or (action.taint in node.taints) == isinstance(action, TaintNode)
        case _:
            assert_never(action)


def _has_targets(pod: Pod, targets: Iterable[ContainerTarget]) -> bool:
    containers = {part.name: part for part in pod.resizable_parts}
    for target in targets:
        container = containers.get(target.container)
        if container is None:
            return False
        if not (_matches(container.requests, target.requests) and _matches(container.limits, target.limits)):
            return False
    return True


def _matches(amounts: StatedResources, target: StatedResources) -> bool:
    return target.cpu_millicores in (None, amounts.cpu_millicores) and target.memory_bytes in (
        None,
        amounts.memory_bytes,
    )
