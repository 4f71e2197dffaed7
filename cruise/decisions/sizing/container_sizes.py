"""What each container of a node shall have, row by row for what reads single containers."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import numpy as np

from cruise.decisions.sizing.node_sizes import SizingResult
from cruise.domain.cluster import ContainerRole
from cruise.domain.resources import Int64Array, ResourceName
from cruise.domain.usage import ContainerKey


class PlannedContainerSize(NamedTuple):
    """What one container shall have; `memory_limit_bytes` is 0 where it has no limit and gets none.

    The bases and headrooms say how the requests came about: base + share of the node's headroom, rounded, clamped.
    """

    namespace: str
    pod: str
    container: str
    role: ContainerRole
    cpu_millicores: int
    memory_bytes: int
    memory_limit_bytes: int
    cpu_base_millicores: int
    cpu_headroom_millicores: int
    memory_base_bytes: int
    memory_headroom_bytes: int


class PlannedContainerSizes(Sequence[PlannedContainerSize]):
    """The sizes of the surviving containers of some pods, sorted by namespace, pod and container.

    The rows are made from the columns when they are first read, which a pass over a cluster never does.
    """

    __slots__ = ("_pods", "_rows", "_sized")

    def __init__(self, sized: SizingResult, pods: Sequence[int]) -> None:
        """Take the containers of the pods with these indices."""
        self._sized = sized
        self._pods = pods
        self._rows: tuple[PlannedContainerSize, ...] | None = None

    def get_containers(self) -> Iterator[ContainerKey]:
        """Yield the containers without their sizes, pod by pod, at a fraction of the cost."""
        for at in self._staying():
            pod = self._sized.columns.candidates.pods[at]
            for container in pod.sized:
                yield ContainerKey(pod.pod.namespace, pod.pod.name, container.name)

    def get_requests(self) -> dict[ResourceName, Int64Array]:
        """Return what the containers request now, before anything is written, in the order of `containers`."""
        table = self._sized.columns.table
        first = table.candidates.first_container
        pods = [(int(first[at]), len(table.candidates.pods[at].sized)) for at in self._staying()]
        places = np.array([place + nth for place, count in pods for nth in range(count)], dtype=np.int64)
        return {resource: table.get_resource(resource).current[places] for resource in ResourceName}

    @overload
    def __getitem__(self, index: int) -> PlannedContainerSize: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PlannedContainerSize, ...]: ...
    def __getitem__(self, index: int | slice) -> PlannedContainerSize | tuple[PlannedContainerSize, ...]:
        return self._all()[index]

    def __iter__(self) -> Iterator[PlannedContainerSize]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> tuple[PlannedContainerSize, ...]:
        if self._rows is None:
            self._rows = tuple(sorted(self._made()))
        return self._rows

    def _made(self) -> Iterator[PlannedContainerSize]:
        sizes, table, staying = self._sized.trimmed, self._sized.columns.table, self._staying()
        named = [
            (pod.pod.namespace, pod.pod.name, container.name, container.role)
            for pod in map(table.candidates.pods.__getitem__, staying)
            for container in pod.sized
        ]
        first = table.candidates.first_container
        places = [int(first[at]) + nth for at in staying for nth in range(len(table.candidates.pods[at].sized))]
        columns = (
            sizes.cpu_millicores,
            sizes.memory_bytes,
            sizes.memory_limit_bytes,
            table.cpu.raw_base,
            table.cpu.headroom,
            table.memory.raw_base,
            table.memory.headroom,
        )
        values = zip(*(column[places].tolist() for column in columns), strict=True)
        return (PlannedContainerSize._make(name + numbers) for name, numbers in zip(named, values, strict=True))

    def _staying(self) -> list[int]:
        return [at for at in self._pods if self._sized.fit.remains[at]]
