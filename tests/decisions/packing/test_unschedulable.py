"""Why pods stay pending, obstacle by obstacle, as short messages."""

import math
from dataclasses import replace

import pytest

from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.unschedulable import explain_unplaced_pods
from cruise.domain.cluster import ClusterSnapshot, Node, Pod, PodDisruptionBudget
from cruise.domain.reasons import UnplacedPod
from cruise.domain.resources import Resources
from cruise.domain.scheduling import (
    HostPort,
    LabelRequirement,
    LabelSelector,
    NodeSelectorTerm,
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
from cruise.interfaces.packing.unschedulable import describe_unplaced_pod
from cruise.packer.budget import BudgetMeter
from cruise.packer.exact.model import solve_exact
from tests.builders import GIBIBYTE
from tests.decisions.packing.reports import ignore
from tests.decisions.packing.shop import make_shop_pod

HOST = "kubernetes.io/hostname"
WEB = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("web",)),))
CACHE = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("cache",)),))
SSD = SchedulingConstraints(node_selector=(("disk", "ssd"),))
BESIDE_CACHE = PodAffinityTerm(HOST, CACHE, frozenset({"shop"}))
APART_FROM_WEB = PodConstraints(anti_affinity=(PodAffinityTerm(HOST, WEB, frozenset({"shop"})),))


def a_node(name: str, cpu: int = 1000, memory: int = 8, labels: dict[str, str] | None = None, **more: object) -> Node:
    told = {HOST: name, **(labels or {})}
    return Node(name, Resources(cpu, memory * GIBIBYTE), labels=told, **more)  # type: ignore[arg-type]


def explained(nodes: list[Node], *pods: Pod, **more: object) -> tuple[UnplacedPod, ...]:
    built = build_packing_problem(ClusterSnapshot(nodes=tuple(nodes), pods=pods, **more))  # type: ignore[arg-type]
    packing = solve_exact(built.problem, built.problem.pod_node, BudgetMeter(math.inf, math.inf), ignore)
    return explain_unplaced_pods(built, packing)


def only(found: tuple[UnplacedPod, ...]) -> tuple[tuple[str, ...], str, bool]:
    assert len(found) == 1
    return found[0].blocked_by, describe_unplaced_pod(found[0]), found[0].impossible


def test_a_pod_larger_than_any_node_is_reported_with_the_difference():
    found = explained([a_node("n1"), a_node("n2", cpu=1500)], make_shop_pod("big", cpu=2000))
    words = "requests 2,000m CPU: both nodes offer less even when empty; 500m CPU less would be enough on n2"
    assert only(found) == (("cpu",), words, True)


def test_nodes_full_of_higher_priority_say_so_with_what_would_help():
    nodes = [a_node("n1", labels={"disk": "ssd"}), a_node("n2", labels={"disk": "ssd"}), a_node("n3")]
    running = [make_shop_pod(f"high-{n}", n, cpu=800, priority=100) for n in ("n1", "n2")]
    found = explained(nodes, *running, make_shop_pod("low", placement=SSD))
    words = (
        "needs disk=ssd; the 2 nodes that have it are full of higher priority; "
        "1 more of them, or 300m CPU less, would be enough"
    )
    assert only(found) == (("cpu",), words, False)


def test_equal_priority_and_several_resources_are_named():
    found = explained([a_node("n1", memory=1)], make_shop_pod("there", "n1", cpu=800), make_shop_pod("late"))
    words = (
        "the only node, n1, is full of equal or higher priority; "
        "1 more like it, or 300m CPU and 1 GiB memory less, would be enough"
    )
    assert only(found) == (("cpu", "memory"), words, False)


def test_a_full_count_of_pods():
    found = explained([a_node("n1", allocatable_pods=1)], make_shop_pod("there", "n1"), make_shop_pod("late", cpu=100))
    blocked, words, _ = only(found)
    assert blocked == ("pods",)
    assert words.endswith("1 more like it, or 1 pod fewer there, would be enough")


def test_an_extended_resource():
    gpu = (("nvidia.com/gpu", 1),)
    found = explained([a_node("n1"), a_node("n2")], make_shop_pod("train", extended_requests=gpu))
    words = (
        "requests 1 nvidia.com/gpu: both nodes offer less even when empty; 1 nvidia.com/gpu less would be enough on n1"
    )
    assert only(found) == (("nvidia.com/gpu",), words, True)


@pytest.mark.parametrize(
    ("change", "blocked", "words"),
    [
        ({"unschedulable": True}, ("cordoned",), "both nodes are cordoned"),
        ({"ready": False}, ("not-ready",), "both nodes are not ready"),
        (
            {"taints": (Taint("dedicated", "gpu", TaintEffect.NO_SCHEDULE),)},
            ("taints",),
            "both nodes have the taint dedicated=gpu:NoSchedule, which it does not tolerate",
        ),
    ],
)
def test_nodes_that_accept_no_pods(change, blocked, words):
    nodes = [replace(a_node(name), **change) for name in ("n1", "n2")]
    assert only(explained(nodes, make_shop_pod("late"))) == (blocked, words, True)


def test_labels_that_no_node_has():
    zone = SchedulingConstraints(
        terms=(NodeSelectorTerm((LabelRequirement("zone", SelectorOperator.IN, ("a", "b")),)),)
    )
    found = explained([a_node("n1")], make_shop_pod("one", placement=SSD), make_shop_pod("two", placement=zone))
    assert [(one.blocked_by, describe_unplaced_pod(one), one.impossible) for one in found] == [
        (("node-selector",), "needs disk=ssd, which no node has", True),
        (("node-affinity",), "needs zone a or b, which no node meets", True),
    ]


def test_a_node_that_would_do_but_for_its_label_and_its_taint():
    tainted = a_node("n2", cpu=4000, taints=(Taint("dedicated", "", TaintEffect.NO_SCHEDULE),))
    full = a_node("n1", cpu=500, labels={"disk": "ssd"}, unschedulable=True, ready=False)
    found = explained([full, tainted], make_shop_pod("late", cpu=600, placement=SSD))
    words = (
        "the one node with no other obstacle, n2, has the taint dedicated:NoSchedule, which it does not tolerate "
        "and lacks disk=ssd"
    )
    assert only(found) == (("taints", "node-selector"), words, True)


def test_anti_affinity_with_pods_that_stay():
    bare = make_shop_pod("bare", "n1", cpu=100, owner_kind=None, workload=None)
    found = explained(
        [a_node("n1")], bare, make_shop_pod("late", cpu=100, labels={"app": "db"}, constraints=APART_FROM_WEB)
    )
    words = "the only node, n1, has pods that its anti-affinity excludes"
    assert only(found) == (("anti-affinity",), words, True)


def test_one_of_itself_on_each_node():
    pods = [make_shop_pod(name, cpu=100, constraints=APART_FROM_WEB) for name in ("a", "b")]
    blocked, words, impossible = only(explained([a_node("n1")], *pods))
    assert (blocked, impossible) == (("anti-affinity",), False)
    assert words.endswith("has pods that its anti-affinity excludes")


def test_affinity_without_any_matching_pod():
    found = explained([a_node("n1")], make_shop_pod("late", constraints=PodConstraints(affinity=(BESIDE_CACHE,))))
    words = f"must run next to pods with app=cache in the same {HOST}, of which there are none"
    assert only(found) == (("affinity",), words, True)


def test_affinity_that_its_own_anti_affinity_contradicts():
    constraints = PodConstraints(affinity=(BESIDE_CACHE,), anti_affinity=(BESIDE_CACHE,))
    cache = make_shop_pod("cache", "n1", cpu=100, labels={"app": "cache"})
    found = explained([a_node("n1")], cache, make_shop_pod("late", cpu=100, constraints=constraints))
    words = (
        f"must run next to pods with app=cache in the same {HOST}, and its anti-affinity excludes the same "
        "pods: no node can ever match"
    )
    assert only(found) == (("affinity",), words, True)


def test_affinity_and_anti_affinity_to_its_own_kind():
    own = PodAffinityTerm(HOST, WEB, frozenset({"shop"}))
    constraints = PodConstraints(affinity=(own,), anti_affinity=(own,))
    found = explained(
        [a_node("n1"), a_node("n2")], *[make_shop_pod(name, cpu=9, constraints=constraints) for name in "ab"]
    )
    words = (
        f"must run next to pods with app=web in the same {HOST}, and its anti-affinity excludes the same "
        "pods: only the first of them can ever run"
    )
    assert only(found)[1:] == (words, False)


def test_unknown_topology_keys():
    near = PodConstraints(affinity=(PodAffinityTerm("rack", WEB, frozenset({"shop"})),))
    even = PodConstraints(spread=(TopologySpreadConstraint("rack", WEB, 1),))
    found = explained(
        [a_node("n1")], make_shop_pod("near", constraints=near), make_shop_pod("spread", constraints=even)
    )
    assert [(one.blocked_by, describe_unplaced_pod(one), one.impossible) for one in found] == [
        (
            ("affinity",),
            "must run next to pods with app=web in the same rack, but no node has the label rack",
            True,
        ),
        (("topology-spread",), "spreads over rack, a label that no node has", True),
    ]


def test_spread_that_would_be_too_uneven():
    spread = PodConstraints(spread=(TopologySpreadConstraint(HOST, WEB, 1),))
    nodes = [a_node("n1"), a_node("n2", cpu=100, memory=0)]
    pods = [make_shop_pod(name, cpu=200, constraints=spread) for name in ("a", "b")]
    blocked, words, impossible = only(explained(nodes, *pods))
    assert (blocked, impossible) == (("topology-spread",), False)
    assert words == f"the one node with no other obstacle, n1, would make it too uneven over {HOST}"


def test_host_ports_that_are_taken():
    web = PodConstraints(host_ports=(HostPort("TCP", 80),))
    bare = make_shop_pod("bare", "n1", cpu=100, owner_kind=None, workload=None, constraints=web)
    found = explained([a_node("n1")], bare, make_shop_pod("late", cpu=100, constraints=web))
    assert only(found) == (("host-ports",), "the only node, n1, has its host port taken", True)


def test_claims_that_are_missing_unbound_or_elsewhere():
    elsewhere = (NodeSelectorTerm((LabelRequirement("zone", SelectorOperator.IN, ("z9",)),)),)
    claims = {
        ("shop", "lost"): PersistentVolumeClaim("shop", "lost", bound=False),
        ("shop", "far"): PersistentVolumeClaim("shop", "far", terms=elsewhere),
    }
    pods = [make_shop_pod(name, constraints=PodConstraints(claims=(name,))) for name in ("far", "lost", "missing")]
    found = explained([a_node("n1")], *pods, storage_and_namespaces=StorageAndNamespaces(claims))
    assert [(one.blocked_by, describe_unplaced_pod(one), one.impossible) for one in found] == [
        (("volume",), "its volume cannot be used on any node", True),
        (("volume",), "its claim lost is not bound", True),
        (("volume",), "its claim missing is not known", True),
    ]


def test_volumes_beyond_what_a_node_attaches():
    claims = {("shop", name): PersistentVolumeClaim("shop", name, driver="csi", volume=name) for name in ("a", "b")}
    pods = [make_shop_pod(name, cpu=100, constraints=PodConstraints(claims=(name,))) for name in ("a", "b")]
    found = explained([a_node("n1")], *pods, storage_and_namespaces=StorageAndNamespaces(claims, {"n1": {"csi": 1}}))
    assert only(found)[0] == ("attach-limit",)


def test_lower_priority_that_a_budget_protects():
    budget = PodDisruptionBudget("shop", "web", WEB, 0)
    found = explained(
        [a_node("n1")], make_shop_pod("low", "n1", cpu=800), make_shop_pod("high", priority=9), budgets=(budget,)
    )
    blocked, words, impossible = only(found)
    # It may allow an eviction again.
    assert (blocked, impossible) == (("disruption-budget",), False)
    assert "which a PodDisruptionBudget protects" in words


def test_a_pod_that_never_preempts():
    found = explained(
        [a_node("n1")], make_shop_pod("low", "n1", cpu=800), make_shop_pod("high", priority=9, may_preempt=False)
    )
    blocked, words, impossible = only(found)
    assert (blocked, impossible) == (("preemption-policy",), False)
    assert "which its preemptionPolicy forbids it to preempt" in words


def test_gates_and_a_cluster_without_nodes():
    words = "cruise cannot evaluate where it may run: scheduling gates"
    gated = explained([a_node("n1")], make_shop_pod("gated", scheduling_gated=True))
    assert only(gated) == (("not-judged: scheduling gates",), words, False)
    assert only(explained([], make_shop_pod("late"))) == (("no-nodes",), "the cluster has no nodes", True)


def test_nothing_pending_needs_no_words():
    assert explained([a_node("n1")], make_shop_pod("there", "n1"), make_shop_pod("fits")) == ()
