"""Containers of a pod: spec and kubelet's report joined, equal ones shared between pods."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from sys import intern

from cruise.domain.cluster import Container, ContainerRole
from cruise.domain.resources import Amounts
from cruise.errors import BadInput
from cruise.kube_json.objects.quantity import read_amounts, read_extended
from cruise.kube_json.objects.shared_values import SharedValues
from cruise.kube_json.wire.pod_json import ContainerSpec, ContainerStatus, PodSpec, PodStatus, QuantityMap

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

        Raises BadInput that names the place within the pod.
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
        return containers, self._sums.one(extended, lambda: extended)

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
            entry = self._latest[key] = (self._known.one(container, lambda: container), extended)
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
        raise BadInput(f"{place}: has no name; add it")
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
        requests=requests.or_else(limits),
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


def _same(stated: Amounts, reported: Amounts) -> Amounts:
    """Return what is reported, mostly what is stated: then one object will do."""
    return stated if stated == reported else reported


def _refuse_equal_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f'spec: two containers are called "{twice}"; give each a name of its own')


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
