"""Clusters of several kinds that are full by construction: a packing of all pods is known.

Nodes are first filled with pods of apps of one kind; then the same pods arrive app by app at a default scheduler, which
leaves some of them pending. The known packing has a node for each of them.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from benchmarks.large_clusters import LargeClusterShape, place_pods
from benchmarks.openb_cluster import OPENB
from cruise.packer.problem import EvictionLimit, FloatArray, IntArray, PackingObjective, PackingProblem, PlacementRules

_CORES, _MEBIBYTES, _SLOTS, _GPUS = 16_000, 65_536, 256, 8
# Every third node has GPUs, if apps request them.
_GPU_NODES = 3
# A node is full after so many draws in a row that do not fit.
_TRIES = 40


class ClusterDrawing(StrEnum):
    """How to draw the sizes of apps."""

    LOG_NORMAL = "log-normal"
    BIMODAL = "bimodal"
    POWERS = "powers of two"
    OPENB = "openb"
    HUGE = "few huge"
    # Added after the others: no constant of the packer was tuned on it.
    TAIL = "heavy tail"
    # Added later too: much CPU with little memory, and GPUs as a third scarce resource.
    GPUS = "GPUs"


class DrawnBudgets(StrEnum):
    """How many evictions PodDisruptionBudgets allow."""

    LOOSE = "loose"
    USUAL = "usual"
    SHUT = "a third shut"


@dataclass(frozen=True, slots=True)
class FullCluster:
    """A cluster to draw."""

    make: ClusterDrawing
    nodes: int
    pods_per_node: int = 30
    priorities: int = 1
    budgets: DrawnBudgets = DrawnBudgets.USUAL
    # The pods, as a percentage of those that fill the cluster: up to 100 all of them fit.
    percent: int = 100

    def __str__(self) -> str:
        tiers = f", {self.priorities} priorities" if self.priorities > 1 else ""
        share = f", {self.percent} %" if self.percent != 100 else ""
        return f"{self.make}, {self.nodes}x{self.pods_per_node}{share}{tiers}, budgets {self.budgets}"


def draw_full(full: FullCluster, seed: int, objective: PackingObjective = PackingObjective.PAPER) -> PackingProblem:
    """Draw a cluster, with pods placed by the scheduler."""
    source = np.random.default_rng([seed, full.nodes, list(ClusterDrawing).index(full.make)])
    sizes = _SIZES[full.make](source, full)
    resources = ("cpu", "memory", "gpus", "pods") if full.make is ClusterDrawing.GPUS else ("cpu", "memory", "pods")
    apps = len(sizes)
    demands = np.column_stack([sizes, np.ones(apps, dtype=np.int64)])
    capacities = _capacities(full)
    pod_class = _filled(source, demands, capacities)
    pod_class = (
        source.choice(pod_class, len(pod_class) * full.percent // 100, replace=False)
        if full.percent < 100
        else (np.concatenate([pod_class, source.integers(0, apps, len(pod_class) * (full.percent - 100) // 100)]))
    )
    pod_class = pod_class[np.argsort(source.permutation(apps)[pod_class], kind="stable")]
    replicas = np.bincount(pod_class, minlength=apps)
    everywhere = np.ones((1, full.nodes), dtype=np.bool_)
    pod_node = place_pods(LargeClusterShape(full.nodes), demands, capacities, pod_class, everywhere)
    shut = source.random(apps) < 1 / 3
    allowed = np.maximum(1, replicas // 4)
    limits = (
        ()
        if full.budgets is DrawnBudgets.LOOSE
        else tuple(
            EvictionLimit(
                f"app-{c}", np.array([c]), 0 if full.budgets is DrawnBudgets.SHUT and shut[c] else int(allowed[c])
            )
            for c in range(apps)
        )
    )
    movable = source.random(apps) >= 0.1
    priorities = source.integers(0, full.priorities, apps).astype(np.int64)
    # In operation, pods of the highest pending priority or above are not preempted.
    top = priorities[pod_class[pod_node < 0]].max(initial=-1)
    below = priorities <= top if objective is PackingObjective.PAPER else priorities < top
    return PackingProblem(
        resources=resources,
        capacities=capacities,
        demands=demands,
        headroom=np.zeros_like(demands),
        priorities=priorities,
        movable=movable,
        preemptible=movable & below,
        preempt=np.ones(apps, dtype=np.bool_),
        weights=np.full(apps, 2, dtype=np.int64),
        max_on_node=np.full(apps, len(pod_class), dtype=np.int64),
        node_mask_of_class=np.zeros(apps, dtype=np.int64),
        allowed_nodes=everywhere,
        pod_class=pod_class,
        pod_node=pod_node,
        rules=PlacementRules(np.zeros((0, full.nodes), dtype=np.int64), eviction_limits=limits),
        objective=objective,
    )


def _capacities(full: FullCluster) -> IntArray:
    kinds = np.array([[_CORES, _MEBIBYTES, _SLOTS]] * full.nodes, dtype=np.int64)
    if full.make is not ClusterDrawing.GPUS:
        return kinds
    return np.insert(kinds, 2, np.where(np.arange(full.nodes) % _GPU_NODES == 0, _GPUS, 0), axis=1)


def _filled(source: np.random.Generator, demands: IntArray, capacities: IntArray) -> IntArray:
    """Fill nodes with pods of random apps until nothing more fits; return the app of each pod."""
    classes: list[int] = []
    for capacity in capacities:
        left, tries = capacity, 0
        while tries < _TRIES:
            app = int(source.integers(len(demands)))
            if (demands[app] <= left).all():
                left = left - demands[app]
                classes.append(app)
                tries = 0
            else:
                tries += 1
    return np.array(classes, dtype=np.int64)


def _apps(full: FullCluster) -> int:
    return max(full.nodes * full.pods_per_node // 8, 4)


def _scaled(shares: FloatArray, full: FullCluster) -> IntArray:
    """Draw sizes with a mean of one node divided by its pods."""
    mean = np.array([_CORES, _MEBIBYTES]) / full.pods_per_node
    sizes = shares / shares.mean(axis=0) * mean
    found: IntArray = np.clip(sizes.round().astype(np.int64), [5, 16], [_CORES // 2, _MEBIBYTES // 2])
    return found


def _log_normal(source: np.random.Generator, full: FullCluster) -> IntArray:
    return _scaled(np.exp(source.normal(0.0, 1.0, (_apps(full), 2))), full)


def _bimodal(source: np.random.Generator, full: FullCluster) -> IntArray:
    large = source.random((_apps(full), 1)) < 0.15
    return _scaled(np.where(large, 6.0, 0.6) * source.uniform(0.7, 1.3, (_apps(full), 2)), full)


def _powers(source: np.random.Generator, full: FullCluster) -> IntArray:
    sizes = _scaled(np.exp(source.normal(0.0, 0.9, (_apps(full), 2))), full)
    return np.asarray(2 ** np.round(np.log2(sizes)).astype(np.int64), dtype=np.int64)


def _openb(source: np.random.Generator, full: FullCluster) -> IntArray:
    with (OPENB / "openb_pod_list_default.csv").open(newline="") as file:
        rows = [(int(row["cpu_milli"]), int(row["memory_mib"])) for row in csv.DictReader(file)]
    known = np.array([row for row in rows if min(row) > 0], dtype=np.float64)
    return _scaled(known[source.integers(len(known), size=_apps(full))], full)


def _huge(source: np.random.Generator, full: FullCluster) -> IntArray:
    sizes = _scaled(source.uniform(0.2, 1.0, (_apps(full), 2)), full)
    huge = source.random(len(sizes)) < 0.02
    sizes[huge] = (np.array([_CORES, _MEBIBYTES]) * source.uniform(0.3, 0.6, (int(huge.sum()), 1))).astype(np.int64)
    return sizes


def _tail(source: np.random.Generator, full: FullCluster) -> IntArray:
    """Draw correlated CPU and memory without an upper bound, and small apps like DaemonSets."""
    apps = _apps(full)
    wide = (1.0 + source.pareto(1.3, (apps, 1))) * np.exp(source.normal(0.0, 0.3, (apps, 2)))
    daemons = source.random((apps, 1)) < 0.3
    return _scaled(np.where(daemons, source.uniform(0.02, 0.08, (apps, 2)), np.minimum(wide, 60.0)), full)


def _gpus(source: np.random.Generator, full: FullCluster) -> IntArray:
    """Draw inversely correlated CPU and memory; an eighth of the apps request GPUs, and more of the other resources."""
    apps = _apps(full)
    leaning = source.normal(0.0, 0.9, (apps, 1))
    sizes = _scaled(np.exp(np.hstack([leaning, -leaning]) + source.normal(0.0, 0.4, (apps, 2))), full)
    gpus = np.where(source.random(apps) < 0.125, source.choice([1, 2, 3, 5], apps), 0)
    wide = np.minimum(sizes * (1 + gpus)[:, None], [_CORES // 2, _MEBIBYTES // 2])
    return np.column_stack([wide, gpus])


_SIZES: dict[ClusterDrawing, Callable[[np.random.Generator, FullCluster], IntArray]] = {
    ClusterDrawing.LOG_NORMAL: _log_normal,
    ClusterDrawing.BIMODAL: _bimodal,
    ClusterDrawing.POWERS: _powers,
    ClusterDrawing.OPENB: _openb,
    ClusterDrawing.HUGE: _huge,
    ClusterDrawing.TAIL: _tail,
    ClusterDrawing.GPUS: _gpus,
}
