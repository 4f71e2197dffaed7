"""Node types from Karpenter's NodePools: types, limits, and pools that offer none."""

import json

import pytest

from cruise.decisions.packing.node_types import add_candidate_nodes, limit_new_nodes_to_pools, list_node_pool_types
from cruise.domain.packing_plan import NodeCostMeasure
from cruise.domain.reasons import ReasonDetailCode
from cruise.errors import BadInputError
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.builders import make_node_json
from tests.karpenter import GPU_ONLY, TYPE, ZONE, claim, machine, only, pool, waiting

UNSEEN = ReasonDetailCode.INSTANCE_TYPE_UNKNOWN


def snapshot_of(*documents):
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": documents}).encode()
    return read_snapshot([text], "cluster.json")


def offered(*documents):
    """Return what NodePools offer for the pods that wait: types with their limits, and who is silent."""
    snapshot = snapshot_of(*documents)
    found = list_node_pool_types(snapshot, [pod for pod in snapshot.pods if pod.node is None])
    return found


def limits_of(*documents):
    return {(one.pool, one.name): one.limit for one in offered(*documents).types}


def test_a_node_says_how_large_its_type_is():
    assert limits_of(pool(), machine("n1"), *waiting(1)) == {("default", "m5.large"): None}


def test_so_does_what_karpenter_has_only_ordered():
    found = offered(pool(), claim("default-x7f"), *waiting(1)).types
    assert [(one.name, one.template.allocatable.cpu_millicores) for one in found] == [("m5.xlarge", 4000)]


def test_startup_taints_are_ignored_and_other_taints_are_kept():
    found = offered(pool("gpu", taints=GPU_ONLY), machine("n1", of="gpu"), *waiting(1)).types
    assert [taint.key for taint in found[0].template.taints] == ["gpu"]


@pytest.mark.parametrize(
    ("limits", "status", "limit"),
    [
        ({}, {}, None),
        ({"cpu": "8"}, {}, 3),
        ({"cpu": "4"}, {}, 1),
        ({"cpu": "7500m"}, {}, 2),
        ({"memory": "24Gi"}, {}, 2),
        ({"cpu": "8", "memory": "24Gi"}, {}, 2),
        ({"nodes": "3"}, {}, 2),
        # Karpenter counts what is on its way as well.
        ({"cpu": "8"}, {"resources": {"cpu": "6"}}, 1),
        ({"example.com/gpu": "1"}, {}, None),
    ],
)
def test_no_more_is_offered_than_limits_leave(limits, status, limit):
    there = [pool(limits=limits, status=status), machine("n1"), *waiting(3)]
    assert limits_of(*there) == {("default", "m5.large"): limit}


def test_a_node_pool_whose_limits_are_used_up_is_named():
    found = offered(pool(limits={"cpu": "2"}), machine("n1"), *waiting(1))
    assert found.types == ()
    assert found.pools_without_types == (("default", ReasonDetailCode.POOL_LIMITS_USED),)


CPU = "karpenter.k8s.aws/instance-cpu"


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        (only(TYPE, "m5.large", "m5.xlarge"), True),
        (only(TYPE, "m5.8xlarge", operator="NotIn"), True),
        (only(TYPE, operator="Exists"), True),
        (only(CPU, "2", operator="Gte"), True),
        (only(CPU, "2", operator="Lte"), True),
        (only(CPU, "1", operator="Gt"), True),
        (only("team", "default"), True),
        (only("lent-to", "shop", "kitchen"), True),
        (only(TYPE, "m5.xlarge"), False),
        (only(CPU, "3", operator="Gte"), False),
        (only(CPU, "1", operator="Lte"), False),
        (only("karpenter.k8s.aws/instance-family", "m5"), False),
        (only("kubernetes.io/arch", "arm64"), False),
    ],
)
def test_a_machine_is_offered_where_it_meets_all_requirements(requirement, met):
    found = offered(pool(requirements=[requirement]), machine("n1", **{CPU: "2"}), *waiting(1))
    assert found.pools_without_types == (() if met else (("default", UNSEEN),))
    assert len(found.types) == met


def test_what_a_node_pool_states_is_on_its_nodes():
    lent = pool(requirements=[only("lent-to", "shop", "kitchen")])
    labels = offered(lent, machine("n1"), *waiting(1)).types[0].template.labels
    assert (labels["lent-to"], labels["team"]) == ("shop", "default")
    assert "kubernetes.io/hostname" not in labels


def test_a_machine_seen_in_a_node_pool_of_the_same_class_is_known():
    there = [pool(), machine("n1"), *waiting(1)]
    assert set(limits_of(pool("batch"), *there)) == {("default", "m5.large"), ("batch", "m5.large")}
    other = offered(pool("batch", node_class="other"), *there)
    assert other.pools_without_types == (("batch", UNSEEN),)


def test_a_type_is_offered_in_each_zone_if_pods_distinguish_zones():
    there = [pool(requirements=[only(ZONE, "a", "b")]), machine("n1", **{"topology.ebs.csi.aws.com/zone": "a"})]
    choosy = waiting(1, spec={"nodeSelector": {ZONE: "b"}})
    labels = [one.template.labels for one in offered(*there, *choosy).types]
    assert [(one[ZONE], one["topology.ebs.csi.aws.com/zone"]) for one in labels] == [("a", "a"), ("b", "b")]
    assert len(offered(*there, *waiting(1)).types) == 1


def test_a_zone_that_a_node_pool_has_left_is_not_offered():
    found = offered(pool(requirements=[only(ZONE, "b")]), machine("n1", zone="a"), *waiting(1)).types
    assert [one.template.labels[ZONE] for one in found] == ["b"]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"replicas": 3}, "pool-fixed: 3"),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "pool-not-ready"),
    ],
)
def test_a_node_pool_that_orders_nothing_is_named(changed, why):
    found = offered(pool(**changed), machine("n1"), *waiting(1))
    assert (found.types, found.pools_without_types) == ((), (("default", why),))


def test_types_of_one_node_pool_share_its_limits():
    there = [machine("n1"), machine("n2", "m5.xlarge", "4", memory="16Gi")]
    candidate_nodes = add_candidate_nodes(snapshot_of(pool(limits={"cpu": "12"}), *there, *waiting(3)), None)
    large, small = "new-default-m5.xlarge-1", [f"new-default-m5.large-{number}" for number in (1, 2, 3)]
    assert {large, *small} == candidate_nodes.types.keys()
    assert limit_new_nodes_to_pools(candidate_nodes, [large, small[0]]) is None
    assert limit_new_nodes_to_pools(candidate_nodes, small) is None
    limited = limit_new_nodes_to_pools(candidate_nodes, [large, *small])
    assert limited is not None
    assert {node.name for node in limited.snapshot.nodes} == {"n1", "n2", large, small[0]}


def test_nodes_cost_by_size_where_node_pools_order_them_for_pods_that_wait():
    there = [pool(), machine("n1"), machine("n2", "m5.xlarge", "4", memory="16Gi")]
    candidate_nodes = add_candidate_nodes(snapshot_of(*there, *waiting(1)), None)
    assert candidate_nodes.measure is NodeCostMeasure.SIZE
    assert (candidate_nodes.prices["n1"], candidate_nodes.prices["new-default-m5.xlarge-1"]) == (3_000_000, 6_000_000)
    assert add_candidate_nodes(snapshot_of(*there), None).measure is NodeCostMeasure.NUMBER


def test_many_types_make_no_problem_of_ten_thousand_nodes():
    there = [machine(f"n{number}", f"m{number}.large") for number in range(100)]
    candidate_nodes = add_candidate_nodes(snapshot_of(pool(), *there, *waiting(200)), None)
    assert len(candidate_nodes.types) == 3_000
    assert len({one.name for one in candidate_nodes.types.values()}) == 100


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (pool(limits={"cpu": "many"}), 'NodePool default: spec.limits.cpu: "many"'),
        (
            pool(requirements=[only("a", "x", operator="Like")]),
            '.spec.requirements: "Like" is not an operator',
        ),
        (pool(requirements=[only("a", "x", operator="Gte")]), 'Gte on a: "x" is not an integer; write one'),
        (pool(taints=[{"key": "a", "effect": "Never"}]), 'spec.template.spec.taints: "Never" is not an effect'),
        (pool(weight="heavy"), "NodePool default: spec.weight: is a text instead of a whole number"),
    ],
)
def test_a_node_pool_that_cannot_be_read_is_refused_with_its_place(wrong, said):
    with pytest.raises(BadInputError) as refused:
        snapshot_of(wrong, machine("n1"))
    assert said in str(refused.value)


def test_node_pools_of_other_makes_mean_nothing():
    other = {"apiVersion": "hypershift.openshift.io/v1", "kind": "NodePool", "metadata": {"name": "x"}}
    assert snapshot_of(other | {"spec": {"limits": 3}}, make_node_json("n1")).node_pools == ()
