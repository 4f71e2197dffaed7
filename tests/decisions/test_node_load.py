"""The overload taint and its hysteresis."""

import pytest

from cruise.decisions.node_load import decide_node_load, load_of
from cruise.domain.actions import Reason, TaintNode, UntaintNode
from cruise.domain.cluster import Node
from cruise.domain.policy import Policy
from cruise.domain.resources import Resources
from cruise.domain.scheduling import OVERLOADED, Taint, TaintEffect

CALM = Node("n1", Resources(4000, 1 << 34))
TAINTED = Node("n1", Resources(4000, 1 << 34), taints=(OVERLOADED,))


@pytest.mark.parametrize(
    ("node", "readings", "expected"),
    [
        (CALM, [1.1, 1.2], TaintNode("n1", Reason.OVERLOADED)),
        (CALM, [0.9, 1.2], None),
        (CALM, [1.2], None),
        (CALM, [1.2, None], None),
        (CALM, [None, 1.2], None),
        (CALM, [1.0, 1.0], None),
        (TAINTED, [1.1, 1.2], None),
        (TAINTED, [0.95, 0.8], None),
        (TAINTED, [0.89, 0.8], UntaintNode("n1", Reason.LOAD_FELL)),
        (TAINTED, [0.9, 0.9], None),
        (TAINTED, [None, None], None),
        (TAINTED, [], None),
    ],
)
def test_two_readings_in_a_row_decide(node: Node, readings: list[float | None], expected: object) -> None:
    assert decide_node_load(node, readings, Policy()) == expected


def test_a_taint_of_somebody_else_is_not_ours() -> None:
    foreign = Node("n1", Resources(4000, 1), taints=(Taint("node.kubernetes.io/x", "true", TaintEffect.NO_SCHEDULE),))
    assert decide_node_load(foreign, [0.1, 0.1], Policy()) is None


def test_load_is_relative_to_the_cpu_of_the_node() -> None:
    assert load_of(6.0, CALM) == 1.5
    assert load_of(None, CALM) is None
    assert load_of(1.0, Node("empty", Resources())) is None
