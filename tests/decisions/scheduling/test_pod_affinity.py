"""Affinity, anti-affinity and topology spread, as kube-scheduler evaluates them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cruise.decisions.scheduling.placements import PodPlacements
from cruise.decisions.scheduling.pod_affinity import (
    TopologySpreadFilter,
    check_affinity,
    check_anti_affinity,
    is_first_of_affinity_group,
)
from cruise.domain.cluster import Pod
from cruise.domain.scheduling import (
    LabelRequirement,
    LabelSelector,
    PodAffinityTerm,
    PodConstraints,
    SchedulingConstraints,
    SelectorOperator,
    StorageAndNamespaces,
    Taint,
    TaintEffect,
    TopologySpreadConstraint,
)
from tests.builders import make_node, make_pod, make_snapshot

ZONE, HOST, RACK = "zone", "host", "rack"


def app(*names: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", SelectorOperator.IN, names),))


def term(
    key: str = ZONE, *names: str, namespaces: frozenset[str] = frozenset({"shop"}), **more: object
) -> PodAffinityTerm:
    return PodAffinityTerm(key, app(*names), namespaces, **more)  # type: ignore[arg-type]


def pod(name: str, node: str | None, namespace: str = "shop", label: str = "", **constraints: object) -> Pod:
    return make_pod(
        name,
        namespace,
        node,
        labels={"app": label or name},
        constraints=PodConstraints(**constraints),  # type: ignore[arg-type]
    )


def board_of(*pods: Pod, namespace_labels: Mapping[str, Mapping[str, str]] | None = None) -> PodPlacements:
    """Nodes a1 and a2 in zone a, b1 in zone b, and bare without any label."""
    nodes = [make_node(name, labels={ZONE: name[0], HOST: name}) for name in ("a1", "a2", "b1")]
    snapshot = make_snapshot(pods, [*nodes, make_node("bare")])
    return PodPlacements(
        replace(snapshot, storage_and_namespaces=StorageAndNamespaces(namespace_labels=namespace_labels or {}))
    )


def open_to(board: PodPlacements, new: Pod, refuse=check_affinity) -> set[str]:
    return {node.name for node in board.nodes.values() if not any(refuse(board, new, node))}


def test_affinity_is_met_in_the_domains_of_those_that_are_meant():
    new = pod("new", None, affinity=(term(ZONE, "db"),))
    assert open_to(board_of(pod("db", "a1")), new) == {"a1", "a2"}
    assert open_to(board_of(pod("db", "b1"), pod("web", "a1")), new) == {"b1"}
    assert open_to(board_of(pod("db", "bare")), new) == set()
    assert open_to(board_of(), new) == set()


def test_a_neighbour_of_another_namespace_is_meant_only_where_the_term_says_so():
    board = board_of(pod("db", "a1", "bank"), namespace_labels={"bank": {"team": "blue"}})
    everywhere = LabelSelector()
    blue = LabelSelector((LabelRequirement("team", SelectorOperator.IN, ("blue",)),))
    red = LabelSelector((LabelRequirement("team", SelectorOperator.IN, ("red",)),))
    assert open_to(board, pod("new", None, affinity=(term(ZONE, "db"),))) == set()
    for allowed in (
        term(ZONE, "db", namespaces=frozenset({"bank"})),
        term(ZONE, "db", namespaces=frozenset(), namespace_selector=blue),
        term(ZONE, "db", namespace_selector=everywhere),
    ):
        assert open_to(board, pod("new", None, affinity=(allowed,))) == {"a1", "a2"}
    other = term(ZONE, "db", namespaces=frozenset(), namespace_selector=red)
    assert open_to(board, pod("new", None, affinity=(other,))) == set()


def test_a_neighbour_counts_only_if_it_meets_all_terms_at_once():
    new = pod("new", None, affinity=(term(ZONE, "db", "cache"), term(ZONE, "db", "web")))
    assert open_to(board_of(pod("cache", "a1"), pod("web", "a2")), new) == set()
    assert open_to(board_of(pod("db", "a1")), new) == {"a1", "a2"}


def test_terms_of_several_topologies_are_met_by_different_neighbours():
    new = pod("new", None, affinity=(term(ZONE, "db"), term(HOST, "db")))
    assert open_to(board_of(pod("db", "a1")), new) == {"a1"}


def test_the_first_of_a_group_may_start_anywhere_that_has_the_topology():
    new = pod("new", None, affinity=(term(ZONE, "new"),))
    assert open_to(board_of(), new) == {"a1", "a2", "b1"}
    assert is_first_of_affinity_group(board_of(), new)
    assert open_to(board_of(pod("other", "b1", label="new")), new) == {"b1"}
    assert not is_first_of_affinity_group(board_of(pod("other", "b1", label="new")), new)
    # A pod on a node without the label is in no domain: the group has not begun.
    assert open_to(board_of(pod("other", "bare", label="new")), new) == {"a1", "a2", "b1"}
    two_terms = pod("new", None, affinity=(term(ZONE, "new"), term(ZONE, "db")))
    assert open_to(board_of(), two_terms) == set()


def test_an_absent_selector_selects_no_pod():
    new = pod("new", None, affinity=(PodAffinityTerm(ZONE, None, frozenset({"shop"})),))
    assert open_to(board_of(pod("db", "a1")), new) == set()
    apart = pod("new", None, anti_affinity=(PodAffinityTerm(ZONE, None, frozenset({"shop"})),))
    assert "a1" in open_to(board_of(pod("db", "a1")), apart, check_anti_affinity)


def test_anti_affinity_of_the_arriving_pod():
    new = pod("new", None, anti_affinity=(term(ZONE, "db"), term(HOST, "web")))
    assert open_to(board_of(pod("db", "a1")), new, check_anti_affinity) == {"b1", "bare"}
    assert open_to(board_of(pod("web", "a1")), new, check_anti_affinity) == {"a2", "b1", "bare"}
    assert open_to(board_of(pod("db", "bare")), new, check_anti_affinity) == {"a1", "a2", "b1", "bare"}


def test_anti_affinity_of_those_that_are_there():
    holder = pod("db", "a1", anti_affinity=(term(ZONE, "new"),))
    new = pod("new", None)
    assert open_to(board_of(holder), new, check_anti_affinity) == {"b1", "bare"}
    assert open_to(board_of(holder), pod("other", None), check_anti_affinity) == {"a1", "a2", "b1", "bare"}
    elsewhere = make_pod("new", "bank", None, labels={"app": "new"})
    assert open_to(board_of(holder), elsewhere, check_anti_affinity) == {"a1", "a2", "b1", "bare"}
    board = board_of(holder)
    board.remove(("shop", "db"))
    assert open_to(board, new, check_anti_affinity) == {"a1", "a2", "b1", "bare"}


def test_anti_affinity_by_the_labels_of_namespaces():
    blue = LabelSelector((LabelRequirement("team", SelectorOperator.IN, ("blue",)),))
    holder = pod("db", "a1", anti_affinity=(term(ZONE, "new", namespaces=frozenset(), namespace_selector=blue),))
    board = board_of(holder, namespace_labels={"bank": {"team": "blue"}})
    stranger = make_pod("new", "bank", None, labels={"app": "new"})
    assert open_to(board, stranger, check_anti_affinity) == {"b1", "bare"}
    assert open_to(board, pod("new", None), check_anti_affinity) == {"a1", "a2", "b1", "bare"}


def test_a_pod_that_is_ending_counts_for_affinity_and_not_for_spread():
    ending = replace(pod("db", "a1"), terminating=True)
    board = board_of(ending)
    assert open_to(board, pod("new", None, affinity=(term(ZONE, "db"),))) == {"a1", "a2"}
    spread = pod("new", None, spread=(TopologySpreadConstraint(ZONE, app("db", "new"), 1),))
    assert spread_to(board, spread) == {"a1", "a2", "b1"}


def spread_to(board: PodPlacements, new: Pod) -> set[str]:
    spreads = TopologySpreadFilter(board)
    return {node.name for node in board.nodes.values() if not any(spreads.check(new, node))}


@pytest.mark.parametrize(
    ("constraint", "there", "allowed"),
    [
        (TopologySpreadConstraint(ZONE, app("new"), 1), ("a1",), {"b1"}),
        (TopologySpreadConstraint(ZONE, app("new"), 1), ("a1", "b1"), {"a1", "a2", "b1"}),
        (TopologySpreadConstraint(ZONE, app("new"), 2), ("a1",), {"a1", "a2", "b1"}),
        (TopologySpreadConstraint(HOST, app("new"), 1), ("a1", "b1"), {"a2"}),
        # Fewer domains than asked for: the least is 0.
        (TopologySpreadConstraint(ZONE, app("new"), 1, min_domains=3), ("a1", "b1"), set()),
        (TopologySpreadConstraint(ZONE, app("new"), 2, min_domains=3), ("a1", "b1"), {"a1", "a2", "b1"}),
        # The pod does not count itself where the selector does not mean it.
        (TopologySpreadConstraint(ZONE, app("db"), 1), ("a1",), {"a1", "a2", "b1"}),
        (TopologySpreadConstraint(ZONE, None, 1), ("a1", "a1"), {"a1", "a2", "b1"}),
        # A topology that no node has.
        (TopologySpreadConstraint(RACK, app("new"), 1), (), set()),
    ],
)
def test_topology_spread(constraint, there, allowed):
    pods = [pod(f"old{number}", node, label="new") for number, node in enumerate(there)]
    assert spread_to(board_of(*pods), pod("new", None, spread=(constraint,))) == allowed


def test_spread_counts_pods_of_the_same_namespace_only():
    board = board_of(pod("old", "a1", "bank", label="new"))
    assert spread_to(board, pod("new", None, spread=(TopologySpreadConstraint(ZONE, app("new"), 1),))) == {
        "a1",
        "a2",
        "b1",
    }


def test_a_node_counts_for_spread_only_if_it_has_the_keys_of_all_constraints():
    """Zone b would be empty, but its one node has no host label."""
    nodes = [make_node("a1", labels={ZONE: "a", HOST: "a1"}), make_node("b1", labels={ZONE: "b"})]
    board = PodPlacements(make_snapshot([pod("old", "a1", label="new")], nodes))
    zone, host = TopologySpreadConstraint(ZONE, app("new"), 1), TopologySpreadConstraint(HOST, app("new"), 5)
    assert spread_to(board, pod("new", None, spread=(zone,))) == {"b1"}
    assert spread_to(board, pod("new", None, spread=(zone, host))) == {"a1"}


def test_nodes_that_affinity_or_taints_keep_it_from_are_domains_as_the_policies_say():
    only_a = SchedulingConstraints((("zone", "a"),))
    dedicated = (Taint("dedicated", "x", TaintEffect.NO_SCHEDULE),)
    nodes = [make_node("a1", labels={ZONE: "a"}), make_node("b1", labels={ZONE: "b"})]
    tainted = [nodes[0], replace(nodes[1], taints=dedicated)]
    old = pod("old", "a1", label="new")

    def allowed(nodes, placement, **policies):
        constraint = TopologySpreadConstraint(ZONE, app("new"), 1, **policies)
        return spread_to(
            PodPlacements(make_snapshot([old], nodes)),
            replace(pod("new", None, spread=(constraint,)), placement=placement),
        )

    assert allowed(nodes, only_a) == {"a1", "b1"}
    assert allowed(nodes, only_a, honours_node_affinity=False) == {"b1"}
    assert allowed(tainted, SchedulingConstraints()) == {"b1"}
    assert allowed(tainted, SchedulingConstraints(), honours_node_taints=True) == {"a1", "b1"}
