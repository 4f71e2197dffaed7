"""Which sizes are worth a write: a node's sum is the promise, and a pod's number is a share of it that may stay.

A node keeps what its pods have been given while that is no less than they need together, and no more than a band above
it. What has to change is mended by the fewest pods, those that are furthest from their targets. It grows at once and
shrinks late. ADR 0057 has what else was tried, and the figures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.fitting import NodeFit
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.decisions.sizing.recommendation import PEAK_MARGIN_SHARE, ROUNDING_UNIT, ResourceDemand
from cruise.domain.actions import ResizeCause
from cruise.domain.policy import Policy
from cruise.domain.resources import BoolArray, Float64Array, Int64Array, ResourceName, round_up

Sizes = Mapping[ResourceName, Int64Array]


class Targets(NamedTuple):
    """The targets of all containers: as a `whole`, and as far as they are `needed`.

    What a LimitRange asks of requests is not needed by a pod that runs: the server checks it where something is
    written.
    """

    whole: Sizes
    needed: Sizes


# How far a base may be above a request before that is a reason by itself: pods take turns in what their node keeps.
UNDER_REQUESTED_EVENT = {ResourceName.CPU: 0.25, ResourceName.MEMORY: 0.1}
# What a node may lack of what its pods need together before it grows: needs move by so much from pass to pass. A slow
# leak would lack less than any share of its memory for hours.
SHORTAGE_EVENT = {ResourceName.CPU: 0.05, ResourceName.MEMORY: 0.0}
# How much of the band a cut leaves.
UNCHANGED_EVENT = 1 / 3


class ResizeUrgency(IntEnum):
    """Why a size is written, the more urgent the higher."""

    UNCHANGED = 0
    OVER_REQUESTED = 1
    OUT_OF_BOUNDS = 2
    CAPACITY_NEEDED_BY_OTHERS = 3
    NODE_UNDER_PRESSURE = 4
    USAGE_NEAR_LIMIT = 5
    UNDER_REQUESTED = 6

    @property
    def to_resize_cause(self) -> ResizeCause | None:
        """The cause as plans and audits name it."""
        return None if self is ResizeUrgency.UNCHANGED else ResizeCause[self.name]


ResizeUrgencyColumn = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class WriteDamping:
    """How far sizes may drift before they are written, and what has gone on for long enough by now.

    `bands` has the share above what a node needs in which its sum may lie. `above` tells of each node whether it has
    been above its band for long, `below` of each container whether its base has been above its request, and `rested` by
    resource of each pod whether the resource may shrink: its cooldown is over, and the pod has writes left for the day.
    """

    tolerances: Mapping[ResourceName, float]
    over_requested: Mapping[ResourceName, BoolArray]
    under_requested: Mapping[ResourceName, BoolArray]
    past_cooldown: Mapping[ResourceName, BoolArray]


@dataclass(frozen=True, slots=True)
class DampedSizes:
    """What is worth a write: the requests as they are to be, current where nothing is, and why, by container.

    By node, `need` is what its pods need together and `have` what they have, before anything is written. `above` and
    `below` tell what goes on now, whether for long or not: nodes above their bands, and containers whose
    bases are above their requests.
    """

    requests: Sizes
    urgency: Mapping[ResourceName, ResizeUrgencyColumn]
    needed: Mapping[ResourceName, Float64Array]
    requested: Mapping[ResourceName, Float64Array]
    over_requested: Mapping[ResourceName, BoolArray]
    under_requested: Mapping[ResourceName, BoolArray]


def is_within_write_budget(of_pods: Int64Array, writes: int, policy: Policy) -> BoolArray:
    """Tell for each pod whether it may shrink: `of_pods` has the writes of each one's last day, `writes` is their sum.

    The budget is an average: while the cluster is below it nobody is held to it, and then those who had more are.
    """
    if writes < policy.resizes_per_container_day * len(of_pods):
        return np.ones(len(of_pods), dtype=np.bool_)
    within: BoolArray = of_pods < policy.resizes_per_container_day
    return within


def get_tolerances(policy: Policy) -> Mapping[ResourceName, float]:
    """Return how far above what it needs a node's sum of each resource may lie."""
    return {ResourceName.CPU: policy.cpu_tolerance, ResourceName.MEMORY: policy.memory_tolerance}


def choose_sizes_to_write(
    columns: NodePodColumns, fit: NodeFit, targets: Targets, calm: WriteDamping, most: Sizes
) -> DampedSizes:
    """Choose what is worth a write of the way from the current requests to the `targets`, never above `most`."""
    requests, why, need, have, above, below = {}, {}, {}, {}, {}, {}
    resources = [_ResourceDamping(columns, fit, one, targets, most[one], calm) for one in ResourceName]
    for one in resources:
        need[one.resource], have[one.resource] = one.need, one.get_requested()
        one.grow_under_requested()
        one.grow_for_node()
        one.apply_bounds()
        one.shrink_over_requested()
        one.free_capacity()
        # What pods got to spare may have been counted on, and is the first to go.
        while one.grow_for_node():
            one.free_capacity()
    while [one for one in resources if one.keep_to_ranges(_written(columns, resources))]:
        for one in resources:
            one.free_capacity()
    for one in resources:
        requests[one.resource], why[one.resource] = one.sizes, one.reason
        above[one.resource], below[one.resource] = one.is_over_requested, one.is_under_requested
    return DampedSizes(requests, why, need, have, above, below)


def _written(columns: NodePodColumns, resources: Sequence["_ResourceDamping"]) -> BoolArray:
    """Tell for each pod whether something of it is written."""
    changed = np.logical_or.reduce([one.reason > ResizeUrgency.UNCHANGED for one in resources])
    return columns.candidates.any_by_pod(changed)


class _ResourceDamping:
    """One resource of all nodes; each step changes `sizes` and `why` in place."""

    def __init__(
        self,
        columns: NodePodColumns,
        fit: NodeFit,
        resource: ResourceName,
        targets: Targets,
        most: Int64Array,
        calm: WriteDamping,
    ) -> None:
        self._columns = columns
        self._fit = fit
        self.resource = resource
        self._calm = calm
        self._targets = targets.needed[resource]
        self._whole_targets = targets.whole[resource]
        demand = columns.table.get_resource(resource)
        self._demand: ResourceDemand = demand
        self._counts = demand.managed & fit.remains[columns.candidates.pod_of]
        self.need = self._of_nodes(self._targets)
        # Who asks for less headroom than usual, or none, is left no more of it.
        self._wanted = np.minimum(columns.candidates.headroom_factor, 1.0)
        self._spared = np.minimum(self._with_spare(self._targets), most)
        self._grown = self._spared if resource is ResourceName.CPU else self._beyond_dead_band(most)
        self.sizes = demand.current.copy()
        self.reason: ResizeUrgencyColumn = np.zeros(len(self.sizes), dtype=np.int8)
        self.is_under_requested = self._counts & (demand.current < demand.base * (1 - UNDER_REQUESTED_EVENT[resource]))
        self.is_under_requested &= self._targets > demand.current
        self.is_over_requested = np.zeros(len(columns.nodes), dtype=np.bool_)

    def grow_under_requested(self) -> None:
        """Grow what has used more than its request for long, or has none, and what is granted of a wish."""
        chosen = self.is_under_requested & (self._calm.under_requested[self.resource] | (self._demand.current == 0))
        self._set(chosen, self._spared, ResizeUrgency.UNDER_REQUESTED)

    def grow_for_node(self) -> bool:
        """Grow the pods furthest below their targets, where a node's sum is short of what it needs; tell if any."""
        missing = self.need - self.get_requested()
        least = self._columns.candidates.update_threshold.minimum.get(self.resource)
        missing[missing <= np.maximum(self.need * SHORTAGE_EVENT[self.resource], least)] = 0.0
        open_to = np.where(self._counts & (self._targets > self.sizes), self._grown - self.sizes, 0)
        # Growth that init containers request anyway adds nothing.
        more = self._of_pods(self.sizes + open_to) - self._of_pods(self.sizes)
        chosen = (self._fewest(more, missing, missing) > 0)[self._columns.candidates.pod_of] & (open_to > 0)
        self._set(chosen, self._grown, ResizeUrgency.NODE_UNDER_PRESSURE)
        return bool(chosen.any())

    def apply_bounds(self) -> None:
        """Cut what is above its upper bound."""
        self._set(self._counts & (self.sizes > self._demand.upper), self._targets, ResizeUrgency.OUT_OF_BOUNDS)

    def keep_to_ranges(self, written: BoolArray) -> bool:
        """Raise what a LimitRange would refuse of the pods that are `written` anyway; tell if there is any."""
        least = np.minimum(self._demand.lower, self._whole_targets)
        short = self._counts & written[self._columns.candidates.pod_of] & (self.sizes < least)
        self._set(short, least, ResizeUrgency.OUT_OF_BOUNDS)
        self._targets = np.where(short, np.maximum(self._targets, least), self._targets)
        return bool(short.any())

    def shrink_over_requested(self) -> None:
        """Cut the most idle pods of nodes whose sums have long been above their bands.

        First what is above its own peak, down to it, then the others to their targets with something to spare; nobody
        who may not shrink yet, and nobody who grows.
        """
        band = self._calm.tolerances[self.resource]
        self.is_over_requested = self.get_requested() > self.need * (1 + band)
        lasting = self.is_over_requested & self._calm.over_requested[self.resource]
        if not lasting.any():
            return
        peaks = np.maximum(self._spared, np.minimum(self._rounded(self._demand.peak), self._demand.upper))
        rested = self._calm.past_cooldown[self.resource][self._columns.candidates.pod_of]
        still = self._counts & (self.reason == ResizeUrgency.UNCHANGED) & rested
        for floor in (peaks, self._spared):
            over = np.where(lasting, self.get_requested() - self.need * (1 + band * UNCHANGED_EVENT), 0.0)
            amounts = np.where(still, np.maximum(self.sizes - floor, 0), 0)
            self._cut(amounts, over, ResizeUrgency.OVER_REQUESTED)

    def free_capacity(self) -> None:
        """Cut what is above its target, the most idle first, where grows or replacements want the room."""
        columns, resource = self._columns, self.resource
        sums = columns.candidates.sum_by_pod(resource, self.sizes)
        changed = columns.candidates.any_by_pod(self.reason > ResizeUrgency.UNCHANGED)
        after = np.where(changed, sums, np.where(columns.candidates.manages[resource], columns.counted[resource], 0))
        over = columns.sum_by_node(np.where(self._fit.remains, after, 0)) - columns.available[resource]
        for node, room in self._fit.reserved_for_replacements.items():
            over[node] += room.get(resource)
        if (over > 0).any():
            amounts = np.where(self._counts, np.maximum(self.sizes - self._targets, 0), 0)
            self._cut(amounts, over.astype(np.float64), ResizeUrgency.CAPACITY_NEEDED_BY_OTHERS)

    def _with_spare(self, targets: Int64Array) -> Int64Array:
        """Return targets with something to spare, no more than the peak and the bounds, and never less than targets."""
        more = 1 + PEAK_MARGIN_SHARE[self.resource] * self._wanted
        spare = np.minimum(self._rounded(targets.astype(np.float64) * more), self._demand.upper)
        return np.maximum(np.minimum(spare, self._rounded(self._demand.peak)), targets)

    def _beyond_dead_band(self, most: Int64Array) -> Int64Array:
        """Return the sizes to grow to, at least a dead band above the current ones where `most` allows that."""
        current, band = self._demand.current, self._columns.candidates.update_threshold
        far = self._rounded(current + np.maximum(current * band.share, band.minimum.get(self.resource)))
        return np.maximum(self._spared, np.minimum(far, most))

    def _rounded(self, values: Int64Array | Float64Array) -> Int64Array:
        return round_up(values.astype(np.float64), ROUNDING_UNIT[self.resource])

    def get_requested(self) -> Float64Array:
        """Return the sum of the sizes of each node."""
        return self._of_nodes(self.sizes)

    def _of_pods(self, values: Int64Array) -> Int64Array:
        """Return what kube-scheduler counts for each pod at these sizes, 0 for pods that are evicted."""
        return np.where(self._fit.remains, self._columns.candidates.sum_by_pod(self.resource, values), 0)

    def _of_nodes(self, values: Int64Array) -> Float64Array:
        return self._columns.sum_by_node(self._of_pods(values)).astype(np.float64)

    def _set(self, chosen: BoolArray, sizes: Int64Array, why: ResizeUrgency) -> None:
        self.sizes = np.where(chosen, sizes, self.sizes)
        self.reason[chosen] = np.maximum(self.reason[chosen], np.int8(why))

    def _cut(self, amounts: Int64Array, over: Float64Array, why: ResizeUrgency) -> None:
        """Cut `amounts` from the containers of the fewest pods that give what is `over`, by node.

        A pod gives by how much its sum falls: nothing where its init containers request as much. Of a share of the cuts
        its sum falls by that share at least, rounded down as they are. They give all of it, unless the node were to
        have less than it needs: even if what grows is held back.
        """
        given = self._of_pods(self.sizes) - self._of_pods(self.sizes - amounts)
        most = np.maximum(self._of_nodes(np.minimum(self.sizes, self._demand.current)) - self.need, over)
        share = self._fewest(given, over, most)[self._columns.candidates.pod_of]
        left = np.maximum(-self._rounded(amounts * share - self.sizes), self.sizes - amounts)
        self._set((share > 0) & (left < self.sizes), left, why)

    def _fewest(self, of_pods: Int64Array, wanted: Float64Array, most: Float64Array) -> Float64Array:
        """Return what share of its amount each pod gives so that nodes get what is wanted, and `most` at most.

        The largest amounts first, and of equal ones the first by name.
        """
        columns = self._columns
        shares = np.zeros(len(columns.node_of_pod))
        if not (wanted > 0).any() or not shares.size:
            return shares
        order = np.flatnonzero((of_pods > 0) & (wanted > 0)[columns.node_of_pod])
        order = order[np.lexsort((order, -of_pods[order], columns.node_of_pod[order]))]
        nodes, sorted_amounts = columns.node_of_pod[order], of_pods[order]
        before = np.cumsum(sorted_amounts) - sorted_amounts
        given = before - before[np.searchsorted(nodes, nodes)]
        share = np.clip((most[nodes] - given) / sorted_amounts, 0.0, 1.0)
        shares[order] = np.where(given < wanted[nodes], share, 0.0)
        return shares
