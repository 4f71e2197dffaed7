"""The words for reasons, details and sources; scripts read the values themselves."""

from collections.abc import Mapping

from cruise.domain.actions import Reason, WriteCause
from cruise.domain.annotations import Setter
from cruise.domain.details import Detail, code_of
from cruise.domain.overrides import Source
from cruise.domain.usage import Refusal

WORDS: Mapping[Reason, str] = {
    Reason.EXCLUDED_NAMESPACE: "its namespace is excluded",
    Reason.MODE_OFF: "mode off: it is to be left alone",
    Reason.MODE_OBSERVE: "mode observe: nothing is written",
    Reason.MODE_INITIAL: "mode initial: only pods that are being created are sized",
    Reason.UNREADABLE_ANNOTATION: "an annotation cannot be read",
    Reason.UNSIGNED_ANNOTATION: "cruise did not resize it, and its webhook did not sign what the annotation says",
    Reason.STATIC_POD: "a static pod: the API server cannot resize it",
    Reason.WINDOWS: "a Windows pod: it cannot be resized in place",
    Reason.TERMINAL: "it has finished",
    Reason.TERMINATING: "it is going",
    Reason.GUARANTEED: "QoS class Guaranteed: its owner asked for exactly this",
    Reason.BEST_EFFORT: "QoS class BestEffort: requests would change the class",
    Reason.POD_LEVEL_RESOURCES: "it has pod-level resources, which servers cannot resize in place",
    Reason.EXTENDED_RESOURCES: "it uses a GPU or another extended resource",
    Reason.NO_CONTROLLER: "it has no controller",
    Reason.NO_STATISTICS: "there are no statistics of it",
    Reason.STALE_STATISTICS: "its statistics are too old to act on",
    Reason.IMPLAUSIBLE_USAGE: "over a tenth of its latest samples cannot be true, so its usage is not known",
    Reason.NEW_WORKLOAD: "its workload has too little history",
    Reason.NEW_REVISION: "its template states other resources than the one before: it waits for samples of its own",
    Reason.AUTOSCALED: "an autoscaler targets its utilisation",
    Reason.OTHER_AUTOSCALER: "another autoscaler sizes it",
    Reason.AMBIGUOUS_WORKLOAD: "another API group has a workload of the same kind and name, and they share statistics",
    Reason.LOOKUP_PENDING: "something that decides about it was looked up and has not been answered yet",
    Reason.RESIZE_UNSUPPORTED: "its node's kubelet cannot resize in place",
    Reason.RESIZE_RESTARTS: "a resize would restart its containers",
    Reason.LIMIT_RANGE: "no sizes satisfy the namespace's LimitRange",
    Reason.QOS_CHANGE: "the sizes would change its QoS class",
    Reason.REFUSED: "this resize was refused before",
    Reason.WAITING_FOR_ROOM: "the node has no room for it to grow yet",
    Reason.RESIZE_DEFERRED: "an earlier resize waits for room on the node",
    Reason.RESIZE_INFEASIBLE: "an earlier resize cannot be done on this node",
    Reason.MEMORY_GROWS: "its memory only grows, and its limit does not follow",
    Reason.SETTLED: "no change of its sizes is worth a write",
    Reason.PAUSED: "cruise is paused",
    Reason.MODE: "the mode forbids it",
    Reason.COOLING_DOWN: "it was acted on a moment ago",
    Reason.BUDGET_NODE: "the node's eviction budget is spent",
    Reason.BUDGET_WORKLOAD: "the workload's eviction budget is spent",
    Reason.CAME_BACK: "an evicted pod came back to the node without being sized by the webhook",
    Reason.BUDGET_HOUR: "the hour's eviction budget is spent",
    Reason.CHANGED_SINCE: "it changed after it was looked at",
    Reason.HISTORY_INCOMPLETE: "the database went back to an earlier state; nothing shrinks until usage is read again",
    Reason.STALE_DECISION: "the decision was older than max_decision_age; the next pass decides anew",
    Reason.USE_GREW: "its usage rose above the decided size before the write",
    Reason.GONE: "it is gone",
    Reason.THROTTLED: "the API server asked to slow down",
    Reason.DISRUPTION_BUDGET: "its PodDisruptionBudget allows no eviction now",
    Reason.UNMOVABLE: "it may not be evicted",
    Reason.MEMORY_UNMANAGED: "its memory is not managed",
    Reason.NO_ROOM: "the node has no room for it to grow",
    Reason.NODE_NOT_READY: "its node is not ready: no kubelet would act",
    Reason.FORBIDDEN: "cruise's own account may not do this",
    Reason.QUOTA: "the namespace's quota has no room for it now",
    Reason.CANNOT_RESTORE: "its original sizes cannot be put back in place",
    Reason.CAPPED: "its bounds let it grow no further",
    Reason.RECORDED: "kills are only recorded",
    Reason.PACKING: "a packing plan is being carried out that counts on its node, or on the evictions that are left",
    Reason.CROWDED: "its pods share what the node is short of, bases first, and nobody has to go for it",
    Reason.OVERSUBSCRIBED: "not even with every candidate gone would the node fit: nobody goes, pods share what it has",
    Reason.RIGHTSIZED: "sized to what it uses",
    Reason.DOES_NOT_FIT: "the node does not hold all of its pods",
    Reason.WITHDRAWN: "a resize that the node cannot do is taken back",
    Reason.OOM_KILLED: "it was killed for lack of memory",
    Reason.OVERLOADED: "the node's load was above the threshold twice",
    Reason.LOAD_FELL: "the node's load fell below the threshold",
    Reason.LOAD_UNKNOWN: "the node's load has been unknown for an hour",
    Reason.TOO_MANY_TAINTS: "more than a fifth of the nodes had the taint",
    Reason.TAINTS_NO_MORE: "cruise taints no nodes any more",
    Reason.REVERTED: "back to its original requests",
    Reason.PACKED: "makes room for pods that no node could hold",
}


CAUSES: Mapping[WriteCause, str] = {
    WriteCause.BELOW_BASE: "it has used more than its request for long",
    WriteCause.NODE_SHORT: "the node's pods need more together than they have, and it lacks most",
    WriteCause.ROOM_WANTED: "others on the node need the room",
    WriteCause.ABOVE_BAND: "the node's pods have had more than they need together for long, and it is the most idle",
    WriteCause.LIMIT_NEAR: "its use is near a limit that may rise",
    WriteCause.OUT_OF_BOUNDS: "it is outside what its bounds allow",
}


REFUSALS: Mapping[Refusal, str] = {
    Refusal.OVER_NODE: "more than its node has",
    Refusal.OVER_LIMIT: "more than its limit lets it use",
    Refusal.SERIES_DISAGREE: "several series of it disagree",
    Refusal.OVER_ROOT: "with its neighbours more than the whole node used",
    Refusal.OTHER_CLUSTER: "it belongs to another cluster, or may do so",
}
DETAILS: Mapping[Detail, str] = {
    Detail.NO_CONTROLLER: "no controller would start it again",
    Detail.DAEMON_SET: "a DaemonSet pod would come back to the same node",
    Detail.PROTECTED: "annotation {}",
    Detail.SEVERAL_BUDGETS: "more than one PodDisruptionBudget ({})",
    Detail.BUDGET_EXHAUSTED: "{} allows no eviction now",
    Detail.EVICTIONS_SPENT: "no {}",
    Detail.RANKING_NEVER: "eviction-ranking never",
    Detail.MODE_WITHOUT_EVICTIONS: "mode {} evicts nobody",
    Detail.NAMESPACE_EXCLUDED: "its namespace is excluded",
    Detail.ANNOTATIONS_UNREADABLE: "its annotations cannot be read: {}",
    Detail.BEING_DELETED: "it is being deleted",
    Detail.NODE_NOT_READY: "its node is not ready, so it would not end",
    Detail.NODE_BEING_DELETED: "its node is being deleted, and its pods leave it anyway",
    Detail.LIMIT_RANGE_REFUSES: "a LimitRange would refuse its replacement",
    Detail.QUOTA_REFUSES: "a ResourceQuota has no room for its replacement",
    Detail.VOLUME_UNKNOWN: "its claim {} is not usable yet, so where it may go is not known",
    Detail.VOLUME_SHARED: "its claim {} is used by other pods as well, which have to stay on one node with it",
    Detail.NOT_JUDGED: "where its replacement may go cannot be judged: {}",
    Detail.UNMANAGED: "its {} is not managed",
    Detail.JOB: "a pod that runs to completion would lose its work; state eviction-ranking low to have it evicted",
    Detail.POD_GROUP: "its pod group {} is scheduled as a whole, and may need every pod",
    Detail.REPLICA_NOT_READY: "replica {} of its workload is not ready",
    Detail.REFUSED_BEFORE: "its eviction was refused a pass ago",
    Detail.NOWHERE_TO_GO: "no other node has room for its replacement",
    Detail.LOWER_PRIORITY_STAYS: "a pod of lower priority stays on the node",
    Detail.SPARED: "the node fits without its going",
    Detail.NO_EVICTIONS: "the mode allows no eviction",
    Detail.NODE_UNKNOWN: "its node is not known",
    Detail.KILLED_LONG_AGO: "the kill was too long ago to act on it",
    Detail.NOTHING_GROWS: "no bound lets it grow",
    Detail.LIMIT_AT_CEILING: (
        "the memory limit of {} is at its ceiling: raise it in the pod template, or look for a memory leak"
    ),
    Detail.NODE_RAN_OUT: "its use was far below its limit: the node ran out of memory, not the container",
    Detail.INIT_CONTAINER: "init container {} is not sized by cruise: raise its memory limit in the pod template",
    Detail.POOL_FIXED: "it has {} nodes, whatever waits",
    Detail.POOL_NOT_READY: "Karpenter says that it is not ready",
    Detail.POOL_UNREADABLE: "it cannot be read: {}",
    Detail.POOL_LIMITS_USED: "its limits leave no room for a node more",
    Detail.MACHINE_UNSEEN: "no machine that it may order was seen yet, so no size is known",
    Detail.UTILISATION_TARGETED: "HPA {} targets utilisation of what cruise may size",
    Detail.UTILISATION_MAY_BE_TARGETED: "HPA {}, whose pods are not known, may target its utilisation",
    Detail.SCALE_NOT_READ: "the scale of {} has not been read, and it may be one of its pods",
    Detail.SCALE_UNREADABLE: "the scale of {} cannot be read (see cruise check), and it may be one of its pods",
    Detail.NAMESPACE_NOT_SEEN: "its namespace has not been seen yet",
    Detail.OWNER_NOT_SEEN: "{}, which it belongs to, has not been seen yet",
    Detail.SIZED_BY_VPA: "VPA {}",
    Detail.MAY_BE_SIZED_BY_VPA: "VPA {}, whose pods are not known",
    Detail.GROWTH_WAITS: "what would grow waits for room",
    Detail.CPU_NEEDS_RESTART: "{}: its cpu cannot be resized without a restart",
    Detail.MEMORY_NEEDS_RESTART: "{}: its memory cannot be resized without a restart",
    Detail.CPU_REQUEST_STAYS: "{}: the cpu request cannot be removed",
    Detail.MEMORY_REQUEST_STAYS: "{}: the memory request cannot be removed",
    Detail.CPU_LIMIT_STAYS: "{}: the cpu limit cannot be removed",
    Detail.MEMORY_LIMIT_STAYS: "{}: the memory limit cannot be removed",
    Detail.CPU_LIMIT_TOO_LOW: "{}: the cpu limit cannot be under the request",
    Detail.MEMORY_LIMIT_TOO_LOW: "{}: the memory limit cannot be under the request",
    Detail.CPU_LIMIT_FIXED: "{}: the cpu limit cannot be lowered or added on this server",
    Detail.MEMORY_LIMIT_FIXED: "{}: the memory limit cannot be lowered or added on this server",
}
_SOURCES: Mapping[Setter, str] = {
    Setter.POD: "annotation of the pod",
    Setter.WORKLOAD: "annotation of {}",
    Setter.VERTICAL: "VPA {}",
    Setter.NAMESPACE: "annotation of namespace {}",
    Setter.STORED: "stored for {}",
    Setter.CLUSTER: "cluster",
}


def source_words(source: Source) -> str:
    """Return where an override is stated."""
    return _SOURCES[source.setter].format(source.name)


def detail_words(detail: str) -> str:
    """Return a detail for people: codes in words, names and figures and servers' messages as they are."""
    return "; ".join(
        part if code is None else DETAILS[code].format(part.partition(": ")[2])
        for part in detail.split("; ")
        for code in [code_of(part)]
    )


def in_words(reason: Reason, detail: str = "") -> str:
    """Return a reason for people, with its detail where there is one."""
    return f"{WORDS[reason]} ({detail_words(detail)})" if detail else WORDS[reason]
