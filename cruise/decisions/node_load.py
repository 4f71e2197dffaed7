"""Which nodes to mark as overloaded, with hysteresis."""

from collections.abc import Sequence

from cruise.domain.actions import Reason, TaintNode, UntaintNode
from cruise.domain.cluster import Node
from cruise.domain.policy import Policy
from cruise.domain.scheduling import OVERLOADED

READINGS_IN_A_ROW = 2


def decide_node_load(node: Node, readings: Sequence[float | None], policy: Policy) -> TaintNode | UntaintNode | None:
    """Taint a node above the threshold at two readings in a row, untaint it below the lower one at two in a row.

    `readings` are load1 / CPU capacity, oldest first, None where there was none: then the taint stays as it is.
    """
    latest = [reading for reading in readings[-READINGS_IN_A_ROW:] if reading is not None]
    if len(latest) < READINGS_IN_A_ROW:
        return None
    tainted = OVERLOADED in node.taints
    if not tainted and min(latest) > policy.overload_above:
        return TaintNode(node.name, Reason.OVERLOADED)
    if tainted and max(latest) < policy.overload_below:
        return UntaintNode(node.name, Reason.LOAD_FELL)
    return None


def load_of(load1: float | None, node: Node) -> float | None:
    """Return load1 relative to the node's CPU, None without a reading or without CPU.

    What is kept from pods carries load as well, so the machine's capacity counts; where it is unknown, what is
    allocatable.
    """
    capacity = node.allocatable.cpu_millicores if node.cpu_capacity_millicores is None else node.cpu_capacity_millicores
    return None if load1 is None or capacity <= 0 else load1 * 1000 / capacity
