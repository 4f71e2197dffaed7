"""Random large clusters that are nearly full, placed by a default scheduler, with disruption budgets."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.problem import (
    BoolArray,
    EvictionLimit,
    ExclusionRule,
    IntArray,
    PackingObjective,
    PackingProblem,
    PlacementRules,
    SpreadRule,
)

MEBIBYTE = 1024 * 1024
# The scheduler of a large cluster scores a part of the nodes, in turn.
SCORED_NODES = 500
_POD_SLOTS = 110


@dataclass(frozen=True, slots=True)
class GroupOfPods:
    """The shape of a large cluster: nodes, pods per node, the requested share of all capacity, the share of unmovable apps."""

    nodes: int
    pods_per_node: int = 30
    usage_percent: float = 98.5
    unmovable_percent: int = 10
    priorities: int = 1
    # Separate node pools: each app may run in one of them only.
    pools: int = 1
    # With zones, every other app spreads over them, and as many have anti-affinity by node.
    zones: int = 0

    def __str__(self) -> str:
        apart = f" {self.pools} pools" if self.pools > 1 else ""
        ruled = f" {self.zones} zones" if self.zones else ""
        return f"{self.nodes}x{self.pods_per_node} {self.usage_percent:g}%{apart}{ruled}"


def draw_pod_group(
    crowd: GroupOfPods, seed: int, objective: PackingObjective = PackingObjective.OPERATOR
) -> PackingProblem:
    """Draw apps of 1 to 20 replicas, 50 to 1000 m and 64 to 2048 MiB, each with a budget of max(1, replicas / 4)."""
    source = np.random.default_rng([seed, crowd.nodes])
    wanted = crowd.nodes * crowd.pods_per_node
    replicas = source.integers(1, 21, wanted)
    apps = int(np.searchsorted(np.cumsum(replicas), wanted)) + 1
    replicas = replicas[:apps]
    replicas[-1] -= replicas.sum() - wanted
    cpu = 10 * source.integers(5, 101, apps)
    memory = 16 * MEBIBYTE * source.integers(4, 129, apps)
    demands = np.stack([cpu, memory, np.ones(apps, dtype=np.int64)], axis=1).astype(np.int64)
    totals = (demands * replicas[:, None]).sum(axis=0)
    room = np.ceil(totals[:2] * 100 / crowd.usage_percent / crowd.nodes).astype(np.int64)
    capacities = np.tile(np.array([*room.tolist(), _POD_SLOTS], dtype=np.int64), (crowd.nodes, 1))
    pod_class = np.repeat(np.arange(apps, dtype=np.int64), replicas)
    sites = np.arange(apps, dtype=np.int64) % crowd.pools
    admits = np.arange(crowd.nodes) % crowd.pools == np.arange(crowd.pools)[:, None]
    # The pods of an app arrive together, app by app.
    pod_node = add_pods(crowd, demands, capacities, pod_class, admits)
    limits = tuple(
        EvictionLimit(f"app-{c}", np.array([c], dtype=np.int64), max(1, int(replicas[c]) // 4)) for c in range(apps)
    )
    priorities = source.integers(0, crowd.priorities, apps).astype(np.int64)
    return PackingProblem(
        resources=("cpu", "memory", "pods"),
        capacities=capacities,
        demands=demands,
        headroom=np.zeros_like(demands),
        priorities=priorities,
        movable=source.integers(0, 100, apps) >= crowd.unmovable_percent,
        preemptible=np.full(apps, objective is PackingObjective.PAPER),
        preempt=np.ones(apps, dtype=np.bool_),
        weights=np.full(apps, 2, dtype=np.int64),
        max_on_node=np.full(apps, wanted, dtype=np.int64),
        node_mask_of_class=sites,
        allowed_nodes=admits,
        pod_class=pod_class,
        pod_node=pod_node,
        rules=_rules(crowd, sites, admits, limits),
        objective=objective,
    )


def _rules(crowd: GroupOfPods, sites: IntArray, admits: BoolArray, limits: tuple[EvictionLimit, ...]) -> PlacementRules:
    apps = len(sites)
    topologies = np.stack([np.arange(crowd.nodes), np.arange(crowd.nodes) % max(crowd.zones, 1)]).astype(np.int64)
    if crowd.zones == 0:
        return PlacementRules(topologies, eviction_limits=limits)
    eligible = list(admits)
    own = [np.array([c], dtype=np.int64) for c in range(apps)]
    spreads = tuple(SpreadRule(1, c, own[c], 1, 0, eligible[sites[c]]) for c in range(0, apps, 2))
    return PlacementRules(
        topologies,
        tuple(ExclusionRule(0, c, own[c]) for c in range(1, apps, 4)),
        spreads=spreads,
        eviction_limits=limits,
    )


def add_pods(
    crowd: GroupOfPods, demands: IntArray, capacities: IntArray, pod_class: IntArray, admits: BoolArray
) -> IntArray:
    """Place each pod on the least allocated and best balanced node of those scored; -1 if none fits."""
    nodes = len(capacities)
    free = np.ascontiguousarray(capacities.T)
    shares = 1.0 / capacities[0].astype(np.float64)
    pod_node = np.full(len(pod_class), -1, dtype=np.int64)
    window, begin, held, app = min(SCORED_NODES, nodes), 0, np.zeros(0, dtype=np.int64), -1
    for pod, c in enumerate(pod_class.tolist()):
        if c != app:
            app, held = c, np.zeros(0, dtype=np.int64)
        open_nodes = _open_nodes(crowd, c, held, admits)
        for _ in range(0, nodes, window):
            looked = slice(begin, min(begin + window, nodes))
            begin = 0 if looked.stop >= nodes else looked.stop
            after = free[:, looked] - demands[c][:, None]
            fitting = (after >= 0).all(axis=0) & open_nodes[looked]
            if not fitting.any():
                continue
            left = after[:2] * shares[:2, None]
            score = left[0] + left[1] - np.abs(left[0] - left[1])
            node = looked.start + int(np.argmax(np.where(fitting, score, -9.0)))
            pod_node[pod] = node
            held = np.append(held, node)
            free[:, node] -= demands[c]
            break
    return pod_node


def _open_nodes(crowd: GroupOfPods, c: int, held: IntArray, admits: BoolArray) -> BoolArray:
    """Return a mask of the nodes on which the rules allow one more pod of an app."""
    open_nodes: BoolArray = admits[c % crowd.pools]
    if crowd.zones and c % 2 == 0:
        zones = np.bincount(held % crowd.zones, minlength=crowd.zones)
        open_nodes = open_nodes & (zones == zones.min())[np.arange(crowd.nodes) % crowd.zones]
    elif crowd.zones and c % 4 == 1:
        open_nodes = open_nodes.copy()
        open_nodes[held] = False
    return open_nodes
