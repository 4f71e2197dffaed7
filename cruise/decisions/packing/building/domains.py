"""In which zone, or the like, a pod is that is spread over them."""

from collections.abc import Sequence

from cruise.decisions.packing.building.census import Labels
from cruise.decisions.packing.building.nodes import NodeColumns
from cruise.domain.cluster import Node, Pod


class Domains:
    """The labels of pods' nodes that their spread constraints count by, but for those that tell nodes apart."""

    def __init__(self, nodes: Sequence[Node], columns: NodeColumns) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._columns = columns

    def of(self, pod: Pod) -> Labels:
        """Return the labels, sorted; none of a pod that is not spread."""
        spread, node = pod.constraints.spread, self._nodes.get(pod.node or "")
        if not spread or node is None:
            return ()
        keys = sorted({constraint.topology_key for constraint in spread})
        return tuple(
            (key, node.labels[key]) for key in keys if key in node.labels and not self._columns.tells_apart(key)
        )
