"""Descriptions of reasons, causes, details and sources of settings; JSON documents also have their codes."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from cruise.decisions.scan.risks import ContainerRisk, UserRemedy
from cruise.decisions.sizing.headroom_level import REPORTED_DAYS, ObservedRisk
from cruise.decisions.sizing.write_tolerances import compute_under_request_tolerance
from cruise.domain.actions import ReasonCode, ResizeCause
from cruise.domain.annotations import OverrideSource
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.overrides import SettingSource
from cruise.domain.reasons import ReasonDetailCode, parse_detail_code
from cruise.domain.resources import ResourceName
from cruise.domain.usage import SampleRejectionReason
from cruise.interfaces.text import format_age, format_count, format_memory, format_percent

REASON_DESCRIPTIONS: Mapping[ReasonCode, str] = {
    ReasonCode.EXCLUDED_NAMESPACE: "its namespace is excluded",
    ReasonCode.NAMESPACE_NOT_INCLUDED: "included_namespaces or namespace_selector leaves out its namespace",
    ReasonCode.MODE_OFF: "mode off",
    ReasonCode.MODE_OBSERVE: "mode observe: nothing is written",
    ReasonCode.MODE_INITIAL: "mode initial: pods are sized only at creation",
    ReasonCode.UNREADABLE_ANNOTATION: "an annotation or a policy object cannot be read",
    ReasonCode.UNSIGNED_ANNOTATION: (
        "cruise did not resize it, and its annotation has no valid signature of the webhook"
    ),
    ReasonCode.STATIC_POD: "a static pod: the API server cannot resize it",
    ReasonCode.WINDOWS: "a Windows pod: it cannot be resized in place",
    ReasonCode.VIRTUAL_NODE: "its node is virtual (Fargate, Virtual Kubelet): its requests at creation are all it gets",
    ReasonCode.COMPLETED: "it has completed",
    ReasonCode.TERMINATING: "it is terminating",
    ReasonCode.GUARANTEED: "QoS class Guaranteed: its owner set these sizes exactly; guaranteed: resize sizes it",
    ReasonCode.BEST_EFFORT: (
        "QoS class BestEffort: requests would change the class; best_effort: adopt gives them to new pods"
    ),
    ReasonCode.POD_LEVEL_RESOURCES: "it has pod-level resources, which only kubelets from 1.36 on resize",
    ReasonCode.EXTENDED_RESOURCES: "it uses a GPU or another extended resource",
    ReasonCode.NO_CONTROLLER: "it has no controller; the label cruise.io/workload groups such pods",
    ReasonCode.NO_STATISTICS: "it has no statistics",
    ReasonCode.STALE_STATISTICS: "its statistics are too old",
    ReasonCode.IMPLAUSIBLE_USAGE: "more than a tenth of its latest samples cannot be true, so its usage is unknown",
    ReasonCode.NEW_WORKLOAD: "its workload has too little history",
    ReasonCode.STARTING: "it still has the CPU of its start (cruise.io/startup-cpu)",
    ReasonCode.NEW_TEMPLATE_REVISION: (
        "its pod template has other resources than the previous revision, and has no samples yet"
    ),
    ReasonCode.MANAGED_BY_HPA: "an HPA targets its utilization",
    ReasonCode.MANAGED_BY_OTHER_AUTOSCALER: "another autoscaler sizes it",
    ReasonCode.AMBIGUOUS_WORKLOAD: (
        "another API group has a workload of the same kind and name, and both share their statistics"
    ),
    ReasonCode.LOOKUP_PENDING: "an object that the decision depends on has not been read yet",
    ReasonCode.RESIZE_UNSUPPORTED: "its node's kubelet cannot resize in place",
    ReasonCode.RESIZE_RESTARTS: "a resize would restart its containers",
    ReasonCode.LIMIT_RANGE: "no sizes satisfy the namespace's LimitRange",
    ReasonCode.QOS_CHANGE: "the sizes would change its QoS class",
    ReasonCode.RESIZE_REFUSED: "this resize was rejected before",
    ReasonCode.WAITING_FOR_CAPACITY: "its node does not have the capacity for a larger size yet",
    ReasonCode.RESIZE_DEFERRED: "an earlier resize is deferred until its node has capacity",
    ReasonCode.RESIZE_INFEASIBLE: "an earlier resize is infeasible on its node",
    ReasonCode.STATIC_CPU_MANAGER: "its node's static CPU manager assigns its cores, and does not resize them",
    ReasonCode.STATIC_MEMORY_MANAGER: "its node's static memory manager assigns its memory, and does not resize it",
    ReasonCode.NODE_SWAP: "its node has swap, and its kubelet does not resize memory that may be swapped",
    ReasonCode.MEMORY_LEAK_SUSPECTED: "its memory usage only increases, so its limit is not raised",
    ReasonCode.NO_CHANGE_NEEDED: "its planned sizes are within the update threshold of its present ones",
    ReasonCode.PAUSED: "cruise is paused",
    ReasonCode.MODE_FORBIDS: "the mode forbids it",
    ReasonCode.COOLDOWN: "an action on it was too recent",
    ReasonCode.NODE_EVICTION_BUDGET_SPENT: "the node's eviction budget is spent",
    ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT: "the workload's eviction budget is spent",
    ReasonCode.REPLACEMENT_NOT_RESIZED: "a replacement pod was created on the node without sizes from the webhook",
    ReasonCode.HOURLY_EVICTION_BUDGET_SPENT: "the hourly eviction budget is spent",
    ReasonCode.CHANGED: "it changed after the decision",
    ReasonCode.HISTORY_INCOMPLETE: (
        "the database was restored to an earlier state; no pod is shrunk until usage is read again"
    ),
    ReasonCode.STALE_DECISION: "the decision was older than max_decision_age; the next pass decides again",
    ReasonCode.USAGE_INCREASED: "its usage rose above the decided size before the write",
    ReasonCode.HPA_CHANGED: "its HPA changed before the write, or its number of replicas",
    ReasonCode.NOT_FOUND: "it no longer exists",
    ReasonCode.THROTTLED: "the API server throttled the request",
    ReasonCode.POD_DISRUPTION_BUDGET: "its PodDisruptionBudget allows no eviction now",
    ReasonCode.NOT_EVICTABLE: "it may not be evicted",
    ReasonCode.CPU_NOT_MANAGED: "its CPU is not managed",
    ReasonCode.MEMORY_NOT_MANAGED: "its memory is not managed",
    ReasonCode.INSUFFICIENT_CAPACITY: "its node does not have the capacity for a larger size",
    ReasonCode.NODE_NOT_READY: "its node is not ready, or reports no allocatable capacity: its kubelet would not act",
    ReasonCode.FORBIDDEN: "cruise's service account is not allowed to do this",
    ReasonCode.QUOTA_EXCEEDED: "it would exceed the namespace's ResourceQuota now",
    ReasonCode.CANNOT_RESTORE: "its original sizes cannot be restored in place",
    ReasonCode.START_UNKNOWN: "fewer than three whole starts of its workload were seen in the last 28 days",
    ReasonCode.AT_MAXIMUM: "it is at its maximum size",
    ReasonCode.RECORDED_ONLY: "OOM kills are only recorded",
    ReasonCode.PACKING_PLAN_ACTIVE: "a packing plan in progress needs its node or the remaining evictions",
    ReasonCode.UNDER_PRESSURE: (
        "its pods need more together than it has: they share it, bases first, and no pod must be evicted"
    ),
    ReasonCode.OVERCOMMITTED: "no eviction would make its pods fit: no pod is evicted, and the pods share its capacity",
    ReasonCode.RIGHTSIZED: "sized by its usage",
    ReasonCode.NODE_OVER_CAPACITY: "the node cannot hold all of its pods",
    ReasonCode.WITHDRAWN: "a resize that the node cannot do is withdrawn",
    ReasonCode.START_COMPLETED: "the pod has started: the CPU that it got for that is taken back",
    ReasonCode.OOM_KILLED: "it was OOM killed",
    ReasonCode.OVERLOADED: "the node's load was above the threshold twice",
    ReasonCode.LOAD_NORMAL: "the node's load fell below the threshold",
    ReasonCode.LOAD_UNKNOWN: "the node's load has been unknown for an hour",
    ReasonCode.TOO_MANY_TAINTS: "more than a fifth of the nodes had the taint",
    ReasonCode.TAINTING_DISABLED: "tainting of nodes was disabled",
    ReasonCode.REVERTED: "its original requests are restored",
    ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS: "frees capacity for pending pods",
}


CAUSE_DESCRIPTIONS: Mapping[ResizeCause, str] = {
    ResizeCause.UNDER_REQUESTED: "it has used more than its request for some time",
    ResizeCause.NODE_UNDER_PRESSURE: "the node's pods need more together than they request, and it lacks the most",
    ResizeCause.CAPACITY_NEEDED_BY_OTHERS: "other pods of the node need the capacity",
    ResizeCause.OVER_REQUESTED: (
        "the node's pods request more than they need together, and it has the most to reclaim"
    ),
    ResizeCause.USAGE_NEAR_LIMIT: "its usage is near a limit that can be raised",
    ResizeCause.OUT_OF_BOUNDS: "it is outside its bounds",
}


REJECTION_DESCRIPTIONS: Mapping[SampleRejectionReason, str] = {
    SampleRejectionReason.ABOVE_NODE_CAPACITY: "above the capacity of the node",
    SampleRejectionReason.ABOVE_LIMIT: "above the container's limit",
    SampleRejectionReason.SERIES_DISAGREE: "several series of the container disagree",
    SampleRejectionReason.ABOVE_NODE_USAGE: "with the node's other containers, above the usage of the whole node",
    SampleRejectionReason.OTHER_CLUSTER: "of another cluster, or possibly so",
}
DETAIL_DESCRIPTIONS: Mapping[ReasonDetailCode, str] = {
    ReasonDetailCode.NO_CONTROLLER: "no controller would create it again",
    ReasonDetailCode.DAEMON_SET: "a DaemonSet pod would be created again on the same node",
    ReasonDetailCode.PROTECTED: "annotation {}",
    ReasonDetailCode.SEVERAL_BUDGETS: "more than one PodDisruptionBudget ({})",
    ReasonDetailCode.BUDGET_EXHAUSTED: "{} allows no eviction now",
    ReasonDetailCode.EVICTIONS_SPENT: "no {}",
    ReasonDetailCode.RANKING_NEVER: "eviction-ranking never",
    ReasonDetailCode.MODE_WITHOUT_EVICTIONS: "mode {} does not evict",
    ReasonDetailCode.NAMESPACE_EXCLUDED: "its namespace is excluded",
    ReasonDetailCode.ANNOTATIONS_UNREADABLE: "its annotations cannot be read: {}",
    ReasonDetailCode.BEING_DELETED: "it is being deleted",
    ReasonDetailCode.NODE_NOT_READY: "its node is not ready, so it would not terminate",
    ReasonDetailCode.NODE_BEING_DELETED: "its node is being deleted, which evicts its pods anyway",
    ReasonDetailCode.LIMIT_RANGE_REFUSES: "a LimitRange would reject its replacement pod",
    ReasonDetailCode.QUOTA_REFUSES: "its replacement pod would exceed a ResourceQuota",
    ReasonDetailCode.VOLUME_UNKNOWN: "its claim {} is not usable yet, so the nodes that it may run on are unknown",
    ReasonDetailCode.VOLUME_SHARED: "other pods use its claim {} too, and must stay on one node with it",
    ReasonDetailCode.NOT_EVALUATED: "the nodes that its replacement pod may run on are unknown: {}",
    ReasonDetailCode.NOT_MANAGED: "its {} is not managed",
    ReasonDetailCode.DEVICES: "its device may be free on no other node; set eviction-ranking to allow evictions",
    ReasonDetailCode.GUARANTEED: "a Guaranteed pod keeps its node; set eviction-ranking to allow evictions",
    ReasonDetailCode.JOB: (
        "a pod that runs to completion would lose its work; set eviction-ranking low to allow evictions"
    ),
    ReasonDetailCode.UPDATES_ON_DELETE: (
        "its StatefulSet has update strategy OnDelete: an eviction would update it to revision {}"
    ),
    ReasonDetailCode.POD_GROUP: "its pod group {} is scheduled as a whole, and may need every pod",
    ReasonDetailCode.REPLICA_NOT_READY: "replica {} of its workload is not ready",
    ReasonDetailCode.REFUSED_BEFORE: "its eviction was rejected in the previous pass",
    ReasonDetailCode.NO_NODE_FOR_REPLACEMENT: "no other node would get its replacement pod",
    ReasonDetailCode.LOWER_PRIORITY_STAYS: "a pod of lower priority stays on the node",
    ReasonDetailCode.EVICTION_NOT_NEEDED: "the node's pods fit without its eviction",
    ReasonDetailCode.NO_EVICTIONS: "the mode allows no eviction",
    ReasonDetailCode.NODE_UNKNOWN: "its node is unknown",
    ReasonDetailCode.OOM_KILL_TOO_OLD: "the OOM kill was too long ago",
    ReasonDetailCode.NOTHING_GROWS: "its bounds allow no larger size",
    ReasonDetailCode.DIRECTION_SHRINK: "cruise.io/direction lets {} only shrink",
    ReasonDetailCode.LIMIT_AT_CEILING: (
        "the memory limit of {} is at its ceiling: raise it in the pod template, or look for a memory leak"
    ),
    ReasonDetailCode.NODE_OUT_OF_MEMORY: (
        "its usage was far below its limit: the node ran out of memory, not the container"
    ),
    ReasonDetailCode.INIT_CONTAINER: (
        "cruise does not size init container {}: raise its memory limit in the pod template"
    ),
    ReasonDetailCode.POOL_FIXED: "it has a fixed number of nodes, {}",
    ReasonDetailCode.POOL_NOT_READY: "Karpenter reports that it is not ready",
    ReasonDetailCode.POOL_UNREADABLE: "it cannot be read: {}",
    ReasonDetailCode.POOL_LIMITS_USED: "its limits do not allow another node",
    ReasonDetailCode.INSTANCE_TYPE_UNKNOWN: "no node of its instance types was seen yet, so their sizes are unknown",
    ReasonDetailCode.UTILISATION_TARGETED: "HPA {} targets the utilization of resources that cruise may size",
    ReasonDetailCode.UTILISATION_MAY_BE_TARGETED: "HPA {}, whose pods are unknown, may target its utilization",
    ReasonDetailCode.UTILISATION_UNKNOWN: "HPA {} does not report that it can scale, or not all of its metrics",
    ReasonDetailCode.ABOVE_UTILISATION_TARGET: "HPA {} is above its target",
    ReasonDetailCode.REPLICAS_CHANGING: "HPA {} is changing the number of replicas",
    ReasonDetailCode.REPLICAS_BETWEEN: (
        "HPA {} is between its minimum and maximum of replicas, which follow requests there"
    ),
    ReasonDetailCode.SEVERAL_HPAS: "HPAs {} target the utilization of the same pods",
    ReasonDetailCode.SCALE_NOT_READ: "the scale of {} has not been read, and it may be one of its pods",
    ReasonDetailCode.SCALE_UNREADABLE: (
        "the scale of {} cannot be read (see cruise check), and it may be one of its pods"
    ),
    ReasonDetailCode.NAMESPACE_NOT_SEEN: "its namespace has not been seen yet",
    ReasonDetailCode.OWNER_NOT_SEEN: "its owner {} has not been seen yet",
    ReasonDetailCode.SIZED_BY_VPA: "VPA {}",
    ReasonDetailCode.MAY_BE_SIZED_BY_VPA: "VPA {}, whose pods are unknown",
    ReasonDetailCode.GROWTH_PENDING: "its increase waits for capacity",
    ReasonDetailCode.CPU_NEEDS_RESTART: "{}: its cpu cannot be resized without a restart",
    ReasonDetailCode.MEMORY_NEEDS_RESTART: "{}: its memory cannot be resized without a restart",
    ReasonDetailCode.CPU_REQUEST_STAYS: "{}: the cpu request cannot be removed",
    ReasonDetailCode.MEMORY_REQUEST_STAYS: "{}: the memory request cannot be removed",
    ReasonDetailCode.CPU_LIMIT_STAYS: "{}: the cpu limit cannot be removed",
    ReasonDetailCode.MEMORY_LIMIT_STAYS: "{}: the memory limit cannot be removed",
    ReasonDetailCode.CPU_LIMIT_TOO_LOW: "{}: the cpu limit cannot be under the request",
    ReasonDetailCode.MEMORY_LIMIT_TOO_LOW: "{}: the memory limit cannot be under the request",
    ReasonDetailCode.CPU_LIMIT_FIXED: "{}: the cpu limit cannot be lowered or added on this server",
    ReasonDetailCode.MEMORY_LIMIT_FIXED: "{}: the memory limit cannot be lowered or added on this server",
}
_SOURCES: Mapping[OverrideSource, str] = {
    OverrideSource.POD: "annotation of the pod",
    OverrideSource.WORKLOAD: "annotation of {}",
    OverrideSource.VERTICAL_POD_AUTOSCALER: "VPA {}",
    OverrideSource.NAMESPACE: "annotation of namespace {}",
    OverrideSource.PAUSED_WORKLOAD: "pause of {}",
    OverrideSource.RIGHTSIZING_POLICY: "RightsizingPolicy {}",
    OverrideSource.CLUSTER_RIGHTSIZING_POLICY: "ClusterRightsizingPolicy {}",
    OverrideSource.CLUSTER: "cluster",
}


def describe_source(source: SettingSource) -> str:
    """Return the description of a setting's source."""
    return _SOURCES[source.setter].format(source.name)


def describe_detail(detail: str) -> str:
    """Return a detail with its codes as descriptions; names, figures and messages of servers are unchanged."""
    return "; ".join(
        part if code is None else DETAIL_DESCRIPTIONS[code].format(part.partition(": ")[2])
        for part in detail.split("; ")
        for code in [parse_detail_code(part)]
    )


def describe_reason(reason: ReasonCode, detail: str = "") -> str:
    """Return the description of a reason and of its detail."""
    return f"{REASON_DESCRIPTIONS[reason]} ({describe_detail(detail)})" if detail else REASON_DESCRIPTIONS[reason]


_REMEDIES: Mapping[UserRemedy, str] = {
    UserRemedy.RAISE_TEMPLATE_LIMIT: (
        "its limit is at its ceiling: raise the memory limit in the pod template, or look for a memory leak"
    ),
    UserRemedy.SIZE_TEMPLATE: (
        "the next pod has the same limit unless the webhook or its template raises it: see cruise export"
    ),
    UserRemedy.SIZE_OWNER: (
        "the next pod has the same limit unless the webhook raises it: raise it in the object that creates the pods"
    ),
    UserRemedy.SIZE_MANIFEST: "no controller creates it again: raise the memory limit in the manifest of the pod",
    UserRemedy.SIZE_INIT_CONTAINER: "cruise does not size init containers: raise its memory limit in the pod template",
}


def describe_oom_kill(risk: ContainerRisk, now: datetime) -> str:
    """Return when and at which limit a container was OOM killed, and what the user should do."""
    limit = f"at {format_memory(risk.observed)}" if risk.observed else "without a limit"
    time = format_age(now, risk.killed_at) if risk.killed_at is not None else "in the last 7 days"
    restarts = f", {format_count(risk.restarts, 'restart')}" if risk.restarts else ""
    remedy = f"; {_REMEDIES[risk.remedy]}" if risk.remedy is not None else ""
    return f"OOM killed {limit} {time}{restarts}{remedy}"


def describe_observed_risk(resource: ResourceName, risk: ObservedRisk) -> str:
    """Return how much headroom nodes keep of a resource, and the observed risk compared with the stated one."""
    observed = "too few intervals for an observed risk"
    if risk.is_known:
        within = "unspent" if risk.is_far_below_stated_risk else "within"
        relation = within if risk.is_within_stated_risk else "above"
        share = f"{format_percent(risk.observed)} % of {risk.intervals:,} intervals"
        observed = f"observed {share} in {REPORTED_DAYS} days ({relation})"
    headroom = f"the last hour's usage and {risk.level:.2f} times the expected rise"
    if risk.level < 0:
        share = format_percent(compute_under_request_tolerance(resource, risk.level))
        headroom = f"the last hour's usage, and may request {share} % less before they grow"
    return (
        f"{resource.display_name}: nodes keep {headroom}; stated risk {format_percent(risk.stated_risk)} %, {observed}"
    )


# Kinds of objects that a snapshot file lacks: kubectl's name, and what cruise reads from them.
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
    """Return which kinds a snapshot file lacks that matter for its pods, empty if none."""
    if snapshot.listed_kinds is None:
        return ""
    missing = dict(_find_missing_kinds(snapshot, snapshot.listed_kinds))
    if not missing:
        return ""
    subjects = ", ".join(dict.fromkeys(missing.values()))
    return f"{file} has no {', '.join(missing)}: {subjects} are not checked; add them to the file if there are any"


def _find_missing_kinds(snapshot: ClusterSnapshot, listed: frozenset[str]) -> Iterator[tuple[str, str]]:
    for kind, (name, subject) in _OF_ANY_CLUSTER.items():
        if kind not in listed:
            yield name, subject
    owners = {pod.owner_kind for pod in snapshot.pods}
    owners |= {pod.workload.kind for pod in snapshot.pods if pod.workload is not None}
    for kind, name in _OF_OWNERS.items():
        if kind in owners and kind not in listed:
            yield name, "annotations and templates of workloads"
    if any(pod.constraints.claims for pod in snapshot.pods):
        for kind, name in _OF_VOLUMES.items():
            if kind not in listed:
                yield name, "volumes"
