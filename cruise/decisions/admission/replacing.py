"""What takes the place of a pod that is evicted: the pod as its controller would create it now."""

from dataclasses import replace

from cruise.decisions.admission.admission import Mutate, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.eviction.destinations import Replacement
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.guidance.limit_ranges import breaks_limit_range
from cruise.decisions.guidance.quotas import grants
from cruise.domain.cluster import NO_RESIZE, Pod, Snapshot
from cruise.domain.policy import Policy
from cruise.domain.sizes import with_sizes
from cruise.domain.usage import StatisticsTable


def replacements(
    snapshot: Snapshot, eligibility: Eligibility, statistics: StatisticsTable, policy: Policy
) -> Replacement | None:
    """Return what finds a pod's replacement at admission size, None where evictions need not know it.

    A pod that admission leaves is created with what it has now: its template is not known.
    """
    if not policy.rules.careful_evictions:
        return None

    nodes = NodeIndex(snapshot.nodes)

    def of(pod: Pod) -> Pod | None:
        anew = tuple(replace(one, allocated=None, actual=None, actual_limits=None) for one in pod.containers)
        fresh = replace(pod, node=None, phase="Pending", ready=False, resize=NO_RESIZE, containers=anew)
        ranges = snapshot.limit_ranges.get(pod.namespace, ())
        quotas = snapshot.quotas.get(pod.namespace, ())
        decision = decide_admission(fresh, eligibility, statistics, nodes, ranges, policy, quotas)
        if isinstance(decision, Mutate):
            fresh = with_sizes(fresh, decision.containers)
        refused = (ranges and breaks_limit_range(fresh, (), ranges)) or (quotas and not grants(fresh, quotas))
        return None if refused else fresh

    return of
