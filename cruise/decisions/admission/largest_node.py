"""The requests of a new pod, cut to the largest node that it can run on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.submitted import get_submitted_requests
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.managed_containers import select_kept_containers
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Pod
from cruise.domain.pod_resources import count_pod_requests, replace_spec_resources
from cruise.domain.policy import Policy
from cruise.domain.resources import NO_RESOURCES, ROUNDING_UNIT, ResourceName, Resources, StatedResources


@dataclass(frozen=True, slots=True)
class LargestNodeLimits:
    """How requests are cut to the largest node (ADR 0016).

    A larger node may be added, so only what cruise adds is cut: with `keeps_template` no request falls below the
    submitted request, or below its target if that is less. `reserved_capacity` is what DaemonSets request of every
    node. With `nodes_autoscale`, a pod that no known node can hold gets no more than it requests itself; without, it is
    unchanged.
    """

    keeps_template: bool = True
    reserved_capacity: Resources = NO_RESOURCES
    nodes_autoscale: bool = False


def limit_to_largest_node(
    pod: Pod,
    targets: Sequence[ContainerTarget],
    managed: Sequence[frozenset[ResourceName]],
    nodes: NodeIndex,
    terms: LargestNodeLimits,
) -> list[ContainerTarget]:
    """Cut requests to the largest node that the pod can run on, so that it does not stay pending."""
    requests = count_pod_requests(replace_spec_resources(pod, targets)) + terms.reserved_capacity
    capacities = []
    for capacity in nodes.find_capacities(pod):
        # Usually the first one fits.
        if requests.fits_in(capacity):
            return list(targets)
        capacities.append(capacity)
    if not capacities and not terms.nodes_autoscale:
        return list(targets)
    largest = max(
        capacities,
        key=lambda capacity: (_get_share_held(capacity, requests), capacity.memory_bytes, capacity.cpu_millicores),
        default=NO_RESOURCES,
    )
    names = {target.container for target in targets}
    sized = tuple([one for one in pod.resizable_parts if one.name in names])
    kept = select_kept_containers(pod, sized) if pod.pod_level is None else ()
    kept_requests = sum((one.requests.resources for one in kept), NO_RESOURCES)
    capacity = largest - terms.reserved_capacity - pod.overhead - kept_requests
    submitted = get_submitted_requests(pod, sized)
    cuts = {
        resource: _cut_managed(
            [target.requests.get(resource) for target in targets],
            [one.resources.get(resource) if terms.keeps_template else 0 for one in submitted],
            [resource in one for one in managed],
            capacity.get(resource),
            ROUNDING_UNIT[resource],
        )
        for resource in ResourceName
    }
    pairs = zip(cuts[ResourceName.CPU], cuts[ResourceName.MEMORY], strict=True)
    return [replace(target, requests=StatedResources(*pair)) for target, pair in zip(targets, pairs, strict=True)]


def _cut_managed(
    wanted: Sequence[int | None], submitted: Sequence[int], managed: Sequence[bool], capacity: int, unit: int
) -> list[int | None]:
    """Cut the requests of managed containers to the capacity that the others leave."""
    at = [index for index, is_managed in enumerate(managed) if is_managed]
    others = sum(amount or 0 for amount, is_managed in zip(wanted, managed, strict=True) if not is_managed)
    cut = _cut_to_capacity([wanted[one] or 0 for one in at], [submitted[one] for one in at], capacity - others, unit)
    found = list(wanted)
    for index, amount in zip(at, cut, strict=True):
        # A container that gets no request is not cut.
        found[index] = None if wanted[index] is None else amount
    return found


def _cut_to_capacity(wanted: Sequence[int], submitted: Sequence[int], capacity: int, unit: int) -> list[int]:
    """Share the capacity beyond the submitted requests, in proportion to what is wanted beyond them."""
    if sum(wanted) <= capacity:
        return list(wanted)
    floors = [min(pair) for pair in zip(wanted, submitted, strict=True)]
    remaining, total_growth = max(0, capacity - sum(floors)), sum(wanted) - sum(floors)
    return [
        min(amount, max(unit, floor, (floor + (amount - floor) * remaining // max(1, total_growth)) // unit * unit))
        for amount, floor in zip(wanted, floors, strict=True)
    ]


def _get_share_held(capacity: Resources, requests: Resources) -> float:
    """Return which share of the requests a node holds, by its scarcer resource."""
    return min(
        1.0,
        capacity.cpu_millicores / max(1, requests.cpu_millicores),
        capacity.memory_bytes / max(1, requests.memory_bytes),
    )


def build_largest_node_limits(pod: Pod, eligibility: Eligibility, policy: Policy) -> LargestNodeLimits:
    """Return how requests are cut; the first rule set cut templates as well, and ignored DaemonSets."""
    if not policy.rules.template_is_minimum:
        return LargestNodeLimits(keeps_template=False)
    return LargestNodeLimits(
        reserved_capacity=eligibility.get_other_daemonset_requests(pod), nodes_autoscale=eligibility.nodes_autoscale
    )
