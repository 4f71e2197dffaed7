"""The filters for a single node: state, capacity, ports and volumes."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cruise.decisions.scheduling.filters import (
    check_attach_limits,
    check_host_ports,
    check_node,
    check_resources,
    check_volumes,
)
from cruise.decisions.scheduling.placements import PodPlacements
from cruise.domain.cluster import Node, Pod
from cruise.domain.resources import Resources
from cruise.domain.scheduling import (
    HostPort,
    LabelRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaim,
    PodConstraints,
    SchedulingConstraints,
    SelectorOperator,
    StorageAndNamespaces,
    Taint,
    TaintEffect,
    Toleration,
)
from tests.builders import make_container, make_node, make_pod, make_snapshot

GPU, DRIVER = "nvidia.com/gpu", "disk.csi.example"
SSD = NodeSelectorTerm((LabelRequirement("disk", SelectorOperator.IN, ("ssd",)),))


def board_of(node: Node, pods: Iterable[Pod] = (), surroundings: StorageAndNamespaces | None = None) -> PodPlacements:
    snapshot = make_snapshot(pods, [node])
    return PodPlacements(replace(snapshot, storage_and_namespaces=surroundings or StorageAndNamespaces()))


def pending(cpu: int | None = 100, memory_mib: int | None = 128, **more: object) -> Pod:
    containers = (make_container("app", cpu, memory_mib, settled=False),)
    return make_pod("new", node=None, containers=containers, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "placement", "refusals"),
    [
        ({}, SchedulingConstraints(), []),
        ({"ready": False}, SchedulingConstraints(), ["is not ready"]),
        ({"unschedulable": True}, SchedulingConstraints(), ["is cordoned"]),
        ({"unschedulable": True}, SchedulingConstraints(tolerations=(Toleration(exists=True),)), []),
        ({"labels": {"disk": "ssd"}}, SchedulingConstraints((("disk", "ssd"),)), []),
        (
            {"labels": {"disk": "hdd"}},
            SchedulingConstraints((("disk", "ssd"),)),
            ["is not among those of its node selector"],
        ),
        ({}, SchedulingConstraints(terms=(SSD,)), ["is not among those of its node selector"]),
        ({"taints": (Taint("a", "b", TaintEffect.NO_SCHEDULE),)}, SchedulingConstraints(), ["has a taint"]),
        ({"taints": (Taint("a", "b", TaintEffect.PREFER_NO_SCHEDULE),)}, SchedulingConstraints(), []),
        (
            {"taints": (Taint("a", "b", TaintEffect.NO_EXECUTE),)},
            SchedulingConstraints(tolerations=(Toleration("a", True),)),
            [],
        ),
    ],
)
def test_a_node_and_what_the_pod_asks_of_it(changes, placement, refusals):
    node = make_node(**changes)
    found = list(check_node(board_of(node), pending(placement=placement), node))
    assert len(found) == len(refusals)
    assert all(said.startswith(begins) for said, begins in zip(found, refusals, strict=True))


@pytest.mark.parametrize(
    ("pod", "changes", "refusals"),
    [
        (pending(200, 256), {}, []),
        (pending(201, 256), {}, ["lacks cpu: 800 m used, 201 m more, of 1000 m"]),
        (pending(200, 257), {}, ["lacks memory: 805306368 bytes used, 269484032 more, of 1073741824"]),
        (pending(200, 256), {"allocatable_pods": 1}, ["holds 1 pods of 1"]),
        (pending(extended_requests=((GPU, 1),)), {"allocatable_extended": {GPU: 2}}, []),
        (
            pending(extended_requests=((GPU, 2),)),
            {"allocatable_extended": {GPU: 2}},
            [f"lacks {GPU}: 1 used, 2 more, of 2"],
        ),
        (pending(extended_requests=(("other", 1),)), {}, ["lacks other: 0 used, 1 more, of 0"]),
    ],
)
def test_free_capacity_of_a_nearly_full_node(pod, changes, refusals):
    node = make_node(cpu=1000, memory_mib=1024, **changes)
    here = make_pod("old", containers=(make_container("app", 800, 768),), extended_requests=((GPU, 1),))
    assert list(check_resources(board_of(node, [here]), pod, node)) == refusals


def test_an_overcommitted_node_accepts_pods_that_request_nothing_of_the_short_resource():
    node = make_node(cpu=500, memory_mib=1024)
    board = board_of(node, [make_pod("old", containers=(make_container("app", 800, 100),))])
    assert list(check_resources(board, pending(None, 100), node)) == []
    assert list(check_resources(board, pending(1, 100), node)) == ["lacks cpu: 800 m used, 1 m more, of 500 m"]


def test_what_is_taken_is_what_kube_scheduler_counts():
    node = make_node(cpu=1000)
    shrinking = replace(make_container("app", 100, 100), allocated=make_container("app", 900, 100).requests)
    board = board_of(node, [make_pod("old", containers=(shrinking,), overhead=Resources(50, 0))])
    assert list(check_resources(board, pending(50), node)) == []
    assert list(check_resources(board, pending(51), node)) == ["lacks cpu: 950 m used, 51 m more, of 1000 m"]


@pytest.mark.parametrize(
    ("wanted", "taken", "collides"),
    [
        (HostPort("TCP", 80), HostPort("TCP", 80), True),
        (HostPort("TCP", 80), HostPort("UDP", 80), False),
        (HostPort("TCP", 80), HostPort("TCP", 81), False),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80), True),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80, "10.0.0.2"), False),
    ],
)
def test_host_ports(wanted, taken, collides):
    node = make_node()
    board = board_of(node, [make_pod("old", constraints=PodConstraints(host_ports=(taken,)))])
    found = list(check_host_ports(board, pending(constraints=PodConstraints(host_ports=(wanted,))), node))
    assert found == ([f"gives host port {taken.protocol}/80 to shop/old"] if collides else [])


@pytest.mark.parametrize(
    ("claim", "refusal"),
    [
        (PersistentVolumeClaim("shop", "data"), None),
        (PersistentVolumeClaim("shop", "other"), "cannot give claim data, which does not exist"),
        (PersistentVolumeClaim("shop", "data", bound=False), "cannot give claim data, which is not bound"),
        (PersistentVolumeClaim("shop", "data", bound=False, waits_for_first_consumer=True), None),
        (PersistentVolumeClaim("shop", "data", terms=(SSD,)), None),
        (
            PersistentVolumeClaim("shop", "data", terms=(NodeSelectorTerm(),)),
            "is out of reach for the volume of claim data",
        ),
        (PersistentVolumeClaim("shop", "data", single_pod=True), "cannot give claim data to a second pod"),
    ],
)
def test_volumes(claim, refusal):
    node = make_node(labels={"disk": "ssd"})
    using = PodConstraints(claims=("data",))
    surroundings = StorageAndNamespaces({(claim.namespace, claim.name): claim})
    board = board_of(node, [make_pod("old", constraints=using)], surroundings)
    found = list(check_volumes(board, pending(constraints=using), node))
    assert found == ([] if refusal is None else [refusal])


def test_a_claim_for_one_pod_is_free_again_once_the_pod_is_gone():
    node = make_node()
    using = PodConstraints(claims=("data",))
    surroundings = StorageAndNamespaces({("shop", "data"): PersistentVolumeClaim("shop", "data", single_pod=True)})
    board = board_of(node, [make_pod("old", constraints=using)], surroundings)
    board.remove(("shop", "old"))
    assert list(check_volumes(board, pending(constraints=using), node)) == []


@pytest.mark.parametrize(
    ("limit", "claims", "refused"),
    [
        (2, ("a", "b"), True),
        (3, ("a", "b"), False),
        (1, ("shared",), False),
        (0, ("free",), False),
        (1, ("twin",), True),
    ],
)
def test_a_volume_that_is_attached_already_counts_once(limit, claims, refused):
    node = make_node()
    found = {
        ("shop", name): PersistentVolumeClaim("shop", name, driver=DRIVER, volume=volume)
        for name, volume in {"a": "1", "b": "2", "shared": "3", "twin": "4"}.items()
    }
    surroundings = StorageAndNamespaces(
        found | {("shop", "free"): PersistentVolumeClaim("shop", "free")}, {node.name: {DRIVER: limit}}
    )
    board = board_of(node, [make_pod("old", constraints=PodConstraints(claims=("shared",)))], surroundings)
    said = list(check_attach_limits(board, pending(constraints=PodConstraints(claims=claims)), node))
    assert bool(said) == refused
    assert all(one.startswith(f"attaches at most {limit} volumes of {DRIVER}") for one in said)


def test_a_node_without_a_stated_limit_attaches_anything():
    node = make_node()
    surroundings = StorageAndNamespaces(
        {("shop", "a"): PersistentVolumeClaim("shop", "a", driver=DRIVER)}, {node.name: {"other": 0}}
    )
    board = board_of(node, (), surroundings)
    assert list(check_attach_limits(board, pending(constraints=PodConstraints(claims=("a",))), node)) == []
