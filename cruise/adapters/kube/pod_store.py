"""All pods, namespace by namespace, so that a snapshot sorts and resolves only where something changed."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from cruise.adapters.kube.object_store import Key
from cruise.domain.cluster import OomKill, Pod, WorkloadRef
from cruise.errors import BadInputError
from cruise.kube_json.objects.containers import read_oom_kills
from cruise.kube_json.objects.owners import INTERMEDIATE_KINDS, OwnerIndex, PriorityClass, SharedStringMaps
from cruise.kube_json.objects.pod import PodReader
from cruise.kube_json.reading.stream import UnreadableObject, create_unreadable
from cruise.kube_json.wire.pod_json import PodObject, PodStatus

# Out-of-memory kills as they are seen, with the limits that were in force when they happened.

MAX_QUEUED = 4096
"""Kills; a listener that is that far behind gets those that pods still show instead of every one in between."""


def find_kills_with_earlier_limits(
    pod: Pod, status: PodStatus | None, before: Pod | None, known: Sequence[OomKill]
) -> tuple[tuple[OomKill, ...], Sequence[OomKill]]:
    """Return all kills that a pod's status shows, and those among them that are new.

    `before` is the same pod as it was until now, and `known` are the kills that it showed: a kill is recognised by its
    container and time, whether the container's state shows it, its last state, or both. Its limit and request
    are those from before: a container that was started again may have others, and no status shows which it had.
    """
    shown = read_oom_kills(pod, status)
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


class OomKillWatch:
    """Hands kills to every listener. `shown` returns those that pods still show."""

    def __init__(self, shown: Callable[[], Iterable[OomKill]], most_waiting: int = MAX_QUEUED) -> None:
        self._shown = shown
        self._most_waiting = most_waiting
        self._listeners: list[_KillListener] = []

    def report(self, kill: OomKill) -> None:
        """Hand on a kill, without waiting."""
        for listener in self._listeners:
            listener.report(kill, self._most_waiting)

    async def oom_kills(self) -> AsyncGenerator[OomKill, None]:
        """Yield the kills that pods show at the beginning, then each as it is seen; some may come again."""
        listener = _KillListener()
        self._listeners.append(listener)
        try:
            while True:
                if listener.has_dropped:
                    listener.reset()
                    for kill in list(self._shown()):
                        yield kill
                while listener.queue and not listener.has_dropped:
                    yield listener.queue.popleft()
                if not listener.has_dropped:
                    listener.queue_changed.clear()
                    await listener.queue_changed.wait()
        finally:
            self._listeners.remove(listener)


class _KillListener:
    """What one listener has not yet taken; `behind` says that some of it was dropped."""

    def __init__(self) -> None:
        self.queue: deque[OomKill] = deque()
        self.queue_changed = asyncio.Event()
        self.has_dropped = True

    def reset(self) -> None:
        self.queue.clear()
        self.has_dropped = False

    def report(self, kill: OomKill, most_waiting: int) -> None:
        if len(self.queue) >= most_waiting:
            self.has_dropped = True
        else:
            self.queue.append(kill)
        self.queue_changed.set()


_by_name = attrgetter("name")


class PodStore:
    """Pods as decisions read them. `changed` is called for every change, `killed` for each kill once it is seen."""

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
        self._reader = PodReader(owners, maps, classes)
        self._changed = changed
        self._killed = killed
        self._pods: dict[str, dict[str, Pod]] = {}
        self._unsorted: set[str] = set()
        self._finished: dict[str, tuple[Pod, ...]] = {}
        self._kills: dict[Key, tuple[OomKill, ...]] = {}
        self._pods_on: Counter[str] = Counter()
        self._windows: Collection[str] = frozenset()

    def __len__(self) -> int:
        return sum(len(pods) for pods in self._pods.values())

    def put(self, item: PodObject | UnreadableObject) -> None:
        """Take a pod as it is now."""
        if isinstance(item, UnreadableObject):
            self._set_apart(item)
            return
        try:
            pod = self._reader.read(item)
        except BadInputError as error:
            self._set_apart(create_unreadable(item, item.spec.node_name, str(error)))
            return
        key = (pod.namespace, pod.name)
        before = self.get(*key)
        same = before is not None and before.uid == pod.uid
        self._see_kills(key, pod, before if same else None, item)
        pod = self._finish(self._with_known_workload(pod, before) if before is not None and same else pod)
        if self.unreadable.pop(key, None) is None and pod == before:
            return
        if before is not None:
            self._leave(before)
        else:
            self._unsorted.add(pod.namespace)
        self._pods.setdefault(pod.namespace, {})[pod.name] = pod
        if pod.node is not None:
            self._pods_on[pod.node] += 1
        self._touch(key)

    def drop(self, key: Key) -> None:
        """Let a pod go."""
        self._kills.pop(key, None)
        odd = self.unreadable.pop(key, None)
        if self._take_out(key) or odd is not None:
            self._touch(key)

    def names(self) -> set[Key]:
        """Return the names of all pods."""
        readable = {(namespace, name) for namespace, pods in self._pods.items() for name in pods}
        return readable | self.unreadable.keys()

    def namespaces(self) -> Set[str]:
        """Return the namespaces that have pods."""
        return self._pods.keys()

    def get(self, namespace: str, name: str) -> Pod | None:
        """Return one pod as last seen."""
        return self._pods.get(namespace, {}).get(name)

    def read(self, document: PodObject) -> Pod:
        """Decode a pod as those here are. Raises BadInputError."""
        return self._finish(self._reader.read(document))

    def owner_changed(self, namespace: str) -> None:
        """Look up the workloads of a namespace's pods anew."""
        self._finished.pop(namespace, None)

    def nodes_in_use(self) -> Set[str]:
        """Return the nodes that pods are on."""
        return self._pods_on.keys()

    def shown_kills(self) -> Iterator[OomKill]:
        """Yield the kills that pods still show, sorted by pod, with the workloads that those are known to have."""
        for key in sorted(self._kills):
            pod = self.get(*key)
            if pod is not None:
                yield from (replace(kill, workload=pod.workload) for kill in self._kills[key])

    def pods(self, windows: Collection[str], absent: Collection[str]) -> tuple[Pod, ...]:
        """Return all pods, sorted; those that have finished or are going leave with a node that is `absent`.

        `windows` are the nodes that run Windows, whatever the pods say.
        """
        if windows != self._windows:
            self._windows = windows
            self._finished.clear()
        for namespace in self._pods.keys() - self._finished.keys():
            self._finished[namespace] = tuple(self._finish_all(namespace))
        pods = tuple(chain.from_iterable(self._finished[namespace] for namespace in sorted(self._finished)))
        if not absent:
            return pods
        return tuple([pod for pod in pods if pod.node not in absent or not (pod.is_finished or pod.terminating)])

    def _finish_all(self, namespace: str) -> Iterable[Pod]:
        """Yield a namespace's pods by name, and keep what was looked up for them."""
        pods = self._pods[namespace]
        if namespace in self._unsorted:
            self._unsorted.discard(namespace)
            pods = self._pods[namespace] = {pod.name: pod for pod in sorted(pods.values(), key=_by_name)}
        for name, pod in pods.items():
            finished = self._finish(pod)
            if finished is not pod:
                pods[name] = finished
            yield finished

    def _finish(self, pod: Pod) -> Pod:
        """Add what is read from other objects: the topmost controller, the node's operating system."""
        if pod.node in self._windows and not pod.windows:
            pod = replace(pod, windows=True)
        if pod.owner_kind in INTERMEDIATE_KINDS and pod.owner_name is not None:
            direct = (pod.namespace, pod.owner_kind, pod.owner_name)
            if direct in self._controllers:
                workload = self._controllers[direct] or WorkloadRef(pod.owner_kind, pod.owner_name)
            elif pod.workload == WorkloadRef(pod.owner_kind, pod.owner_name):
                # Nothing is known above its owner so far; a CronJob may have come since.
                workload = self._owners.find_workload(*direct, pod.labels) or pod.workload
            else:
                return pod
            if workload != pod.workload:
                pod = replace(pod, workload=workload)
        return pod

    def _with_known_workload(self, pod: Pod, before: Pod) -> Pod:
        """Keep the workload that was looked up while the owner was there: owners may go before their pods."""
        direct = (pod.namespace, pod.owner_kind, pod.owner_name)
        if pod.workload == before.workload or direct in self._controllers or before.owner_name != pod.owner_name:
            return pod
        return replace(pod, workload=before.workload)

    def _see_kills(self, key: Key, pod: Pod, before: Pod | None, document: PodObject) -> None:
        known = self._kills.get(key, ()) if before is not None else ()
        kills, fresh = find_kills_with_earlier_limits(pod, document.status, before, known)
        if kills:
            self._kills[key] = kills
        else:
            self._kills.pop(key, None)
        for kill in fresh:
            self._killed(kill)

    def _set_apart(self, odd: UnreadableObject) -> None:
        key = (odd.namespace, odd.name)
        self._take_out(key)
        self._kills.pop(key, None)
        self.unreadable[key] = odd
        self._touch(key)

    def _take_out(self, key: Key) -> bool:
        namespace, name = key
        pods = self._pods.get(namespace, {})
        known = pods.pop(name, None)
        if known is None:
            return False
        if not pods:
            del self._pods[namespace]
        self._leave(known)
        return True

    def _leave(self, pod: Pod) -> None:
        if pod.node is not None:
            self._pods_on[pod.node] -= 1
            if not self._pods_on[pod.node]:
                del self._pods_on[pod.node]

    def _touch(self, key: Key) -> None:
        self._finished.pop(key[0], None)
        self._changed(key)
