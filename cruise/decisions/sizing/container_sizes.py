"""The target of each container as a row, for code that reads single containers."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.sizing.node_sizes import SizingResult
from cruise.domain.arrays import Int64Array, convert_to_int64
from cruise.domain.cluster import ContainerRole
from cruise.domain.resources import ResourceName
from cruise.domain.usage import ContainerKey


class PlannedContainerSize(NamedTuple):
    """The target of one container; `memory_limit_bytes` is 0 if it has no limit and gets none.

    A request is base + share of the node's headroom, rounded and clamped; bases and headrooms are its parts.
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
    """The targets of the remaining containers of some pods, sorted by namespace, pod and container.

    Rows are built from the columns when they are first read; a pass over a cluster never does.
    """

    __slots__ = ("_pods", "_rows", "_sized")

    def __init__(self, sized: SizingResult, pods: Sequence[int]) -> None:
        """Take the containers of the pods with these indices."""
        self._sized = sized
        self._pods = pods
        self._rows: tuple[PlannedContainerSize, ...] | None = None

    def get_containers(self) -> Iterator[ContainerKey]:
        """Yield the containers without their sizes, at a fraction of the cost."""
        for at in self._get_remaining_pods():
            pod = self._sized.columns.candidates.pods[at]
            for container in pod.sized:
                yield ContainerKey(pod.pod.namespace, pod.pod.name, container.name)

    def get_pods(self) -> Iterator[ResizablePod]:
        """Yield the pods with their effective policies."""
        return map(self._sized.columns.candidates.pods.__getitem__, self._get_remaining_pods())

    def iterate_requests_by_pod(self) -> Iterator[tuple[ResizablePod, list[int], list[int]]]:
        """Yield the pods with the requests of their sized containers at the targets: millicores, then bytes."""
        table, sizes, remaining = self._sized.columns.table, self._sized.targets, self._get_remaining_pods()
        pods = [table.candidates.pods[at] for at in remaining]
        indices = self._get_indices(remaining)
        cpu, memory = sizes.cpu_millicores[indices].tolist(), sizes.memory_bytes[indices].tolist()
        end = 0
        for pod in pods:
            first, end = end, end + len(pod.sized)
            yield pod, cpu[first:end], memory[first:end]

    def get_requests(self) -> dict[ResourceName, Int64Array]:
        """Return the present requests of the containers, in the order of `get_containers`."""
        table, indices = self._sized.columns.table, self._get_indices(self._get_remaining_pods())
        return {resource: table.get_resource(resource).current[indices] for resource in ResourceName}

    @overload
    def __getitem__(self, index: int) -> PlannedContainerSize: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PlannedContainerSize, ...]: ...
    def __getitem__(self, index: int | slice) -> PlannedContainerSize | tuple[PlannedContainerSize, ...]:
        return self._get_rows()[index]

    def __iter__(self) -> Iterator[PlannedContainerSize]:
        return iter(self._get_rows())

    def __len__(self) -> int:
        return len(self._get_rows())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._get_rows() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._get_rows())

    def __repr__(self) -> str:
        return repr(self._get_rows())

    def _get_rows(self) -> tuple[PlannedContainerSize, ...]:
        if self._rows is None:
            self._rows = tuple(sorted(self._build_rows()))
        return self._rows

    def _build_rows(self) -> Iterator[PlannedContainerSize]:
        sizes, table, remaining = self._sized.targets, self._sized.columns.table, self._get_remaining_pods()
        named = [
            (pod.pod.namespace, pod.pod.name, container.name, container.role)
            for pod in map(table.candidates.pods.__getitem__, remaining)
            for container in pod.sized
        ]
        indices = self._get_indices(remaining)
        columns = (
            sizes.cpu_millicores,
            sizes.memory_bytes,
            sizes.memory_limit_bytes,
            table.cpu.raw_base,
            table.cpu.headroom,
            table.memory.raw_base,
            table.memory.headroom,
        )
        values = zip(*(column[indices].tolist() for column in columns), strict=True)
        return (PlannedContainerSize._make(name + numbers) for name, numbers in zip(named, values, strict=True))

    def _get_remaining_pods(self) -> list[int]:
        remains = self._sized.fit.remains[self._pods].tolist()
        return [at for at, stays in zip(self._pods, remains, strict=True) if stays]

    def _get_indices(self, pods: Sequence[int]) -> Int64Array:
        """Return the indices of the sized containers of some pods."""
        candidates = self._sized.columns.candidates
        firsts = zip(pods, candidates.first_container[pods].tolist(), strict=True)
        return convert_to_int64(
            [index for at, first in firsts for index in range(first, first + len(candidates.pods[at].sized))]
        )
