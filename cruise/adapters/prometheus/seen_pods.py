"""Which pods were seen in this cluster, and what of an answer is certainly of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cruise.adapters.prometheus.matrix import Matrix, SeriesName
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.usage import ContainerKey

# Controllers that name their pods by letters drawn at random: no two clusters have the same.
_DRAW_NAMES = frozenset(
    {"Deployment", "ReplicaSet", "Rollout", "ReplicationController", "DeploymentConfig", "DaemonSet", "Job", "CronJob"}
)
# As kubelets write it into a control group's path, systemd's driver with underscores.
_UID = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
# Longer than a server repeats the last value of a pod that is gone, and than any read reaches back but a first one.
_KEPT_SECONDS = 7200


def has_generated_name(pod: Pod) -> bool:
    """Tell whether no pod of another cluster has the same name."""
    return pod.workload is not None and pod.workload.kind in _DRAW_NAMES and not pod.mirror


def uid_in(id_: str) -> str:
    """Return the pod's uid in the id of a control group, empty where it has none."""
    found = _UID.search(id_)
    return found[1].replace("_", "-") if found else ""


@dataclass(slots=True)
class _Seen:
    uids: tuple[str, ...]
    since: float
    last: float


@dataclass(slots=True)
class SeenPods:
    """The pods of the snapshots of the last hours, and for how long there were snapshots."""

    pods: dict[tuple[str, str], _Seen] = field(default_factory=dict)
    first: float | None = None

    def __contains__(self, name: tuple[str, str]) -> bool:
        """Tell whether a pod was seen, by namespace and name."""
        return name in self.pods

    def take(self, snapshot: Snapshot, now: float) -> None:
        """Take over the pods of a snapshot."""
        self.first = now if self.first is None else self.first
        for pod in snapshot.pods:
            name = pod.namespace, pod.name
            one = self.pods.get(name)
            if one is not None and pod.uid in one.uids:
                one.last = now
                continue
            since = float("-inf") if pod.created_at is None else pod.created_at.timestamp()
            if one is None:
                self.pods[name] = _Seen((pod.uid,), since, now)
            else:
                one.uids, one.since, one.last = (*one.uids, pod.uid), min(one.since, since), now
        gone = [name for name, one in self.pods.items() if now - one.last > _KEPT_SECONDS]
        for name in gone:
            del self.pods[name]

    def watched(self, at: float) -> float:
        """Return for how many seconds there have been snapshots."""
        return 0.0 if self.first is None else at - self.first

    def only(
        self, families: Sequence[Matrix], times: Int64Array
    ) -> tuple[list[Matrix], tuple[int, ContainerKey] | None]:
        """Return what of some answers is of pods that were seen, how many samples are not, and whose one of them is."""
        kept = [self._of_seen(family, times) for family in families]
        count = sum(
            int(np.count_nonzero(~np.isnan(before.values)) - np.count_nonzero(~np.isnan(after.values)))
            for before, after in zip(families, kept, strict=True)
        )
        if not count:
            return kept, None
        names = {name: None for family in families for name in family.series}
        left = {name for family in kept for name in family.series}
        example = next((name for name in names if name not in left), next(iter(names)))
        return kept, (count, ContainerKey(example.namespace, example.pod, example.container))

    def _of_seen(self, matrix: Matrix, times: Int64Array) -> Matrix:
        rows = [row for row, name in enumerate(matrix.series) if self._may_be(name)]
        series, values = [matrix.series[row] for row in rows], matrix.values[rows]
        for row, name in enumerate(series):
            if not uid_in(name.id):
                # Nothing tells whose an id is but the time since which the pod is there.
                values[row, times < self.pods[name.namespace, name.pod].since] = np.nan
        return Matrix(series, values)

    def _may_be(self, name: SeriesName) -> bool:
        one, uid = self.pods.get((name.namespace, name.pod)), uid_in(name.id)
        return one is not None and (not uid or uid in one.uids)
