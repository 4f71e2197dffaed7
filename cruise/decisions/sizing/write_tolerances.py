"""How far sizes may drift before they are written, and how often pods are resized (ADR 0009)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.headroom import HeadroomModel
from cruise.decisions.sizing.headroom_level import LEAST_LEVEL
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName

# Share of its pods' need that a node may lack before requests increase: CPU needs change by that much between passes.
# Memory has none: a slow leak would stay below any share for hours.
SHORTAGE_SHARE = {ResourceName.CPU: 0.05, ResourceName.MEMORY: 0.0}
# What it may lack in addition at the least level of headroom: requests are above the need most of the time, and would
# keep less than the stated risk. Usage that lasts is a base, and an under-requested base grows anyway.
UNSPENT_SHORTAGE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class WriteDamping:
    """How far sizes may drift before they are written, and which conditions have lasted long enough.

    `tolerances` is by how much, relative to their need, a node's requests may exceed it, `shortage_shares` by how much
    they may be below it. `over_requested` (per node) and `under_requested` (per container) tell whether the condition
    has outlasted its stabilization. `past_cooldown` (per pod): whether a request may decrease: its shrink cooldown
    is over, and its daily number of resizes is not used up. `flag_unsized` returns which of some pods, given by index,
    still request what their owners asked for: there was no decision that may prove wrong, so they need not wait.
    """

    tolerances: Mapping[ResourceName, float]
    shortage_shares: Mapping[ResourceName, float]
    over_requested: Mapping[ResourceName, BoolArray]
    under_requested: Mapping[ResourceName, BoolArray]
    past_cooldown: Mapping[ResourceName, BoolArray]
    flag_unsized: Callable[[Int64Array], BoolArray]

    def flag_due(self, resource: ResourceName, pods: Int64Array, nodes: Int64Array) -> BoolArray:
        """Return which pods of over-requested nodes need not wait any longer, by the indices of pods and nodes."""
        is_due = self.over_requested[resource][nodes]
        waiting = np.flatnonzero(~is_due)
        is_due[waiting] = self.flag_unsized(pods[waiting])
        return is_due


def is_within_write_budget(writes_by_pod: Int64Array, total_writes: int, policy: Policy) -> BoolArray:
    """Return for each pod whether its requests may decrease, given the resizes of the last day.

    The budget is an average: no pod is limited while the cluster is below it, then those that were resized more often
    are.
    """
    if total_writes < policy.resizes_per_container_day * len(writes_by_pod):
        return np.ones(len(writes_by_pod), dtype=np.bool_)
    within: BoolArray = writes_by_pod < policy.resizes_per_container_day
    return within


def get_over_request_tolerances(policy: Policy) -> Mapping[ResourceName, float]:
    """Return by how much, relative to their need, the requests on a node may exceed it."""
    return {ResourceName.CPU: policy.cpu_tolerance, ResourceName.MEMORY: policy.memory_tolerance}


def compute_under_request_tolerance(resource: ResourceName, level: float) -> float:
    """Return by how much, relative to their need, the requests on a node may be below it before they increase.

    It is larger at levels of headroom below zero: nodes run short less often than stated (ADR 0007).
    """
    unspent = max(level / LEAST_LEVEL, 0.0) if resource is ResourceName.CPU else 0.0
    return SHORTAGE_SHARE[resource] + UNSPENT_SHORTAGE_SHARE * unspent


def get_under_request_tolerances(headroom: HeadroomModel) -> Mapping[ResourceName, float]:
    """Return the shortage share of each resource at the model's present level."""
    risks = {one: headroom.get_observed_risk(one) for one in ResourceName}
    return {
        one: compute_under_request_tolerance(one, 0.0 if risk is None else risk.level) for one, risk in risks.items()
    }
