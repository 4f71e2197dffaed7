"""The CPU that containers get on a crowded node, and those that are killed where memory runs out."""

from collections.abc import Sequence

import numpy as np

from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.cluster import QosClass

SMALLEST_WEIGHT = 2.0  # cpu.shares never go below 2
_GUARANTEED_ADJUSTMENT = -997
_BEST_EFFORT_ADJUSTMENT = 1000


def share_cpu(wanted: Float64Array, weight: Float64Array, node: Int64Array, capacity: Float64Array) -> Float64Array:
    """Return what each container gets of its node's CPU, all in millicores.

    As the kernel's fair scheduler does: by weight, never more than wanted, and what one leaves goes to the others.
    `node` is each container's index in `capacity`.
    """
    got = wanted.copy()
    crowded = np.bincount(node, weights=wanted, minlength=len(capacity)) > capacity
    places = np.flatnonzero(crowded[node])
    if not places.size:
        return got
    left = capacity.copy()
    while places.size:
        weights = np.maximum(weight[places], SMALLEST_WEIGHT)
        of_node = node[places]
        total = np.bincount(of_node, weights=weights, minlength=len(capacity))
        share = left[of_node] * weights / total[of_node]
        content = wanted[places] <= share
        # Where none wants less than the share, the share is what they get; elsewhere the content ones step back.
        settling = np.bincount(of_node[content], minlength=len(capacity)) > 0
        final = content | ~settling[of_node]
        got[places[final]] = np.minimum(wanted[places[final]], share[final])
        left -= np.bincount(of_node[content], weights=wanted[places[content]], minlength=len(capacity))
        places = places[~final]
    return got


def waiting_share(wanted: Float64Array, got: Float64Array) -> Float64Array:
    """Return the share of time in which a container waits for CPU: what pressure stall information reports."""
    share = np.zeros_like(wanted)
    np.divide(wanted - got, wanted, out=share, where=wanted > 0)
    return np.clip(share, 0.0, 1.0)


def over_limit(memory: Float64Array, limit: Float64Array) -> BoolArray:
    """Tell which containers would go beyond their memory limit and are killed."""
    over: BoolArray = memory > limit  # NaN, not running, is over nothing
    return over


def oom_score_adjustment(qos: QosClass, memory_request: int, node_memory: int) -> int:
    """Return the kubelet's `oom_score_adj` of a container. Source: Kubernetes, Node OOM behavior."""
    match qos:
        case QosClass.GUARANTEED:
            return _GUARANTEED_ADJUSTMENT
        case QosClass.BEST_EFFORT:
            return _BEST_EFFORT_ADJUSTMENT
        case QosClass.BURSTABLE:
            return min(max(3, 1000 - 1000 * memory_request // max(1, node_memory)), 999)


def node_victims(memory: Sequence[float], adjustment: Sequence[int], node_memory: int) -> list[int]:
    """Return, in killing order, what the kernel kills until the rest fits the node's memory.

    `memory` in bytes, 0 for what does not run. The largest badness goes first: memory plus the adjustment's
    thousandths of the node's memory; of equals the first.
    """
    left = sum(memory)
    badness = [used + share * node_memory / 1000 for used, share in zip(memory, adjustment, strict=True)]
    victims: list[int] = []
    for index in sorted(range(len(memory)), key=lambda index: (-badness[index], index)):
        if left <= node_memory:
            break
        if memory[index] > 0:
            victims.append(index)
            left -= memory[index]
    return victims
