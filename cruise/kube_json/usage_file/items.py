"""Items of a usage file, and the container that each speaks for, which must be in the snapshot."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern

from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.usage import StatisticKey
from cruise.errors import BadInput
from cruise.kube_json.wire.pod_json import Timestamp, Wire


class CpuUsage(Wire, frozen=True):
    """CPU statistics of a usage item."""

    base_millicores: int | float
    peak_millicores: int | float


class MemoryUsage(Wire, frozen=True):
    """Memory statistics of a usage item; `last_bytes` is the newest working set, the base where it is absent."""

    base_bytes: int | float
    peak_bytes: int | float
    max7d_bytes: int | float
    oom_bytes: int | float
    last_bytes: int | float | None = None


class UsageItem(Wire, frozen=True):
    """One item of a UsageStatistics file."""

    namespace: str
    container: str
    updated_at: Timestamp
    cpu: CpuUsage
    memory: MemoryUsage
    pod: str | None = None
    workload: str | None = None
    history_since: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class KeyReader:
    """Turns items into keys; without a snapshot (`pods` None) every item will do."""

    pods: Mapping[tuple[str, str], Pod] | None
    # By namespace, then by workload as `Kind/name`: the containers of all its pods.
    containers_of_workloads: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    @staticmethod
    def of(snapshot: Snapshot | None) -> "KeyReader":
        """Prepare to look up a snapshot's pods and workloads."""
        if snapshot is None:
            return KeyReader(None)
        known: dict[tuple[str, str], set[str]] = {}
        sets: dict[tuple[str, object], set[str]] = {}
        for pod in snapshot.pods:
            if pod.workload is None:
                continue
            names = sets.get((pod.namespace, pod.workload))
            if names is None:
                names = sets[(pod.namespace, pod.workload)] = known[(pod.namespace, str(pod.workload))] = set()
            names.update([container.name for container in pod.containers])
        return KeyReader(
            {(pod.namespace, pod.name): pod for pod in snapshot.pods},
            {key: frozenset(names) for key, names in known.items()},
        )

    def read(self, item: UsageItem) -> StatisticKey:
        """Return what an item speaks for. Raises BadInput that says what is unknown."""
        workload = intern(item.workload or "")
        if workload and not all(workload.partition("/")):
            raise BadInput(f'workload: "{workload}" is not Kind/name; write e.g. Deployment/web')
        if not item.pod:
            return self._of_workload(item, workload)
        if self.pods is None:
            return StatisticKey(item.namespace, item.pod, workload, intern(item.container))
        pod = self.pods.get((item.namespace, item.pod))
        if pod is None:
            raise BadInput("pod: the snapshot has no such pod; take both at the same time, or leave the item out")
        for container in pod.containers:
            if container.name == item.container:
                return StatisticKey(pod.namespace, pod.name, workload, container.name)
        names = ", ".join(container.name for container in pod.containers)
        raise BadInput(f"container: the pod has none called {item.container}, it has {names}")

    def _of_workload(self, item: UsageItem, workload: str) -> StatisticKey:
        if not workload:
            raise BadInput("has neither pod nor workload; add one of them")
        names = self.containers_of_workloads.get((item.namespace, workload))
        if names is not None and item.container not in names:
            have = ", ".join(sorted(names))
            raise BadInput(f"container: no pod of the workload has one called {item.container}, they have {have}")
        return StatisticKey(intern(item.namespace), "", workload, intern(item.container))
