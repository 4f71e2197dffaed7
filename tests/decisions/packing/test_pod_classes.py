"""The rules between pods, in terms of classes."""

from typing import Any

from cruise.decisions.packing.node_masks import PlacementObstacle
from cruise.decisions.packing.problem import build_packing_problem
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.scheduling import (
    HostPort,
    LabelRequirement,
    LabelSelector,
    PersistentVolumeClaim,
    PodAffinityTerm,
    PodConstraints,
    SchedulingConstraints,
    SelectorOperator,
    StorageAndNamespaces,
    Taint,
    TaintEffect,
    TopologySpreadConstraint,
)
from cruise.packer.problem import ExclusionRule
from tests.decisions.packing.shop import make_shop_node, make_shop_pod

HOST, ZONE = "kubernetes.io/hostname", "zone"


def of_app(*names: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", SelectorOperator.IN, names),))


def term(app: str, key: str = HOST, *namespaces: str) -> PodAffinityTerm:
    return PodAffinityTerm(key, of_app(app), frozenset(namespaces or ("shop",)))


def labelled(app: str, name: str, node: str | None = None, **more: Any) -> Pod:
    return make_shop_pod(name, node, labels={"app": app}, **more)


def cluster(*pods: Pod, **more: Any) -> ClusterSnapshot:
    """Three nodes, two of them in zone a."""
    nodes = tuple(make_shop_node(f"n{i}", labels={HOST: f"n{i}", ZONE: "a" if i < 3 else "b"}) for i in (1, 2, 3))
    return ClusterSnapshot(nodes=nodes, pods=pods, **more)


def said(exclusions: tuple[ExclusionRule, ...]) -> list[tuple[int, int, list[int]]]:
    return [(one.topology, one.holder, one.targets.tolist()) for one in exclusions]


def test_one_pod_of_an_app_a_node_is_a_number_and_no_rule() -> None:
    apart = PodConstraints(anti_affinity=(term("web"),))
    problem = build_packing_problem(
        cluster(make_shop_pod("a", "n1", constraints=apart), make_shop_pod("b", constraints=apart))
    ).problem
    assert problem.max_on_node.tolist() == [1]
    assert not problem.rules.are_binding


def test_anti_affinity_over_zones_holds_for_later_pods() -> None:
    lonely = labelled("db", "db", "n1", owner_kind=None, constraints=PodConstraints(anti_affinity=(term("web", ZONE),)))
    built = build_packing_problem(cluster(lonely, make_shop_pod("web")))
    rules = built.problem.rules
    assert rules.topologies.tolist() == [[0, 0, 1]]
    assert said(rules.exclusions) == [(0, built.problem.pod_class[0], [built.problem.pod_class[1]])]
    assert built.exclusion_obstacles == (PlacementObstacle.ANTI_AFFINITY,)


def test_a_rule_that_concerns_no_arriving_pod_is_omitted() -> None:
    apart = PodConstraints(anti_affinity=(term("web", ZONE),))
    bare = [
        labelled("web", name, node, owner_kind=None, constraints=apart) for name, node in (("a", "n1"), ("b", "n3"))
    ]
    assert not build_packing_problem(cluster(*bare, labelled("other", "c"))).problem.rules.are_binding


def test_a_term_means_namespaces_by_their_labels() -> None:
    choosy = PodAffinityTerm(
        ZONE, of_app("web"), frozenset(), LabelSelector((LabelRequirement("team", SelectorOperator.IN, ("red",)),))
    )
    holder = labelled("db", "db", constraints=PodConstraints(anti_affinity=(choosy,)))
    pods = (holder, make_shop_pod("here", "n1"), make_shop_pod("there", "n2", namespace="bank", cpu=400))
    surroundings = StorageAndNamespaces(namespace_labels={"bank": {"team": "red"}})
    built = build_packing_problem(cluster(*pods, storage_and_namespaces=surroundings))
    index = {pod.name: int(built.problem.pod_class[at]) for at, pod in enumerate(built.pods)}
    assert said(built.problem.rules.exclusions) == [(0, index["db"], [index["there"]])]


def test_colliding_host_ports_separate_classes_and_the_pods_of_a_class() -> None:
    one = PodConstraints(host_ports=(HostPort("TCP", 80, "10.0.0.1"),))
    all_addresses = PodConstraints(host_ports=(HostPort("TCP", 80),))
    other = PodConstraints(host_ports=(HostPort("TCP", 80, "10.0.0.2"),))
    built = build_packing_problem(
        cluster(
            make_shop_pod("a", constraints=one),
            make_shop_pod("b", constraints=all_addresses),
            make_shop_pod("c", constraints=other),
        )
    )
    problem = built.problem
    assert problem.max_on_node.tolist() == [1, 1, 1]
    kept_apart = {
        frozenset({holder, target}) for _, holder, targets in said(problem.rules.exclusions) for target in targets
    }
    assert kept_apart == {frozenset({0, 1}), frozenset({1, 2})}
    assert problem.rules.topologies.tolist() == [[0, 1, 2]]


def test_a_volume_for_one_pod_keeps_a_second_one_out_everywhere() -> None:
    uses = PodConstraints(claims=("data",))
    claims = {("shop", "data"): PersistentVolumeClaim("shop", "data", single_pod=True)}
    built = build_packing_problem(
        cluster(
            make_shop_pod("a", "n1", constraints=uses),
            make_shop_pod("b", constraints=uses),
            storage_and_namespaces=StorageAndNamespaces(claims=claims),
        )
    )
    assert built.problem.rules.topologies.tolist() == [[0, 0, 0]]
    assert said(built.problem.rules.exclusions) == [(0, 0, [0])]


def test_affinity_counts_only_pods_that_match_all_terms() -> None:
    both = PodConstraints(
        affinity=(
            term("web", ZONE),
            PodAffinityTerm(
                HOST, LabelSelector((LabelRequirement("track", SelectorOperator.EXISTS),)), frozenset({"shop"})
            ),
        )
    )
    pods = (
        labelled("new", "new", constraints=both),
        make_shop_pod("plain", "n1", cpu=300),
        make_shop_pod("tracked", "n2", cpu=200, labels={"app": "web", "track": "x"}),
    )
    built = build_packing_problem(cluster(*pods))
    rules = built.problem.rules
    (attraction,) = rules.attractions
    index = {pod.name: int(built.problem.pod_class[at]) for at, pod in enumerate(built.pods)}
    assert (attraction.holder, attraction.targets.tolist()) == (index["new"], [index["tracked"]])
    assert [rules.topologies[one].tolist() for one in attraction.topologies] == [[0, 0, 1], [0, 1, 2]]


def test_spreading_counts_pods_that_stay_on_nodes_with_all_its_labels() -> None:
    spread = PodConstraints(
        spread=(
            TopologySpreadConstraint(ZONE, of_app("web"), 1, honours_node_taints=True),
            TopologySpreadConstraint("rack", None, 1),
        )
    )
    nodes = (
        make_shop_node("n1", labels={ZONE: "a", "rack": "1"}),
        make_shop_node("n2", labels={ZONE: "b"}),
        make_shop_node("n3", labels={ZONE: "c", "rack": "1"}, taints=(Taint("x", "", TaintEffect.NO_SCHEDULE),)),
        make_shop_node("n4", labels={ZONE: "d", "rack": "2", "old": "yes"}),
    )
    placement = SchedulingConstraints(node_selector=(("rack", "1"),))
    pods = (
        make_shop_pod("new", constraints=spread, placement=placement),
        make_shop_pod("going", "n1", terminating=True),
        make_shop_pod("stays", "n1"),
    )
    built = build_packing_problem(ClusterSnapshot(nodes=nodes, pods=pods))
    (rule,) = built.problem.rules.spreads
    index = {pod.name: int(built.problem.pod_class[at]) for at, pod in enumerate(built.pods)}
    assert rule.eligible.tolist() == [True, False, False, False]
    assert rule.targets.tolist() == sorted([index["new"], index["stays"]])
    assert built.problem.allowed_nodes[built.problem.node_mask_of_class[index["new"]]].tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_equal_pods_of_two_apps_are_distinguished_only_by_their_rules() -> None:
    pods = [labelled(app, f"{app}{copy}", "n1" if copy else None) for app in ("x", "y") for copy in (0, 1)]
    assert build_packing_problem(cluster(*pods)).problem.class_count == 1
    pods.append(labelled("z", "z", constraints=PodConstraints(anti_affinity=(term("x", ZONE),))))
    assert build_packing_problem(cluster(*pods)).problem.class_count == 3
