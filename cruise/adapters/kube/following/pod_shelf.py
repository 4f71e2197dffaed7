"""All pods, namespace by namespace, so that a snapshot sorts and resolves only where something changed."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from cruise.adapters.kube.following.oom_watch import kills_with_limits_before
from cruise.adapters.kube.following.shelf import Key
from cruise.domain.cluster import OomKill, Pod, WorkloadRef
from cruise.errors import BadInput
from cruise.kube_json.objects.annotations import StringMaps
from cruise.kube_json.objects.owners import INTERMEDIATE_KINDS, Owners
from cruise.kube_json.objects.pod import PodReader
from cruise.kube_json.objects.priority_classes import PriorityClass
from cruise.kube_json.reading.stream import Unreadable, unreadable
from cruise.kube_json.wire.pod_json import PodObject

_by_name = attrgetter("name")


class PodShelf:
    """Pods as decisions read them. `changed` is called for every change, `killed` for each kill once it is seen."""

    def __init__(
        self,
        owners: Owners,
        maps: StringMaps,
        changed: Callable[[Key], None],
        killed: Callable[[OomKill], None],
        classes: Mapping[str, PriorityClass],
    ) -> None:
        self.odd: dict[Key, Unreadable] = {}
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

    def put(self, item: PodObject | Unreadable) -> None:
        """Take a pod as it is now."""
        if isinstance(item, Unreadable):
            self._set_apart(item)
            return
        try:
            pod = self._reader.read(item)
        except BadInput as error:
            self._set_apart(unreadable(item, item.spec.node_name, str(error)))
            return
        key = (pod.namespace, pod.name)
        before = self.get(*key)
        same = before is not None and before.uid == pod.uid
        self._see_kills(key, pod, before if same else None, item)
        pod = self._finish(self._with_known_workload(pod, before) if before is not None and same else pod)
        if self.odd.pop(key, None) is None and pod == before:
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
        odd = self.odd.pop(key, None)
        if self._take_out(key) or odd is not None:
            self._touch(key)

    def names(self) -> set[Key]:
        """Return the names of all pods."""
        readable = {(namespace, name) for namespace, pods in self._pods.items() for name in pods}
        return readable | self.odd.keys()

    def namespaces(self) -> Set[str]:
        """Return the namespaces that have pods."""
        return self._pods.keys()

    def get(self, namespace: str, name: str) -> Pod | None:
        """Return one pod as last seen."""
        return self._pods.get(namespace, {}).get(name)

    def read(self, document: PodObject) -> Pod:
        """Decode a pod as those here are. Raises BadInput."""
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
        return tuple([pod for pod in pods if pod.node not in absent or not (pod.terminal or pod.terminating)])

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
                workload = self._owners.workload_of(*direct, pod.labels) or pod.workload
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
        kills, fresh = kills_with_limits_before(pod, document.status, before, known)
        if kills:
            self._kills[key] = kills
        else:
            self._kills.pop(key, None)
        for kill in fresh:
            self._killed(kill)

    def _set_apart(self, odd: Unreadable) -> None:
        key = (odd.namespace, odd.name)
        self._take_out(key)
        self._kills.pop(key, None)
        self.odd[key] = odd
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
