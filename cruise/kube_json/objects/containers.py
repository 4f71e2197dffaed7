"""Decode containers: spec and status joined; equal ones are shared between pods."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from sys import getrefcount, intern
from typing import Generic, TypeVar

from cruise.domain.cluster import Container, ContainerRole, OomKill, Pod
from cruise.domain.heaps import HeapBound
from cruise.domain.pod_resources import find_containers_sharing_limit, get_memory_limit_at_kill
from cruise.domain.resources import StatedResources
from cruise.errors import BadInputError
from cruise.kube_json.objects.quantities import LATEST_TIME, MAXIMUM_QUANTITY, read_amounts, read_extended
from cruise.kube_json.wire.pod_json import (
    ContainerSpec,
    ContainerStatus,
    PodSpec,
    PodStatus,
    QuantityMap,
    TerminatedState,
)

# Shared values.

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

# One value may have a hundred KiB: the affinity of a pod with very many terms.
_MINIMUM_ENTRIES = 128


def _count_references(values: Iterable[object]) -> list[int]:
    return [getrefcount(value) for value in values]


# References of a value that only the table has; depends on the interpreter.
_UNUSED_REFERENCES = _count_references({0: object()}.values())[0]


class SharedValues(Generic[KeyT, ValueT]):
    """Stores one value a key, and from time to time drops values that are not referenced elsewhere.

    Its size stays proportional to the values in use. Parts of a value must be referenced only through it.
    """

    __slots__ = ("_limit", "_values")

    def __init__(self) -> None:
        self._values: dict[KeyT, ValueT] = {}
        self._limit = _MINIMUM_ENTRIES

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: KeyT) -> ValueT | None:
        """Return the value of a key, or None."""
        return self._values.get(key)

    def store(self, key: KeyT, value: ValueT) -> ValueT:
        """Store a value and return it."""
        if len(self._values) >= self._limit:
            self._drop_unused()
        self._values[key] = value
        return value

    def share(self, key: KeyT, make: Callable[[], ValueT]) -> ValueT:
        """Return the value of a key, created at its first use."""
        known = self._values.get(key)
        return self.store(key, make()) if known is None else known

    def _drop_unused(self) -> None:
        holders = _count_references(self._values.values())
        self._values = {
            key: value
            for (key, value), count in zip(self._values.items(), holders, strict=True)
            if count > _UNUSED_REFERENCES + (key is value)
        }
        self._limit = max(_MINIMUM_ENTRIES, 2 * len(self._values))


Extended = tuple[tuple[str, int], ...]
_Entry = tuple[Container, Extended]

# A key and its container take 2 kB, and each new pod may have sizes of its own: only the latest are kept. Lists are
# sorted by name, so that the replicas of a workload follow one another.
_CACHE_SIZE = 1024
_HUGE_PAGES = "hugepages-"
# The quantities of so many containers are added; those of more containers are capped to the same sum.
_SUMMED_UNCAPPED = 8


@dataclass(frozen=True, slots=True)
class ContainerDecoder:
    """Joins container specs with their statuses; equal containers are one object."""

    _cache: dict[tuple[object, ...], _Entry] = field(default_factory=dict)
    _values: SharedValues[Container, Container] = field(default_factory=SharedValues)
    _sums: SharedValues[Extended, Extended] = field(default_factory=SharedValues)

    def read_all(
        self, spec: PodSpec, status: PodStatus | None, heaps: Sequence[HeapBound | None]
    ) -> tuple[tuple[Container, ...], Extended]:
        """Return init containers and sidecars in spec order, then main containers, and the pod's extended requests.

        `heaps` has the bound of each in that order. BadInputError names the place within the pod.
        """
        entries = []
        if spec.init_containers:
            reports = _match_statuses(spec.init_containers, status.init_container_statuses if status else None)
            for index, container in enumerate(spec.init_containers):
                role = ContainerRole.SIDECAR if container.restart_policy == "Always" else ContainerRole.INIT
                report = reports[index] if role is ContainerRole.SIDECAR else None
                place = f"spec.initContainers[{index}]"
                entries.append(self._read(container, role, report, heaps[index], place))
        reports = _match_statuses(spec.containers, status.container_statuses if status else None)
        for index, container in enumerate(spec.containers):
            heap = heaps[index - len(spec.containers)]
            entries.append(self._read(container, ContainerRole.MAIN, reports[index], heap, f"spec.containers[{index}]"))
        if len(entries) > 1:
            _check_unique_names([container.name for container, _ in entries])
        if len(entries) > _SUMMED_UNCAPPED:
            # Any user may create a pod with thousands of containers.
            entries = [_cap_entry(entry, MAXIMUM_QUANTITY * _SUMMED_UNCAPPED // len(entries)) for entry in entries]
        containers = tuple([container for container, _ in entries])
        if not (spec.resources or spec.overhead or any([extended for _, extended in entries])):
            return containers, ()
        extended = _apply_pod_level(spec, _sum_extended(entries))
        return containers, self._sums.share(extended, lambda: extended)

    def _read(
        self,
        spec: ContainerSpec,
        role: ContainerRole,
        report: ContainerStatus | None,
        heap: HeapBound | None,
        place: str,
    ) -> _Entry:
        resources, actual = spec.resources, report.resources if report else None
        key = (
            spec.name,
            role,
            spec.resize_policy,
            _hashable(resources.requests) if resources else None,
            _hashable(resources.limits) if resources else None,
            _hashable(report.allocated_resources) if report else None,
            (_hashable(actual.requests), _hashable(actual.limits)) if actual else None,
            report.restart_count if report else 0,
            _is_running(report),
            heap,
        )
        entry = self._cache.get(key)
        if entry is None:
            container, extended = _build_container(spec, role, report, heap, place)
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            entry = self._cache[key] = (self._values.share(container, lambda: container), extended)
        return entry


def _cap_entry(entry: _Entry, most: int) -> _Entry:
    """Return a container whose quantities are at most `most`; mostly the same."""
    container, extended = entry
    reported = (container.allocated, container.actual, container.actual_limits)
    stated = [one for one in (container.requests, container.limits, *reported) if one is not None]
    if max(0, *(max(one.cpu_millicores or 0, one.memory_bytes or 0) for one in stated)) > most:
        requests, limits = _cap_amounts(container.requests, most), _cap_amounts(container.limits, most)
        allocated, actual, actual_limits = (None if one is None else _cap_amounts(one, most) for one in reported)
        container = replace(
            container,
            requests=requests,
            limits=limits,
            allocated=allocated,
            actual=actual,
            actual_limits=actual_limits,
        )
    return container, tuple([(name, min(count, most)) for name, count in extended])


def _cap_amounts(stated: StatedResources, most: int) -> StatedResources:
    cpu, memory = stated.cpu_millicores, stated.memory_bytes
    return StatedResources(None if cpu is None else min(cpu, most), None if memory is None else min(memory, most))


def _hashable(values: QuantityMap | None) -> tuple[object, ...] | None:
    return None if values is None else tuple(values.items())


def _match_statuses(
    containers: Sequence[ContainerSpec], reports: Sequence[ContainerStatus] | None
) -> Sequence[ContainerStatus | None]:
    """Return the status of each container. Kubelets sort them by name."""
    if not reports:
        return (None,) * len(containers)
    if len(containers) == len(reports) == 1 and containers[0].name == reports[0].name:
        return reports
    by_name = {report.name: report for report in reversed(reports)}
    return [by_name.get(container.name) for container in containers]


def _build_container(
    spec: ContainerSpec, role: ContainerRole, report: ContainerStatus | None, heap: HeapBound | None, place: str
) -> _Entry:
    """Build one container; as in kube-apiserver, absent requests equal the limits."""
    if not spec.name:
        raise BadInputError(f"{place}: has no name; add one")
    stated = spec.resources
    requests = read_amounts(stated.requests if stated else None, f"{place}.resources.requests")
    limits = read_amounts(stated.limits if stated else None, f"{place}.resources.limits")
    extended = read_extended(stated.limits if stated else None, f"{place}.resources.limits")
    extended |= read_extended(stated.requests if stated else None, f"{place}.resources.requests")
    restarts = {rule.resource_name for rule in spec.resize_policy or () if rule.restart_policy == "RestartContainer"}
    allocated = actual = actual_limits = None
    if report is not None:
        reported = f"status of container {spec.name}"
        if report.allocated_resources is not None:
            allocated = _share_if_equal(
                requests, read_amounts(report.allocated_resources, f"{reported}: allocatedResources")
            )
        if report.resources is not None:
            actual = _share_if_equal(
                requests, read_amounts(report.resources.requests, f"{reported}: resources.requests")
            )
            actual_limits = _share_if_equal(
                limits, read_amounts(report.resources.limits, f"{reported}: resources.limits")
            )
    container = Container(
        name=intern(spec.name),
        role=role,
        requests=requests.with_defaults(limits),
        limits=limits,
        allocated=allocated,
        actual=actual,
        actual_limits=actual_limits,
        cpu_resize_restarts="cpu" in restarts,
        memory_resize_restarts="memory" in restarts,
        restart_count=report.restart_count if report else 0,
        running=_is_running(report),
        heap=heap,
    )
    return container, tuple(sorted((intern(resource), count) for resource, count in extended.items()))


def _is_running(report: ContainerStatus | None) -> bool:
    return report is None or report.state is None or report.state.running is not None


def _share_if_equal(stated: StatedResources, reported: StatedResources) -> StatedResources:
    """Return the reported values, as the same object if they equal the stated ones."""
    return stated if stated == reported else reported


def _check_unique_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInputError(f'spec: two containers have the name "{twice}"; rename one')


def _apply_pod_level(spec: PodSpec, summed: Extended) -> Extended:
    """Replace the sum by pod-level huge pages, and add overhead of any resource.

    Source: KEP-2837, KEP-688.
    """
    whole = dict(summed)
    stated = spec.resources
    if stated is not None:
        pod_level = read_extended(stated.limits, "spec.resources.limits")
        pod_level |= read_extended(stated.requests, "spec.resources.requests")
        whole |= {name: count for name, count in pod_level.items() if name.startswith(_HUGE_PAGES)}
    for name, count in read_extended(spec.overhead, "spec.overhead").items():
        whole[intern(name)] = whole.get(name, 0) + count
    return tuple(sorted(whole.items()))


def _sum_extended(entries: Sequence[_Entry]) -> Extended:
    """Sum extended requests as kube-scheduler does: sidecars and main containers, at least those of init containers."""
    running: dict[str, int] = {}
    floor: dict[str, int] = {}
    for container, extended in entries:
        for resource, count in extended:
            if container.role is ContainerRole.INIT:
                floor[resource] = max(floor.get(resource, 0), count + running.get(resource, 0))
            else:
                running[resource] = running.get(resource, 0) + count
    names = sorted(running.keys() | floor.keys())
    return tuple((name, max(running.get(name, 0), floor.get(name, 0))) for name in names)


# OOM kills in pod statuses.

_REASON = "OOMKilled"


def read_oom_kills(pod: Pod, status: PodStatus | None) -> Sequence[OomKill]:
    """Return the kills in `lastState` and `state` of every container.

    Container runtimes report OOMKilled if the kernel killed any process of the container's control group, whatever the
    exit code: a container whose main process survives a killed child may end with 0, 1 or 143 (ADR 0010). The limit at
    the kill is not recorded; the present limit is used.
    """
    if status is None:
        return ()
    kills: list[OomKill] = []
    for report in (status.init_container_statuses or ()) + (status.container_statuses or ()):
        for state in (report.last_state, report.state):
            if state is not None and state.terminated is not None:
                kills += _read_kills(pod, report, state.terminated)
    return kills


def _read_kills(pod: Pod, report: ContainerStatus, ended: TerminatedState) -> Iterator[OomKill]:
    if ended.reason != _REASON or ended.finished_at is None or ended.finished_at > LATEST_TIME:
        return
    for container in pod.containers:
        if container.name == report.name:
            limits, requests = container.actual_limits or container.limits, container.actual or container.requests
            yield OomKill(
                namespace=pod.namespace,
                pod=pod.name,
                pod_uid=pod.uid,
                container=container.name,
                workload=pod.workload,
                identity=pod.identity,
                node=pod.node,
                finished_at=ended.finished_at,
                memory_limit_bytes=get_memory_limit_at_kill(pod, container.limits if pod.pod_level else limits),
                memory_request_bytes=requests.memory_bytes,
                role=container.role,
                restarts=report.restart_count,
                runs_to_completion=pod.runs_to_completion,
                shares_limit_with=find_containers_sharing_limit(pod, container),
            )
