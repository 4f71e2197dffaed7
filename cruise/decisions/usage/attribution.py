"""Attributes usage to workloads: the workload and identity of a pod, also of a pod that no longer exists.

A former pod is known only by the name that its controller generated, and may have belonged to any workload of the
namespace that still exists. If a name fits two workloads, or none, its samples are not attributed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.run_to_completion_operators import is_storable_name
from cruise.domain.usage import ContainerKey, PeakKey

# The characters of generated suffixes in Kubernetes (k8s.io/apimachinery, util/rand).
GENERATED_SUFFIX = frozenset("bcdfghjklmnpqrstvwxz2456789")
GENERATED_LENGTH = 5
# A generated name has at most 63 characters; the prefix is truncated to fit.
MAX_PREFIX_LENGTH = 63 - GENERATED_LENGTH
MAX_TEMPLATE_HASH_LENGTH = 10


@dataclass(frozen=True, slots=True)
class UsageOwner:
    """The owner of a pod's usage; `workload` is Kind/name."""

    workload: str
    identity: str = ""


@dataclass(frozen=True, slots=True)
class UsageAttribution:
    """The owners of usage by a snapshot; `pods` by (namespace, pod), `workloads` by namespace as (kind, name)."""

    pods: Mapping[tuple[str, str], UsageOwner]
    workloads: Mapping[str, frozenset[tuple[str, str]]]

    @staticmethod
    def from_snapshot(snapshot: ClusterSnapshot) -> "UsageAttribution":
        """Read the owners of all pods, and the workloads that exist."""
        workloads: dict[str, set[tuple[str, str]]] = {}
        for namespace, ref in snapshot.workloads:
            workloads.setdefault(namespace, set()).add((ref.kind, ref.name))
        pods = {(one.namespace, one.name): UsageOwner(one.workload) for one in snapshot.ended_pods}
        for pod in snapshot.pods:
            pods[pod.namespace, pod.name] = get_usage_owner(pod)
            if pod.workload is not None:
                workloads.setdefault(pod.namespace, set()).add((pod.workload.kind, pod.workload.name))
        return UsageAttribution(pods, {namespace: frozenset(names) for namespace, names in workloads.items()})

    def get_peak_key(self, container: ContainerKey, node: str) -> PeakKey | None:
        """Return the key that a container's peaks belong to, None if it is unknown, or has names that no object has.

        `node` is the container's node according to the source, empty if unknown.
        """
        if not all(map(is_storable_name, (container.pod, container.container, node))):
            return None
        owner = self.pods.get((container.namespace, container.pod))
        if owner is None:
            owner = guess_former_owner(container.pod, node, self.workloads.get(container.namespace, frozenset()))
        if owner is None:
            return None
        return PeakKey(container.namespace, owner.workload, container.container, owner.identity)


def get_usage_owner(pod: Pod) -> UsageOwner:
    """Return the owner of an existing pod's usage; a bare pod is its own workload."""
    if pod.workload is None:
        return UsageOwner(f"Pod/{pod.name}")
    return UsageOwner(str(pod.workload), pod.identity)


def guess_former_owner(pod: str, node: str, workloads: frozenset[tuple[str, str]]) -> UsageOwner | None:
    """Guess from its name which of the (kind, name) workloads a former pod belonged to, None if not exactly one fits.

    A pod of a DaemonSet is only recognized with its `node`, which is its identity.
    """
    candidates = set(_match_stateful_sets(pod, workloads)) | set(_match_generated_name(pod, node, workloads))
    return candidates.pop() if len(candidates) == 1 else None


def _match_stateful_sets(pod: str, workloads: frozenset[tuple[str, str]]) -> list[UsageOwner]:
    stem, _, ordinal = pod.rpartition("-")
    if ordinal.isdecimal() and ("StatefulSet", stem) in workloads:
        return [UsageOwner(f"StatefulSet/{stem}", ordinal)]
    return []


def _match_generated_name(pod: str, node: str, workloads: frozenset[tuple[str, str]]) -> list[UsageOwner]:
    prefix, suffix_of_pod = pod[:-GENERATED_LENGTH], pod[-GENERATED_LENGTH:]
    if not GENERATED_SUFFIX.issuperset(suffix_of_pod):
        return []
    if len(prefix) == MAX_PREFIX_LENGTH and not prefix.endswith("-"):
        return _match_truncated_name(prefix, node, workloads)
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
    parent, _, suffix = stem.rpartition("-")
    if suffix.isdecimal() and ("DeploymentConfig", parent) in workloads:
        found.append(UsageOwner(f"DeploymentConfig/{parent}"))
    if _is_template_hash(suffix):
        found += [UsageOwner(f"{kind}/{parent}") for kind in ("Deployment", "Rollout") if (kind, parent) in workloads]
    return found + _match_jobs(stem, workloads)


def _match_jobs(stem: str, workloads: frozenset[tuple[str, str]]) -> list[UsageOwner]:
    """Find Jobs by their name before an index, and CronJobs by theirs before a minute and perhaps an index."""
    parent, _, suffix = stem.rpartition("-")
    if not suffix.isdecimal():
        return []
    found = []
    if ("Job", parent) in workloads:
        found.append(UsageOwner(f"Job/{parent}"))
    if ("CronJob", parent) in workloads:
        found.append(UsageOwner(f"CronJob/{parent}"))
    cron_job, _, minute = parent.rpartition("-")
    if minute.isdecimal() and ("CronJob", cron_job) in workloads:
        found.append(UsageOwner(f"CronJob/{cron_job}"))
    return found


def _is_template_hash(text: str) -> bool:
    return 0 < len(text) <= MAX_TEMPLATE_HASH_LENGTH and GENERATED_SUFFIX.issuperset(text)


def _match_truncated_name(prefix: str, node: str, workloads: frozenset[tuple[str, str]]) -> list[UsageOwner]:
    """Find owners of a name that Kubernetes truncated, by its start."""
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
