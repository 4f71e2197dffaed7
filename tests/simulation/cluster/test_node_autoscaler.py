"""Nodes added for unschedulable pods, and removed when their pods fit elsewhere."""

from dataclasses import replace
from typing import Any

from cruise.domain.autoscalers import NodeAutoscalerKind
from cruise.domain.scheduling import LabelSelector
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec
from cruise.simulation.cluster.node_autoscaler import NodeAutoscalerSettings
from tests.simulation.scenes import (
    NAMESPACE,
    AdjustableDemand,
    amounts,
    cluster,
    container,
    node,
    pods,
    resize,
    run,
    template,
    workload,
)

KARPENTER = NodeAutoscalerSettings(
    NodeAutoscalerKind.KARPENTER, [node("small", 2000), node("large", 16000)], scale_down_delay_seconds=60
)


def world_of(cpu: int, replicas: int, *nodes: str, **fields: Any) -> SimulatedCluster:
    one = workload(replicas=replicas, pod=template(container(cpu, 100)), dial=AdjustableDemand(), grace_seconds=5)
    return cluster(one, [node(name) for name in nodes or ("n1",)], **{"node_autoscaling": KARPENTER, **fields})


async def names(world: SimulatedCluster) -> list[str]:
    return [one.name for one in (await world.snapshot()).nodes]


async def test_kind_is_shown() -> None:
    assert (await world_of(500, 1).snapshot()).node_autoscaler is NodeAutoscalerKind.KARPENTER
    assert (await world_of(500, 1, node_autoscaling=None).snapshot()).node_autoscaler is None


async def test_pod_without_a_node_gets_the_first_type_that_it_fits_on() -> None:
    world = world_of(3500, 2)
    run(world, 60)
    assert await names(world) == ["n1"]
    run(world, 20)
    assert await names(world) == ["n1", "scaled-0001"]
    assert {pod.node for pod in await pods(world)} == {"n1", "scaled-0001"}
    assert (await world.snapshot()).nodes[1].allocatable.cpu_millicores == 16000
    assert world.counts.nodes_added == 1


async def test_one_new_node_is_ordered_for_several_pods() -> None:
    world = world_of(3500, 4)
    run(world, 90)
    assert await names(world) == ["n1", "scaled-0001"]
    assert all(pod.phase == "Running" for pod in await pods(world))
    run(world, 10)
    assert all(pod.ready for pod in await pods(world))
    assert {figure.node: figure.used.cpu_millicores for figure in world.get_node_usage()} == {
        "n1": 100,
        "scaled-0001": 300,
    }


async def test_pod_larger_than_every_type_gets_none() -> None:
    world = world_of(17000, 1)
    run(world, 200)
    assert await names(world) == ["n1"]


async def test_the_least_requested_node_is_removed_once_its_pods_fit_elsewhere() -> None:
    world = world_of(1500, 3, "n1", "n2")
    run(world, 120)
    assert await names(world) == ["n1", "n2"]
    for pod in await pods(world):
        await world.perform(resize(pod, amounts(500)))
    run(world, 30)
    assert await names(world) == ["n1"]
    assert [pod.node for pod in await pods(world)] == ["n1"] * 3
    assert (world.counts.drained, world.counts.evictions, world.counts.nodes_removed) == (1, 0, 1)


async def test_no_node_is_drained_before_the_cluster_was_quiet_for_a_while() -> None:
    world = world_of(100, 2, "n1", "n2")
    run(world, 59)
    assert world.counts.drained == 0
    run(world, 60)
    assert len(await names(world)) == 1


async def test_cluster_autoscaler_leaves_nodes_alone_that_are_requested_to_more_than_a_share() -> None:
    half = replace(KARPENTER, kind=NodeAutoscalerKind.CLUSTER_AUTOSCALER, empty_share=0.5)
    world = world_of(1000, 5, "n1", "n2", "n3", node_autoscaling=half)
    run(world, 60)
    assert world.counts.drained == 1
    world = world_of(1100, 4, "n1", "n2", "n3", node_autoscaling=replace(half, empty_share=0.25))
    run(world, 300)
    assert world.counts.drained == 0


async def test_draining_waits_for_disruption_budgets() -> None:
    budget = DisruptionBudgetSpec(NAMESPACE, "web", LabelSelector(), min_available=3)
    one = workload(replicas=4, pod=template(container(400, 100)), grace_seconds=5, ready_seconds=20)
    world = cluster(one, [node("n1"), node("n2")], budgets=[budget], node_autoscaling=KARPENTER)
    run(world, 61)
    assert world.counts.drained == 1
    run(world, 120)
    assert world.counts.drained == 2
    assert len(await names(world)) == 1


async def test_pods_that_must_not_be_disrupted_keep_their_node() -> None:
    kept = template(container(100, 100), annotations={"karpenter.sh/do-not-disrupt": "true"})
    world = cluster(workload(replicas=2, pod=kept), [node("n1"), node("n2")], node_autoscaling=KARPENTER)
    run(world, 300)
    assert world.counts.drained == 0


async def test_daemon_pods_are_created_and_deleted_with_their_nodes() -> None:
    agent = workload("agent", template(container(100, 100)), kind="DaemonSet")
    web = workload(replicas=2, pod=template(container(3500, 100)))
    world = cluster([agent, web], [node("n1")], node_autoscaling=KARPENTER)
    run(world, 90)
    assert sorted(pod.identity for pod in await pods(world, "agent")) == ["n1", "scaled-0001"]
    for pod in await pods(world, "web"):
        await world.perform(resize(pod, amounts(200)))
    run(world, 200)
    assert len(await names(world)) == 1
    assert [pod.identity for pod in await pods(world, "agent")] == await names(world)
