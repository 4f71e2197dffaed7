"""The nodes of a cluster by their labels, taints and sizes: which of them a new pod could run on, without trying each.

A set of nodes is one integer, a bit for each, so that a term of an affinity costs a few operations however many nodes
there are.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import or_

from cruise.domain.cluster import Node, Pod
from cruise.domain.resources import Resources
from cruise.domain.scheduling import (
    LabelRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    SelectorOperator,
    Taint,
    get_permanent_taints,
)


class NodeIndex:
    """Nodes, found by what a pod asks of them; made once for many pods, and only as far as they ask."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        # What goes away is nothing to size a pod for.
        self._nodes = [node for node in nodes if not node.deleting]
        self.evaluated = 0
        """How many requirements were looked at so far: the work of a placement, whatever the number of nodes."""

    @cached_property
    def get_max_cpu_millicores(self) -> int | None:
        """The most CPU of any node, None where there is none."""
        return max((node.allocatable.cpu_millicores for node in self._nodes), default=None)

    def find_capacities(self, pod: Pod) -> Iterator[Resources]:
        """Give what those nodes have that the pod may run on, whatever keeps pods off them for a while; each size once.

        Sizes come in the order of the first node that has them.
        """
        found = self._admitted(pod.placement) & self._tolerated(pod.placement)
        return (size for size, members in self._sizes.items() if members & found)

    def _admitted(self, placement: SchedulingConstraints) -> int:
        found = self._all
        for key, value in placement.node_selector:
            self.evaluated += 1
            label = self._labels.get(key)
            found &= label.by_value.get(value, 0) if label is not None else 0
        if placement.terms is None:
            return found
        admitted = 0
        for term in placement.terms:
            admitted |= self._matched(term)
        return found & admitted

    def _matched(self, term: NodeSelectorTerm) -> int:
        if not term.expressions and not term.fields:
            return 0
        found = self._all
        for requirement in term.expressions:
            found &= self._meeting(requirement, self._labels.get(requirement.key))
        for requirement in term.fields:
            found &= self._meeting(requirement, self._names if requirement.key == "metadata.name" else None)
        return found

    def _meeting(self, requirement: LabelRequirement, label: "_NodesByLabel | None") -> int:
        """Return the nodes that meet a requirement on a label, None for one that no node has."""
        self.evaluated += 1
        known = label or _NO_LABEL
        match requirement.operator:
            case SelectorOperator.IN:
                return _union(known.by_value.get(value, 0) for value in requirement.values)
            case SelectorOperator.NOT_IN:
                return self._all & ~_union(known.by_value.get(value, 0) for value in requirement.values)
            case SelectorOperator.EXISTS:
                return known.nodes
            case SelectorOperator.DOES_NOT_EXIST:
                return self._all & ~known.nodes
            case SelectorOperator.GREATER | SelectorOperator.LESS:
                return known.compared(requirement)

    def _tolerated(self, placement: SchedulingConstraints) -> int:
        return _union(nodes for taints, nodes in self._tainted.items() if placement.tolerates_all(taints))

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
            key: _NodesByLabel({value: self._bits(members) for value, members in by_value.items()})
            for key, by_value in places.items()
        }

    @cached_property
    def _names(self) -> "_NodesByLabel":
        return _NodesByLabel({node.name: 1 << place for place, node in enumerate(self._nodes)})

    @cached_property
    def _tainted(self) -> Mapping[tuple[Taint, ...], int]:
        """Nodes by those of their taints that last."""
        places: defaultdict[tuple[Taint, ...], list[int]] = defaultdict(list)
        for place, node in enumerate(self._nodes):
            places[get_permanent_taints(node.taints)].append(place)
        return {taints: self._bits(members) for taints, members in places.items()}

    @cached_property
    def _sizes(self) -> Mapping[Resources, int]:
        """Nodes by what they have for pods."""
        places: defaultdict[Resources, list[int]] = defaultdict(list)
        for place, node in enumerate(self._nodes):
            places[node.allocatable].append(place)
        return {size: self._bits(members) for size, members in places.items()}

    def _bits(self, places: Iterable[int]) -> int:
        octets = bytearray(len(self._nodes) // 8 + 1)
        for place in places:
            octets[place >> 3] |= 1 << (place & 7)
        return int.from_bytes(octets, "little")


def _union(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


class _NodesByLabel:
    """The nodes that have a label, by its value."""

    def __init__(self, of: Mapping[str, int]) -> None:
        self.by_value = of
        self.nodes = _union(of.values())

    def compared(self, requirement: LabelRequirement) -> int:
        """Return the nodes whose value is a number above or below that of the requirement."""
        bound = _number(requirement.values[0]) if requirement.values else None
        if bound is None:
            return 0
        numbers, below = self._ranked
        if requirement.operator is SelectorOperator.LESS:
            return below[bisect_left(numbers, bound)]
        return below[-1] & ~below[bisect_right(numbers, bound)]

    @cached_property
    def _ranked(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return the numbers among the values, ascending, and before each, and after the last, the nodes below it."""
        ranked = sorted(
            (number, nodes) for value, nodes in self.by_value.items() if (number := _number(value)) is not None
        )
        return [number for number, _ in ranked], list(accumulate((nodes for _, nodes in ranked), or_, initial=0))


_NO_LABEL = _NodesByLabel({})


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
