"""The fewest nodes, or those of the least price, that hold all pods: what nodes cost, and what a plan makes of them."""

from cruise.decisions.packing.consolidating.fleet import Fleet, with_new_nodes
from cruise.decisions.packing.consolidating.fleet_change import fleet_change
from cruise.decisions.packing.consolidating.next_moves import Ground, next_moves
from cruise.decisions.packing.consolidating.pool_limits import within_limits

__all__ = ["Fleet", "Ground", "fleet_change", "next_moves", "with_new_nodes", "within_limits"]
