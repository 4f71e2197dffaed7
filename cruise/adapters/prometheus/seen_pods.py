"""The pods seen in this cluster, and the partitions of pods that are read one by one."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cruise.adapters.prometheus.queries import SeriesLabelValues, SeriesMatrix
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.run_to_completion_operators import CompletedPod
from cruise.domain.usage import ContainerKey

# Controllers whose pods have random name suffixes, so that no two clusters have the same names.
_GENERATED_NAME_KINDS = frozenset(
    {"Deployment", "ReplicaSet", "Rollout", "ReplicationController", "DeploymentConfig", "DaemonSet", "Job", "CronJob"}
)
# The uid in the path of a control group; the systemd driver writes underscores.
_UID = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
# Longer than a server repeats the last value of a deleted pod, and than all reads except a first one.
_RETENTION_SECONDS = 7200


def has_generated_name(pod: Pod) -> bool:
    """Return whether no pod of another cluster can have the same name."""
    return pod.workload is not None and pod.workload.kind in _GENERATED_NAME_KINDS and not pod.is_mirror_pod


def extract_pod_uid(id_: str) -> str:
    """Return the pod's uid in the id of a control group, empty if there is none."""
    found = _UID.search(id_)
    return found[1].replace("_", "-") if found else ""


@dataclass(slots=True)
class _ObservedPod:
    uids: tuple[str, ...]
    since: float
    last: float


@dataclass(slots=True)
class ObservedPods:
    """The pods in the snapshots of the last hours."""

    pods: dict[tuple[str, str], _ObservedPod] = field(default_factory=dict)
    first_observed_at: float | None = None

    def __contains__(self, name: tuple[str, str]) -> bool:
        """Return whether a pod was seen, by namespace and name."""
        return name in self.pods

    def add_snapshot(self, snapshot: ClusterSnapshot, now: float) -> None:
        """Add the pods of a snapshot."""
        self.first_observed_at = now if self.first_observed_at is None else self.first_observed_at
        pods: tuple[Pod | CompletedPod, ...] = (*snapshot.ended_pods, *snapshot.pods)
        for pod in pods:
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
        expired = [name for name, one in self.pods.items() if now - one.last > _RETENTION_SECONDS]
        for name in expired:
            del self.pods[name]

    def get_covered_seconds(self, at: float) -> float:
        """Return for how many seconds there have been snapshots."""
        return 0.0 if self.first_observed_at is None else at - self.first_observed_at

    def keep_known_pods(
        self, families: Sequence[SeriesMatrix], times: Int64Array
    ) -> tuple[list[SeriesMatrix], tuple[int, ContainerKey] | None]:
        """Return the series of pods that were seen, the number of samples of others, and one of their containers."""
        kept = [self._keep_seen(family, times) for family in families]
        count = sum(
            int(np.count_nonzero(~np.isnan(before.values)) - np.count_nonzero(~np.isnan(after.values)))
            for before, after in zip(families, kept, strict=True)
        )
        if not count:
            return kept, None
        names = {name: None for family in families for name in family.series}
        kept_names = {name for family in kept for name in family.series}
        example = next((name for name in names if name not in kept_names), next(iter(names)))
        return kept, (count, ContainerKey(example.namespace, example.pod, example.container))

    def _keep_seen(self, matrix: SeriesMatrix, times: Int64Array) -> SeriesMatrix:
        rows = [row for row, name in enumerate(matrix.series) if self._may_be_seen(name)]
        series, values = [matrix.series[row] for row in rows], matrix.values[rows]
        for row, name in enumerate(series):
            if not extract_pod_uid(name.id):
                # Without a uid, only the creation time distinguishes the pod.
                values[row, times < self.pods[name.namespace, name.pod].since] = np.nan
        return SeriesMatrix(series, values)

    def _may_be_seen(self, name: SeriesLabelValues) -> bool:
        one, uid = self.pods.get((name.namespace, name.pod)), extract_pod_uid(name.id)
        return one is not None and (not uid or uid in one.uids)


# A partition is the pods whose names end in one of four characters. Kubernetes generates names from 27 characters; each
# partition has three of them and one other. So partitions are equal in size and the same at all times: no pod moves
# between them, and no sample is lost or read twice. One read may need several queries, which together select exactly
# the partition. The ordinals 0 and 1, the most frequent of StatefulSets, are in different partitions.
PARTITIONS: Mapping[str, str] = {
    f"pods-ending-{characters}": characters
    for characters in ("bcd0", "fgh1", "jkl3", "mnpa", "qrse", "tvwi", "xz2o", "456u", "789y")
}
# Names that share a longer ending are not split.
MAX_DEPTH = 40


def get_partition(pod: str) -> str:
    """Return the partition of a pod's name."""
    last = pod[-1:]
    return next(name for name, characters in PARTITIONS.items() if last in characters)


def build_pod_patterns(partition: str, containers: Mapping[str, int], limit: int) -> list[str]:
    """Return regular expressions that split a partition so that each selects at most `limit` containers.

    `containers` counts them by pod name. The expressions are disjoint, and select every possible name of the partition.
    Names that share a very long ending stay together.
    """
    return _split("", PARTITIONS[partition], containers, limit)


def _split(tail: str, characters: str, containers: Mapping[str, int], limit: int) -> list[str]:
    """Split the names that end in one of `characters` followed by `tail`."""
    depth = len(tail)
    total, by_character = 0, Counter[str]()
    for pod, count in containers.items():
        if len(pod) > depth and pod[-1 - depth] in characters and pod.endswith(tail):
            total += count
            by_character[pod[-1 - depth]] += count
    if total <= limit or depth >= MAX_DEPTH:
        return [f".*[{_escape_in_class(characters)}]{_literal(tail)}"]
    groups = _group_characters(characters, by_character, limit)
    if len(groups) > 1:
        return [piece for group in groups for piece in _split(tail, group, containers, limit)]
    return _split_by_previous(characters + tail, containers, limit)


def _split_by_previous(tail: str, containers: Mapping[str, int], limit: int) -> list[str]:
    """Split the names that end in `tail` by the character before it."""
    depth = len(tail)
    found = Counter[str]()
    for pod, count in containers.items():
        if pod.endswith(tail):
            found[pod[-1 - depth : len(pod) - depth]] += count
    present = "".join(sorted(found.keys() - {""}))
    pieces = [
        piece for group in _group_characters(present, found, limit) for piece in _split(tail, group, containers, limit)
    ]
    # Also select names that do not exist at present.
    others = f"(?:.*[^{_escape_in_class(present)}])?{_literal(tail)}" if present else f".*{_literal(tail)}"
    return [*pieces, others]


def _group_characters(characters: str, counts: Mapping[str, int], limit: int) -> list[str]:
    """Group neighbouring characters while their sum is within the limit."""
    groups: list[str] = []
    remaining = 0
    for character in characters:
        count = counts.get(character, 0)
        if groups and count <= remaining:
            groups[-1] += character
            remaining -= count
        else:
            groups.append(character)
            remaining = limit - count
    return groups


def _escape_in_class(characters: str) -> str:
    """Escape characters for the inside of brackets; the dash must be last."""
    return characters.replace("-", "") + "-" * ("-" in characters)


def _literal(tail: str) -> str:
    return tail.replace(".", "[.]")
