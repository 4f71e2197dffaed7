"""Node shapes of recently removed nodes."""

from cruise.adapters.kube.object_store import RemovedNodeTypes
from cruise.domain.cluster import Node
from cruise.domain.scheduling import OVERLOADED_TAINT, Taint, TaintEffect
from tests.builders import make_node

DAY = 24 * 3600


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def of_type(name: str, kind: str, **fields) -> Node:
    return make_node(name, labels={"node.kubernetes.io/instance-type": kind, "kubernetes.io/hostname": name}, **fields)


def test_remembers_one_removed_node_of_each_type():
    former = RemovedNodeTypes(Clock())
    small, large, larger = of_type("a", "small"), of_type("b", "large"), of_type("c", "large")
    assert former.get_nodes_of_absent_types((small, large, larger)) == ()
    assert former.get_nodes_of_absent_types((small, large)) == ()
    assert former.get_nodes_of_absent_types((small,)) == (large,)
    # It is there again.
    assert former.get_nodes_of_absent_types((small, of_type("d", "large"))) == ()


def test_kinds_differ_by_group_and_lasting_taints_and_by_size_where_no_type_is_stated():
    former = RemovedNodeTypes(Clock())
    gpu = Taint("gpu", "yes", TaintEffect.NO_SCHEDULE)
    tainted = of_type("b", "small", taints=(gpu,))
    busy, plain = of_type("c", "small", taints=(OVERLOADED_TAINT,)), of_type("d", "small")
    pooled = make_node("e", labels={"karpenter.sh/nodepool": "batch", "node.kubernetes.io/instance-type": "small"})
    big, bare = make_node("f", cpu=64000), make_node("g")
    former.get_nodes_of_absent_types((tainted, busy, pooled, big, bare))
    assert former.get_nodes_of_absent_types((plain, make_node("h"))) == (tainted, pooled, big)


def test_forgets_a_node_type_three_days_after_its_last_node():
    clock = Clock()
    former = RemovedNodeTypes(clock)
    small, large = of_type("a", "small"), of_type("b", "large")
    former.get_nodes_of_absent_types((small, large))
    clock.seconds = 10 * DAY
    assert former.get_nodes_of_absent_types((small,)) == (large,)
    clock.seconds = 13 * DAY
    assert former.get_nodes_of_absent_types((small, of_type("c", "small"))) == (large,)
    clock.seconds = 13 * DAY + 1
    assert former.get_nodes_of_absent_types((small,)) == ()


def test_the_same_nodes_have_the_same_answer():
    former = RemovedNodeTypes(Clock())
    nodes = (of_type("a", "small"),)
    former.get_nodes_of_absent_types((of_type("b", "large"),))
    assert former.get_nodes_of_absent_types(nodes) is former.get_nodes_of_absent_types(nodes)
