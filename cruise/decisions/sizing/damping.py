"""Write damping: chooses which size changes are worth a resize.

What counts is the sum of a node's requests; a pod's own request may stay where it is. A node's sum is kept while it is
at least what its pods need together and at most a tolerance above that. Shortages are relieved immediately and
over-requests late, by resizing the fewest pods, those furthest from their targets. ADR 0009.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.demand import PEAK_MARGIN_SHARE, ResourceDemand, compute_kept_requests
from cruise.decisions.sizing.fitting import NodeFit
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.decisions.sizing.write_tolerances import WriteDamping
from cruise.domain.actions import ResizeCause
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array, round_up
from cruise.domain.resources import ROUNDING_UNIT, ResourceName

Sizes = Mapping[ResourceName, Int64Array]


class Targets(NamedTuple):
    """The targets of all containers, with and without what only a LimitRange requires.

    A running pod does not need what a LimitRange requires: the API server checks it only when something is written.
    """

    with_limit_ranges: Sizes
    without_limit_ranges: Sizes


# Share by which a base must exceed a request before that alone causes a resize: pods peak at different times.
UNDER_REQUESTED_SHARE = {ResourceName.CPU: 0.25, ResourceName.MEMORY: 0.1}
# Share of the tolerance that remains above the need after requests are decreased.
TOLERANCE_LEFT_SHARE = 1 / 3


class ResizeUrgency(IntEnum):
    """Why a size is written, in ascending urgency."""

    UNCHANGED = 0
    OVER_REQUESTED = 1
    OUT_OF_BOUNDS = 2
    CAPACITY_NEEDED_BY_OTHERS = 3
    NODE_UNDER_PRESSURE = 4
    USAGE_NEAR_LIMIT = 5
    UNDER_REQUESTED = 6

    @property
    def resize_cause(self) -> ResizeCause | None:
        """The cause as plans and audits name it."""
        return None if self is ResizeUrgency.UNCHANGED else ResizeCause[self.name]


ResizeUrgencyColumn = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class DampedSizes:
    """The requests to write, the present ones where nothing is written, and the urgency of each container.

    Per node and before anything is written: `needed` is what its pods need together, `requested` what they request.
    `over_requested` (per node) and `under_requested` (per container) are the conditions of this pass, however long they
    have lasted.
    """

    requests: Sizes
    urgency: Mapping[ResourceName, ResizeUrgencyColumn]
    needed: Mapping[ResourceName, Float64Array]
    requested: Mapping[ResourceName, Float64Array]
    over_requested: Mapping[ResourceName, BoolArray]
    under_requested: Mapping[ResourceName, BoolArray]


def choose_sizes_to_write(
    columns: NodePodColumns, fit: NodeFit, targets: Targets, damping: WriteDamping, maximum: Sizes
) -> DampedSizes:
    """Choose the size changes that are worth a resize; no request exceeds `maximum`."""
    requests, urgency, needed, requested, over_requested, under_requested = {}, {}, {}, {}, {}, {}
    resources = [_ResourceDamping(columns, fit, one, targets, maximum[one], damping) for one in ResourceName]
    for one in resources:
        needed[one.resource], requested[one.resource] = one.need, one.get_requested()
        one.grow_under_requested()
        one.grow_guaranteed()
        one.grow_for_node()
        one.apply_bounds()
        one.restore_for_autoscalers()
        one.shrink_over_requested()
        one.free_capacity()
        # Capacity was freed by removing margins that the node's sum may have needed.
        while one.grow_for_node():
            one.free_capacity()
    while [one for one in resources if one.apply_limit_ranges(_written(columns, resources))]:
        for one in resources:
            one.free_capacity()
    for one in resources:
        requests[one.resource], urgency[one.resource] = one.sizes, one.urgency
        over_requested[one.resource], under_requested[one.resource] = one.is_over_requested, one.is_under_requested
    return DampedSizes(requests, urgency, needed, requested, over_requested, under_requested)


def _written(columns: NodePodColumns, resources: Sequence["_ResourceDamping"]) -> BoolArray:
    """Return for each pod whether any of its requests is written."""
    changed = np.logical_or.reduce([one.urgency > ResizeUrgency.UNCHANGED for one in resources])
    return columns.candidates.any_by_pod(changed)


class _ResourceDamping:
    """The damping of one resource on all nodes; each step changes `sizes` and `urgency` in place."""

    def __init__(
        self,
        columns: NodePodColumns,
        fit: NodeFit,
        resource: ResourceName,
        targets: Targets,
        maximum: Int64Array,
        damping: WriteDamping,
    ) -> None:
        self._columns = columns
        self._fit = fit
        self.resource = resource
        self._damping = damping
        self._maximum = maximum
        self._targets = targets.without_limit_ranges[resource]
        self._whole_targets = targets.with_limit_ranges[resource]
        demand = columns.table.get_resource(resource)
        self._demand: ResourceDemand = demand
        self._counts = demand.managed & fit.remains[columns.candidates.pod_of_container]
        self.need = self._sum_by_node(self._targets)
        # A headroom factor below 1 reduces the margin as well.
        self._margin_factor = np.minimum(columns.candidates.headroom_factor, 1.0)
        self._targets_with_margin = np.minimum(self._add_margin(self._targets), maximum)
        self._growth_targets = (
            self._targets_with_margin if resource is ResourceName.CPU else self._exceed_update_threshold(maximum)
        )
        self.sizes = demand.current.copy()
        self.urgency: ResizeUrgencyColumn = np.zeros(len(self.sizes), dtype=np.int8)
        self.is_under_requested = self._counts & (demand.current < demand.base * (1 - UNDER_REQUESTED_SHARE[resource]))
        self._is_guaranteed = columns.candidates.guaranteed[columns.candidates.pod_of_container]
        self.is_under_requested &= (self._targets > demand.current) & ~self._is_guaranteed
        self._kept_requests = compute_kept_requests(columns.candidates, resource, demand)
        self.is_over_requested = np.zeros(len(columns.nodes), dtype=np.bool_)
        # The sums of one state of `sizes`.
        self._summed_sizes: Int64Array | None = None
        self._requested_by_pod: Int64Array = np.zeros(0, dtype=np.int64)
        self._requested_by_node: Float64Array = np.zeros(0)

    def grow_under_requested(self) -> None:
        """Increase requests that have been exceeded for long or are missing."""
        chosen = self.is_under_requested & (self._damping.under_requested[self.resource] | (self._demand.current == 0))
        self._set(chosen, self._targets_with_margin, ResizeUrgency.UNDER_REQUESTED)

    def grow_guaranteed(self) -> None:
        """Increase requests of Guaranteed pods, which cannot use more than that, by the update threshold or more."""
        threshold, current = self._columns.candidates.update_threshold, self._demand.current
        chosen = self._counts & self._is_guaranteed & (self._targets > current)
        chosen &= threshold.is_exceeded(self.resource, current, self._targets)
        self._set(chosen, np.minimum(self._targets, self._maximum), ResizeUrgency.USAGE_NEAR_LIMIT)

    def grow_for_node(self) -> bool:
        """Increase the requests furthest below their targets on nodes with a shortage; return whether any changed."""
        need = self._get_need_after_growth()
        missing = need - self.get_requested()
        least = self._columns.candidates.update_threshold.minimum.get(self.resource)
        missing[missing <= np.maximum(need * self._damping.shortage_shares[self.resource], least)] = 0.0
        if not (missing > 0).any():
            return False
        possible = np.where(self._counts & (self._targets > self.sizes), self._growth_targets - self.sizes, 0)
        covering = np.maximum(possible - self._get_kept_growth(self._growth_targets), 0)
        # Growth below what init containers request adds nothing to the pod's sum.
        growth_by_pod = self._sum_by_pod(self.sizes + covering) - self._get_requested_by_pod()
        chosen = (self._share_among_fewest(growth_by_pod, missing, missing) > 0)[
            self._columns.candidates.pod_of_container
        ] & (possible > 0)
        self._set(chosen, self._growth_targets, ResizeUrgency.NODE_UNDER_PRESSURE)
        return bool(chosen.any())

    def _get_need_after_growth(self) -> Float64Array:
        """Return what the pods of each node need together once what has grown so far is written."""
        grown = np.where(self.sizes > self._demand.current, self._get_kept_growth(self.sizes), 0)
        return self._sum_by_node(self._targets + grown) if grown.any() else self.need

    def _get_kept_growth(self, sizes: Int64Array) -> Int64Array:
        """Return by how much growing to `sizes` raises the need itself, which is then not covered by it.

        It is what a container keeps (`compute_kept_requests`), and all that a Guaranteed pod grew to.
        """
        kept = np.where(self._is_guaranteed, sizes, np.minimum(sizes, self._kept_requests))
        return np.maximum(kept - self._targets, 0)

    def apply_bounds(self) -> None:
        """Decrease requests that are above their upper bound."""
        self._set(self._counts & (self.sizes > self._demand.upper), self._targets, ResizeUrgency.OUT_OF_BOUNDS)

    def restore_for_autoscalers(self) -> None:
        """Increase requests that are too small for an HPA to keep its replicas at the largest use of the history."""
        bounds = self._columns.table.utilisation_bounds.get(self.resource)
        if bounds is None:
            return
        least = np.minimum(bounds[0], np.minimum(self._whole_targets, self._maximum))
        self._set(self._counts & (self.sizes < least), least, ResizeUrgency.OUT_OF_BOUNDS)

    def apply_limit_ranges(self, written: BoolArray) -> bool:
        """Increase requests that a LimitRange would reject, in pods that are written anyway; return whether any did."""
        least = np.minimum(self._demand.lower, self._whole_targets)
        short = self._counts & written[self._columns.candidates.pod_of_container] & (self.sizes < least)
        self._set(short, least, ResizeUrgency.OUT_OF_BOUNDS)
        self._targets = np.where(short, np.maximum(self._targets, least), self._targets)
        return bool(short.any())

    def shrink_over_requested(self) -> None:
        """Decrease the requests of the most idle pods on nodes that have been over-requested for long.

        Requests above the pod's own peak are cut to it first, then the others to their targets plus a margin. Pods
        within their shrink cooldown, and pods whose requests increase, are not cut. Pods that were never sized are cut
        at once.
        """
        tolerance = self._damping.tolerances[self.resource]
        self.is_over_requested = self.get_requested() > self.need * (1 + tolerance)
        if not self.is_over_requested.any():
            return
        is_due = self.is_over_requested[self._columns.node_of_pod]
        pods = np.flatnonzero(is_due)
        is_due[pods] = self._damping.flag_due(self.resource, pods, self._columns.node_of_pod[pods])
        peaks = np.maximum(self._targets_with_margin, np.minimum(self._round_up(self._demand.peak), self._demand.upper))
        is_due &= self._damping.past_cooldown[self.resource]
        may_shrink = self._counts & (self.urgency == ResizeUrgency.UNCHANGED)
        may_shrink &= is_due[self._columns.candidates.pod_of_container]
        for floor in (peaks, self._targets_with_margin):
            excess = self.get_requested() - self.need * (1 + tolerance * TOLERANCE_LEFT_SHARE)
            excess[~self.is_over_requested] = 0.0
            amounts = np.where(may_shrink, np.maximum(self.sizes - floor, 0), 0)
            self._cut(amounts, excess, ResizeUrgency.OVER_REQUESTED)

    def free_capacity(self) -> None:
        """Decrease requests above their targets where growth or replacements need the capacity, the most idle first."""
        columns, resource = self._columns, self.resource
        sums = columns.candidates.sum_by_pod(resource, self.sizes)
        changed = columns.candidates.any_by_pod(self.urgency > ResizeUrgency.UNCHANGED)
        planned = np.where(changed, sums, np.where(columns.candidates.manages[resource], columns.counted[resource], 0))
        excess = columns.sum_by_node(np.where(self._fit.remains, planned, 0)) - columns.available[resource]
        for node, reserved in self._fit.reserved_for_replacements.items():
            excess[node] += reserved.get(resource)
        if (excess > 0).any():
            amounts = np.where(self._counts, np.maximum(self.sizes - self._targets, 0), 0)
            self._cut(amounts, excess.astype(np.float64), ResizeUrgency.CAPACITY_NEEDED_BY_OTHERS)

    def _add_margin(self, targets: Int64Array) -> Int64Array:
        """Return targets plus a margin, within the peak and the bounds, and never below the targets."""
        factor = 1 + PEAK_MARGIN_SHARE[self.resource] * self._margin_factor
        with_margin = np.minimum(self._round_up(targets.astype(np.float64) * factor), self._demand.upper)
        return np.maximum(np.minimum(with_margin, self._round_up(self._demand.peak)), targets)

    def _exceed_update_threshold(self, maximum: Int64Array) -> Int64Array:
        """Return growth targets that exceed the update threshold wherever `maximum` allows it."""
        current, threshold = self._demand.current, self._columns.candidates.update_threshold
        exceeding = self._round_up(
            current + np.maximum(current * threshold.share, threshold.minimum.get(self.resource))
        )
        return np.maximum(self._targets_with_margin, np.minimum(exceeding, maximum))

    def _round_up(self, values: Int64Array | Float64Array) -> Int64Array:
        return round_up(values.astype(np.float64), ROUNDING_UNIT[self.resource])

    def get_requested(self) -> Float64Array:
        """Return the sum of the sizes on each node."""
        self._sum_up()
        return self._requested_by_node

    def _get_requested_by_pod(self) -> Int64Array:
        self._sum_up()
        return self._requested_by_pod

    def _sum_up(self) -> None:
        if self._summed_sizes is not self.sizes:
            self._summed_sizes, self._requested_by_pod = self.sizes, self._sum_by_pod(self.sizes)
            self._requested_by_node = self._columns.sum_by_node(self._requested_by_pod).astype(np.float64)

    def _sum_by_pod(self, values: Int64Array) -> Int64Array:
        """Return what kube-scheduler counts for each pod at these sizes, 0 for pods that are evicted."""
        return np.where(self._fit.remains, self._columns.candidates.sum_by_pod(self.resource, values), 0)

    def _sum_by_node(self, values: Int64Array) -> Float64Array:
        return self._columns.sum_by_node(self._sum_by_pod(values)).astype(np.float64)

    def _set(self, chosen: BoolArray, sizes: Int64Array, urgency: ResizeUrgency) -> None:
        if not chosen.any():
            return
        self.sizes = np.where(chosen, sizes, self.sizes)
        self.urgency[chosen] = np.maximum(self.urgency[chosen], np.int8(urgency))

    def _cut(self, amounts: Int64Array, excess: Float64Array, urgency: ResizeUrgency) -> None:
        """Decrease requests by up to `amounts` in the fewest pods that free the `excess` of each node.

        A pod frees only by how much its own sum falls: nothing where its init containers request as much. Pods are cut
        by their whole amount, unless the node would then have less than it needs even if growth is withheld.
        """
        if not (excess > 0).any():
            return
        reductions = self._get_requested_by_pod() - self._sum_by_pod(self.sizes - amounts)
        maximum = np.maximum(self._sum_by_node(np.minimum(self.sizes, self._demand.current)) - self.need, excess)
        share = self._share_among_fewest(reductions, excess, maximum)
        reduced, wanted = self._reduce(amounts, share), share * reductions
        # A pod's sum falls with its containers' until it is what its init containers request: two steps find the share.
        in_total = np.add.reduceat(amounts, self._columns.candidates.first_container)
        overshoots = (share > 0) & (share < 1) & (in_total > reductions)
        for _ in range(2 if overshoots.any() else 0):
            freed = self._get_requested_by_pod() - self._sum_by_pod(reduced)
            share = np.where(overshoots & (freed > wanted), share * wanted / np.maximum(freed, 1), share)
            reduced = self._reduce(amounts, share)
        self._set((share > 0)[self._columns.candidates.pod_of_container] & (reduced < self.sizes), reduced, urgency)

    def _reduce(self, amounts: Int64Array, share: Float64Array) -> Int64Array:
        """Return the sizes without each pod's share of the amounts, in whole units."""
        of_containers = share[self._columns.candidates.pod_of_container]
        reduced: Int64Array = np.maximum(-self._round_up(amounts * of_containers - self.sizes), self.sizes - amounts)
        return reduced

    def _share_among_fewest(self, amounts: Int64Array, wanted: Float64Array, maximum: Float64Array) -> Float64Array:
        """Return what share of its amount each pod gives, so that each node gets what is wanted and at most `maximum`.

        The largest amounts come first, equal ones by name.
        """
        columns = self._columns
        shares = np.zeros(len(columns.node_of_pod))
        if not (wanted > 0).any() or not shares.size:
            return shares
        order = np.flatnonzero((amounts > 0) & (wanted > 0)[columns.node_of_pod])
        order = order[np.lexsort((order, -amounts[order], columns.node_of_pod[order]))]
        nodes, sorted_amounts = columns.node_of_pod[order], amounts[order]
        before = np.cumsum(sorted_amounts) - sorted_amounts
        sum_before = before - before[np.searchsorted(nodes, nodes)]
        share = np.clip((maximum[nodes] - sum_before) / sorted_amounts, 0.0, 1.0)
        shares[order] = np.where(sum_before < wanted[nodes], share, 0.0)
        return shares
