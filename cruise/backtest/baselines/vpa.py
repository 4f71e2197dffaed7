"""The baseline `vpa`: the Vertical Pod Autoscaler with one VerticalPodAutoscaler object per workload.

Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, with the default flags: half-life 24 h, p90 + 15 %
between p50 and p95, at least 25 m and 250 MiB per pod, limits in the provisioned proportion to requests (for memory
twice the request if the recording has none, for CPU no limits). A CPU sample weighs 0.1; older releases weighed it by
the request. The update mode is InPlaceOrRecreate. The updater's rules are the same for updates in place and for
evictions (pkg/updater: priority/priority_processor.go, priority/update_priority_calculator.go,
restriction/pods_restriction_factory.go).

The kubelet retries an increase that exceeds the node's free capacity; while it is pending, the pod is not resized again
(restriction/pods_inplace_restriction.go). After more than five minutes the pod may be evicted instead. The timer is
documented per resize, but the code starts it once per pod, so that a second pending resize times out immediately. A pod
whose limit the kubelet does not lower may be evicted at the next loop.

Differences from the defaults, in favor of VPA:
- `minReplicas: 1`. By default the updater skips groups of fewer than two replicas, also for updates in place, which
  count as disruptions unless --in-place-skip-disruption-budget is set. Most recorded workloads have one pod and would
  be updated at admission only.
- --container-recommendation-max-allowed-* is the node's size, as the documentation advises: pods with larger
  recommendations would stay pending.

Simplifications:
- The updater runs once a minute; here each pass runs it once for each minute since the last pass. The replacement of an
  evicted pod is placed after the last of these loops.
- A workload without samples has no recommendation, and its pods keep their requests at admission; upstream recommends
  the minimum between a pod's creation and its first sample. A resource without samples is not changed.
- A replaced pod starts new memory windows, as a pod with a new name does, also in a StatefulSet.
- A recorded usage of 0 bytes counts as one byte: upstream takes a peak of 0 for no peak, and such a window would ignore
  all usage for a day.
- Upstream, kube-scheduler counts a resize while it is pending; here it counts once it is done.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.backtest.baselines.bounds import get_provisioned_sizes
from cruise.backtest.baselines.vpa_recommender import VpaRecommendation, VpaUsageRecommender
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import (
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayedOomKill,
    ReplayedOomReaction,
    ReplayOptions,
    ReplayPolicy,
)
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array

_RESIZE_TIMEOUT_SECONDS = 300
_NOT_REQUESTED = -1
QUICK_KILL_SECONDS = 600
_SMALLEST_DIFFERENCE = 0.1
_LIFETIME_SECONDS = 12 * 3600
_EVICTION_TOLERANCE = 0.5
_SMALLEST_GROUP = 1
_UPDATER_SECONDS = 60
_NEVER = -(1 << 62)


class PendingInPlaceResizes:
    """The pending in-place resizes of C containers."""

    def __init__(self, count: int) -> None:
        self._targets = ContainerSizes.create_zeros(count)
        self._is_requested: BoolArray = np.zeros(count, dtype=np.bool_)
        self._rejected: BoolArray = np.zeros(count, dtype=np.bool_)
        self._pending_since: Int64Array = np.full(count, _NOT_REQUESTED, dtype=np.int64)

    def request(self, containers: Int64Array, sizes: ContainerSizes, rejected: BoolArray) -> None:
        """Add resizes, one entry each, and which of them the kubelet rejects."""
        self._targets.assign(containers, sizes)
        self._is_requested[containers] = True
        self._rejected[containers] = rejected

    def forget(self, containers: Int64Array) -> None:
        """Remove the resizes of pods that no longer exist."""
        self._is_requested[containers] = False
        self._pending_since[containers] = _NOT_REQUESTED

    def get_pending(self, sizes: ContainerSizes) -> BoolArray:
        """Return a mask of the resizes that are still pending, given the actual sizes."""
        self._is_requested &= (sizes.cpu_millicores != self._targets.cpu_millicores) | (
            sizes.memory_bytes != self._targets.memory_bytes
        )
        return self._is_requested.copy()

    def find_retried(self, containers: BoolArray) -> BoolArray:
        """Return a mask of those containers whose resize the kubelet retries."""
        return containers & self._is_requested & ~self._rejected

    def find_evictable(self, time: int, pending: BoolArray) -> BoolArray:
        """Return a mask of the pending containers that may be evicted: after a rejection or the timeout."""
        self._pending_since[pending & (self._pending_since == _NOT_REQUESTED)] = time
        return pending & (self._rejected | (time - self._pending_since > _RESIZE_TIMEOUT_SECONDS))

    def get_target(self, containers: Int64Array) -> ContainerSizes:
        """Return the requested sizes."""
        return self._targets.select(containers)


def find_rejected_limits(limits: Int64Array, target_limits: Int64Array, used_bytes: Int64Array) -> BoolArray:
    """Return a mask of the memory limits that the kubelet does not lower, because usage is higher."""
    return (target_limits > 0) & (target_limits < limits) & (used_bytes > target_limits)


@dataclass(frozen=True, slots=True)
class UpdateDemand:
    """The requests and recommendations of P pods for one resource; `known` is a mask of those with samples."""

    requested: Int64Array
    recommended: VpaRecommendation
    known: BoolArray


@dataclass(frozen=True, slots=True)
class UpdatePriorities:
    """The update priorities of pods, one entry each; `difference` is the sum over resources, relative to requests."""

    is_out_of_bounds: BoolArray
    wants_growth: BoolArray
    difference: Float64Array

    def is_update_needed(self, age_seconds: Int64Array, killed_quickly: BoolArray) -> BoolArray:
        """Return a mask of the pods to update: out of bounds, quickly killed, or old with a large difference."""
        is_overdue = (age_seconds >= _LIFETIME_SECONDS) & (self.difference >= _SMALLEST_DIFFERENCE)
        unchanged = killed_quickly & (self.difference == 0)
        accepted: BoolArray = (self.is_out_of_bounds | killed_quickly | is_overdue) & ~unchanged
        return accepted

    def order(self, places: Int64Array) -> Int64Array:
        """Sort places: increases first, then by the difference; stable."""
        return places[np.lexsort((-self.difference[places], ~self.wants_growth[places]))]


def compute_update_priorities(demands: Sequence[UpdateDemand]) -> UpdatePriorities:
    """Compare requests with recommendations; a missing request is out of bounds and an increase."""
    count = len(demands[0].requested)
    out_of_bounds, wants_growth = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    difference = np.zeros(count)
    for demand in demands:
        requested, targets = demand.requested, demand.recommended
        missing = requested == 0
        wants_growth |= demand.known & (missing | (targets.target > requested))
        out_of_bounds |= demand.known & (missing | (requested < targets.lower) | (requested > targets.upper))
        base = np.maximum(requested, 1)
        difference += np.where(demand.known, np.abs(base - targets.target) / base, 0)
    return UpdatePriorities(out_of_bounds, wants_growth, difference)


def compute_eviction_tolerance(configured: Int64Array, running: Int64Array, smallest_group: int) -> Int64Array:
    """Return how many pods of each group one loop of the updater may update: half of them, or a single pod."""
    tolerance = (configured * _EVICTION_TOLERANCE).astype(np.int64)
    spare = np.maximum(running - (configured - tolerance), 0)
    is_single = (tolerance == 0) & (configured == running)
    return np.where(running < smallest_group, 0, np.where(is_single, np.maximum(spare, 1), spare))


def apply_eviction_tolerance(groups: Int64Array, budget: Int64Array) -> BoolArray:
    """Return a mask of the entries within their group's budget, in the order of the sequence."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    within = np.empty(len(groups), dtype=np.bool_)
    within[order] = np.arange(len(groups)) - starts < budget[ordered]
    return within


class VpaBaseline(ReplayPolicy):
    """The recommender, updater and admission webhook of all workloads."""

    name = "vpa"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        count = len(recording.containers)
        self._provisioned = get_provisioned_sizes(recording)
        requested, limit = self._provisioned.memory_bytes, self._provisioned.memory_limit_bytes
        # A limit without a request is also the request.
        self._limit_of_request: Float64Array = np.where(requested > 0, limit / np.maximum(requested, 1), limit > 0)
        self._has_memory = recording.has_memory
        self._loops_per_pass = max(1, max(options.pass_seconds, recording.step_seconds) // _UPDATER_SECONDS)
        self._row_of_container = recording.number_workload_containers()
        self._recommender = VpaUsageRecommender(self._row_of_container, options.node, recording.step_seconds)
        self._in_place = PendingInPlaceResizes(count)
        self._kills: list[tuple[int, int, int]] = []
        self._samples: tuple[int, Float32Array, Float32Array] | None = None
        self._used_bytes: Int64Array = np.zeros(count, dtype=np.int64)
        self._creation_counts: Int64Array = np.zeros(count, dtype=np.int64)
        self._started_at: Int64Array = np.zeros(count, dtype=np.int64)
        self._quickly_killed_at: Int64Array = np.full(count, _NEVER, dtype=np.int64)

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Store the samples until the next view, which shows which pods they belong to."""
        self._samples = time, cpu, memory
        for row in memory:
            seen = ~np.isnan(row)
            self._used_bytes[seen] = row[seen]

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the targets, else the provisioned sizes."""
        self._update_pods(view)
        return self._compute_targets(self._build_demands(view), self._provisioned).select(containers)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Run the updater's loops: resize pods in place, and evict pods whose resize was rejected or timed out."""
        self._update_pods(view)
        demands = self._build_demands(view)
        targets, priorities = self._compute_targets(demands, view.sizes), compute_update_priorities(demands)
        rejected = find_rejected_limits(view.sizes.memory_limit_bytes, targets.memory_limit_bytes, self._used_bytes)
        pending, placed = self._in_place.get_pending(view.sizes), view.node >= 0
        resized, evicted = np.zeros_like(placed), np.zeros_like(placed)
        for time in self._get_updater_loops(view, priorities, pending, placed):
            present = placed & ~evicted
            # Pods resized in an earlier loop of the interval need no update, unless the kubelet rejected it.
            accepted = present & self._find_accepted(priorities, view, time, time)
            evict = accepted & self._in_place.find_evictable(time, pending & present)
            resize = accepted & ~pending & ~resized
            resize, evict = self._within_budget(priorities, resize, evict, view.node >= -1, present)
            new = np.flatnonzero(resize)
            self._in_place.request(new, targets.select(new), rejected[new])
            pending |= resize & rejected
            resized |= resize
            evicted |= evict
        retried = np.flatnonzero(self._in_place.find_retried((resized | pending) & placed & ~evicted))
        return ReplayDecision(retried, self._in_place.get_target(retried), priorities.order(np.flatnonzero(evicted)))

    def _get_updater_loops(
        self, view: ReplayClusterView, priorities: UpdatePriorities, pending: BoolArray, placed: BoolArray
    ) -> Sequence[int]:
        """Return the times of the updater's loops in an interval; none if they would do nothing."""
        first = view.time - (self._loops_per_pass - 1) * _UPDATER_SECONDS
        found = pending | self._find_accepted(priorities, view, view.time, first)
        return range(first, view.time + 1, _UPDATER_SECONDS) if (found & placed).any() else ()

    def _find_accepted(
        self, priorities: UpdatePriorities, view: ReplayClusterView, aged_at: int, killed_at: int
    ) -> BoolArray:
        """Return a mask of the pods to update, by their ages at one time and their kills at another."""
        quickly = killed_at - self._quickly_killed_at < QUICK_KILL_SECONDS
        return priorities.is_update_needed(aged_at - view.created_at, quickly)

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Record the kill for the recommender; the updater sees it in its next loop."""
        self._update_pods(view)
        self._kills.append((kill.container, int(view.sizes.memory_bytes[kill.container]), kill.time))
        # The time of a kill is the end of its step, so up to ten minutes are fewer here.
        quickly = kill.time - self._started_at[kill.container] <= QUICK_KILL_SECONDS
        self._quickly_killed_at[kill.container] = kill.time if quickly else _NEVER
        self._started_at[kill.container] = kill.time
        return ReplayedOomReaction()

    def _update_pods(self, view: ReplayClusterView) -> None:
        """Reset replaced pods, then add the stored samples."""
        new = np.flatnonzero(view.creation_count != self._creation_counts)
        if new.size:
            self._creation_counts[new] = view.creation_count[new]
            self._started_at[new] = view.created_at[new]
            self._quickly_killed_at[new] = _NEVER
            self._in_place.forget(new)
            self._recommender.reset(new)
        if self._samples is not None:
            self._add_samples(*self._samples)
            self._samples = None

    def _add_samples(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Add the samples, then the kills among them, as upstream does once a minute."""
        self._recommender.add(time, cpu, memory if self._has_memory else None)
        for container, requested_bytes, killed_at in self._kills:
            self._recommender.add_oom_kill(container, requested_bytes, killed_at)
        self._kills.clear()

    def _build_demands(self, view: ReplayClusterView) -> tuple[UpdateDemand, UpdateDemand]:
        cpu, memory = self._recommender.recommend()
        cpu_known, memory_known = self._recommender.is_known()

        def build(requested: Int64Array, recommended: VpaRecommendation, known: BoolArray) -> UpdateDemand:
            return UpdateDemand(requested, recommended.take(self._row_of_container), known[self._row_of_container])

        sizes = view.sizes
        return build(sizes.cpu_millicores, cpu, cpu_known), build(sizes.memory_bytes, memory, memory_known)

    def _compute_targets(self, demands: tuple[UpdateDemand, UpdateDemand], otherwise: ContainerSizes) -> ContainerSizes:
        """Return the targets of all containers, else other sizes."""
        cpu, memory = demands
        return ContainerSizes(
            np.where(cpu.known, cpu.recommended.target, otherwise.cpu_millicores),
            np.where(memory.known, memory.recommended.target, otherwise.memory_bytes),
            np.where(
                memory.known,
                (memory.recommended.target * self._limit_of_request).astype(np.int64),
                otherwise.memory_limit_bytes,
            ),
        )

    def _within_budget(
        self,
        priorities: UpdatePriorities,
        resize: BoolArray,
        evict: BoolArray,
        configured: BoolArray,
        running: BoolArray,
    ) -> tuple[BoolArray, BoolArray]:
        """Limit updates to each workload's budget: updates in place first, then evictions."""
        order = np.concatenate([priorities.order(np.flatnonzero(one)) for one in (resize, evict)])
        if not order.size:
            return resize, evict
        rows = int(self._row_of_container.max()) + 1
        pods, running_pods = (np.bincount(self._row_of_container[one], minlength=rows) for one in (configured, running))
        allowed = np.zeros(len(resize), dtype=np.bool_)
        allowed[
            order[
                apply_eviction_tolerance(
                    self._row_of_container[order], compute_eviction_tolerance(pods, running_pods, _SMALLEST_GROUP)
                )
            ]
        ] = True
        return resize & allowed, evict & allowed
