"""Three kinds of random clusters: many small pods, sizes in powers of two, and a few huge pods."""

from collections.abc import Mapping
from dataclasses import replace

from numpy.random import Generator

from cruise.domain.annotations import HOSTNAME
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Container, ContainerRole, Node
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE, Resources, StatedResources
from tests.laws.random_clusters import (
    GIBIBYTE,
    DrawnCluster,
    DrawnUse,
    DrawnWorkload,
    Generate,
    autoscalers_for,
    autoscaling,
    budgets_for,
    container,
    draw_bool,
    draw_choice,
    quotas_for,
    vertical_autoscalers_for,
    workload,
)


def log_normal(draw: Generator) -> DrawnCluster:
    """Many different small pods of one kind on equal nodes, 60 to 120 % full."""
    node = Resources(8000, 32 * GIBIBYTE)
    nodes = [_node(number, node) for number in range(int(draw.integers(2, 5)))]
    wanted = draw.uniform(0.6, 1.2) * len(nodes)
    workloads: list[DrawnWorkload] = []
    full = 0.0
    while full < wanted and len(workloads) < 14:
        cpu, memory = draw.lognormal(6, 0.9), draw.lognormal(20.6, 0.9)
        spike = draw.lognormal(0.4, 0.4, size=2).clip(1, 5)
        use = DrawnUse(
            round(cpu),
            round(cpu * spike[0]),
            round(memory),
            round(memory * spike[1]),
            round(memory * spike[1] * draw.uniform(1, 1.5)),
        )
        replicas = int(draw.integers(1, 5))
        one = container(
            use, float(draw.lognormal(0, 0.5)), limit=draw_choice(draw, ("none", "memory", "memory", "both"))
        )
        workloads.append(
            workload(draw, len(workloads), [one], {"app": use}, replicas=replicas, spread=draw_choice(draw, (0.0, 0.2)))
        )
        full += replicas * max(cpu / node.cpu_millicores, memory / node.memory_bytes)
    return DrawnCluster(
        nodes,
        workloads,
        budgets_for(draw, workloads, 0.3),
        autoscalers_for(draw, workloads, 0.1),
        vertical_autoscalers_for(draw, workloads, 0.1),
        quotas=quotas_for(draw, workloads, 0.2),
        node_autoscaling=autoscaling(draw, nodes) if draw_bool(draw, 0.3) else None,
        namespace_annotations=_of_namespaces(draw),
    )


def powers_of_two(draw: Generator) -> DrawnCluster:
    """Sizes that fill nodes to the last byte, several containers, LimitRanges, nodes of different sizes."""
    nodes = [
        _node(number, Resources(2 ** int(draw.integers(10, 14)), 2 ** int(draw.integers(30, 34))))
        for number in range(int(draw.integers(1, 5)))
    ]
    whole = sum((node.allocatable for node in nodes), Resources())
    workloads: list[DrawnWorkload] = []
    cpu = memory = 0
    share = draw.uniform(0.6, 1.2)
    while max(cpu / whole.cpu_millicores, memory / whole.memory_bytes) < share and len(workloads) < 14:
        uses = {"app": _power(draw)}
        containers = [container(uses["app"], 2.0 ** int(draw.integers(-2, 2)), limit=_limit(draw))]
        if draw_bool(draw, 0.2):
            uses["proxy"] = _power(draw)
            sidecar = container(uses["proxy"], 1.0, name="proxy", limit=_limit(draw))
            containers.insert(0, replace(sidecar, role=ContainerRole.SIDECAR))
        if draw_bool(draw, 0.1):
            floor = StatedResources(2 ** int(draw.integers(4, 11)), 2 ** int(draw.integers(24, 31)))
            containers.insert(0, Container("init", ContainerRole.INIT, floor))
        replicas = 2 ** int(draw.integers(0, 3))
        workloads.append(workload(draw, len(workloads), containers, uses, replicas=replicas))
        cpu += replicas * sum(use.cpu_base for use in uses.values())
        memory += replicas * sum(use.memory_base for use in uses.values())
    return DrawnCluster(
        nodes,
        workloads,
        budgets_for(draw, workloads, 0.3),
        autoscalers_for(draw, workloads, 0.1),
        vertical_autoscalers_for(draw, workloads, 0.1),
        limit_ranges=_limit_ranges(draw) if draw_bool(draw, 0.2) else {},
        quotas=quotas_for(draw, workloads, 0.2),
        policy=Policy(mode=Mode.FULL, max_evictions_per_node=2 ** int(draw.integers(0, 3))),
    )


def few_huge(draw: Generator) -> DrawnCluster:
    """Pods from a tenth of a node to more than a whole one, on one to three nodes, with different priorities."""
    node = Resources(16_000, 64 * GIBIBYTE)
    nodes = [_node(number, node) for number in range(int(draw.integers(1, 4)))]
    workloads = []
    for number in range(int(draw.integers(2, 4 * len(nodes) + 1))):
        cpu, memory = draw.uniform(0.1, 1.1, size=2) * (node.cpu_millicores, node.memory_bytes) * draw.uniform(0.3, 1)
        spike = draw.uniform(1, 1.5, size=2)
        use = DrawnUse(
            round(cpu), round(cpu * spike[0]), round(memory), round(memory * spike[1]), round(memory * spike[1] * 1.2)
        )
        one = container(use, float(draw.uniform(0.2, 1.2)), limit=_limit(draw))
        workloads.append(
            workload(
                draw,
                number,
                [one],
                {"app": use},
                replicas=draw_choice(draw, (1, 1, 1, 2)),
                priorities=(0, 1, 1000, 2000),
            )
        )
    return DrawnCluster(
        nodes,
        workloads,
        budgets_for(draw, workloads, 0.2),
        vertical_autoscalers=vertical_autoscalers_for(draw, workloads, 0.1),
        quotas=quotas_for(draw, workloads, 0.1),
        node_autoscaling=autoscaling(draw, nodes) if draw_bool(draw, 0.5) else None,
        namespace_annotations=_of_namespaces(draw),
    )


GENERATORS: Mapping[str, Generate] = {
    "log-normal": log_normal,
    "powers of two": powers_of_two,
    "few huge": few_huge,
}


def _node(number: int, size: Resources) -> Node:
    name = f"n{number}"
    return Node(name, size, labels={HOSTNAME: name}, kubelet_version=(1, 34))


def _power(draw: Generator) -> DrawnUse:
    cpu, memory = 2 ** int(draw.integers(3, 12)), 2 ** int(draw.integers(24, 32))
    more = 2 ** draw.integers(0, 3, size=3)
    return DrawnUse(cpu, cpu * int(more[0]), memory, memory * int(more[1]), memory * int(more[1]) * int(more[2]))


def _limit(draw: Generator) -> str:
    return draw_choice(draw, ("none", "memory", "memory", "both", "equal"))


def _limit_ranges(draw: Generator) -> dict[str, tuple[LimitRangeItem, ...]]:
    item = draw_choice(
        draw,
        (
            LimitRangeItem(False, minimum=StatedResources(8, 8 * MEBIBYTE)),
            LimitRangeItem(False, maximum=StatedResources(4096, 16 * GIBIBYTE)),
            LimitRangeItem(False, maximum=StatedResources(None, 16 * GIBIBYTE), max_memory_ratio=4.0),
        ),
    )
    return {"shop": (item,)}


def _of_namespaces(draw: Generator) -> dict[str, dict[str, str]]:
    return draw_choice(
        draw, ({}, {}, {}, {"tools": {"cruise.io/eviction-ranking": "high"}}, {"bank": {"cruise.io/mode": "resize"}})
    )
