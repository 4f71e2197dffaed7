"""An index of nodes by labels, taints and sizes: finds the nodes that a new pod could run on without trying each.

A set of nodes is one integer with a bit per node, so that an affinity term costs a few operations for any number of
nodes.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from operator import or_

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import select_kept_containers
from cruise.domain.actions import ContainerTarget
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Container, Node, Pod
from cruise.domain.original_resources import read_original_resources
from cruise.domain.pod_resources import count_pod_requests, get_qos_class, replace_spec_resources
from cruise.domain.policy import Policy
from cruise.domain.resources import NO_RESOURCES, ROUNDING_UNIT, ResourceName, Resources, StatedResources
from cruise.domain.scheduling import (
    LabelRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    SelectorOperator,
    Taint,
    get_permanent_taints,
)


class NodeIndex:
    """Nodes, indexed by what pods require of them; each part is built on first use."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        # A pod is not sized for nodes that are being deleted.
        self._nodes = [node for node in nodes if not node.deleting]
        self.evaluated = 0
        """Number of requirements evaluated so far: the cost of lookups, independent of the number of nodes."""

    @cached_property
    def max_cpu_millicores(self) -> int | None:
        """The most CPU of any node, None without nodes."""
        return max((node.allocatable.cpu_millicores for node in self._nodes), default=None)

    def find_capacities(self, pod: Pod) -> Iterator[Resources]:
        """Yield the capacities of the nodes that the pod may run on; each capacity once.

        Temporary taints are ignored. Capacities come in the order of the first node that has them.
        """
        found = self._match_placement(pod.placement) & self._match_taints(pod.placement)
        return (size for size, members in self._by_capacity.items() if members & found)

    def _match_placement(self, placement: SchedulingConstraints) -> int:
        found = self._all
        for key, value in placement.node_selector:
            self.evaluated += 1
            label = self._labels.get(key)
            found &= label.by_value.get(value, 0) if label is not None else 0
        if placement.terms is None:
            return found
        admitted = 0
        for term in placement.terms:
            admitted |= self._match_term(term)
        return found & admitted

    def _match_term(self, term: NodeSelectorTerm) -> int:
        if not term.expressions and not term.fields:
            return 0
        found = self._all
        for requirement in term.expressions:
            found &= self._match_requirement(requirement, self._labels.get(requirement.key))
        for requirement in term.fields:
            found &= self._match_requirement(requirement, self._names if requirement.key == "metadata.name" else None)
        return found

    def _match_requirement(self, requirement: LabelRequirement, label: "_NodesByLabel | None") -> int:
        """Return the nodes that meet a requirement on a label, which may be None for a label that no node has."""
        self.evaluated += 1
        known = label or _NO_LABEL
        match requirement.operator:
            case SelectorOperator.IN:
                return _unite(known.by_value.get(value, 0) for value in requirement.values)
            case SelectorOperator.NOT_IN:
                return self._all & ~_unite(known.by_value.get(value, 0) for value in requirement.values)
            case SelectorOperator.EXISTS:
                return known.nodes
            case SelectorOperator.DOES_NOT_EXIST:
                return self._all & ~known.nodes
            case SelectorOperator.GREATER | SelectorOperator.LESS:
                return known.compare(requirement)

    def _match_taints(self, placement: SchedulingConstraints) -> int:
        return _unite(nodes for taints, nodes in self._by_taints.items() if placement.tolerates_all(taints))

    @cached_property
    def _all(self) -> int:
        return (1 << len(self._nodes)) - 1

    @cached_property
    def _labels(self) -> Mapping[str, "_NodesByLabel"]:
        places: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for place, node in enumerate(self._nodes):
            for key, value in node.labels.items():
                places[key][value].append(place)
        return {
            key: _NodesByLabel({value: self._build_bits(members) for value, members in by_value.items()})
            for key, by_value in places.items()
        }

    @cached_property
    def _names(self) -> "_NodesByLabel":
        return _NodesByLabel({node.name: 1 << place for place, node in enumerate(self._nodes)})

    @cached_property
    def _by_taints(self) -> Mapping[tuple[Taint, ...], int]:
        """Nodes by their permanent taints."""
        places: defaultdict[tuple[Taint, ...], list[int]] = defaultdict(list)
        for place, node in enumerate(self._nodes):
            places[get_permanent_taints(node.taints)].append(place)
        return {taints: self._build_bits(members) for taints, members in places.items()}

    @cached_property
    def _by_capacity(self) -> Mapping[Resources, int]:
        """Nodes by their allocatable."""
        places: defaultdict[Resources, list[int]] = defaultdict(list)
        for place, node in enumerate(self._nodes):
            places[node.allocatable].append(place)
        return {size: self._build_bits(members) for size, members in places.items()}

    def _build_bits(self, places: Iterable[int]) -> int:
        octets = bytearray(len(self._nodes) // 8 + 1)
        for place in places:
            octets[place >> 3] |= 1 << (place & 7)
        return int.from_bytes(octets, "little")


def _unite(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


class _NodesByLabel:
    """The nodes that have a label, by its value."""

    def __init__(self, by_value: Mapping[str, int]) -> None:
        self.by_value = by_value
        self.nodes = _unite(by_value.values())

    def compare(self, requirement: LabelRequirement) -> int:
        """Return the nodes whose value is a number above or below the requirement's."""
        bound = _parse_number(requirement.values[0]) if requirement.values else None
        if bound is None:
            return 0
        numbers, below = self._ranked
        if requirement.operator is SelectorOperator.LESS:
            return below[bisect_left(numbers, bound)]
        return below[-1] & ~below[bisect_right(numbers, bound)]

    @cached_property
    def _ranked(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return the numbers among the values in ascending order, and the nodes below each and below infinity."""
        ranked = sorted(
            (number, nodes) for value, nodes in self.by_value.items() if (number := _parse_number(value)) is not None
        )
        return [number for number, _ in ranked], list(accumulate((nodes for _, nodes in ranked), or_, initial=0))


_NO_LABEL = _NodesByLabel({})


def _parse_number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def get_submitted_requests(pod: Pod, sized: Sequence[Container]) -> list[StatedResources]:
    """Return the requests that the containers were submitted with."""
    originals = read_original_resources(pod)
    return [originals.get(one.name, (one.requests,))[0] for one in sized]


def get_submitted_memory_limits(pod: Pod, sized: Sequence[Container]) -> list[int | None]:
    """Return the memory limits in bytes that the containers were submitted with."""
    originals = read_original_resources(pod)
    return [originals.get(one.name, (one.requests, one.limits))[1].memory_bytes for one in sized]


def restore_submitted_pod(pod: Pod) -> Pod | None:
    """Return the pod as it was submitted, None if no mutation is recorded."""
    originals = read_original_resources(pod)
    if not originals:
        return None
    parts = [one for one in pod.resizable_parts if one.name in originals]
    restored = replace_spec_resources(pod, [ContainerTarget(one.name, one.role, *originals[one.name]) for one in parts])
    annotations = {name: value for name, value in pod.annotations.items() if name != ORIGINAL_RESOURCES}
    return replace(restored, qos=get_qos_class(restored), annotations=annotations)


@dataclass(frozen=True, slots=True)
class LargestNodeCutOptions:
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
    options: LargestNodeCutOptions,
) -> list[ContainerTarget]:
    """Cut requests to the largest node that the pod can run on, so that it does not stay pending."""
    requests = count_pod_requests(replace_spec_resources(pod, targets)) + options.reserved_capacity
    capacities = []
    for capacity in nodes.find_capacities(pod):
        # Usually the first one fits.
        if requests.fits_in(capacity):
            return list(targets)
        capacities.append(capacity)
    if not capacities and not options.nodes_autoscale:
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
    capacity = largest - options.reserved_capacity - pod.overhead - kept_requests
    submitted = get_submitted_requests(pod, sized)
    cuts = {
        resource: _cut_managed(
            [target.requests.get(resource) for target in targets],
            [one.resources.get(resource) if options.keeps_template else 0 for one in submitted],
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


def build_largest_node_cut_options(pod: Pod, eligibility: Eligibility, policy: Policy) -> LargestNodeCutOptions:
    """Return how requests are cut; the first rule set cut templates as well, and ignored DaemonSets."""
    if not policy.rules.template_is_minimum:
        return LargestNodeCutOptions(keeps_template=False)
    return LargestNodeCutOptions(
        reserved_capacity=eligibility.get_other_daemonset_requests(pod), nodes_autoscale=eligibility.nodes_autoscale
    )
