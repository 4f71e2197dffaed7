"""Containers of a pod: spec and kubelet's report joined, equal ones shared between pods."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from sys import getrefcount, intern
from typing import Generic, TypeVar

from cruise.domain.cluster import Container, ContainerRole, OomKill, Pod
from cruise.domain.resources import StatedResources
from cruise.errors import BadInputError
from cruise.kube_json.objects.quantities import read_amounts, read_extended
from cruise.kube_json.wire.pod_json import (
    ContainerSpec,
    ContainerStatus,
    PodSpec,
    PodStatus,
    QuantityMap,
    TerminatedState,
)

# One copy of equal values, for as long as it is in use.

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# One value may be a hundred KiB: the placement of a pod with very many terms.
_LEAST = 128


def _holders(values: Iterable[object]) -> list[int]:
    return [getrefcount(value) for value in values]


# What is counted for a value that only its table holds, which is up to the interpreter.
_ALONE = _holders({0: object()}.values())[0]


class SharedValues(Generic[K, V]):
    """Keeps one value of each key, and from time to time forgets those that are not referred to elsewhere any more.

    So it stays in proportion to what is in use, however many values come and go. What a value is made of must be
    reachable through it alone, or the count of its holders would miss some.
    """

    __slots__ = ("_known", "_most")

    def __init__(self) -> None:
        self._known: dict[K, V] = {}
        self._most = _LEAST

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: K) -> V | None:
        """Return the value of a key if it is known."""
        return self._known.get(key)

    def store(self, key: K, value: V) -> V:
        """Take a value as its key's."""
        if len(self._known) >= self._most:
            self._forget_unheld()
        self._known[key] = value
        return value

    def share(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, made at its first use."""
        known = self._known.get(key)
        return self.store(key, make()) if known is None else known

    def _forget_unheld(self) -> None:
        holders = _holders(self._known.values())
        self._known = {
            key: value
            for (key, value), count in zip(self._known.items(), holders, strict=True)
            if count > _ALONE + (key is value)
        }
        self._most = max(_LEAST, 2 * len(self._known))


Extended = tuple[tuple[str, int], ...]
_Entry = tuple[Container, Extended]

# Containers as they are written, which are several times larger than what is read of them: only the latest are kept.
_LATEST = 8192
_HUGE_PAGES = "hugepages-"


@dataclass(frozen=True, slots=True)
class ContainerReader:
    """Joins container specs with their statuses; equal results are one object, as replicas differ by little."""

    _latest: dict[tuple[object, ...], _Entry] = field(default_factory=dict)
    _known: SharedValues[Container, Container] = field(default_factory=SharedValues)
    _sums: SharedValues[Extended, Extended] = field(default_factory=SharedValues)

    def read_all(self, spec: PodSpec, status: PodStatus | None) -> tuple[tuple[Container, ...], Extended]:
        """Return init containers and sidecars in spec order, then the main ones, and the pod's extended requests.

        Raises BadInputError that names the place within the pod.
        """
        entries = []
        if spec.init_containers:
            reports = status.init_container_statuses or () if status else ()
            for index, container in enumerate(spec.init_containers):
                role = ContainerRole.SIDECAR if container.restart_policy == "Always" else ContainerRole.INIT
                report = _report_of(container.name, index, reports) if role is ContainerRole.SIDECAR else None
                entries.append(self._read(container, role, report, "spec.initContainers", index))
        reports = status.container_statuses or () if status else ()
        for index, container in enumerate(spec.containers):
            report = _report_of(container.name, index, reports)
            entries.append(self._read(container, ContainerRole.MAIN, report, "spec.containers", index))
        if len(entries) > 1:
            _refuse_equal_names([container.name for container, _ in entries])
        containers = tuple([container for container, _ in entries])
        if not (spec.resources or spec.overhead or any([extended for _, extended in entries])):
            return containers, ()
        extended = _of_pod(spec, _sum_extended(entries))
        return containers, self._sums.share(extended, lambda: extended)

    def _read(
        self, spec: ContainerSpec, role: ContainerRole, report: ContainerStatus | None, place: str, index: int
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
            _runs(report),
        )
        entry = self._latest.get(key)
        if entry is None:
            container, extended = _build(spec, role, report, f"{place}[{index}]")
            if len(self._latest) >= _LATEST:
                self._latest.clear()
            entry = self._latest[key] = (self._known.share(container, lambda: container), extended)
        return entry


def _hashable(values: QuantityMap | None) -> tuple[object, ...] | None:
    return None if values is None else tuple(values.items())


def _report_of(name: str, index: int, reports: tuple[ContainerStatus, ...]) -> ContainerStatus | None:
    """Return the status of the container called `name`; mostly it stands where the container does."""
    if index < len(reports) and reports[index].name == name:
        return reports[index]
    return next((report for report in reports if report.name == name), None)


def _build(spec: ContainerSpec, role: ContainerRole, report: ContainerStatus | None, place: str) -> _Entry:
    """Build one container; requests that are absent are what kube-apiserver makes them, the limits."""
    if not spec.name:
        raise BadInputError(f"{place}: has no name; add it")
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
            allocated = _same(requests, read_amounts(report.allocated_resources, f"{reported}: allocatedResources"))
        if report.resources is not None:
            actual = _same(requests, read_amounts(report.resources.requests, f"{reported}: resources.requests"))
            actual_limits = _same(limits, read_amounts(report.resources.limits, f"{reported}: resources.limits"))
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
        running=_runs(report),
    )
    return container, tuple(sorted((intern(resource), count) for resource, count in extended.items()))


def _runs(report: ContainerStatus | None) -> bool:
    return report is None or report.state is None or report.state.running is not None


def _same(stated: StatedResources, reported: StatedResources) -> StatedResources:
    """Return what is reported, mostly what is stated: then one object will do."""
    return stated if stated == reported else reported


def _refuse_equal_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInputError(f'spec: two containers are called "{twice}"; give each a name of its own')


def _of_pod(spec: PodSpec, summed: Extended) -> Extended:
    """Put huge pages that are stated for the whole pod in place of the sum, and add overhead of any resource.

    Source: KEP-2837, KEP-688.
    """
    whole = dict(summed)
    stated = spec.resources
    if stated is not None:
        of_pod = read_extended(stated.limits, "spec.resources.limits")
        of_pod |= read_extended(stated.requests, "spec.resources.requests")
        whole |= {name: count for name, count in of_pod.items() if name.startswith(_HUGE_PAGES)}
    for name, count in read_extended(spec.overhead, "spec.overhead").items():
        whole[intern(name)] = whole.get(name, 0) + count
    return tuple(sorted(whole.items()))


def _sum_extended(entries: Sequence[_Entry]) -> Extended:
    """Add up extended requests as kube-scheduler does: sidecars and main containers, floored by init containers."""
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


# Out-of-memory kills that a pod's status still shows.

_REASON = "OOMKilled"


def read_oom_kills(pod: Pod, status: PodStatus | None) -> Sequence[OomKill]:
    """Return the kills in `lastState` and `state` of every container, by container.

    Container runtimes report OOMKilled where the kernel killed any process of the container's control group, whatever
    the exit code: a container whose main process outlives a killed child may end with 0, 1 or 143 (ADR 0097). The
    limit in force at the kill is not recorded: it is what the container has now.
    """
    if status is None:
        return ()
    kills: list[OomKill] = []
    for report in (status.init_container_statuses or ()) + (status.container_statuses or ()):
        for state in (report.last_state, report.state):
            if state is not None and state.terminated is not None:
                kills += _kills(pod, report, state.terminated)
    return kills


def _kills(pod: Pod, report: ContainerStatus, ended: TerminatedState) -> Iterator[OomKill]:
    if ended.reason != _REASON or ended.finished_at is None:
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
                memory_limit_bytes=limits.memory_bytes,
                memory_request_bytes=requests.memory_bytes,
                role=container.role,
                restarts=report.restart_count,
                runs_to_completion=pod.runs_to_completion,
            )
