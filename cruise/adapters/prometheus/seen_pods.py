"""Which pods were seen in this cluster, and what of an answer is certainly of them."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cruise.adapters.prometheus.queries import SeriesMatrix, SeriesName
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import ClusterSnapshot, Pod
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


def extract_pod_uid(id_: str) -> str:
    """Return the pod's uid in the id of a control group, empty where it has none."""
    found = _UID.search(id_)
    return found[1].replace("_", "-") if found else ""


@dataclass(slots=True)
class _ObservedPod:
    uids: tuple[str, ...]
    since: float
    last: float


@dataclass(slots=True)
class ObservedPods:
    """The pods of the snapshots of the last hours, and for how long there were snapshots."""

    pods: dict[tuple[str, str], _ObservedPod] = field(default_factory=dict)
    first: float | None = None

    def __contains__(self, name: tuple[str, str]) -> bool:
        """Tell whether a pod was seen, by namespace and name."""
        return name in self.pods

    def add_snapshot(self, snapshot: ClusterSnapshot, now: float) -> None:
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
                self.pods[name] = _ObservedPod((pod.uid,), since, now)
            else:
                one.uids, one.since, one.last = (*one.uids, pod.uid), min(one.since, since), now
        gone = [name for name, one in self.pods.items() if now - one.last > _KEPT_SECONDS]
        for name in gone:
            del self.pods[name]

    def is_covered(self, at: float) -> float:
        """Return for how many seconds there have been snapshots."""
        return 0.0 if self.first is None else at - self.first

    def keep_certain(
        self, families: Sequence[SeriesMatrix], times: Int64Array
    ) -> tuple[list[SeriesMatrix], tuple[int, ContainerKey] | None]:
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

    def _of_seen(self, matrix: SeriesMatrix, times: Int64Array) -> SeriesMatrix:
        rows = [row for row, name in enumerate(matrix.series) if self._may_be(name)]
        series, values = [matrix.series[row] for row in rows], matrix.values[rows]
        for row, name in enumerate(series):
            if not extract_pod_uid(name.id):
                # Nothing tells whose an id is but the time since which the pod is there.
                values[row, times < self.pods[name.namespace, name.pod].since] = np.nan
        return SeriesMatrix(series, values)

    def _may_be(self, name: SeriesName) -> bool:
        one, uid = self.pods.get((name.namespace, name.pod)), extract_pod_uid(name.id)
        return one is not None and (not uid or uid in one.uids)


# r"""The parts of a cluster that are read one by one, and the regular expressions that select them. A partition is the pods whose names end in one of four characters. Kubernetes draws the end of a generated name from 27 characters; nine partitions have three of these each, and share out the rest. So the partitions are equal in size, the same in every cluster and at every time: a pod, a workload or a namespace that comes or goes moves nothing between them, and neither loses samples nor has them asked for again. Reading one may take several queries, cut from the names that are there at the moment; however they are cut, together they select exactly the partition.

# The ordinals 0 and 1, the most frequent of StatefulSets, are apart.
PARTITIONS: Mapping[str, str] = {
    f"pods-ending-{characters}": characters
    for characters in ("bcd0", "fgh1", "jkl3", "mnpa", "qrse", "tvwi", "xz2o", "456u", "789y")
}
# Where names agree this far back, more cutting is in vain.
MAX_DEPTH = 40


def get_partition(pod: str) -> str:
    """Return the partition of a pod's name."""
    last = pod[-1:]
    return next(name for name, characters in PARTITIONS.items() if last in characters)


def build_pod_patterns(partition: str, containers: Mapping[str, int], limit: int) -> list[str]:
    """Return regular expressions that cut a partition so that each selects at most `limit` containers.

    `containers` counts them by pod name. The expressions are disjoint and select every possible name that ends like
    the partition. Names that share a very long ending stay together, whatever their number.
    """
    return _cut("", PARTITIONS[partition], containers, limit)


def _cut(tail: str, characters: str, containers: Mapping[str, int], limit: int) -> list[str]:
    """Cut the names that end in one of `characters` followed by `tail`."""
    depth = len(tail)
    total, by_character = 0, Counter[str]()
    for pod, count in containers.items():
        if len(pod) > depth and pod[-1 - depth] in characters and pod.endswith(tail):
            total += count
            by_character[pod[-1 - depth]] += count
    if total <= limit or depth >= MAX_DEPTH:
        return [f".*[{_in_class(characters)}]{_literal(tail)}"]
    groups = _grouped(characters, by_character, limit)
    if len(groups) > 1:
        return [piece for group in groups for piece in _cut(tail, group, containers, limit)]
    return _cut_before(characters + tail, containers, limit)


def _cut_before(tail: str, containers: Mapping[str, int], limit: int) -> list[str]:
    """Cut the names that end in `tail`, the name that is nothing else included, by the character before it."""
    depth = len(tail)
    found = Counter[str]()
    for pod, count in containers.items():
        if pod.endswith(tail):
            found[pod[-1 - depth : len(pod) - depth]] += count
    present = "".join(sorted(found.keys() - {""}))
    pieces = [piece for group in _grouped(present, found, limit) for piece in _cut(tail, group, containers, limit)]
    # What is not there now may come, or may have been there before.
    others = f"(?:.*[^{_in_class(present)}])?{_literal(tail)}" if present else f".*{_literal(tail)}"
    return [*pieces, others]


def _grouped(characters: str, counts: Mapping[str, int], limit: int) -> list[str]:
    """Put neighbouring characters together as long as their sum stays within the limit."""
    groups: list[str] = []
    room = 0
    for character in characters:
        count = counts.get(character, 0)
        if groups and count <= room:
            groups[-1] += character
            room -= count
        else:
            groups.append(character)
            room = limit - count
    return groups


def _in_class(characters: str) -> str:
    """Escape for the inside of brackets: names hold letters, digits, dots and dashes, and the dash goes last."""
    return characters.replace("-", "") + "-" * ("-" in characters)


def _literal(tail: str) -> str:
    return tail.replace(".", "[.]")
