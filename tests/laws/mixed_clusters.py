"""Random clusters with every kind of object that restricts a pass.

Sizes are the most frequent requests of the openb trace of a public GPU cluster, which has no usage. Most namespaces
have quotas or LimitRanges, half of the workloads budgets, autoscalers or annotations; many replicas are not ready.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from cruise.domain.annotations import HOSTNAME
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Container, ContainerRole, Node
from cruise.domain.policy import AdmissionSize, Mode, Policy
from cruise.domain.resources import MEBIBYTE, NOTHING_STATED, Resources, StatedResources
from cruise.simulation.cluster.api_server import ResourceQuotaSpec
from tests.laws.random_clusters import (
    NAMESPACES,
    DrawnCluster,
    DrawnUse,
    DrawnWorkload,
    autoscalers_for,
    autoscaling,
    budgets_for,
    container,
    draw_bool,
    draw_choice,
    vertical_autoscalers_for,
    workload,
)

# Millicores and MiB, and how many pods of the trace request them.
_REQUESTS = (
    (3152, 5600, 1592),
    (11300, 49152, 857),
    (8000, 30517, 649),
    (12500, 57344, 364),
    (32000, 49152, 284),
    (18708, 64512, 255),
    (9810, 41560, 195),
    (4000, 22888, 189),
    (4000, 15258, 182),
    (12000, 24576, 158),
    (4152, 10600, 152),
)
_SHARES = np.array([count for _, _, count in _REQUESTS]) / sum(count for _, _, count in _REQUESTS)
_KINDS = ("Deployment",) * 12 + ("StatefulSet",) * 4 + ("Job", "DaemonSet", "DaemonSet", "Pod")
_NODES = ((16_000, 122_880), (32_000, 131_072), (32_000, 262_144), (64_000, 262_144))


def draw_mixed_clusters(draw: Generator) -> DrawnCluster:
    """Return a random cluster."""
    nodes = [_node(draw, number) for number in range(int(draw.integers(2, 7)))]
    counting_limits = frozenset(one for one in NAMESPACES if draw_bool(draw, 0.4))
    workloads: list[DrawnWorkload] = []
    whole, used = sum(node.allocatable.memory_bytes for node in nodes), 0.0
    wanted = draw.uniform(0.3, 0.8) * whole
    while used < wanted and len(workloads) < 16:
        one = _workload(draw, len(workloads), counting_limits)
        workloads.append(one)
        used += one.workload.replicas * sum(use.memory_base for use in one.uses.values())
    return DrawnCluster(
        nodes,
        workloads,
        budgets_for(draw, workloads, 0.4),
        autoscalers_for(draw, workloads, 0.25),
        vertical_autoscalers_for(draw, workloads, 0.15),
        limit_ranges={one: (_limit_range(draw, one, workloads),) for one in NAMESPACES if draw_bool(draw, 0.5)},
        quotas=[_quota(draw, one, workloads, one in counting_limits) for one in NAMESPACES if draw_bool(draw, 0.6)],
        namespace_annotations={one: _annotation(draw) for one in NAMESPACES if draw_bool(draw, 0.25)},
        node_autoscaling=autoscaling(draw, nodes) if draw_bool(draw, 0.4) else None,
        policy=Policy(
            mode=Mode.FULL,
            headroom=draw_choice(draw, ("risk", "shared-max", "joint-peak")),
            admission_size=draw_choice(draw, (None, AdmissionSize.PEAK, AdmissionSize.NODE_PASS)),
            memory_limit_ceiling=draw_choice(draw, (1.0, 1.5, 2.0, 4.0)),
            max_evictions_per_node=int(draw.integers(1, 5)),
            max_evictions_per_workload=int(draw.integers(1, 4)),
        ),
    )


def _node(draw: Generator, number: int) -> Node:
    name, (cpu, memory) = f"n{number}", draw_choice(draw, _NODES)
    return Node(name, Resources(cpu, memory * MEBIBYTE), labels={HOSTNAME: name}, kubelet_version=(1, 34))


def _workload(draw: Generator, number: int, counting_limits: frozenset[str]) -> DrawnWorkload:
    uses = {"app": _use(draw, 1.0)}
    containers = [container(uses["app"], float(draw.lognormal(-0.3, 1.2)), limit="both")]
    if draw_bool(draw, 0.3):
        uses["mesh"] = _use(draw, 0.02)
        role = ContainerRole.SIDECAR if draw_bool(draw, 0.5) else ContainerRole.MAIN
        containers.insert(0, replace(container(uses["mesh"], 2.0, name="mesh", limit="both"), role=role))
    if draw_bool(draw, 0.2):
        floor = container(_use(draw, 1.0), 1.0, name="setup", limit="both")
        containers.insert(int(draw.integers(2)), replace(floor, role=ContainerRole.INIT))
    one = workload(
        draw,
        number,
        containers,
        uses,
        kinds=_KINDS,
        replicas=int(min(draw.zipf(2), 6)),
        priorities=(-1, 0, 0, 0, 1, 1000, 1_000_000),
        tenant_share=0.3,
        spread=0.3,
    )
    made = one.workload
    if made.namespace not in counting_limits:
        containers = [
            replace(of, limits=draw_choice(draw, (NOTHING_STATED, of.limits, of.limits))) for of in containers
        ]
    slots = frozenset(slot for slot in range(made.replicas) if draw_bool(draw, 0.05))
    return replace(
        one,
        workload=replace(
            made,
            template=replace(made.template, containers=tuple(containers)),
            annotations=_annotation(draw) if draw_bool(draw, 0.2) else {},
            never_ready=slots,
        ),
    )


def _use(draw: Generator, share: float) -> DrawnUse:
    cpu, memory, _ = _REQUESTS[int(draw.choice(len(_REQUESTS), p=_SHARES))]
    used = share * draw.beta(3, 3, size=2) * (0.5, 1)
    base_cpu, base_memory = max(1, round(cpu * used[0])), max(1, round(memory * used[1])) * MEBIBYTE
    peak, largest = (1 + draw.exponential(0.4, size=2)).tolist(), 1 + float(draw.exponential(0.2))
    return DrawnUse(
        base_cpu,
        round(base_cpu * peak[0]),
        base_memory,
        round(base_memory * peak[1]),
        round(base_memory * peak[1] * largest),
    )


def _annotation(draw: Generator) -> dict[str, str]:
    return dict(
        draw_choice(
            draw,
            (
                {"cruise.io/mode": "resize"},
                {"cruise.io/mode": "initial"},
                {"cruise.io/eviction-ranking": "high"},
                {"cruise.io/eviction-ranking": "never"},
                {"cruise.io/resources": "cpu"},
                {"cruise.io/resources": "memory"},
            ),
        )
    )


def _of_namespace(namespace: str, workloads: Sequence[DrawnWorkload]) -> list[tuple[int, Container]]:
    """Return the containers of a namespace's templates, each with its workload's replicas."""
    there = [one.workload for one in workloads if one.workload.namespace == namespace]
    return [(one.replicas, of) for one in there for of in one.template.containers]


def _limit_range(draw: Generator, namespace: str, workloads: Sequence[DrawnWorkload]) -> LimitRangeItem:
    """Return bounds that the templates barely or easily satisfy."""
    stated = [of for _, of in _of_namespace(namespace, workloads)]
    play = draw_choice(draw, (1, 1, 2, 8))
    requests, limits = [of.requests.resources for of in stated], [of.limits.resources for of in stated]
    if not stated:
        return LimitRangeItem(False)
    return LimitRangeItem(
        False,
        minimum=StatedResources(
            min(one.cpu_millicores for one in requests) // play, min(one.memory_bytes for one in requests) // play
        ),
        maximum=StatedResources(
            play * max(one.cpu_millicores for one in (*requests, *limits)),
            play * max(one.memory_bytes for one in (*requests, *limits)),
        )
        if all(one.cpu_millicores for one in limits)
        else NOTHING_STATED,
        max_memory_ratio=float(
            play
            * max(
                -(-limit.memory_bytes // max(1, request.memory_bytes))
                for request, limit in zip(requests, limits, strict=True)
            )
        )
        if all(one.memory_bytes for one in limits) and draw_bool(draw, 0.5)
        else None,
    )


def _quota(
    draw: Generator, namespace: str, workloads: Sequence[DrawnWorkload], counts_limits: bool
) -> ResourceQuotaSpec:
    """Return a quota slightly or far above the templates' requests."""
    spare = draw_choice(draw, (1.0, 1.02, 1.1, 2.0))
    requests = limits = Resources()
    for replicas, of in _of_namespace(namespace, workloads):
        for _ in range(replicas):
            requests, limits = requests + of.requests.resources, limits + of.limits.resources
    asked, limited = (
        StatedResources(round(one.cpu_millicores * spare), round(one.memory_bytes * spare))
        for one in (requests, limits)
    )
    return ResourceQuotaSpec(namespace, "compute", asked, limited if counts_limits else NOTHING_STATED)
