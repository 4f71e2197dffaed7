"""Why each pod's sizes are written or not: the dead band, pending and refused resizes, and what a server refuses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.guidance.limit_ranges import refuses_resize
from cruise.decisions.sizing.recommendation import DemandTable
from cruise.decisions.sizing.resize import becomes_guaranteed, was_refused
from cruise.domain.actions import ContainerTarget, RefusedTarget
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Container, LimitRangeItem
from cruise.domain.resources import NO_AMOUNTS, Amounts, ResourceName


class Cause(IntEnum):
    """Why a pod's sizes are written, or why they are not."""

    SETTLED = 0
    RIGHTSIZED = 1
    EVICTED = 2
    RESIZING = 3
    REFUSED = 4
    LIMIT_RANGE = 5
    QOS_CHANGE = 6
    WAITING_FOR_ROOM = 7
    QUOTA = 8


Causes = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Refusals:
    """What keeps a pod from its new sizes: its namespace's LimitRanges, and by uid the target refused before."""

    limit_ranges: Mapping[str, Sequence[LimitRangeItem]] = field(default_factory=dict)
    targets: Mapping[str, RefusedTarget] = field(default_factory=dict)


NO_REFUSALS = Refusals()


@dataclass(frozen=True, slots=True)
class SizeColumns:
    """Requests and limits of all containers of a table; a limit of 0 is none."""

    cpu_millicores: Int64Array
    memory_bytes: Int64Array
    memory_limit_bytes: Int64Array
    cpu_limit_millicores: Int64Array

    def of(self, resource: ResourceName) -> Int64Array:
        """Return one resource's requests."""
        return self.cpu_millicores if resource is ResourceName.CPU else self.memory_bytes

    def targets(self, table: DemandTable, pods: BoolArray) -> Iterator[tuple[ContainerTarget, ...]]:
        """Yield the targets of the pods that are flagged, pod by pod."""
        chosen = pods[table.candidates.pod_of]
        columns = (self.cpu_millicores, self.memory_bytes, self.cpu_limit_millicores, self.memory_limit_bytes)
        values = zip(*(column[chosen].tolist() for column in columns), strict=True)
        for index in np.flatnonzero(pods).tolist():
            yield tuple([_target(container, *next(values)) for container in table.candidates.pods[index].sized])


def _target(container: Container, cpu: int, memory: int, cpu_limit: int, memory_limit: int) -> ContainerTarget:
    limits = Amounts(cpu_limit or None, memory_limit or None) if cpu_limit or memory_limit else NO_AMOUNTS
    return ContainerTarget(container.name, container.role, Amounts(cpu or None, memory or None), limits)


def find_causes(table: DemandTable, sizes: SizeColumns, staying: BoolArray, refusals: Refusals) -> Causes:
    """Return why each pod's sizes are written or not; pods that do not stay are evicted."""
    causes = np.where(staying, np.int8(Cause.SETTLED), np.int8(Cause.EVICTED))
    moved = _leave_dead_band(table, sizes) & staying
    causes[moved] = Cause.RIGHTSIZED
    if table.candidates.resizing:
        resizing = np.array(table.candidates.resizing, dtype=np.int64)
        causes[resizing[staying[resizing]]] = Cause.RESIZING
        moved[resizing] = False
    doubtful = moved & _without_play(table, sizes)
    if refusals.limit_ranges or refusals.targets:
        for index in np.flatnonzero(moved & ~doubtful).tolist():
            pod = table.candidates.pods[index].pod
            doubtful[index] = pod.uid in refusals.targets or bool(refusals.limit_ranges.get(pod.namespace))
    for index, targets in zip(np.flatnonzero(doubtful).tolist(), sizes.targets(table, doubtful), strict=True):
        causes[index] = _cause(table, index, targets, refusals)
    return causes


def _cause(table: DemandTable, index: int, targets: tuple[ContainerTarget, ...], refusals: Refusals) -> Cause:
    pod = table.candidates.pods[index].pod
    earlier, ranges = refusals.targets.get(pod.uid), refusals.limit_ranges.get(pod.namespace)
    band = table.candidates.dead_band.of_container(int(table.candidates.first_container[index]))
    if earlier is not None and was_refused(targets, earlier, band):
        return Cause.REFUSED
    if ranges and refuses_resize(pod, targets, ranges):
        return Cause.LIMIT_RANGE
    return Cause.QOS_CHANGE if becomes_guaranteed(pod, targets) else Cause.RIGHTSIZED


def _leave_dead_band(table: DemandTable, sizes: SizeColumns) -> BoolArray:
    """Tell for each pod whether any value moves far enough to be written."""
    band = table.candidates.dead_band
    return table.candidates.any_of_pod(
        band.leaves(ResourceName.CPU, table.cpu.current, sizes.cpu_millicores)
        | band.leaves(ResourceName.MEMORY, table.memory.current, sizes.memory_bytes)
        | band.leaves(ResourceName.CPU, table.cpu_limit, sizes.cpu_limit_millicores)
        | band.leaves(ResourceName.MEMORY, table.memory_limit, sizes.memory_limit_bytes)
    )


def _without_play(table: DemandTable, sizes: SizeColumns) -> BoolArray:
    """Tell for each pod whether every sized container's limits equal its requests: only then may it be Guaranteed.

    A request that is left out becomes the limit.
    """
    cpu, cpu_limit = sizes.cpu_millicores, sizes.cpu_limit_millicores
    if not cpu_limit.any():
        return np.zeros(len(table.candidates.pods), dtype=np.bool_)
    memory, memory_limit = sizes.memory_bytes, sizes.memory_limit_bytes
    cpu_has_play = (cpu_limit == 0) | ((cpu != cpu_limit) & (cpu != 0))
    memory_has_play = (memory_limit == 0) | ((memory != memory_limit) & (memory != 0))
    return ~table.candidates.any_of_pod(cpu_has_play | memory_has_play)
