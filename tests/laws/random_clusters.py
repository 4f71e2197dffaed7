"""Random clusters: nodes, workloads with their usage, and other objects."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import numpy as np
from numpy.random import Generator

from cruise.domain.annotations import HOSTNAME
from cruise.domain.autoscalers import LimitRangeItem, NodeAutoscalerKind
from cruise.domain.cluster import (
    Container,
    ContainerRole,
    HorizontalPodAutoscaler,
    Node,
    Pod,
    VerticalPodAutoscaler,
    WorkloadRef,
)
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResourceName, StatedResources
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable
from cruise.simulation.cluster.api_server import ResourceQuotaSpec
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec
from cruise.simulation.cluster.node_autoscaler import NodeAutoscalerSettings
from cruise.simulation.cluster.workloads import SimulatedWorkload

T = TypeVar("T")
START = datetime(2026, 1, 5, 9, tzinfo=UTC)
LONG_AGO = START - timedelta(days=30)
NAMESPACES = ("bank", "shop", "tools")
GIBIBYTE = 1024 * MEBIBYTE
KINDS = ("Deployment",) * 6 + ("StatefulSet", "Job", "DaemonSet", "Pod")


@dataclass(frozen=True, slots=True)
class DrawnUse:
    """The usage of a container: P75 and peak of CPU; P75, peak and 7-day maximum of memory."""

    cpu_base: int
    cpu_peak: int
    memory_base: int
    memory_peak: int
    memory_7d_max: int


@dataclass(frozen=True, slots=True)
class DrawnWorkload:
    """A workload, the usage of its containers by name, and by how much its pods differ."""

    workload: SimulatedWorkload
    uses: Mapping[str, DrawnUse]
    spread: float = 0.0
    measured: bool = True


@dataclass(frozen=True, slots=True)
class DrawnCluster:
    """The objects of a random cluster."""

    nodes: Sequence[Node]
    workloads: Sequence[DrawnWorkload]
    budgets: Sequence[DisruptionBudgetSpec] = ()
    autoscalers: Sequence[HorizontalPodAutoscaler] = ()
    vertical_autoscalers: Sequence[VerticalPodAutoscaler] = ()
    limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]] = field(default_factory=dict)
    quotas: Sequence[ResourceQuotaSpec] = ()
    namespace_annotations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    node_autoscaling: NodeAutoscalerSettings | None = None
    policy: Policy = Policy(mode=Mode.FULL)


def build_statistics(drawn: DrawnCluster, pods: Sequence[Pod], seed: int) -> list[Statistic]:
    """Return the initial statistics: a row per workload, and one per pod with its own base."""
    draw = np.random.default_rng(seed)
    by_ref = {(one.workload.namespace, one.workload.ref): one for one in drawn.workloads if one.workload.ref}
    found: dict[StatisticKey, Statistic] = {}
    for pod in pods:
        one = by_ref.get((pod.namespace, pod.workload)) if pod.workload else None
        if one is None or not one.measured:
            continue
        factor = float(np.clip(draw.normal(1, one.spread), 0.3, 1)) if one.spread else 1.0
        for name, use in one.uses.items():
            for of, share in (("", 1.0), (pod.name, factor)):
                key = StatisticKey(pod.namespace, of, str(pod.workload), name, pod.identity)
                found.setdefault(key, _row(key, use, share))
    return list(found.values())


def _row(key: StatisticKey, use: DrawnUse, share: float) -> Statistic:
    now = int(START.timestamp())
    return Statistic(
        key=key,
        updated_at=now,
        history_since=int(LONG_AGO.timestamp()),
        cpu_base_millicores=max(1, round(use.cpu_base * share)),
        cpu_peak_millicores=use.cpu_peak,
        memory_base_bytes=max(1, round(use.memory_base * share)),
        memory_peak_bytes=use.memory_peak,
        memory_7d_max_bytes=use.memory_7d_max,
        memory_last_bytes=max(1, round(use.memory_base * share)),
    )


def build_table_at(rows: Sequence[Statistic], now: datetime) -> StatisticsTable:
    """Return the statistics as if measured at this time."""
    return StatisticsTable.from_rows([replace(row, updated_at=int(now.timestamp())) for row in rows])


# ---- shared by all generators


def draw_bool(draw: Generator, share: float) -> bool:
    """Return True with this probability."""
    return bool(draw.random() < share)


def draw_choice(draw: Generator, values: Sequence[T]) -> T:
    """Return a random element."""
    return values[int(draw.integers(len(values)))]


def absurd_annotations(draw: Generator) -> dict[str, str]:
    """Return random annotations of a user, valid or not."""
    return dict(
        draw_choice(
            draw,
            (
                {"cruise.io/eviction-ranking": "never"},
                {"cruise.io/eviction-ranking": "high"},
                {"cruise.io/eviction-ranking": "low"},
                {"cruise.io/memory-min": "9Gi", "cruise.io/eviction-ranking": "never"},
                {"cruise.io/headroom-factor": "10"},
                {"cruise.io/headroom-factor": "0"},
                {"cruise.io/cpu-min": "64"},
                {"cruise.io/cpu-max": "20m", "cruise.io/memory-max": "64Mi"},
                {"cruise.io/memory-min": "1Gi", "cruise.io/memory-max": "32Mi"},
                {"cruise.io/resources": "cpu"},
                {"cruise.io/resources": "memory"},
                {"cruise.io/mode": "sideways"},
                {"cruise.io/mode": "resize"},
                {"cruise.io/mode": "off"},
                {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
                {"karpenter.sh/do-not-disrupt": "true"},
            ),
        )
    )


def container(use: DrawnUse, ratio: float, *, name: str = "app", limit: str = "memory") -> Container:
    """Return a container that requests its base times a ratio; `limit` is none, memory, both, or the request itself."""
    cpu, memory = max(1, round(use.cpu_base * ratio)), max(MEBIBYTE, round(use.memory_base * ratio))
    if limit == "equal":
        cpu, memory = max(cpu, use.cpu_peak), max(memory, use.memory_7d_max)
    requests = StatedResources(cpu, memory)
    # Usage never exceeds a limit.
    most = max(2 * memory, use.memory_7d_max)
    limits = {
        "none": StatedResources(),
        "memory": StatedResources(None, most),
        "both": StatedResources(max(2 * cpu, use.cpu_peak), most),
        "equal": StatedResources(cpu, memory),
    }[limit]
    return Container(name, ContainerRole.MAIN, requests, limits)


def workload(
    draw: Generator,
    number: int,
    containers: Sequence[Container],
    uses: Mapping[str, DrawnUse],
    *,
    kinds: Sequence[str] = KINDS,
    replicas: int = 1,
    priorities: Sequence[int] = (0, 1, 2, 3),
    tenant_share: float = 0.15,
    spread: float = 0.0,
) -> DrawnWorkload:
    """Return a workload of a random kind and state, with or without a user's annotations."""
    name, kind = f"w{number:02d}", draw_choice(draw, kinds)
    if kind == "Deployment" and number % 3 == 1:
        kind = "Workflow"
    annotations = absurd_annotations(draw) if draw_bool(draw, tenant_share) else {}
    template = Pod(
        "",
        name,
        "",
        tuple(containers),
        labels={"app": name},
        annotations=annotations,
        priority=draw_choice(draw, priorities) * 1000,
        restart_policy="Never" if kind in ("Job", "Workflow") else "Always",
    )
    unready = frozenset({int(draw.integers(replicas))}) if draw_bool(draw, 0.1) else frozenset()
    one = SimulatedWorkload(
        draw_choice(draw, NAMESPACES),
        None if kind == "Pod" else WorkloadRef(kind, name),
        template,
        replicas=replicas,
        created_at=LONG_AGO if draw_bool(draw, 0.95) else START - timedelta(minutes=10),
        duration_seconds=86_400,
        ready_seconds=draw_choice(draw, (0, 0, 30, 400)),
        never_ready=unready,
        grace_seconds=draw_choice(draw, (5, 30)),
    )
    return DrawnWorkload(one, uses, spread, measured=draw_bool(draw, 0.95))


def budgets_for(draw: Generator, workloads: Sequence[DrawnWorkload], share: float) -> list[DisruptionBudgetSpec]:
    """Return budgets for a share of the workloads, from loose to exhausted, sometimes two for one."""
    found = []
    for one in workloads:
        for number in range(2 if draw_bool(draw, 0.05) else 1):
            if draw_bool(draw, share):
                name = one.workload.template.name
                selector = LabelSelector((LabelRequirement("app", SelectorOperator.IN, (name,)),))
                bound: Mapping[str, int | str] = draw_choice(
                    draw,
                    ({"max_unavailable": 1}, {"min_available": 1}, {"min_available": "50%"}, {"max_unavailable": 0}),
                )
                found.append(DisruptionBudgetSpec(one.workload.namespace, f"{name}-{number}", selector, **bound))
    return found


def autoscalers_for(draw: Generator, workloads: Sequence[DrawnWorkload], share: float) -> list[HorizontalPodAutoscaler]:
    """Return HorizontalPodAutoscalers on utilisation for a share of the Deployments."""
    return [
        HorizontalPodAutoscaler(
            one.workload.namespace,
            one.workload.ref.name,
            one.workload.ref,
            draw_choice(draw, (frozenset({ResourceName.CPU}), frozenset(ResourceName), frozenset[ResourceName]())),
        )
        for one in workloads
        if one.workload.ref is not None and one.workload.ref.kind == "Deployment" and draw_bool(draw, share)
    ]


def vertical_autoscalers_for(
    draw: Generator, workloads: Sequence[DrawnWorkload], share: float
) -> list[VerticalPodAutoscaler]:
    """Return VerticalPodAutoscalers for a share of the workloads; some only recommend."""
    return [
        VerticalPodAutoscaler(
            one.workload.namespace,
            one.workload.ref.name,
            one.workload.ref,
            draw_choice(draw, ("Auto", "Initial", "", "Off")),
        )
        for one in workloads
        if one.workload.ref is not None and draw_bool(draw, share)
    ]


def quotas_for(draw: Generator, workloads: Sequence[DrawnWorkload], share: float) -> list[ResourceQuotaSpec]:
    """Return quotas slightly or far above the requests of a namespace's templates."""
    found = []
    for namespace in NAMESPACES:
        if not draw_bool(draw, share):
            continue
        cpu = memory = 0
        for one in (one.workload for one in workloads if one.workload.namespace == namespace):
            for of in one.template.containers:
                cpu += one.replicas * (of.requests.cpu_millicores or 0)
                memory += one.replicas * (of.requests.memory_bytes or 0)
        spare = draw_choice(draw, (1.0, 1.05, 1.5))
        found.append(
            ResourceQuotaSpec(namespace, "compute", StatedResources(round(cpu * spare), round(memory * spare)))
        )
    return found


def autoscaling(draw: Generator, nodes: Sequence[Node]) -> NodeAutoscalerSettings:
    """Return a node autoscaler that adds nodes like the present ones and removes none."""
    kind = draw_choice(draw, tuple(NodeAutoscalerKind))
    types = [replace(node, labels={**node.labels, HOSTNAME: ""}, unschedulable=False) for node in nodes]
    return NodeAutoscalerSettings(kind, types, scale_down_delay_seconds=86_400)


Generate = Callable[[Generator], DrawnCluster]
