"""What decides about a pod, is looked up apart from it, and has not been answered yet: it never counts as no."""

from cruise.decisions.guidance.other_autoscalers import Claimed
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.details import Detail

_INTERMEDIATE = frozenset({"Job", "ReplicaSet"})
_FOLLOWED = _INTERMEDIATE | {"CronJob", "Deployment"}


def pending_lookup(pod: Pod, snapshot: Snapshot, claimed: Claimed) -> str:
    """Return the detail of what is not known yet, empty where all is known.

    That is the namespace, whose annotations, LimitRanges and quotas count; who controls the pod's ReplicaSet or Job,
    whose annotations and autoscalers count; and the scales of autoscalers' targets. In a file nothing comes later.
    """
    if snapshot.namespaces is not None:
        if pod.namespace not in snapshot.namespaces:
            return Detail.NAMESPACE_NOT_SEEN
        ref = pod.workload
        followed = ref is not None and pod.owner_kind in _INTERMEDIATE and ref.kind in _FOLLOWED
        if followed and (pod.namespace, ref) not in snapshot.workloads:
            return Detail.OWNER_NOT_SEEN.of(ref)
    return claimed.pending
