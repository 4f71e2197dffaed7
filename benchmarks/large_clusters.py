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
class LargeClusterShape:
    """The shape of a large cluster: nodes, pods per node, the requested share, the share of unmovable apps."""

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
        pools = f" {self.pools} pools" if self.pools > 1 else ""
        zones = f" {self.zones} zones" if self.zones else ""
        return f"{self.nodes}x{self.pods_per_node} {self.usage_percent:g}%{pools}{zones}"


def draw_large_cluster(
    shape: LargeClusterShape, seed: int, objective: PackingObjective = PackingObjective.OPERATOR
) -> PackingProblem:
    """Draw apps of 1 to 20 replicas, 50 to 1000 m and 64 to 2048 MiB, each with a budget of max(1, replicas / 4)."""
    source = np.random.default_rng([seed, shape.nodes])
    pod_count = shape.nodes * shape.pods_per_node
    replicas = source.integers(1, 21, pod_count)
    apps = int(np.searchsorted(np.cumsum(replicas), pod_count)) + 1
    replicas = replicas[:apps]
    replicas[-1] -= replicas.sum() - pod_count
    cpu = 10 * source.integers(5, 101, apps)
    memory = 16 * MEBIBYTE * source.integers(4, 129, apps)
    demands = np.stack([cpu, memory, np.ones(apps, dtype=np.int64)], axis=1).astype(np.int64)
    totals = (demands * replicas[:, None]).sum(axis=0)
    node_capacity = np.ceil(totals[:2] * 100 / shape.usage_percent / shape.nodes).astype(np.int64)
    capacities = np.tile(np.array([*node_capacity.tolist(), _POD_SLOTS], dtype=np.int64), (shape.nodes, 1))
    pod_class = np.repeat(np.arange(apps, dtype=np.int64), replicas)
    pool_of_app = np.arange(apps, dtype=np.int64) % shape.pools
    pool_nodes = np.arange(shape.nodes) % shape.pools == np.arange(shape.pools)[:, None]
    # The pods of an app arrive together, app by app.
    pod_node = place_pods(shape, demands, capacities, pod_class, pool_nodes)
    limits = tuple(
        EvictionLimit(f"app-{c}", np.array([c], dtype=np.int64), max(1, int(replicas[c]) // 4)) for c in range(apps)
    )
    priorities = source.integers(0, shape.priorities, apps).astype(np.int64)
    return PackingProblem(
        resources=("cpu", "memory", "pods"),
        capacities=capacities,
        demands=demands,
        headroom=np.zeros_like(demands),
        priorities=priorities,
        movable=source.integers(0, 100, apps) >= shape.unmovable_percent,
        preemptible=np.full(apps, objective is PackingObjective.PAPER),
        preempt=np.ones(apps, dtype=np.bool_),
        weights=np.full(apps, 2, dtype=np.int64),
        max_on_node=np.full(apps, pod_count, dtype=np.int64),
        node_mask_of_class=pool_of_app,
        allowed_nodes=pool_nodes,
        pod_class=pod_class,
        pod_node=pod_node,
        rules=_rules(shape, pool_of_app, pool_nodes, limits),
        objective=objective,
    )


def _rules(
    shape: LargeClusterShape, pool_of_app: IntArray, pool_nodes: BoolArray, limits: tuple[EvictionLimit, ...]
) -> PlacementRules:
    apps = len(pool_of_app)
    topologies = np.stack([np.arange(shape.nodes), np.arange(shape.nodes) % max(shape.zones, 1)]).astype(np.int64)
    if shape.zones == 0:
        return PlacementRules(topologies, eviction_limits=limits)
    eligible = list(pool_nodes)
    own = [np.array([c], dtype=np.int64) for c in range(apps)]
    spreads = tuple(SpreadRule(1, c, own[c], 1, 0, eligible[pool_of_app[c]]) for c in range(0, apps, 2))
    return PlacementRules(
        topologies,
        tuple(ExclusionRule(0, c, own[c]) for c in range(1, apps, 4)),
        spreads=spreads,
        eviction_limits=limits,
    )


def place_pods(
    shape: LargeClusterShape, demands: IntArray, capacities: IntArray, pod_class: IntArray, pool_nodes: BoolArray
) -> IntArray:
    """Place each pod on the least allocated and best balanced node of those scored; -1 if none fits."""
    nodes = len(capacities)
    free = np.ascontiguousarray(capacities.T)
    shares = 1.0 / capacities[0].astype(np.float64)
    pod_node = np.full(len(pod_class), -1, dtype=np.int64)
    window, window_start, app_nodes, app = min(SCORED_NODES, nodes), 0, np.zeros(0, dtype=np.int64), -1
    for pod, c in enumerate(pod_class.tolist()):
        if c != app:
            app, app_nodes = c, np.zeros(0, dtype=np.int64)
        allowed = _find_allowed_nodes(shape, c, app_nodes, pool_nodes)
        for _ in range(0, nodes, window):
            window_nodes = slice(window_start, min(window_start + window, nodes))
            window_start = 0 if window_nodes.stop >= nodes else window_nodes.stop
            after = free[:, window_nodes] - demands[c][:, None]
            fitting = (after >= 0).all(axis=0) & allowed[window_nodes]
            if not fitting.any():
                continue
            free_shares = after[:2] * shares[:2, None]
            score = free_shares[0] + free_shares[1] - np.abs(free_shares[0] - free_shares[1])
            node = window_nodes.start + int(np.argmax(np.where(fitting, score, -9.0)))
            pod_node[pod] = node
            app_nodes = np.append(app_nodes, node)
            free[:, node] -= demands[c]
            break
    return pod_node


def _find_allowed_nodes(shape: LargeClusterShape, c: int, app_nodes: IntArray, pool_nodes: BoolArray) -> BoolArray:
    """Return a mask of the nodes on which the rules allow one more pod of an app."""
    allowed: BoolArray = pool_nodes[c % shape.pools]
    if shape.zones and c % 2 == 0:
        zones = np.bincount(app_nodes % shape.zones, minlength=shape.zones)
        allowed = allowed & (zones == zones.min())[np.arange(shape.nodes) % shape.zones]
    elif shape.zones and c % 4 == 1:
        allowed = allowed.copy()
        allowed[app_nodes] = False
    return allowed
