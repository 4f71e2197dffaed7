"""Pods as created by their controllers."""

import uuid
from dataclasses import replace

import pytest

from cruise.domain.cluster import ContainerRole, QosClass, WorkloadRef
from cruise.domain.scheduling import LabelRequirement, NodeSelectorTerm, SchedulingConstraints, SelectorOperator
from cruise.simulation.cluster.workloads import SimulatedWorkload, create_pod, is_daemonset_node
from tests.simulation.scenes import NAMESPACE, START, amounts, container, node, template, workload


@pytest.mark.parametrize(
    ("kind", "owner_kind", "parts"),
    [
        ("Deployment", "ReplicaSet", 3),
        ("StatefulSet", "StatefulSet", 2),
        ("DaemonSet", "DaemonSet", 2),
        ("Job", "Job", 2),
        ("CronJob", "Job", 3),
    ],
)
def test_name_owner_and_uid(kind: str, owner_kind: str, parts: int) -> None:
    pod = create_pod(workload(kind=kind), 7, 0, 1, START, None)
    assert pod.owner_kind == owner_kind
    assert pod.workload == WorkloadRef(kind, "web")
    assert len(pod.name.split("-")) == parts
    assert pod.name.startswith(f"{pod.owner_name}-")
    assert str(uuid.UUID(pod.uid)) == pod.uid
    again = create_pod(workload(kind=kind), 7, 1, 1, START, None)
    assert again.uid != pod.uid
    assert (again.name == pod.name) == (kind == "StatefulSet")


def test_pod_starts_without_status_and_with_its_class() -> None:
    used = replace(container(100, 100, amounts(100, 100)), allocated=amounts(1, 1), restart_count=4)
    pod = create_pod(workload(pod=template(used, phase="Failed", node="n9")), 0, 0, 1, START, None)
    (one,) = pod.containers
    assert (one.allocated, one.restart_count) == (None, 0)
    assert (pod.phase, pod.node, pod.qos, pod.created_at) == ("Pending", None, QosClass.GUARANTEED, START)
    assert pod.namespace == NAMESPACE
    assert pod.labels == {"app": "web"}


def test_daemon_pod_is_pinned_to_its_node_in_every_term() -> None:
    zone, disk = (LabelRequirement(key, SelectorOperator.EXISTS) for key in ("zone", "disk"))
    terms = (NodeSelectorTerm((zone,)), NodeSelectorTerm((disk,)))
    pod = create_pod(
        workload(kind="DaemonSet", pod=template(placement=SchedulingConstraints(terms=terms))),
        0,
        0,
        1,
        START,
        node("n1"),
    )
    assert pod.identity == "n1"
    assert pod.placement.allows_node("n1", {"disk": "ssd"})
    assert not pod.placement.allows_node("n1", {})
    assert not pod.placement.allows_node("n2", {"disk": "ssd"})


def test_daemons_run_where_selector_and_taints_let_them() -> None:
    daemon = workload(kind="DaemonSet", pod=template(placement=SchedulingConstraints((("os", "linux"),))))
    assert is_daemonset_node(daemon, node(labels={"os": "linux"}))
    assert is_daemonset_node(daemon, node(labels={"os": "linux"}, unschedulable=True))
    assert not is_daemonset_node(daemon, node())


def test_bare_pod_keeps_its_name_and_is_no_controller() -> None:
    bare = SimulatedWorkload(NAMESPACE, None, template(name="alone"))
    pod = create_pod(bare, 0, 0, 1, START, None)
    assert (pod.name, pod.workload, pod.owner_kind) == ("alone", None, None)
    assert bare.to_workload(START) is None
    assert bare.kind == "Pod"


def test_template_roles_stay() -> None:
    pod = template(container(name="proxy", role=ContainerRole.SIDECAR), container())
    assert [one.role for one in create_pod(workload(pod=pod), 0, 0, 1, START, None).containers] == [
        ContainerRole.SIDECAR,
        ContainerRole.MAIN,
    ]
