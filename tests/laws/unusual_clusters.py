"""Random clusters with unusual objects, added after the invariants held for all others.

Many replicas of few workloads on many small nodes, pinned by selectors and taints; pods that state nothing, or one
resource; a third of them without usage; memory limits of old kubelets; namespaces with annotations of their own.
"""

from dataclasses import replace

from numpy.random import Generator

from cruise.domain.annotations import HOSTNAME
from cruise.domain.cluster import Container, Node
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE, Resources, StatedResources
from cruise.domain.scheduling import SchedulingConstraints, Taint, TaintEffect, Toleration
from tests.laws.random_clusters import (
    KINDS,
    DrawnCluster,
    DrawnUse,
    DrawnWorkload,
    autoscalers_for,
    autoscaling,
    budgets_for,
    draw_bool,
    draw_choice,
    quotas_for,
    vertical_autoscalers_for,
    workload,
)

_DEDICATED = Taint("dedicated", "batch", TaintEffect.NO_SCHEDULE)
_ZONES = ("a", "b")


def draw_unusual_clusters(draw: Generator) -> DrawnCluster:
    """Return a random cluster."""
    size = Resources(int(draw.integers(300, 3000)), int(draw.integers(500, 6000)) * MEBIBYTE)
    nodes = [_node(draw, number, size) for number in range(int(draw.integers(3, 9)))]
    workloads: list[DrawnWorkload] = []
    pods, most = 0, int(draw.integers(8, 40))
    while pods < most:
        replicas = int(min(draw.zipf(1.6), 12))
        pods += replicas
        workloads.append(_workload(draw, len(workloads), size, replicas))
    return DrawnCluster(
        nodes,
        workloads,
        budgets_for(draw, workloads, 0.5),
        autoscalers_for(draw, workloads, 0.2),
        vertical_autoscalers_for(draw, workloads, 0.1),
        quotas=quotas_for(draw, [one for one in workloads if _is_stated(one)], 0.1),
        node_autoscaling=autoscaling(draw, nodes) if draw_bool(draw, 0.2) else None,
        namespace_annotations={"tools": {"cruise.io/headroom-factor": "3"}} if draw_bool(draw, 0.3) else {},
        policy=Policy(
            mode=Mode.FULL,
            max_evictions_per_node=int(draw.integers(1, 4)),
            max_evictions_per_workload=int(draw.integers(1, 3)),
        ),
    )


def _node(draw: Generator, number: int, size: Resources) -> Node:
    name = f"n{number}"
    share = draw_choice(draw, (1.0, 1.0, 0.7, 1.9))
    return Node(
        name,
        Resources(round(size.cpu_millicores * share), round(size.memory_bytes * share)),
        allocatable_pods=draw_choice(draw, (6, 20, 110)),
        labels={HOSTNAME: name, "zone": draw_choice(draw, _ZONES)},
        taints=(_DEDICATED,) if draw_bool(draw, 0.2) else (),
        unschedulable=draw_bool(draw, 0.05),
        kubelet_version=draw_choice(draw, ((1, 33), (1, 34), (1, 36), None)),
    )


def _workload(draw: Generator, number: int, size: Resources, replicas: int) -> DrawnWorkload:
    cpu = round(size.cpu_millicores * draw.beta(1, 6)) + 1
    memory = round(size.memory_bytes * draw.beta(1, 6)) + 1
    use = DrawnUse(
        cpu,
        round(cpu * draw.pareto(2) + cpu),
        memory,
        round(memory * (1 + draw.exponential(0.3))),
        round(memory * (1 + draw.exponential(1))),
    )
    use = replace(use, memory_7d_max=max(use.memory_7d_max, use.memory_peak))
    requests = StatedResources(
        draw_choice(draw, (None, cpu, 3 * cpu, max(1, cpu // 2))),
        draw_choice(draw, (None, memory, 2 * memory, memory // 2 or 1)),
    )
    limit = requests.memory_bytes
    limits = StatedResources(None, max(limit, use.memory_7d_max) if limit and draw_bool(draw, 0.5) else None)
    one = workload(
        draw,
        number,
        [Container("app", requests=requests, limits=limits)],
        {"app": use},
        kinds=(*KINDS, "Job", "DaemonSet"),
        replicas=replicas,
        priorities=(-1, 0, 5),
        tenant_share=0.4,
        spread=0.5,
    )
    placement = SchedulingConstraints(
        node_selector=(("zone", draw_choice(draw, _ZONES)),) if draw_bool(draw, 0.3) else (),
        tolerations=(Toleration(key="dedicated", exists=True),) if draw_bool(draw, 0.5) else (),
    )
    overhead = Resources(7, 3 * MEBIBYTE) if draw_bool(draw, 0.1) else Resources()
    template = replace(one.workload.template, placement=placement, overhead=overhead)
    return replace(one, workload=replace(one.workload, template=template), measured=draw_bool(draw, 0.67))


def _is_stated(one: DrawnWorkload) -> bool:
    return all(
        None not in (of.requests.cpu_millicores, of.requests.memory_bytes) for of in one.workload.template.containers
    )
