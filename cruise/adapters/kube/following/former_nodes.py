"""Which kinds of nodes have been there lately: those that an autoscaler took away at night may be ordered again."""

from collections.abc import Callable, Hashable, Mapping

from cruise.domain.annotations import INSTANCE_TYPE, NODE_GROUPS
from cruise.domain.cluster import Node
from cruise.domain.scheduling import lasting_taints

# Longer than a weekend. What is not for sale any more misleads for as long.
_KEPT_SECONDS = 3 * 24 * 3600
_MOST_KINDS = 500


class FormerNodes:
    """The last node of each kind: of one group, instance type and set of taints."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._nodes: tuple[Node, ...] = ()
        self._present: Mapping[Hashable, Node] = {}
        self._former: dict[Hashable, tuple[float, Node]] = {}
        self._shown: tuple[Node, ...] = ()

    def beside(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Take note of the nodes that there are, and return one of each other kind, sorted by name.

        For the same nodes the answer is the same object.
        """
        if nodes is self._nodes:
            return self._shown
        self._nodes = nodes
        now, before = self._clock(), self._present
        self._present = {_kind_of(node): node for node in nodes}
        left = self._former | {kind: (now, node) for kind, node in before.items()}
        lately = [
            (kind, one) for kind, one in left.items() if kind not in self._present and now - one[0] <= _KEPT_SECONDS
        ]
        lately.sort(key=lambda entry: -entry[1][0])
        self._former = dict(lately[:_MOST_KINDS])
        self._shown = tuple(sorted((node for _, node in self._former.values()), key=lambda node: node.name))
        return self._shown


def _kind_of(node: Node) -> Hashable:
    groups = tuple(node.labels.get(label) for label in NODE_GROUPS)
    return groups, node.labels.get(INSTANCE_TYPE) or node.allocatable, frozenset(lasting_taints(node.taints))
