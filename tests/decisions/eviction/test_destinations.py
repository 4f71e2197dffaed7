"""Destinations of replacements: kube-scheduler's rules, free capacity, and earlier reservations."""

from dataclasses import replace

import pytest

from cruise.decisions.eviction.destinations import PodPredictor, ReplacementDestinations, SpareCapacity
from cruise.domain.autoscalers import NodeAutoscalerKind
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.resources import Resources
from cruise.domain.scheduling import (
    OVERLOADED_TAINT,
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
from tests.builders import make_container, make_node, make_pod, make_resources, make_snapshot

HOSTNAME = "kubernetes.io/hostname"
WEB = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("web",)),))
PORT = PodConstraints(host_ports=(HostPort("TCP", 80),))
APART = PodConstraints(anti_affinity=(PodAffinityTerm(HOSTNAME, WEB, frozenset({"shop"})),))
SPREAD = PodConstraints(spread=(TopologySpreadConstraint("zone", WEB, 1),))
# Of a node whose own pod would not fit again once it has terminated.
OVER_REQUESTED = make_resources(-1, 0)
PINNED = NodeSelectorTerm((LabelRequirement(HOSTNAME, SelectorOperator.IN, ("n1",)),))


def created_anew(pod: Pod) -> Pod:
    return replace(pod, node=None, phase="Pending")


def web(name: str, node: str | None = "n1", **fields) -> Pod:
    return make_pod(name, node=node, labels={"app": "web"}, **fields)


def named(name: str, zone: str = "a", **fields) -> Node:
    return make_node(name, labels={HOSTNAME: name, "zone": zone}, **fields)


def destinations(
    snapshot: ClusterSnapshot, room: Resources | None = None, own: Resources | None = None
) -> ReplacementDestinations:
    """Nodes with capacity for one more pod of 100 m and 128 MiB, or `room`; the first one has `own`."""
    one, first = room or make_resources(100, 128), own or make_resources(0, 0)
    spare = {node.name: SpareCapacity(one, one) for node in snapshot.nodes[1:]}
    return ReplacementDestinations(
        snapshot, PodPredictor(created_anew), {snapshot.nodes[0].name: SpareCapacity(first, first), **spare}
    )


def test_each_destination_is_reserved_once_and_released_by_an_undone_eviction():
    pods = [web("a"), web("b"), web("c")]
    found = destinations(make_snapshot(pods, [named("n1"), named("n2"), named("n3")]))
    assert [found.evict(pod) for pod in pods] == [True, True, False]
    found.undo_eviction(pods[0])
    assert found.evict(pods[2])
    assert not found.evict(pods[0])


@pytest.mark.parametrize(
    ("own", "other", "change", "is_destination"),
    [
        # kube-scheduler would choose the same node again: it is the freest, or as free as the other.
        (200, 150, {}, False),
        (150, 150, {}, False),
        (150, 200, {}, True),
        # The replacement does not fit there, whatever the other nodes have.
        (99, 100, {}, True),
        (0, 100, {}, True),
        # It is not scheduled there.
        (200, 150, {"unschedulable": True}, True),
        (200, 150, {"taints": (OVERLOADED_TAINT,)}, True),
    ],
)
def test_no_pod_is_evicted_whose_replacement_returns_to_its_node(own, other, change, is_destination):
    snapshot = make_snapshot([web("a")], [replace(named("n1"), **change), named("n2")])
    spare = {name: SpareCapacity(one, one) for name, one in (("n1", free(own)), ("n2", free(other)))}
    found = ReplacementDestinations(snapshot, PodPredictor(created_anew), spare)
    assert found.evict(web("a")) is is_destination
    # Capacity that pods do not leave to others is free for kube-scheduler.
    spare["n1"] = SpareCapacity(free(own), free(0))
    assert ReplacementDestinations(snapshot, PodPredictor(created_anew), spare).evict(web("a")) is is_destination


@pytest.mark.parametrize(
    ("own", "other", "change", "is_destination"),
    [
        # It fits on no node while the pod terminates, and then on the same one, before a node is added.
        (0, 0, {}, False),
        (99, 99, {}, False),
        (-1, 0, {}, True),
        # kube-scheduler places it on the other node at once, although that node's pods need the capacity.
        (0, 100, {}, True),
        (0, 0, {"unschedulable": True}, True),
        (0, 0, {"taints": (OVERLOADED_TAINT,)}, True),
    ],
)
def test_no_node_is_added_for_a_replacement_that_fits_once_its_pod_has_terminated(own, other, change, is_destination):
    nodes = [replace(named("n1"), **change), named("n2"), named("n3", allocatable_pods=0)]
    snapshot = make_snapshot([web("a"), web("b")], nodes, node_autoscaler=NodeAutoscalerKind.KARPENTER)
    spare = {name: SpareCapacity(free(cpu), free(0)) for name, cpu in (("n1", own), ("n2", other), ("n3", 4000))}
    found = ReplacementDestinations(snapshot, PodPredictor(created_anew), spare)
    assert found.evict(web("a")) is is_destination
    # What other pods free is theirs again if a budget keeps them.
    assert found.evict(web("b")) is is_destination


def test_terminating_pods_count_while_replacements_are_scheduled():
    pods = [web(name) for name in "abc"]
    snapshot = make_snapshot(pods, [named("n1"), named("n2")])
    spare = {"n1": SpareCapacity(free(50), free(0)), "n2": SpareCapacity(free(300), free(300))}
    found = ReplacementDestinations(snapshot, PodPredictor(created_anew), spare)
    assert [found.evict(pod) for pod in pods] == [True, True, True]
    for pod in pods:
        found.undo_eviction(pod)
    assert [found.evict(pod) for pod in pods] == [True, True, True]


def free(cpu: int) -> Resources:
    return make_resources(cpu, 1024)


@pytest.mark.parametrize("autoscales", [False, True])
def test_a_virtual_node_is_no_destination(autoscales):
    virtual = make_node("vk", labels={HOSTNAME: "vk", "type": "virtual-kubelet"})
    small = replace(make_node("n1", labels={HOSTNAME: "n1"}), allocatable=make_resources(50, 64))
    autoscaler = NodeAutoscalerKind.KARPENTER if autoscales else None
    assert not destinations(make_snapshot([web("a")], [small, virtual], node_autoscaler=autoscaler)).evict(web("a"))


@pytest.mark.parametrize("key", ["kubernetes.io/os", "kubernetes.io/arch"])
@pytest.mark.parametrize(
    ("source", "target", "states_label", "is_destination"),
    [
        ("linux", "windows", False, False),
        ("linux", "linux", False, True),
        ("linux", None, False, True),
        (None, "windows", False, True),
        ("amd64", "arm64", True, True),
    ],
)
@pytest.mark.parametrize("autoscales", [False, True])
def test_an_image_is_not_moved_to_another_platform_unless_the_pod_states_it(
    key, source, target, states_label, is_destination, autoscales
):
    def on(name: str, value: str | None) -> Node:
        return make_node(name, labels={HOSTNAME: name} | ({key: value} if value else {}))

    both = NodeSelectorTerm((LabelRequirement(key, SelectorOperator.IN, ("amd64", "arm64")),))
    pod = web("a", placement=SchedulingConstraints(terms=(both,) if states_label else None))
    # The present node could be added again, but does not hold the pod's replacement.
    nodes = [replace(on("n1", source), allocatable=make_resources(50, 64)), on("n2", target)]
    autoscaler = NodeAutoscalerKind.KARPENTER if autoscales else None
    room = make_resources(0, 0) if autoscales else None
    assert destinations(make_snapshot([pod], nodes, node_autoscaler=autoscaler), room).evict(pod) is is_destination


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({}, {"unschedulable": True}),
        ({}, {"ready": False}),
        ({}, {"deleting": True}),
        ({}, {"taints": (Taint("gpu", "", TaintEffect.NO_SCHEDULE),)}),
        ({}, {"allocatable_pods": 1}),
        ({"placement": SchedulingConstraints(node_selector=((HOSTNAME, "n1"),))}, {}),
        ({"constraints": PORT}, {}),
        ({"constraints": APART}, {}),
        ({"constraints": SPREAD}, {"labels": {HOSTNAME: "n2", "zone": "b"}}),
        ({"constraints": PodConstraints(claims=("data",))}, {}),
    ],
)
def test_a_node_that_kube_scheduler_rejects_is_no_destination(fields, change):
    there = web("there", "n2", constraints=PORT)
    going = web("going", **fields)
    claim = PersistentVolumeClaim("shop", "data", terms=(PINNED,))
    surroundings = StorageAndNamespaces(claims={("shop", "data"): claim})
    # A zone with one of these pods, and one without.
    nodes = [named("n1"), replace(named("n2"), **change)]
    snapshot = replace(make_snapshot([going, there], nodes), storage_and_namespaces=surroundings)
    more = [web("more", "n2")] if fields.get("constraints") is SPREAD else []
    snapshot = replace(snapshot, pods=(*snapshot.pods, *more))
    assert not destinations(snapshot).evict(going)
    assert destinations(make_snapshot([web("going")], [named("n1"), named("n2")])).evict(web("going"))


def test_free_and_unneeded_capacity_both_count():
    pod = web("a")
    snapshot = make_snapshot([pod], [named("n1"), named("n2")])
    for free, unneeded, found in (
        (make_resources(100, 128), make_resources(100, 128), True),
        (make_resources(99, 128), make_resources(100, 128), False),
        (make_resources(100, 128), make_resources(100, 127), False),
    ):
        assert (
            ReplacementDestinations(snapshot, PodPredictor(created_anew), {"n2": SpareCapacity(free, unneeded)}).evict(
                pod
            )
            is found
        )


def test_pending_pods_are_placed_first_by_priority():
    pod, waits = web("a"), web("waits", None)
    snapshot = make_snapshot([pod, waits], [named("n1"), named("n2")])
    assert not destinations(snapshot).evict(pod)
    gated = replace(waits, scheduling_gated=True)
    assert destinations(make_snapshot([pod, gated], [named("n1"), named("n2")])).evict(pod)
    too_large = replace(waits, containers=(make_container(cpu=101),))
    assert destinations(make_snapshot([pod, too_large], [named("n1"), named("n2")])).evict(pod)


def test_its_own_node_is_no_destination():
    # By its pods' bases n1 has capacity; kube-scheduler would schedule the replacement there again.
    pod, room = web("a"), make_resources(200, 256)
    snapshot = make_snapshot([pod], [named("n1"), named("n2")])
    for node, found in (("n1", False), ("n2", True)):
        assert (
            ReplacementDestinations(snapshot, PodPredictor(created_anew), {node: SpareCapacity(room, room)}).evict(pod)
            is found
        )
    # For a replica on another node it is a destination.
    sibling = web("b", "n2", placement=pod.placement, constraints=pod.constraints)
    snapshot = make_snapshot([pod, sibling], snapshot.nodes)
    places = ReplacementDestinations(snapshot, PodPredictor(created_anew), {"n1": SpareCapacity(room, room)})
    assert [places.evict(one) for one in (pod, sibling)] == [False, True]


@pytest.mark.parametrize(
    ("small", "at_most", "found"), [(100, 100, False), (90, 90, False), (300, 400, False), (300, 200, True)]
)
def test_pending_pods_count_with_their_shrunk_size(small, at_most, found):
    # 100 m are free, and `at_most` once others have shrunk. No node has 1,000 m now.
    pod, waits = web("a"), web("waits", None, containers=[make_container(cpu=1000)])
    snapshot = make_snapshot([pod, waits], [named("n1"), named("n2")])
    prospects = PodPredictor(created_anew, lambda one: replace(one, containers=(make_container(cpu=small),)))
    one = make_resources(100, 128)
    assert (
        ReplacementDestinations(
            snapshot, prospects, {"n2": SpareCapacity(one, one, make_resources(at_most, 512))}
        ).evict(pod)
        is found
    )


def test_a_node_that_shrinks_for_a_pending_pod_is_no_destination():
    # The pending pod needs 400 m and finds 100 m; once others have shrunk, n2 has 500 m, of which 100 m remain.
    pod, waits = web("a"), web("waits", None, containers=[make_container(cpu=400)])
    one = make_resources(100, 128)
    for at_most, placement, found in (
        (make_resources(500, 512), SchedulingConstraints(), False),
        (make_resources(399, 512), SchedulingConstraints(), True),
        (make_resources(500, 512), SchedulingConstraints(node_selector=(("zone", "b"),)), True),
    ):
        snapshot = make_snapshot([pod, replace(waits, placement=placement)], [named("n1"), named("n2")])
        assert (
            ReplacementDestinations(
                snapshot, PodPredictor(created_anew), {"n2": SpareCapacity(one, one, at_most)}
            ).evict(pod)
            is found
        )


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, True),
        ({"placement": SchedulingConstraints(node_selector=((HOSTNAME, "n1"),))}, False),
        ({"placement": SchedulingConstraints(terms=(PINNED,))}, False),
        ({"placement": SchedulingConstraints(node_selector=(("zone", "a"),))}, True),
        # No present node is in that zone, so none is assumed to be available.
        ({"placement": SchedulingConstraints(node_selector=(("zone", "b"),))}, False),
        ({"constraints": PodConstraints(claims=("data",))}, False),
        ({"constraints": PodConstraints(claims=("unknown",))}, False),
    ],
)
def test_an_added_node_takes_all_pods_but_those_bound_to_a_node_by_name(fields, found):
    pod = web("a", **fields)
    claims = {("shop", "data"): PersistentVolumeClaim("shop", "data", terms=(PINNED,))}
    snapshot = replace(
        make_snapshot([pod], [named("n1")]),
        storage_and_namespaces=StorageAndNamespaces(claims=claims),
        node_autoscaler=NodeAutoscalerKind.CLUSTER_AUTOSCALER,
    )
    assert destinations(snapshot, own=OVER_REQUESTED).evict(pod) is found


@pytest.mark.parametrize(("key", "found"), [("gpu", False), ("node.kubernetes.io/not-ready", True)])
def test_an_added_node_has_the_permanent_taints(key, found):
    pod = web("a")
    nodes = [named("n1", taints=(Taint(key, "", TaintEffect.NO_SCHEDULE),))]
    snapshot = replace(make_snapshot([pod], nodes), node_autoscaler=NodeAutoscalerKind.KARPENTER)
    assert destinations(snapshot, own=OVER_REQUESTED).evict(pod) is found


GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("free", [0, 1])
def test_a_replacement_needs_a_free_device_and_not_only_capacity(free):
    going, other = web("web-1", extended_requests=((GPU, 1),)), web("web-2", node="n2", extended_requests=((GPU, 1),))
    offered = [named(name, allocatable_extended={GPU: count}) for name, count in (("n1", 1), ("n2", 1 + free))]
    assert destinations(make_snapshot([going, other], offered)).evict(going) is bool(free)


@pytest.mark.parametrize("devices", [{}, {GPU: 1}])
def test_an_added_node_has_the_devices_of_the_present_ones(devices):
    pod = web("web-1", extended_requests=((GPU, 1),))
    nodes = [named("n1", allocatable_extended=devices)]
    snapshot = replace(make_snapshot([pod], nodes), node_autoscaler=NodeAutoscalerKind.KARPENTER)
    assert destinations(snapshot, own=OVER_REQUESTED).evict(pod) is bool(devices)


def test_a_pod_whose_replacement_would_be_rejected_is_not_evicted():
    pod = web("a")
    snapshot = make_snapshot([pod], [named("n1"), named("n2")])
    room = SpareCapacity(make_resources(100, 128), make_resources(100, 128))
    assert not ReplacementDestinations(snapshot, PodPredictor(lambda _: None), {"n2": room}).evict(pod)


def test_a_nominated_pod_keeps_its_node_its_ports_and_its_rules():
    nodes = [named("n1"), named("n2"), named("n3")]
    first = replace(web("first", None, constraints=PORT), phase="Pending", nominated_node="n2", priority=1)
    assert destinations(make_snapshot([web("a", constraints=PORT), first], nodes[:2])).evict(web("a")) is False
    roomy = make_resources(300, 512)
    for constraints in (PORT, APART):
        going = web("a", constraints=constraints)
        other = replace(first, constraints=constraints)
        found = destinations(make_snapshot([going, other], nodes), roomy)
        assert (found.evict(going), list(found.get_reserved_capacity())) == (True, ["n3"])


@pytest.mark.parametrize(
    "fields",
    [
        {"scheduler": "volcano"},
        {"pod_group": "train"},
        {"constraints": PodConstraints(unsupported_constraints=("device gpu",))},
    ],
)
@pytest.mark.parametrize("autoscaler", [None, NodeAutoscalerKind.KARPENTER])
def test_a_replacement_with_unsupported_constraints_has_no_destination(fields, autoscaler):
    going = web("a", **fields)
    snapshot = replace(make_snapshot([going], [named("n1"), named("n2")]), node_autoscaler=autoscaler)
    assert not destinations(snapshot).evict(going)
