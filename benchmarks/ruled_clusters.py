"""Random clusters with many rules between pods, placed app by app by a scheduler, with some pods pending."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cruise.packer.problem import (
    AttractionRule,
    EvictionLimit,
    ExclusionRule,
    IntArray,
    PackingObjective,
    PackingProblem,
    PlacementRules,
    SpreadRule,
    compute_loads,
)
from cruise.packer.rules.by_class import build_rules_by_class
from cruise.packer.rules.domain_counts import RuleCounts

HOST, ZONE = 0, 1
_ZONES, _POOL_SHARE, _SLOTS = 3, 4, 110
_SITES = 3


class PodKind(StrEnum):
    """The rules that most of the apps have."""

    SERVICES = "services"
    STATEFUL = "stateful"
    PORTS = "ports"
    AFFINE = "affine"
    MIXED = "mixed"


# The shares of apps with a zone spread, a node spread, anti-affinity by node, host ports and affinity.
_SHARES: dict[PodKind, tuple[float, float, float, float, float]] = {
    PodKind.SERVICES: (0.6, 0.1, 0.2, 0.0, 0.0),
    PodKind.STATEFUL: (0.3, 0.0, 0.8, 0.0, 0.1),
    PodKind.PORTS: (0.2, 0.0, 0.1, 0.5, 0.0),
    PodKind.AFFINE: (0.2, 0.0, 0.2, 0.0, 0.4),
    PodKind.MIXED: (0.4, 0.1, 0.4, 0.2, 0.2),
}


@dataclass(frozen=True, slots=True)
class RuledCluster:
    """The parameters of a cluster: nodes in three zones, a quarter of them tainted, pods and the requested share."""

    kind: PodKind
    nodes: int
    pods_per_node: int = 8
    priorities: int = 1
    usage_percent: int = 97

    def __str__(self) -> str:
        return f"{self.kind}, {self.nodes}x{self.pods_per_node} p{self.priorities} {self.usage_percent} %"


def draw_ruled(ruled: RuledCluster, seed: int, objective: PackingObjective = PackingObjective.PAPER) -> PackingProblem:
    """Draw apps of 1 to 6 pods, 100 to 1,000 m and MB; four of five have a disruption budget, a tenth must not move."""
    source = np.random.default_rng([seed, ruled.nodes, list(PodKind).index(ruled.kind), ruled.priorities])
    wanted = ruled.nodes * ruled.pods_per_node
    replicas = source.integers(1, 7, wanted)
    apps = int(np.searchsorted(np.cumsum(replicas), wanted)) + 1
    replicas = replicas[:apps]
    replicas[-1] -= replicas.sum() - wanted
    demands = np.column_stack([source.integers(100, 1001, (apps, 2)), np.ones(apps, dtype=np.int64)])
    totals = (demands * replicas[:, None]).sum(axis=0)[:2]
    room = np.ceil(totals * 100 / ruled.usage_percent / ruled.nodes).astype(np.int64)
    nodes = np.arange(ruled.nodes)
    pool = nodes % _POOL_SHARE == 0
    # Most run on untainted nodes only, some on tainted nodes only, some tolerate the taint.
    admits = np.stack([~pool, pool, np.ones_like(pool)])
    movable = source.random(apps) >= 0.1
    pod_class = np.repeat(np.arange(apps, dtype=np.int64), replicas)
    sites = source.choice(_SITES, apps, p=[0.35, 0.1, 0.55]).astype(np.int64)
    problem = PackingProblem(
        resources=("cpu", "memory", "pods"),
        capacities=np.tile(np.array([*room.tolist(), _SLOTS], dtype=np.int64), (ruled.nodes, 1)),
        demands=demands,
        headroom=np.zeros_like(demands),
        priorities=source.integers(0, ruled.priorities, apps).astype(np.int64),
        movable=movable,
        preemptible=movable if objective is PackingObjective.PAPER else np.zeros(apps, dtype=np.bool_),
        preempt=np.ones(apps, dtype=np.bool_),
        weights=np.full(apps, 2, dtype=np.int64),
        max_on_node=np.full(apps, wanted, dtype=np.int64),
        node_mask_of_class=sites,
        allowed_nodes=admits,
        pod_class=pod_class,
        pod_node=np.full(wanted, -1, dtype=np.int64),
        rules=_draw_rules(source, ruled, replicas, admits[sites]),
        objective=objective,
    )
    problem.pod_node[:] = _arrived(problem)
    return problem


def _draw_rules(
    source: np.random.Generator, ruled: RuledCluster, replicas: IntArray, admitted: IntArray
) -> PlacementRules:
    apps = len(replicas)
    by_zone, by_node, apart, ported, drawn = (source.random(apps) < share for share in _SHARES[ruled.kind])
    own = [np.array([c], dtype=np.int64) for c in range(apps)]
    ports = source.integers(0, max(apps // 6, 1), apps)
    exclusions = [ExclusionRule(HOST, c, own[c]) for c in np.flatnonzero(apart).tolist()]
    exclusions += [
        ExclusionRule(HOST, c, np.flatnonzero(ported & (ports == ports[c]))) for c in np.flatnonzero(ported).tolist()
    ]
    spreads = [SpreadRule(ZONE, c, own[c], 1, 0, admitted[c]) for c in np.flatnonzero(by_zone).tolist()]
    spreads += [SpreadRule(HOST, c, own[c], 1, 0, admitted[c]) for c in np.flatnonzero(by_node & ~by_zone).tolist()]
    attractions = []
    for c in np.flatnonzero(drawn & ~apart).tolist():
        # To its own pods in one zone, or to another app's pods on one node or in one zone.
        if c == 0 or source.random() < 0.4:
            attractions.append(AttractionRule((ZONE,), c, own[c]))
        else:
            topology = HOST if source.random() < 0.5 else ZONE
            attractions.append(AttractionRule((topology,), c, own[int(source.integers(c))]))
    budgeted = np.flatnonzero(source.random(apps) < 0.8).tolist()
    limits = [EvictionLimit(f"app-{c}", own[c], max(1, int(replicas[c]) // 3)) for c in budgeted]
    topologies = np.stack([np.arange(ruled.nodes), np.arange(ruled.nodes) % _ZONES]).astype(np.int64)
    return PlacementRules(topologies, tuple(exclusions), tuple(attractions), tuple(spreads), tuple(limits))


def _arrived(problem: PackingProblem) -> IntArray:
    """Place each pod on the least allocated node that the rules allow."""
    pod_node = np.full(problem.pod_count, -1, dtype=np.int64)
    counts = RuleCounts(problem, build_rules_by_class(problem), pod_node)
    for pod, c in enumerate(problem.pod_class.tolist()):
        used, _ = compute_loads(problem, counts.pod_node)
        free = problem.capacities - used - problem.demands[c]
        fits = (
            (free >= 0).all(axis=1) & problem.allowed_nodes[problem.node_mask_of_class[c]] & counts.get_allowed_nodes(c)
        )
        if fits.any():
            share = (free[:, :2] / problem.capacities[:, :2]).sum(axis=1)
            counts.place(pod, int(np.argmax(np.where(fits, share, -np.inf))))
    return counts.pod_node
