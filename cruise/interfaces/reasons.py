"""The words for reasons, details and sources; scripts read the values themselves."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from cruise.decisions.scan.risks import ContainerRisk, OomRemedy
from cruise.decisions.sizing.risk_level import REPORTED_DAYS, ObservedRisk
from cruise.domain.actions import ReasonCode, ResizeCause
from cruise.domain.annotations import OverrideSource
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.overrides import SettingSource
from cruise.domain.reasons import ReasonDetail, parse_detail_code
from cruise.domain.resources import ResourceName
from cruise.domain.usage import SampleRejection
from cruise.interfaces.text import format_age, format_count, format_memory, format_percent

REASON_DESCRIPTIONS: Mapping[ReasonCode, str] = {
    ReasonCode.EXCLUDED_NAMESPACE: "its namespace is excluded",
    ReasonCode.MODE_OFF: "mode off: it is to be left alone",
    ReasonCode.MODE_OBSERVE: "mode observe: nothing is written",
    ReasonCode.MODE_INITIAL: "mode initial: only pods that are being created are sized",
    ReasonCode.UNREADABLE_ANNOTATION: "an annotation cannot be read",
    ReasonCode.UNSIGNED_ANNOTATION: "cruise did not resize it, and its webhook did not sign what the annotation says",
    ReasonCode.STATIC_POD: "a static pod: the API server cannot resize it",
    ReasonCode.WINDOWS: "a Windows pod: it cannot be resized in place",
    ReasonCode.COMPLETED: "it has finished",
    ReasonCode.TERMINATING: "it is going",
    ReasonCode.GUARANTEED: "QoS class Guaranteed: its owner asked for exactly this",
    ReasonCode.BEST_EFFORT: "QoS class BestEffort: requests would change the class",
    ReasonCode.POD_LEVEL_RESOURCES: "it has pod-level resources, which servers cannot resize in place",
    ReasonCode.EXTENDED_RESOURCES: "it uses a GPU or another extended resource",
    ReasonCode.NO_CONTROLLER: "it has no controller",
    ReasonCode.NO_STATISTICS: "there are no statistics of it",
    ReasonCode.STALE_STATISTICS: "its statistics are too old to act on",
    ReasonCode.IMPLAUSIBLE_USAGE: "over a tenth of its latest samples cannot be true, so its usage is not known",
    ReasonCode.NEW_WORKLOAD: "its workload has too little history",
    ReasonCode.NEW_TEMPLATE_REVISION: "its template states other resources than the one before: it waits for samples of its own",
    ReasonCode.MANAGED_BY_HPA: "an autoscaler targets its utilisation",
    ReasonCode.MANAGED_BY_OTHER_AUTOSCALER: "another autoscaler sizes it",
    ReasonCode.AMBIGUOUS_WORKLOAD: "another API group has a workload of the same kind and name, and they share statistics",
    ReasonCode.LOOKUP_PENDING: "something that decides about it was looked up and has not been answered yet",
    ReasonCode.RESIZE_UNSUPPORTED: "its node's kubelet cannot resize in place",
    ReasonCode.RESIZE_RESTARTS: "a resize would restart its containers",
    ReasonCode.LIMIT_RANGE: "no sizes satisfy the namespace's LimitRange",
    ReasonCode.QOS_CHANGE: "the sizes would change its QoS class",
    ReasonCode.RESIZE_REFUSED: "this resize was refused before",
    ReasonCode.WAITING_FOR_CAPACITY: "the node has no room for it to grow yet",
    ReasonCode.RESIZE_DEFERRED: "an earlier resize waits for room on the node",
    ReasonCode.RESIZE_INFEASIBLE: "an earlier resize cannot be done on this node",
    ReasonCode.MEMORY_LEAK_SUSPECTED: "its memory only grows, and its limit does not follow",
    ReasonCode.NO_CHANGE_NEEDED: "no change of its sizes is worth a write",
    ReasonCode.PAUSED: "cruise is paused",
    ReasonCode.MODE_FORBIDS: "the mode forbids it",
    ReasonCode.COOLDOWN: "it was acted on a moment ago",
    ReasonCode.NODE_EVICTION_BUDGET_SPENT: "the node's eviction budget is spent",
    ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT: "the workload's eviction budget is spent",
    ReasonCode.REPLACEMENT_NOT_RESIZED: "an evicted pod came back to the node without being sized by the webhook",
    ReasonCode.HOURLY_EVICTION_BUDGET_SPENT: "the hour's eviction budget is spent",
    ReasonCode.CHANGED: "it changed after it was looked at",
    ReasonCode.HISTORY_INCOMPLETE: "the database went back to an earlier state; nothing shrinks until usage is read again",
    ReasonCode.STALE_DECISION: "the decision was older than max_decision_age; the next pass decides anew",
    ReasonCode.USAGE_INCREASED: "its usage rose above the decided size before the write",
    ReasonCode.NOT_FOUND: "it is gone",
    ReasonCode.THROTTLED: "the API server asked to slow down",
    ReasonCode.POD_DISRUPTION_BUDGET: "its PodDisruptionBudget allows no eviction now",
    ReasonCode.NOT_EVICTABLE: "it may not be evicted",
    ReasonCode.MEMORY_NOT_MANAGED: "its memory is not managed",
    ReasonCode.INSUFFICIENT_CAPACITY: "the node has no room for it to grow",
    ReasonCode.NODE_NOT_READY: "its node is not ready: no kubelet would act",
    ReasonCode.FORBIDDEN: "cruise's own account may not do this",
    ReasonCode.QUOTA_EXCEEDED: "the namespace's quota has no room for it now",
    ReasonCode.CANNOT_RESTORE: "its original sizes cannot be put back in place",
    ReasonCode.AT_MAXIMUM: "its bounds let it grow no further",
    ReasonCode.RECORDED_ONLY: "kills are only recorded",
    ReasonCode.PACKING_PLAN_ACTIVE: "a packing plan is being carried out that counts on its node, or on the evictions that are left",
    ReasonCode.UNDER_PRESSURE: "its pods share what the node is short of, bases first, and nobody has to go for it",
    ReasonCode.OVERCOMMITTED: "not even with every candidate gone would the node fit: nobody goes, pods share what it has",
    ReasonCode.RIGHTSIZED: "sized to what it uses",
    ReasonCode.NODE_OVER_CAPACITY: "the node does not hold all of its pods",
    ReasonCode.WITHDRAWN: "a resize that the node cannot do is taken back",
    ReasonCode.OOM_KILLED: "it was killed for lack of memory",
    ReasonCode.OVERLOADED: "the node's load was above the threshold twice",
    ReasonCode.LOAD_NORMAL: "the node's load fell below the threshold",
    ReasonCode.LOAD_UNKNOWN: "the node's load has been unknown for an hour",
    ReasonCode.TOO_MANY_TAINTS: "more than a fifth of the nodes had the taint",
    ReasonCode.TAINTING_DISABLED: "cruise taints no nodes any more",
    ReasonCode.REVERTED: "back to its original requests",
    ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS: "makes room for pods that no node could hold",
}


CAUSE_DESCRIPTIONS: Mapping[ResizeCause, str] = {
    ResizeCause.UNDER_REQUESTED: "it has used more than its request for long",
    ResizeCause.NODE_UNDER_PRESSURE: "the node's pods need more together than they have, and it lacks most",
    ResizeCause.CAPACITY_NEEDED_BY_OTHERS: "others on the node need the room",
    ResizeCause.OVER_REQUESTED: "the node's pods have had more than they need together for long, and it is the most idle",
    ResizeCause.USAGE_NEAR_LIMIT: "its use is near a limit that may rise",
    ResizeCause.OUT_OF_BOUNDS: "it is outside what its bounds allow",
}


REJECTION_DESCRIPTIONS: Mapping[SampleRejection, str] = {
    SampleRejection.ABOVE_NODE_CAPACITY: "more than its node has",
    SampleRejection.ABOVE_LIMIT: "more than its limit lets it use",
    SampleRejection.SERIES_DISAGREE: "several series of it disagree",
    SampleRejection.ABOVE_NODE_USAGE: "with its neighbours more than the whole node used",
    SampleRejection.OTHER_CLUSTER: "it belongs to another cluster, or may do so",
}
DETAIL_DESCRIPTIONS: Mapping[ReasonDetail, str] = {
    ReasonDetail.NO_CONTROLLER: "no controller would start it again",
    ReasonDetail.DAEMON_SET: "a DaemonSet pod would come back to the same node",
    ReasonDetail.PROTECTED: "annotation {}",
    ReasonDetail.SEVERAL_BUDGETS: "more than one PodDisruptionBudget ({})",
    ReasonDetail.BUDGET_EXHAUSTED: "{} allows no eviction now",
    ReasonDetail.EVICTIONS_SPENT: "no {}",
    ReasonDetail.RANKING_NEVER: "eviction-ranking never",
    ReasonDetail.MODE_WITHOUT_EVICTIONS: "mode {} evicts nobody",
    ReasonDetail.NAMESPACE_EXCLUDED: "its namespace is excluded",
    ReasonDetail.ANNOTATIONS_UNREADABLE: "its annotations cannot be read: {}",
    ReasonDetail.BEING_DELETED: "it is being deleted",
    ReasonDetail.NODE_NOT_READY: "its node is not ready, so it would not end",
    ReasonDetail.NODE_BEING_DELETED: "its node is being deleted, and its pods leave it anyway",
    ReasonDetail.LIMIT_RANGE_REFUSES: "a LimitRange would refuse its replacement",
    ReasonDetail.QUOTA_REFUSES: "a ResourceQuota has no room for its replacement",
    ReasonDetail.VOLUME_UNKNOWN: "its claim {} is not usable yet, so where it may go is not known",
    ReasonDetail.VOLUME_SHARED: "its claim {} is used by other pods as well, which have to stay on one node with it",
    ReasonDetail.NOT_EVALUATED: "where its replacement may go cannot be judged: {}",
    ReasonDetail.NOT_MANAGED: "its {} is not managed",
    ReasonDetail.JOB: "a pod that runs to completion would lose its work; state eviction-ranking low to have it evicted",
    ReasonDetail.POD_GROUP: "its pod group {} is scheduled as a whole, and may need every pod",
    ReasonDetail.REPLICA_NOT_READY: "replica {} of its workload is not ready",
    ReasonDetail.REFUSED_BEFORE: "its eviction was refused a pass ago",
    ReasonDetail.NO_NODE_FOR_REPLACEMENT: "no other node has room for its replacement",
    ReasonDetail.LOWER_PRIORITY_STAYS: "a pod of lower priority stays on the node",
    ReasonDetail.EVICTION_NOT_NEEDED: "the node fits without its going",
    ReasonDetail.NO_EVICTIONS: "the mode allows no eviction",
    ReasonDetail.NODE_UNKNOWN: "its node is not known",
    ReasonDetail.OOM_KILL_TOO_OLD: "the kill was too long ago to act on it",
    ReasonDetail.NOTHING_GROWS: "no bound lets it grow",
    ReasonDetail.LIMIT_AT_CEILING: (
        "the memory limit of {} is at its ceiling: raise it in the pod template, or look for a memory leak"
    ),
    ReasonDetail.NODE_OUT_OF_MEMORY: "its use was far below its limit: the node ran out of memory, not the container",
    ReasonDetail.INIT_CONTAINER: "init container {} is not sized by cruise: raise its memory limit in the pod template",
    ReasonDetail.POOL_FIXED: "it has {} nodes, whatever waits",
    ReasonDetail.POOL_NOT_READY: "Karpenter says that it is not ready",
    ReasonDetail.POOL_UNREADABLE: "it cannot be read: {}",
    ReasonDetail.POOL_LIMITS_USED: "its limits leave no room for a node more",
    ReasonDetail.INSTANCE_TYPE_UNKNOWN: "no machine that it may order was seen yet, so no size is known",
    ReasonDetail.UTILISATION_TARGETED: "HPA {} targets utilisation of what cruise may size",
    ReasonDetail.UTILISATION_MAY_BE_TARGETED: "HPA {}, whose pods are not known, may target its utilisation",
    ReasonDetail.SCALE_NOT_READ: "the scale of {} has not been read, and it may be one of its pods",
    ReasonDetail.SCALE_UNREADABLE: "the scale of {} cannot be read (see cruise check), and it may be one of its pods",
    ReasonDetail.NAMESPACE_NOT_SEEN: "its namespace has not been seen yet",
    ReasonDetail.OWNER_NOT_SEEN: "{}, which it belongs to, has not been seen yet",
    ReasonDetail.SIZED_BY_VPA: "VPA {}",
    ReasonDetail.MAY_BE_SIZED_BY_VPA: "VPA {}, whose pods are not known",
    ReasonDetail.GROWTH_PENDING: "what would grow waits for room",
    ReasonDetail.CPU_NEEDS_RESTART: "{}: its cpu cannot be resized without a restart",
    ReasonDetail.MEMORY_NEEDS_RESTART: "{}: its memory cannot be resized without a restart",
    ReasonDetail.CPU_REQUEST_STAYS: "{}: the cpu request cannot be removed",
    ReasonDetail.MEMORY_REQUEST_STAYS: "{}: the memory request cannot be removed",
    ReasonDetail.CPU_LIMIT_STAYS: "{}: the cpu limit cannot be removed",
    ReasonDetail.MEMORY_LIMIT_STAYS: "{}: the memory limit cannot be removed",
    ReasonDetail.CPU_LIMIT_TOO_LOW: "{}: the cpu limit cannot be under the request",
    ReasonDetail.MEMORY_LIMIT_TOO_LOW: "{}: the memory limit cannot be under the request",
    ReasonDetail.CPU_LIMIT_FIXED: "{}: the cpu limit cannot be lowered or added on this server",
    ReasonDetail.MEMORY_LIMIT_FIXED: "{}: the memory limit cannot be lowered or added on this server",
}
_SOURCES: Mapping[OverrideSource, str] = {
    OverrideSource.POD: "annotation of the pod",
    OverrideSource.WORKLOAD: "annotation of {}",
    OverrideSource.VERTICAL_POD_AUTOSCALER: "VPA {}",
    OverrideSource.NAMESPACE: "annotation of namespace {}",
    OverrideSource.DATABASE: "stored for {}",
    OverrideSource.CLUSTER: "cluster",
}


def describe_source(source: SettingSource) -> str:
    """Return where an override is stated."""
    return _SOURCES[source.setter].format(source.name)


def describe_detail(detail: str) -> str:
    """Return a detail for people: codes in words, names and figures and servers' messages as they are."""
    return "; ".join(
        part if code is None else DETAIL_DESCRIPTIONS[code].format(part.partition(": ")[2])
        for part in detail.split("; ")
        for code in [parse_detail_code(part)]
    )


def describe_reason(reason: ReasonCode, detail: str = "") -> str:
    """Return a reason for people, with its detail where there is one."""
    return f"{REASON_DESCRIPTIONS[reason]} ({describe_detail(detail)})" if detail else REASON_DESCRIPTIONS[reason]


# Containers that were killed for lack of memory, in words.

_REMEDIES: Mapping[OomRemedy, str] = {
    OomRemedy.RAISE_TEMPLATE_LIMIT: (
        "its limit is at its ceiling: raise the memory limit in the pod template, or look for a leak"
    ),
    OomRemedy.SIZE_TEMPLATE: "the next pod has the same limit unless the webhook or its template raises it: cruise export",
    OomRemedy.SIZE_OWNER: (
        "the next pod has the same limit unless the webhook raises it: raise it in the object that creates the pods"
    ),
    OomRemedy.SIZE_MANIFEST: "no controller creates it again: raise the memory limit in the manifest of the pod",
    OomRemedy.SIZE_INIT_CONTAINER: ("cruise does not size init containers: raise its memory limit in the pod template"),
}


def describe_oom_kill(risk: ContainerRisk, now: datetime) -> str:
    """Say in one line how a container was killed for lack of memory, and what a person has to do about it."""
    where = f"at {format_memory(risk.observed)}" if risk.observed else "without a limit of its own"
    when = format_age(now, risk.killed_at) if risk.killed_at is not None else "in the last 7 days"
    restarts = f", {format_count(risk.restarts, 'restart')}" if risk.restarts else ""
    remedy = f"; {_REMEDIES[risk.remedy]}" if risk.remedy is not None else ""
    return f"killed {where} {when}{restarts}{remedy}"


# What nodes keep of a resource, why, and how well the stated risk was kept, in a sentence.


def describe_observed_risk(resource: ResourceName, kept: ObservedRisk) -> str:
    """Return the sentence for one resource."""
    name = "CPU" if resource is ResourceName.CPU else "memory"
    seen = "too few intervals to say how it is kept"
    if kept.is_known:
        word = "not kept" if not kept.is_within_stated_risk else "unspent" if kept.is_far_below_stated_risk else "kept"
        seen = f"{word}, {format_percent(kept.observed)} % of {kept.intervals:,} intervals in {REPORTED_DAYS} days"
    return (
        f"{name}: the use of the last hour and {kept.level:.2f} times the rise expected from there; "
        f"risk asked {format_percent(kept.stated_risk)} %: {seen}"
    )


# Kinds of objects that a snapshot file does not have, and what is therefore not judged.

# What is judged by objects that any cluster may have, by kind: the name that kubectl prints them by, and what it is.
_OF_ANY_CLUSTER = {
    "PodDisruptionBudget": ("poddisruptionbudgets", "disruption budgets"),
    "HorizontalPodAutoscaler": ("horizontalpodautoscalers", "HPAs"),
    "LimitRange": ("limitranges", "LimitRanges"),
    "ResourceQuota": ("resourcequotas", "quotas"),
    "Namespace": ("namespaces", "annotations and labels of namespaces"),
}
_OF_OWNERS = {
    "ReplicaSet": "replicasets",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
    "CronJob": "cronjobs",
}
_OF_VOLUMES = {
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PersistentVolume": "persistentvolumes",
    "StorageClass": "storageclasses",
    "CSINode": "csinodes",
}


def describe_missing_kinds(snapshot: ClusterSnapshot, file: str) -> str:
    """Say in one line which kinds a file lacks that matter for its pods; empty where it lacks none."""
    if snapshot.listed_kinds is None:
        return ""
    missing = dict(_missing(snapshot, snapshot.listed_kinds))
    if not missing:
        return ""
    subjects = ", ".join(dict.fromkeys(missing.values()))
    return f"{file} has no {', '.join(missing)}: {subjects} are not judged; if there are any, print them too"


def _missing(snapshot: ClusterSnapshot, listed: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the name of each kind that is missing, and what it is about."""
    for kind, (name, about) in _OF_ANY_CLUSTER.items():
        if kind not in listed:
            yield name, about
    owners = {pod.owner_kind for pod in snapshot.pods}
    owners |= {pod.workload.kind for pod in snapshot.pods if pod.workload is not None}
    for kind, name in _OF_OWNERS.items():
        if kind in owners and kind not in listed:
            yield name, "annotations and templates of workloads"
    if any(pod.constraints.claims for pod in snapshot.pods):
        for kind, name in _OF_VOLUMES.items():
            if kind not in listed:
                yield name, "volumes"
