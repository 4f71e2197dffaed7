"""All pods by namespace; a snapshot sorts and resolves only the namespaces that changed."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from cruise.adapters.kube.object_store import Key
from cruise.domain.cluster import OomKill, Pod
from cruise.domain.run_to_completion_operators import MAX_ENDED_PODS, CompletedPod
from cruise.errors import BadInputError
from cruise.kube_json.objects.containers import read_oom_kills
from cruise.kube_json.objects.owners import (
    INTERMEDIATE_KINDS,
    NO_OWNERS,
    OwnerIndex,
    PriorityClass,
    SharedStringMaps,
)
from cruise.kube_json.objects.pod import PodDecoder
from cruise.kube_json.reading.stream import UnreadableObject, create_unreadable
from cruise.kube_json.wire.pod_json import PodObject, PodStatus

MAX_QUEUED = 4096
"""Kills; a listener with a full queue receives the kills that pods still show instead."""


def find_kills_with_earlier_limits(
    pod: Pod, status: PodStatus | None, before: Pod | None, known: Sequence[OomKill]
) -> tuple[tuple[OomKill, ...], Sequence[OomKill]]:
    """Return all kills that a pod's status shows, and the new ones among them.

    `before` is the previous state of the same pod, and `known` the kills that it showed. A kill is identified by its
    container and time. Its limit and request are those of `before`: the container may have restarted with others, and
    no status shows the earlier ones.
    """
    shown = read_oom_kills(pod, status)
    if not shown:
        return (), ()
    by_key = {kill.key: kill for kill in known}
    kills: list[OomKill] = []
    new_kills: list[OomKill] = []
    for kill in shown:
        earlier = by_key.get(kill.key)
        if earlier is None:
            earlier = by_key[kill.key] = _with_earlier_sizes(kill, before)
            new_kills.append(earlier)
        if earlier not in kills:
            kills.append(earlier)
    return tuple(kills), new_kills


def _with_earlier_sizes(kill: OomKill, before: Pod | None) -> OomKill:
    for container in before.containers if before is not None else ():
        if container.name == kill.container:
            limits, requests = container.actual_limits or container.limits, container.actual or container.requests
            return replace(kill, memory_limit_bytes=limits.memory_bytes, memory_request_bytes=requests.memory_bytes)
    return kill


class OomKillWatch:
    """Sends kills to every listener; `get_shown` returns those that pods still show."""

    def __init__(self, get_shown: Callable[[], Iterable[OomKill]], max_queued: int = MAX_QUEUED) -> None:
        self._get_shown = get_shown
        self._max_queued = max_queued
        self._listeners: list[_KillListener] = []

    def report(self, kill: OomKill) -> None:
        """Send a kill to the listeners, without waiting."""
        for listener in self._listeners:
            listener.report(kill, self._max_queued)

    async def watch_oom_kills(self) -> AsyncGenerator[OomKill, None]:
        """Yield the kills that pods show at the start, then each new one; a kill may be repeated."""
        listener = _KillListener()
        self._listeners.append(listener)
        try:
            while True:
                if listener.has_dropped:
                    listener.reset()
                    for kill in list(self._get_shown()):
                        yield kill
                while listener.queue and not listener.has_dropped:
                    yield listener.queue.popleft()
                if not listener.has_dropped:
                    listener.queue_changed.clear()
                    await listener.queue_changed.wait()
        finally:
            self._listeners.remove(listener)


class _KillListener:
    """The queue of one listener; `has_dropped` if kills did not fit."""

    def __init__(self) -> None:
        self.queue: deque[OomKill] = deque()
        self.queue_changed = asyncio.Event()
        self.has_dropped = True

    def reset(self) -> None:
        self.queue.clear()
        self.has_dropped = False

    def report(self, kill: OomKill, max_queued: int) -> None:
        if len(self.queue) >= max_queued:
            self.has_dropped = True
        else:
            self.queue.append(kill)
        self.queue_changed.set()


_by_name = attrgetter("name")


class PodStore:
    """Pods as decisions read them; `changed` is called for each change, `killed` for each new kill."""

    def __init__(
        self,
        owners: OwnerIndex,
        maps: SharedStringMaps,
        changed: Callable[[Key], None],
        killed: Callable[[OomKill], None],
        classes: Mapping[str, PriorityClass],
    ) -> None:
        self.unreadable: dict[Key, UnreadableObject] = {}
        self._owners = owners
        self._controllers = owners.controllers
        self._reader = PodDecoder(owners, maps, classes)
        self._changed = changed
        self._killed = killed
        self._pods: dict[str, dict[str, Pod]] = {}
        self._unsorted: set[str] = set()
        self._resolved: dict[str, tuple[Pod, ...]] = {}
        self._kills: dict[Key, tuple[OomKill, ...]] = {}
        self._ended: deque[CompletedPod] = deque(maxlen=MAX_ENDED_PODS)
        self._pods_on: Counter[str] = Counter()
        self._windows: Collection[str] = frozenset()

    def __len__(self) -> int:
        return sum(len(pods) for pods in self._pods.values())

    def put(self, item: PodObject | UnreadableObject) -> None:
        """Add or replace a pod."""
        if isinstance(item, UnreadableObject):
            self._set_unreadable(item)
            return
        try:
            pod = self._reader.read(item)
        except BadInputError as error:
            self._set_unreadable(create_unreadable(item, item.spec.node_name, str(error)))
            return
        key = (pod.namespace, pod.name)
        before = self.get(*key)
        is_same = before is not None and before.uid == pod.uid
        self._update_kills(key, pod, before if is_same else None, item)
        pod = self._resolve(self._with_known_workload(pod, before) if before is not None and is_same else pod)
        if self.unreadable.pop(key, None) is None and pod == before:
            return
        if before is not None:
            self._uncount(before)
        else:
            self._unsorted.add(pod.namespace)
        self._pods.setdefault(pod.namespace, {})[pod.name] = pod
        if pod.node is not None:
            self._pods_on[pod.node] += 1
        self._report_change(key)

    def drop(self, key: Key) -> None:
        """Remove a pod."""
        self._kills.pop(key, None)
        unreadable = self.unreadable.pop(key, None)
        if self._remove(key) or unreadable is not None:
            self._report_change(key)

    def list_keys(self) -> set[Key]:
        """Return the names of all pods."""
        readable = {(namespace, name) for namespace, pods in self._pods.items() for name in pods}
        return readable | self.unreadable.keys()

    def list_namespaces(self) -> Set[str]:
        """Return the namespaces with pods."""
        return self._pods.keys()

    def get(self, namespace: str, name: str) -> Pod | None:
        """Return a pod as last seen."""
        return self._pods.get(namespace, {}).get(name)

    def read(self, document: PodObject) -> Pod:
        """Decode a pod like the stored ones. Raises BadInputError."""
        return self._resolve(self._reader.read(document))

    def invalidate_workloads(self, namespace: str) -> None:
        """Look up the workloads of a namespace's pods again."""
        self._resolved.pop(namespace, None)

    def find_nodes_in_use(self) -> Set[str]:
        """Return the nodes with pods."""
        return self._pods_on.keys()

    def list_ended_pods(self) -> tuple[CompletedPod, ...]:
        """Return the latest deleted pods that ran to completion, oldest first."""
        return tuple(self._ended)

    def list_shown_kills(self) -> Iterator[OomKill]:
        """Yield the kills that pods still show, sorted by pod, with the pods' workloads."""
        for key in sorted(self._kills):
            pod = self.get(*key)
            if pod is not None:
                yield from (replace(kill, workload=pod.workload) for kill in self._kills[key])

    def pods(self, windows: Collection[str], absent: Collection[str]) -> tuple[Pod, ...]:
        """Return all pods, sorted, except finished and terminating ones on `absent` nodes.

        `windows` are the nodes that run Windows.
        """
        if windows != self._windows:
            self._windows = windows
            self._resolved.clear()
        for namespace in self._pods.keys() - self._resolved.keys():
            self._resolved[namespace] = tuple(self._resolve_namespace(namespace))
        pods = tuple(chain.from_iterable(self._resolved[namespace] for namespace in sorted(self._resolved)))
        if not absent:
            return pods
        return tuple([pod for pod in pods if pod.node not in absent or not (pod.is_finished or pod.terminating)])

    def _resolve_namespace(self, namespace: str) -> Iterable[Pod]:
        """Yield the pods of a namespace by name, and store what was resolved."""
        pods = self._pods[namespace]
        if namespace in self._unsorted:
            self._unsorted.discard(namespace)
            pods = self._pods[namespace] = {pod.name: pod for pod in sorted(pods.values(), key=_by_name)}
        for name, pod in pods.items():
            resolved = self._resolve(pod)
            if resolved is not pod:
                pods[name] = resolved
            yield resolved

    def _resolve(self, pod: Pod) -> Pod:
        """Add what other objects say: the topmost controller and the node's operating system."""
        if pod.node in self._windows and not pod.runs_on_windows:
            pod = replace(pod, runs_on_windows=True)
        if pod.owner_kind in INTERMEDIATE_KINDS and pod.owner_name is not None:
            direct = (pod.namespace, pod.owner_kind, pod.owner_name)
            # While the owner has no known controller, its CronJob may be read.
            if direct in self._controllers or pod.workload == NO_OWNERS.find_workload_of(pod):
                workload = self._owners.find_workload_of(pod) or pod.workload
                if workload != pod.workload:
                    pod = replace(pod, workload=workload)
        return pod

    def _with_known_workload(self, pod: Pod, before: Pod) -> Pod:
        """Keep the workload that was found while the owner existed: owners may be deleted before their pods."""
        direct = (pod.namespace, pod.owner_kind, pod.owner_name)
        if pod.workload == before.workload or direct in self._controllers or before.owner_name != pod.owner_name:
            return pod
        return replace(pod, workload=before.workload)

    def _update_kills(self, key: Key, pod: Pod, before: Pod | None, document: PodObject) -> None:
        known = self._kills.get(key, ()) if before is not None else ()
        kills, new_kills = find_kills_with_earlier_limits(pod, document.status, before, known)
        if kills:
            self._kills[key] = kills
        else:
            self._kills.pop(key, None)
        for kill in new_kills:
            self._killed(kill)

    def _set_unreadable(self, unreadable: UnreadableObject) -> None:
        key = (unreadable.namespace, unreadable.name)
        self._remove(key)
        self._kills.pop(key, None)
        self.unreadable[key] = unreadable
        self._report_change(key)

    def _remove(self, key: Key) -> bool:
        namespace, name = key
        pods = self._pods.get(namespace, {})
        pod = pods.pop(name, None)
        if pod is None:
            return False
        ended = pod.ended_pod
        if ended is not None:
            self._ended.append(ended)
        if not pods:
            del self._pods[namespace]
        self._uncount(pod)
        return True

    def _uncount(self, pod: Pod) -> None:
        if pod.node is not None:
            self._pods_on[pod.node] -= 1
            if not self._pods_on[pod.node]:
                del self._pods_on[pod.node]

    def _report_change(self, key: Key) -> None:
        self._resolved.pop(key[0], None)
        self._changed(key)
