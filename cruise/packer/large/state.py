"""The kernels' board of a problem."""

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.kernels.cluster_state import UNLIMITED, ClusterState, settle
from cruise.packer.kernels.rule_counts import CLOSED
from cruise.packer.problem import Problem
from cruise.packer.rules.by_class import RulesByClass
from cruise.packer.rules.tables import tables_of

_BUCKETS = 128
_MOST_LINES = 64
_LOG_LENGTH = 4096


def state_of(problem: Problem, rules: RulesByClass, pod_node: IntArray) -> ClusterState:
    """The board of an assignment that obeys every rule."""
    nodes, resources = problem.capacities.shape
    pods, classes = problem.pod_count, problem.class_count
    ranks = np.searchsorted(-np.unique(problem.priorities)[::-1], -problem.priorities).astype(np.int64)
    limit_starts = np.zeros(classes + 1, dtype=np.int64)
    np.cumsum([len(rules.limits.get(c, ())) for c in range(classes)], out=limit_starts[1:])
    limits = np.array([i for c in range(classes) for i in rules.limits.get(c, ())], dtype=np.int64)
    siblings = np.diff(rules.starts)
    wanted = problem.demands[problem.pod_class].sum(axis=0)
    total = np.maximum(problem.capacities.sum(axis=0), 1)
    scarce = np.argsort(-(wanted / total), kind="stable")[:2].astype(np.int64)
    scarce = scarce if resources > 1 else np.zeros(2, dtype=np.int64)
    unit = np.maximum(problem.demands[:, scarce].max(axis=0, initial=1) // (_BUCKETS - 2), 1)
    site_count = problem.admits.shape[0]
    line = np.arange(site_count) if site_count <= _MOST_LINES else np.zeros(site_count)
    # What is short weighs most; a resource with much to spare hardly anything.
    shares = 1.0 / np.maximum(total - wanted, total // 100 + 1).astype(np.float64)
    tables = tables_of(problem, rules)
    most_evicted = problem.rules.most_evicted
    state = ClusterState(
        demands=np.ascontiguousarray(problem.demands),
        headroom=np.ascontiguousarray(problem.headroom),
        ranks=ranks,
        loose=problem.movable & (tables[tables[CLOSED] + np.arange(classes)] == 0),
        preemptible=problem.preemptible,
        preempt=problem.preempt,
        most=np.where(problem.most_on_node >= siblings, UNLIMITED, problem.most_on_node).astype(np.int64),
        sites=problem.sites,
        admits=problem.admits,
        limit_starts=limit_starts,
        limits=limits,
        left=np.array([limit.allowed for limit in problem.rules.eviction_limits], dtype=np.int64),
        left_on=np.full(nodes, UNLIMITED, dtype=np.int64) if most_evicted is None else most_evicted.copy(),
        pod_class=problem.pod_class,
        home=problem.pod_node,
        at=pod_node.copy(),
        head=np.full(nodes, -1, dtype=np.int64),
        after=np.full(pods, -1, dtype=np.int64),
        before=np.full(pods, -1, dtype=np.int64),
        free=problem.capacities.copy(),
        largest=np.zeros((nodes, resources), dtype=np.int64),
        lost=np.zeros(nodes, dtype=np.int64),
        timid=np.zeros(nodes, dtype=np.int64),
        guests=np.zeros(nodes, dtype=np.int64),
        dropped=np.zeros(pods, dtype=np.bool_),
        pinned=np.zeros(pods, dtype=np.bool_),
        rooted=np.zeros(1, dtype=np.bool_),
        span=np.array([0, 1], dtype=np.int64),
        shares=shares,
        scarce=scarce,
        unit=unit.astype(np.int64),
        line=line.astype(np.int64),
        sky=np.zeros((min(site_count, _MOST_LINES) if site_count <= _MOST_LINES else 1, _BUCKETS), dtype=np.int64),
        log=np.zeros((_LOG_LENGTH, 3), dtype=np.int64),
        logged=np.zeros(1, dtype=np.int64),
        spent=np.zeros(1, dtype=np.int64),
        tables=tables,
    )
    settle(state)
    return state
