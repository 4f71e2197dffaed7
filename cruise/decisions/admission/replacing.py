"""What takes the place of a pod that is evicted: the pod as its controller would create it now."""

from collections.abc import Sequence
from dataclasses import astuple, replace

from cruise.decisions.admission.admission import Mutate, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.unscheduled import shrunk_where_it_waits
from cruise.decisions.eviction.destinations import Prospects
from cruise.decisions.guidance.container_bounds import container_bounds
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.guidance.limit_ranges import breaks_limit_range
from cruise.decisions.guidance.quotas import grants
from cruise.decisions.scheduling.claims import of_replacement
from cruise.domain.annotations import Guidance
from cruise.domain.cluster import NO_RESIZE, ContainerRole, LimitRangeItem, Pod, Snapshot
from cruise.domain.policy import Policy
from cruise.domain.quotas import Quota
from cruise.domain.resources import NO_RESOURCES, Amounts, ResourceName, Resources
from cruise.domain.sizes import with_sizes
from cruise.domain.usage import StatisticsTable


def replacements(
    snapshot: Snapshot, eligibility: Eligibility, statistics: StatisticsTable, policy: Policy
) -> Prospects | None:
    """Return what finds a pod's replacement at admission size, None where evictions need not know it.

    What leaves a namespace frees its quota, sooner or later than the replacement is created: it must find a place
    both as it is admitted by what quotas leave now, and as if they left everything. And one that is cut to the largest
    node is moved in vain where the node does not hold its base.
    """
    if not policy.rules.careful_evictions:
        return None

    nodes = NodeIndex(snapshot.known_nodes)

    def anew(pod: Pod) -> Pod | None:
        created = created_anew(pod, snapshot)
        ranges = snapshot.limit_ranges.get(pod.namespace, ())
        quotas = snapshot.quotas.get(pod.namespace, ())

        def admitted(quotas: Sequence[Quota]) -> Pod:
            decision = decide_admission(created, eligibility, statistics, nodes, ranges, policy, quotas)
            return with_sizes(created, decision.containers) if isinstance(decision, Mutate) else created

        fresh = admitted(quotas)
        if pod.owner_kind == "DaemonSet":
            # None is evicted, but more come with every node, of whose use nothing is known.
            return _requesting_both(fresh, created)
        if (ranges and breaks_limit_range(fresh, (), ranges)) or (quotas and not grants(fresh, quotas)):
            return None
        fresh = _requesting_both(fresh, admitted(())) if quotas else fresh
        return _requesting_both(fresh, _at_its_base(created, eligibility, statistics, ranges, policy))

    def shrunk(pod: Pod) -> Pod:
        return shrunk_where_it_waits(pod, eligibility, statistics, snapshot, nodes, policy)

    return Prospects(anew, shrunk)


def _at_its_base(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    ranges: Sequence[LimitRangeItem],
    policy: Policy,
) -> Pod:
    """Return the pod with its base for requests of what is managed, and with none of the rest."""
    guidance, managed = eligibility.guidance_of(pod), eligibility.managed(pod)
    at_base = []
    for one in pod.containers:
        row = statistics.find(pod.namespace, "", pod.workload, one.name, pod.identity)
        base = NO_RESOURCES
        if row is not None and one.role is not ContainerRole.INIT and isinstance(guidance, Guidance):
            known, most = statistics.row(row), container_bounds(guidance, one.name, ranges, policy).whole
            base = Resources(
                min(known.cpu_base_millicores, known.cpu_peak_millicores, most[1]) * (ResourceName.CPU in managed),
                min(known.memory_base_bytes, known.memory_peak_bytes, most[3]) * (ResourceName.MEMORY in managed),
            )
        at_base.append(replace(one, requests=Amounts(*astuple(base))))
    return replace(pod, containers=tuple(at_base))


def created_anew(pod: Pod, snapshot: Snapshot) -> Pod:
    """Return the pod as its template states it, where that is known; as it is otherwise."""
    workload = None if pod.workload is None else snapshot.workloads.get((pod.namespace, pod.workload))
    stated = {} if workload is None or workload.requests is None else workload.requests
    limits = {} if workload is None or workload.memory_limits is None else workload.memory_limits
    anew = [replace(one, allocated=None, actual=None, actual_limits=None) for one in pod.containers]
    for at, one in enumerate(anew):
        if one.name in stated:
            limit = Amounts(one.limits.cpu_millicores, limits.get(one.name))
            anew[at] = replace(one, requests=stated[one.name].filled_from(one.requests), limits=limit)
    return replace(
        pod,
        node=None,
        phase="Pending",
        ready=False,
        resize=NO_RESIZE,
        containers=tuple(anew),
        constraints=of_replacement(pod.constraints),
    )


def _requesting_both(pod: Pod, other: Pod) -> Pod:
    """Return the pod with the larger of two requests of each container."""
    most = [
        replace(one, requests=Amounts(*astuple(one.requests.resources.at_least(same.requests.resources))))
        for one, same in zip(pod.containers, other.containers, strict=True)
    ]
    return replace(pod, containers=tuple(most))
