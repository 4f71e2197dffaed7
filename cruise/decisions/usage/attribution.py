"""Whose usage a sample is: the workload and identity of a pod, also of one that is gone.

A pod that is gone is known by its name alone, which its controller gave it; the workloads of the namespace that still
exist are the ones it may have belonged to. Where a name could be of two of them, or of none, nobody gets its samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.resources import Float64Array, Int64Array
from cruise.domain.usage import ContainerKey, PeakKey

# What Kubernetes makes generated endings from: letters and digits that neither spell words nor look alike.
GENERATED_SUFFIX = frozenset("bcdfghjklmnpqrstvwxz2456789")
GENERATED_LENGTH = 5
# A generated name has at most 63 characters; what stands before the ending is cut to fit.
MAX_PREFIX_LENGTH = 63 - GENERATED_LENGTH
MAX_TEMPLATE_HASH_LENGTH = 10


@dataclass(frozen=True, slots=True)
class UsageOwner:
    """Whose a pod's usage is: `workload` as Kind/name."""

    workload: str
    identity: str = ""


@dataclass(frozen=True, slots=True)
class UsageAttribution:
    """What a snapshot says about the ownership of usage, `pods` by (namespace, pod) and `workloads` by namespace."""

    pods: Mapping[tuple[str, str], UsageOwner]
    workloads: Mapping[str, frozenset[tuple[str, str]]]

    @staticmethod
    def find_owner(snapshot: ClusterSnapshot) -> "UsageAttribution":
        """Read the ownership of all pods and the workloads that exist."""
        workloads: dict[str, set[tuple[str, str]]] = {}
        for namespace, ref in snapshot.workloads:
            workloads.setdefault(namespace, set()).add((ref.kind, ref.name))
        pods: dict[tuple[str, str], UsageOwner] = {}
        for pod in snapshot.pods:
            pods[pod.namespace, pod.name] = get_usage_owner(pod)
            if pod.workload is not None:
                workloads.setdefault(pod.namespace, set()).add((pod.workload.kind, pod.workload.name))
        return UsageAttribution(pods, {namespace: frozenset(names) for namespace, names in workloads.items()})

    def get_peak_key(self, container: ContainerKey, node: str) -> PeakKey | None:
        """Return what a container's peaks belong to, None where that cannot be told.

        `node` is where the source says that the container runs, empty where it does not say.
        """
        owner = self.pods.get((container.namespace, container.pod))
        if owner is None:
            owner = guess_former_owner(container.pod, node, self.workloads.get(container.namespace, frozenset()))
        if owner is None:
            return None
        return PeakKey(container.namespace, owner.workload, container.container, owner.identity)


def get_usage_owner(pod: Pod) -> UsageOwner:
    """Return the ownership of a pod that exists; a bare pod is its own workload."""
    if pod.workload is None:
        return UsageOwner(f"Pod/{pod.name}")
    return UsageOwner(str(pod.workload), pod.identity)


def guess_former_owner(pod: str, node: str, workloads: frozenset[tuple[str, str]]) -> UsageOwner | None:
    """Tell from its name which of the (kind, name) workloads a pod belonged to that is gone.

    A DaemonSet's pod is told only with its `node`, which is its identity.
    """
    candidates = set(_numbered(pod, workloads)) | set(_generated(pod, node, workloads))
    return candidates.pop() if len(candidates) == 1 else None


def _numbered(pod: str, workloads: frozenset[tuple[str, str]]) -> list[UsageOwner]:
    stem, _, ordinal = pod.rpartition("-")
    if ordinal.isdecimal() and ("StatefulSet", stem) in workloads:
        return [UsageOwner(f"StatefulSet/{stem}", ordinal)]
    return []


def _generated(pod: str, node: str, workloads: frozenset[tuple[str, str]]) -> list[UsageOwner]:
    prefix, ending = pod[:-GENERATED_LENGTH], pod[-GENERATED_LENGTH:]
    if not GENERATED_SUFFIX.issuperset(ending):
        return []
    if len(prefix) == MAX_PREFIX_LENGTH and not prefix.endswith("-"):
        return _cut_short(prefix, node, workloads)
    if not prefix.endswith("-"):
        return []
    stem = prefix[:-1]
    found = [
        UsageOwner(f"{kind}/{stem}")
        for kind in ("ReplicaSet", "ReplicationController", "Job")
        if (kind, stem) in workloads
    ]
    if ("DaemonSet", stem) in workloads and node:
        found.append(UsageOwner(f"DaemonSet/{stem}", node))
    above, _, last = stem.rpartition("-")
    if last.isdecimal() and ("DeploymentConfig", above) in workloads:
        found.append(UsageOwner(f"DeploymentConfig/{above}"))
    if _is_template_hash(last):
        found += [UsageOwner(f"{kind}/{above}") for kind in ("Deployment", "Rollout") if (kind, above) in workloads]
    return found + _of_jobs(stem, workloads)


def _of_jobs(stem: str, workloads: frozenset[tuple[str, str]]) -> list[UsageOwner]:
    """Jobs by their name before an index, CronJobs by theirs before the minute of the run and perhaps an index."""
    above, _, last = stem.rpartition("-")
    if not last.isdecimal():
        return []
    found = []
    if ("Job", above) in workloads:
        found.append(UsageOwner(f"Job/{above}"))
    if ("CronJob", above) in workloads:
        found.append(UsageOwner(f"CronJob/{above}"))
    cron_job, _, minute = above.rpartition("-")
    if minute.isdecimal() and ("CronJob", cron_job) in workloads:
        found.append(UsageOwner(f"CronJob/{cron_job}"))
    return found


def _is_template_hash(text: str) -> bool:
    return 0 < len(text) <= MAX_TEMPLATE_HASH_LENGTH and GENERATED_SUFFIX.issuperset(text)


def _cut_short(prefix: str, node: str, workloads: frozenset[tuple[str, str]]) -> list[UsageOwner]:
    """Of a name so long that Kubernetes cut it, only the start is left to go by."""
    found = []
    for kind, name in workloads:
        rest = prefix.removeprefix(f"{name}-")
        numbered = rest != prefix and rest.isdecimal()
        hashed = rest != prefix and _is_template_hash(rest)
        whole = f"{name}-".startswith(prefix)
        if kind == "DaemonSet" and node and whole:
            found.append(UsageOwner(f"{kind}/{name}", node))
        elif kind in ("Deployment", "Rollout") and (whole or hashed):
            found.append(UsageOwner(f"{kind}/{name}"))
        elif kind in ("Job", "CronJob", "DeploymentConfig") and (whole or numbered):
            found.append(UsageOwner(f"{kind}/{name}"))
        elif kind in ("ReplicaSet", "ReplicationController") and whole:
            found.append(UsageOwner(f"{kind}/{name}"))
    return found


# Percentiles and maxima over many rows at once, ignoring what is missing.


def compute_row_percentiles(rows: NDArray[np.floating], share: float) -> tuple[Float64Array, Int64Array]:
    """Return each row's percentile and the number of its samples; a row without samples has NaN.

    The same as numpy.nanpercentile with linear interpolation, as PromQL's quantile_over_time does it too: sorting puts
    NaN last, so one sort serves rows of any number of samples.
    """
    counts: Int64Array = np.count_nonzero(~np.isnan(rows), axis=1)
    if rows.shape[1] == 0:
        return np.full(len(rows), np.nan), counts
    ordered = np.sort(rows, axis=1)
    position = np.maximum(counts - 1, 0) * share
    below = position.astype(np.int64)
    above = np.minimum(below + 1, np.maximum(counts - 1, 0))
    at = np.arange(len(rows))
    low = ordered[at, below].astype(np.float64)
    high = ordered[at, above].astype(np.float64)
    return low + (high - low) * (position - below), counts


def compute_group_maxima(values: Float64Array, groups: Int64Array, count: int) -> Float64Array:
    """Return the largest value of each of `count` groups, NaN where a group has none; group -1 is nobody's."""
    largest = np.full(count, np.nan)
    known = (groups >= 0) & ~np.isnan(values)
    np.fmax.at(largest, groups[known], values[known])
    return largest
