"""What regular init containers demand of their pods' sums, in columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.guidance.eligibility import Touchable
from cruise.domain.arrays import Int64Array, whole_numbers
from cruise.domain.cluster import ContainerRole, ResizePending
from cruise.domain.requests import counted_container
from cruise.domain.resources import ResourceName


@dataclass(frozen=True, slots=True)
class InitFloors:
    """One row a regular init container: its pod, what it counts, and the sidecars that run beside it.

    The sidecars started before it are the sized containers [`first`, `last`) of the table, since a pod's sized
    containers begin with its sidecars. `row_of_pod` has the rows of a pod, which are contiguous.
    """

    pod: Int64Array
    own: dict[ResourceName, Int64Array]
    first: Int64Array
    last: Int64Array

    def raise_sums(self, resource: ResourceName, values: Int64Array, sums: Int64Array) -> None:
        """Raise the sums of pods whose init containers need more beside the sidecars' `values`."""
        if not len(self.pod):
            return
        before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))
        np.maximum.at(sums, self.pod, self.own[resource] + before[self.last] - before[self.first])

    def of_pod(self, resource: ResourceName, index: int, values: Int64Array) -> int:
        """Return the floor of one pod's sum, 0 without regular init containers."""
        rows = range(*np.searchsorted(self.pod, [index, index + 1]).tolist())
        needs = [int(self.own[resource][row] + values[self.first[row] : self.last[row]].sum()) for row in rows]
        return max(needs, default=0)


def init_floors(pods: Sequence[Touchable], first_container: Int64Array) -> InitFloors:
    """Put the regular init containers of `pods` into columns; `first_container` has each pod's first sized one."""
    rows: list[tuple[int, int, int, int]] = []
    for index, touchable in enumerate(pods):
        containers = touchable.pod.containers
        if len(containers) == len(touchable.sized):
            continue
        infeasible = touchable.pod.resize.pending is ResizePending.INFEASIBLE
        sidecars = 0
        for container in containers:
            if container.role is ContainerRole.SIDECAR:
                sidecars += 1
            elif container.role is ContainerRole.INIT:
                counted = counted_container(container, infeasible)
                rows.append((index, counted.cpu_millicores, counted.memory_bytes, sidecars))
    pod, cpu, memory, sidecars_before = (whole_numbers([row[column] for row in rows]) for column in range(4))
    first = first_container[pod]
    return InitFloors(pod, {ResourceName.CPU: cpu, ResourceName.MEMORY: memory}, first, first + sidecars_before)
