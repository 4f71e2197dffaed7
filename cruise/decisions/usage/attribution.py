"""Whose usage a sample is: the workload and identity of a pod, also of one that is gone.

A pod that is gone is known by its name alone, which its controller gave it; the workloads of the namespace that still
exist are the ones it may have belonged to. Where a name could be of two of them, or of none, nobody gets its samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.usage import ContainerKey, PeakKey

# What Kubernetes makes generated endings from: letters and digits that neither spell words nor look alike.
GENERATED = frozenset("bcdfghjklmnpqrstvwxz2456789")
GENERATED_LENGTH = 5
# A generated name has at most 63 characters; what stands before the ending is cut to fit.
LONGEST_PREFIX = 63 - GENERATED_LENGTH
LONGEST_TEMPLATE_HASH = 10


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whose a pod's usage is: `workload` as Kind/name."""

    workload: str
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Attribution:
    """What a snapshot says about the ownership of usage, `pods` by (namespace, pod) and `workloads` by namespace."""

    pods: Mapping[tuple[str, str], Ownership]
    workloads: Mapping[str, frozenset[tuple[str, str]]]

    @staticmethod
    def of(snapshot: Snapshot) -> "Attribution":
        """Read the ownership of all pods and the workloads that exist."""
        workloads: dict[str, set[tuple[str, str]]] = {}
        for namespace, ref in snapshot.workloads:
            workloads.setdefault(namespace, set()).add((ref.kind, ref.name))
        pods: dict[tuple[str, str], Ownership] = {}
        for pod in snapshot.pods:
            pods[pod.namespace, pod.name] = ownership(pod)
            if pod.workload is not None:
                workloads.setdefault(pod.namespace, set()).add((pod.workload.kind, pod.workload.name))
        return Attribution(pods, {namespace: frozenset(names) for namespace, names in workloads.items()})

    def peak_key(self, container: ContainerKey, node: str) -> PeakKey | None:
        """Return what a container's peaks belong to, None where that cannot be told.

        `node` is where the source says that the container runs, empty where it does not say.
        """
        owner = self.pods.get((container.namespace, container.pod))
        if owner is None:
            owner = former_owner(container.pod, node, self.workloads.get(container.namespace, frozenset()))
        if owner is None:
            return None
        return PeakKey(container.namespace, owner.workload, container.container, owner.identity)


def ownership(pod: Pod) -> Ownership:
    """Return the ownership of a pod that exists; a bare pod is its own workload."""
    if pod.workload is None:
        return Ownership(f"Pod/{pod.name}")
    return Ownership(str(pod.workload), pod.identity)


def former_owner(pod: str, node: str, workloads: frozenset[tuple[str, str]]) -> Ownership | None:
    """Tell from its name which of the (kind, name) workloads a pod belonged to that is gone.

    A DaemonSet's pod is told only with its `node`, which is its identity.
    """
    candidates = set(_numbered(pod, workloads)) | set(_generated(pod, node, workloads))
    return candidates.pop() if len(candidates) == 1 else None


def _numbered(pod: str, workloads: frozenset[tuple[str, str]]) -> list[Ownership]:
    stem, _, ordinal = pod.rpartition("-")
    if ordinal.isdecimal() and ("StatefulSet", stem) in workloads:
        return [Ownership(f"StatefulSet/{stem}", ordinal)]
    return []


def _generated(pod: str, node: str, workloads: frozenset[tuple[str, str]]) -> list[Ownership]:
    prefix, ending = pod[:-GENERATED_LENGTH], pod[-GENERATED_LENGTH:]
    if not GENERATED.issuperset(ending):
        return []
    if len(prefix) == LONGEST_PREFIX and not prefix.endswith("-"):
        return _cut_short(prefix, node, workloads)
    if not prefix.endswith("-"):
        return []
    stem = prefix[:-1]
    found = [
        Ownership(f"{kind}/{stem}")
        for kind in ("ReplicaSet", "ReplicationController", "Job")
        if (kind, stem) in workloads
    ]
    if ("DaemonSet", stem) in workloads and node:
        found.append(Ownership(f"DaemonSet/{stem}", node))
    above, _, last = stem.rpartition("-")
    if last.isdecimal() and ("DeploymentConfig", above) in workloads:
        found.append(Ownership(f"DeploymentConfig/{above}"))
    if _is_template_hash(last):
        found += [Ownership(f"{kind}/{above}") for kind in ("Deployment", "Rollout") if (kind, above) in workloads]
    return found + _of_jobs(stem, workloads)


def _of_jobs(stem: str, workloads: frozenset[tuple[str, str]]) -> list[Ownership]:
    """Jobs by their name before an index, CronJobs by theirs before the minute of the run and perhaps an index."""
    above, _, last = stem.rpartition("-")
    if not last.isdecimal():
        return []
    found = []
    if ("Job", above) in workloads:
        found.append(Ownership(f"Job/{above}"))
    if ("CronJob", above) in workloads:
        found.append(Ownership(f"CronJob/{above}"))
    cron_job, _, minute = above.rpartition("-")
    if minute.isdecimal() and ("CronJob", cron_job) in workloads:
        found.append(Ownership(f"CronJob/{cron_job}"))
    return found


def _is_template_hash(text: str) -> bool:
    return 0 < len(text) <= LONGEST_TEMPLATE_HASH and GENERATED.issuperset(text)


def _cut_short(prefix: str, node: str, workloads: frozenset[tuple[str, str]]) -> list[Ownership]:
    """Of a name so long that Kubernetes cut it, only the start is left to go by."""
    found = []
    for kind, name in workloads:
        rest = prefix.removeprefix(f"{name}-")
        numbered = rest != prefix and rest.isdecimal()
        hashed = rest != prefix and _is_template_hash(rest)
        whole = f"{name}-".startswith(prefix)
        if kind == "DaemonSet" and node and whole:
            found.append(Ownership(f"{kind}/{name}", node))
        elif kind in ("Deployment", "Rollout") and (whole or hashed):
            found.append(Ownership(f"{kind}/{name}"))
        elif kind in ("Job", "CronJob", "DeploymentConfig") and (whole or numbered):
            found.append(Ownership(f"{kind}/{name}"))
        elif kind in ("ReplicaSet", "ReplicationController") and whole:
            found.append(Ownership(f"{kind}/{name}"))
    return found
