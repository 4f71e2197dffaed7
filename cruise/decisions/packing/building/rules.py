"""The rules between kinds, said of classes."""

from collections.abc import Iterable, Sequence

import numpy as np

from cruise.decisions.packing.building.budgets import Limit
from cruise.decisions.packing.building.census import Census
from cruise.decisions.packing.building.marks import Marks, Repulsion
from cruise.decisions.packing.building.nodes import NodeColumns
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.packer.problem import Attraction, EvictionLimit, Exclusion, Rules, Spread


class RuleMaker:
    """Collects the rules of a problem; `most_on_node` is lowered where that says all of a rule.

    `kind_classes` has the classes of each kind, `admits[sites[class], node]` tells where a class may arrive.
    """

    def __init__(
        self,
        census: Census,
        columns: NodeColumns,
        kind_classes: Sequence[frozenset[int]],
        sites: Int64Array,
        admits: BoolArray,
        most_on_node: Int64Array,
    ) -> None:
        self._kinds = census.kinds
        self._columns = columns
        self._kind_classes = kind_classes
        self._sites = sites
        self._admits = admits
        self._arrives: list[bool] = np.asarray(admits.any(axis=1))[sites].tolist()
        self._most_on_node = most_on_node
        self._topologies: dict[str, Int64Array] = {}
        self._exclusions: dict[tuple[int, int, tuple[int, ...]], Obstacle] = {}

    def rules(self, marks: Marks, limits: Sequence[Limit]) -> tuple[Rules, tuple[Obstacle, ...]]:
        """Return all rules, and for each exclusion the obstacle that it is."""
        for repulsion in marks.repulsions:
            self._repel(repulsion)
        attractions = [
            Attraction(tuple(self._topology(key) for key in draw.topologies), holder, self._array(draw.targets))
            for draw in marks.draws
            for holder in sorted(self._classes(draw.holders))
        ]
        spreads = [
            Spread(
                self._topology(evenness.constraint.topology_key),
                holder,
                self._array(evenness.targets),
                evenness.constraint.max_skew,
                evenness.constraint.min_domains,
                evenness.eligible,
            )
            for evenness in marks.evennesses
            for holder in sorted(self._classes(evenness.holders))
        ]
        exclusions = tuple(
            Exclusion(topology, holder, np.array(targets, dtype=np.int64))
            for topology, holder, targets in self._exclusions
        )
        of_limits = [
            EvictionLimit(
                limit.name,
                self._array(kind for kind in limit.kinds if self._kinds[kind].stays is None),
                limit.allowed,
            )
            for limit in limits
        ]
        domains = list(self._topologies.values())
        topologies = np.array(domains, dtype=np.int64).reshape(len(domains), self._columns.count)
        found = Rules(topologies, exclusions, tuple(attractions), tuple(spreads), tuple(of_limits))
        return found, tuple(self._exclusions.values())

    def _repel(self, repulsion: Repulsion) -> None:
        key = repulsion.topology
        targets = self._classes(repulsion.targets)
        mutual = repulsion.holders == repulsion.targets
        labelled, tells_apart = self._columns.domains(key) >= 0, self._columns.tells_apart(key)
        for holder in sorted(self._classes(repulsion.holders)):
            arrives = self._arrives[holder]
            kept_off = {
                target for target in targets if (arrives or self._arrives[target]) and not (mutual and target < holder)
            }
            # No second one of its own on a node: that is how many of it a node holds.
            if holder in kept_off and tells_apart and not (self._admits[self._sites[holder]] & ~labelled).any():
                self._most_on_node[holder] = 1
                kept_off.discard(holder)
            if kept_off:
                self._exclusions.setdefault((self._topology(key), holder, tuple(sorted(kept_off))), repulsion.obstacle)

    def _topology(self, key: str) -> int:
        if key not in self._topologies:
            self._topologies[key] = self._columns.domains(key)
        return list(self._topologies).index(key)

    def _classes(self, kinds: Iterable[int]) -> set[int]:
        return {pod_class for kind in kinds for pod_class in self._kind_classes[kind]}

    def _array(self, kinds: Iterable[int]) -> Int64Array:
        return np.array(sorted(self._classes(kinds)), dtype=np.int64)
