"""What each reason means, in words for people; scripts read the reason itself."""

from collections.abc import Mapping

from cruise.domain.actions import Reason
from cruise.domain.annotations import Setter
from cruise.domain.overrides import Source

WORDS: Mapping[Reason, str] = {
    Reason.EXCLUDED_NAMESPACE: "its namespace is excluded",
    Reason.MODE_OFF: "mode off: it is to be left alone",
    Reason.MODE_OBSERVE: "mode observe: nothing is written",
    Reason.MODE_INITIAL: "mode initial: only pods that are being created are sized",
    Reason.UNREADABLE_ANNOTATION: "an annotation cannot be read",
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
    Reason.NEW_WORKLOAD: "its workload has too little history",
    Reason.AUTOSCALED: "an autoscaler targets its utilisation",
    Reason.RESIZE_UNSUPPORTED: "its node's kubelet cannot resize in place",
    Reason.RESIZE_RESTARTS: "a resize would restart its containers",
    Reason.LIMIT_RANGE: "no sizes satisfy the namespace's LimitRange",
    Reason.QOS_CHANGE: "the sizes would change its QoS class",
    Reason.REFUSED: "this resize was refused before",
    Reason.WAITING_FOR_ROOM: "the node has no room for it to grow yet",
    Reason.RESIZE_DEFERRED: "an earlier resize waits for room on the node",
    Reason.RESIZE_INFEASIBLE: "an earlier resize cannot be done on this node",
    Reason.SETTLED: "no value moves far enough to be written",
    Reason.PAUSED: "cruise is paused",
    Reason.MODE: "the mode forbids it",
    Reason.COOLING_DOWN: "it was acted on a moment ago",
    Reason.BUDGET_NODE: "the node's eviction budget is spent",
    Reason.BUDGET_WORKLOAD: "the workload's eviction budget is spent",
    Reason.CAME_BACK: "who was evicted came back to the node, not sized by the webhook",
    Reason.BUDGET_HOUR: "the hour's eviction budget is spent",
    Reason.CHANGED_SINCE: "it changed after it was looked at",
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
    Reason.PACKING: "a packing plan is being carried out on its node",
    Reason.OVERSUBSCRIBED: "not even with every candidate gone would the node fit, so nobody goes and nothing grows",
    Reason.RIGHTSIZED: "sized to what it uses",
    Reason.DOES_NOT_FIT: "the node does not hold all of its pods",
    Reason.WITHDRAWN: "a resize that the node cannot do is taken back",
    Reason.OOM_KILLED: "it was killed for lack of memory",
    Reason.OVERLOADED: "the node's load was above the threshold twice",
    Reason.LOAD_FELL: "the node's load fell below the threshold",
    Reason.REVERTED: "back to its original requests",
    Reason.PACKED: "makes room for pods that no node could hold",
}


_SOURCES: Mapping[Setter, str] = {
    Setter.POD: "annotation of the pod",
    Setter.WORKLOAD: "annotation of {}",
    Setter.NAMESPACE: "annotation of namespace {}",
    Setter.STORED: "stored for {}",
    Setter.CLUSTER: "cluster",
}


def source_words(source: Source) -> str:
    """Return where an override is stated."""
    return _SOURCES[source.setter].format(source.name)


def in_words(reason: Reason, detail: str = "") -> str:
    """Return a reason for people, with its detail where there is one."""
    return f"{WORDS[reason]} ({detail})" if detail else WORDS[reason]
