"""Where each kind of pod may arrive: one mask over the nodes for all kinds that may go to the same ones."""

from collections.abc import Hashable

import numpy as np

from cruise.decisions.packing.building.census import Kind
from cruise.decisions.packing.building.fixed import closed_by
from cruise.decisions.packing.building.nodes import NodeColumns
from cruise.domain.arrays import BoolArray
from cruise.domain.cordons import passes_cordons
from cruise.domain.scheduling import NodeSelectorTerm, Operator, Placement, Requirement


class Sites:
    """Numbers the distinct masks; number 0 is nowhere, which is also where kinds may arrive that never do."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._masks: list[BoolArray] = [np.zeros(columns.count, dtype=np.bool_)]
        self._numbers: dict[bytes, int] = {self._masks[0].tobytes(): 0}
        self._known: dict[Hashable, int] = {}

    def of(self, kind: Kind) -> int:
        """Number the nodes that a kind may arrive on, pods apart."""
        if not kind.arrives:
            return 0
        pod, asks = kind.pod, kind.pod.constraints
        # A pod for which room is kept on a node goes there alone.
        home = pod.nominated_node if kind.pending else ""
        passes = passes_cordons(pod)
        known_by = (pod.placement, asks.affinity, asks.spread, kind.needs.terms, kind.within, home, passes)
        number = self._known.get(known_by)
        if number is None:
            closed = closed_by(self._columns, pod, kind.needs.terms)
            mask = ~np.logical_or.reduce(list(closed.values()))
            if home:
                mask &= self._columns.any_term((_at(home),))
            if kind.within:
                mask &= self._columns.affinity(Placement(node_selector=kind.within))
            number = self._numbers.setdefault(mask.tobytes(), len(self._masks))
            if number == len(self._masks):
                self._masks.append(mask)
            self._known[known_by] = number
        return number

    def table(self) -> BoolArray:
        """Return sites x nodes."""
        return np.array(self._masks, dtype=np.bool_)


def _at(node: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(fields=(Requirement("metadata.name", Operator.IN, (node,)),))
