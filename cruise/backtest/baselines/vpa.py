"""The baseline `vpa`: the Vertical Pod Autoscaler, one VerticalPodAutoscaler object a workload.

Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, with the defaults of its flags: half-life
24 h, p90 + 15 % between p50 and p95, 25 m and 250 MiB a pod, limits in the proportion to requests that the pods were
provisioned with (twice the request for memory where the recording has no other, none for CPU). A CPU sample weighs
0.1 whatever the request; older releases weighed it by the request. The update mode is InPlaceOrRecreate: at admission,
and in place.

Where it differs from the defaults, in favour of VPA:
- `minReplicas: 1`. The updater leaves groups of fewer than two replicas alone by default, in place as well as by
  eviction: an update in place counts as a disruption, unless --in-place-skip-disruption-budget is set. Recorded
  workloads are mostly one pod each, and nothing would be updated but at admission.
- --container-recommendation-max-allowed-* is the node's size, as its documentation advises: a larger recommendation
  would leave a pod pending for ever.

Where the replay is coarser than the world:
- The updater runs once a minute, here at each pass once for each minute since the last. The replacement of a pod that
  one of these loops evicts is not placed before the last of them.
- A workload without any sample has no recommendation, and its pods are admitted as requested; this release recommends
  the minimum in the moment between a pod's appearance and its first sample. A resource never seen is left alone.
- A replaced pod begins new memory windows, as a pod with a new name does; a pod of a StatefulSet does so too.
- A recorded use of 0 bytes, which no running container has, counts as one byte: upstream takes a peak of 0 for none,
  and a window that begins with it would not notice any higher use for a day.
- While a resize waits for room, upstream's spec has it already and kube-scheduler counts it; here it counts when done.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.backtest.baselines.as_requested import get_provisioned_sizes
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
from cruise.domain.resources import BoolArray, Float32Array, Float64Array, Int64Array

# What becomes of the Vertical Pod Autoscaler's resizes in place that the kubelet does not carry out. Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, pkg/updater/restriction/pods_inplace_restriction.go. A resize for which the node has no room stays in the pod's spec and the kubelet tries it again; while it waits, the pod is given no other. After more than five minutes the pod may be evicted instead. The timer is documented as one of the resize; upstream's code starts it once a pod, when it first sees one wait, so that a second resize that has to wait is given up on at once. A pod whose limit the kubelet refuses to lower may be evicted at the next loop.

_PATIENCE_SECONDS = 300
_NOT_REQUESTED = -1


class InPlaceResizes:
    """The resizes of C containers that were requested and are not seen to be done."""

    def __init__(self, count: int) -> None:
        self._wanted = ContainerSizes.create_zeros(count)
        self._open: BoolArray = np.zeros(count, dtype=np.bool_)
        self._rejected: BoolArray = np.zeros(count, dtype=np.bool_)
        self._pending_since: Int64Array = np.full(count, _NOT_REQUESTED, dtype=np.int64)

    def request(self, containers: Int64Array, sizes: ContainerSizes, rejected: BoolArray) -> None:
        """Remember resizes, one entry each, and which of them the kubelet refuses."""
        self._wanted.assign(containers, sizes)
        self._open[containers] = True
        self._rejected[containers] = rejected

    def drop(self, containers: Int64Array) -> None:
        """Forget those of pods that are gone."""
        self._open[containers] = False
        self._pending_since[containers] = _NOT_REQUESTED

    def get_pending(self, sizes: ContainerSizes) -> BoolArray:
        """Tell which are still not done, given the sizes that are in force."""
        self._open &= (sizes.cpu_millicores != self._wanted.cpu_millicores) | (
            sizes.memory_bytes != self._wanted.memory_bytes
        )
        return self._open.copy()

    def find_retried(self, containers: BoolArray) -> BoolArray:
        """Tell which of some containers have a resize that the kubelet goes on trying."""
        return containers & self._open & ~self._rejected

    def find_evictable(self, time: int, pending: BoolArray) -> BoolArray:
        """Tell which of those that wait may be evicted: the refused, and those that have waited too long."""
        self._pending_since[pending & (self._pending_since == _NOT_REQUESTED)] = time
        return pending & (self._rejected | (time - self._pending_since > _PATIENCE_SECONDS))

    def get_target(self, containers: Int64Array) -> ContainerSizes:
        """Return what was requested, which the kubelet goes on trying."""
        return self._wanted.select(containers)


def find_rejected_limits(limits: Int64Array, wanted_limits: Int64Array, used_bytes: Int64Array) -> BoolArray:
    """Tell which memory limits the kubelet does not lower, as more is in use."""
    return (wanted_limits > 0) & (wanted_limits < limits) & (used_bytes > wanted_limits)


# Which pods the Vertical Pod Autoscaler's updater touches, and how many of a group at once. Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, pkg/updater: priority/priority_processor.go, priority/update_priority_calculator.go, restriction/pods_restriction_factory.go. The rules are the same for updates in place and for evictions.

QUICK_KILL_SECONDS = 600
_SMALLEST_DIFFERENCE = 0.1
_LIFETIME_SECONDS = 12 * 3600
_EVICTION_TOLERANCE = 0.5


@dataclass(frozen=True, slots=True)
class UpdateDemand:
    """One resource of P pods of one container: what they request and should; `known` is whether use was seen."""

    requested: Int64Array
    recommended: VpaRecommendation
    known: BoolArray


@dataclass(frozen=True, slots=True)
class UpdatePriorities:
    """How much pods need an update, one entry each; the difference is summed over resources, relative to requests."""

    is_out_of_bounds: BoolArray
    wants_growth: BoolArray
    difference: Float64Array

    def is_update_needed(self, age_seconds: Int64Array, killed_quickly: BoolArray) -> BoolArray:
        """Tell which pods are to be updated: out of bounds or killed soon at once, others when old and far off."""
        old_and_far = (age_seconds >= _LIFETIME_SECONDS) & (self.difference >= _SMALLEST_DIFFERENCE)
        in_vain = killed_quickly & (self.difference == 0)
        accepted: BoolArray = (self.is_out_of_bounds | killed_quickly | old_and_far) & ~in_vain
        return accepted

    def order(self, places: Int64Array) -> Int64Array:
        """Sort places: what grows first, then what is furthest off, then as they were."""
        return places[np.lexsort((-self.difference[places], ~self.wants_growth[places]))]


def compute_update_priorities(demands: Sequence[UpdateDemand]) -> UpdatePriorities:
    """Compare requests with recommendations; a resource without a request is out of bounds, and wants to grow."""
    count = len(demands[0].requested)
    outside, grows = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    difference = np.zeros(count)
    for demand in demands:
        requested, wanted = demand.requested, demand.recommended
        missing = requested == 0
        grows |= demand.known & (missing | (wanted.target > requested))
        outside |= demand.known & (missing | (requested < wanted.lower) | (requested > wanted.upper))
        base = np.maximum(requested, 1)
        difference += np.where(demand.known, np.abs(base - wanted.target) / base, 0)
    return UpdatePriorities(outside, grows, difference)


def compute_eviction_tolerance(configured: Int64Array, running: Int64Array, smallest_group: int) -> Int64Array:
    """Return how many pods of each group one loop of the updater may touch: half of it, or a pod that is alone."""
    tolerance = (configured * _EVICTION_TOLERANCE).astype(np.int64)
    spare = np.maximum(running - (configured - tolerance), 0)
    alone = (tolerance == 0) & (configured == running)
    return np.where(running < smallest_group, 0, np.where(alone, np.maximum(spare, 1), spare))


def apply_eviction_tolerance(groups: Int64Array, budget: Int64Array) -> BoolArray:
    """Tell which of a sequence, first come first served, are within their group's budget."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    within = np.empty(len(groups), dtype=np.bool_)
    within[order] = np.arange(len(groups)) - starts < budget[ordered]
    return within


_SMALLEST_GROUP = 1
_UPDATER_SECONDS = 60
_NEVER = -(1 << 62)


class VpaBaseline(ReplayPolicy):
    """Recommender, updater and admission of all workloads at once."""

    name = "vpa"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        count = len(recording.containers)
        self._provisioned = get_provisioned_sizes(recording)
        requested, limit = self._provisioned.memory_bytes, self._provisioned.memory_limit_bytes
        # A limit without a request is taken for the request too.
        self._limit_of_request: Float64Array = np.where(requested > 0, limit / np.maximum(requested, 1), limit > 0)
        self._has_memory = recording.has_memory
        self._loops = max(1, max(options.pass_seconds, recording.step_seconds) // _UPDATER_SECONDS)
        self._row_of_container = recording.workload_containers()
        self._recommender = VpaUsageRecommender(self._row_of_container, options.node, recording.step_seconds)
        self._in_place = InPlaceResizes(count)
        self._kills: list[tuple[int, int, int]] = []
        self._samples: tuple[int, Float32Array, Float32Array] | None = None
        self._used_bytes: Int64Array = np.zeros(count, dtype=np.int64)
        self._creation_counts: Int64Array = np.zeros(count, dtype=np.int64)
        self._started_at: Int64Array = np.zeros(count, dtype=np.int64)
        self._quickly_killed_at: Int64Array = np.full(count, _NEVER, dtype=np.int64)

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Keep the samples until the view comes that says whose pods they are of."""
        self._samples = time, cpu, memory
        for row in memory:
            seen = ~np.isnan(row)
            self._used_bytes[seen] = row[seen]

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the targets; what was provisioned where there is no recommendation."""
        self._meet(view)
        return self._wanted(self._demands(view), self._provisioned).select(containers)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Run the updater's loops: resize in place what it accepts; evict what was refused, or waits too long."""
        self._meet(view)
        demands = self._demands(view)
        wanted, priorities = self._wanted(demands, view.sizes), compute_update_priorities(demands)
        rejected = find_rejected_limits(view.sizes.memory_limit_bytes, wanted.memory_limit_bytes, self._used_bytes)
        pending, placed = self._in_place.get_pending(view.sizes), view.node >= 0
        resized, evicted = np.zeros_like(placed), np.zeros_like(placed)
        for time in self._loops_until(view, priorities, pending, placed):
            here = placed & ~evicted
            # What was resized in an earlier loop of the interval is as it should be, unless the kubelet has refused.
            accepted = here & self._accepted(priorities, view, time, time)
            evict = accepted & self._in_place.find_evictable(time, pending & here)
            resize = accepted & ~pending & ~resized
            resize, evict = self._within_budget(priorities, resize, evict, view.node >= -1, here)
            new = np.flatnonzero(resize)
            self._in_place.request(new, wanted.select(new), rejected[new])
            pending |= resize & rejected
            resized |= resize
            evicted |= evict
        trying = np.flatnonzero(self._in_place.find_retried((resized | pending) & placed & ~evicted))
        return ReplayDecision(trying, self._in_place.get_target(trying), priorities.order(np.flatnonzero(evicted)))

    def _loops_until(
        self, view: ReplayClusterView, priorities: UpdatePriorities, pending: BoolArray, placed: BoolArray
    ) -> Sequence[int]:
        """Return the times of the updater's loops of an interval, none where they would find nothing to do."""
        first = view.time - (self._loops - 1) * _UPDATER_SECONDS
        found = pending | self._accepted(priorities, view, view.time, first)
        return range(first, view.time + 1, _UPDATER_SECONDS) if (found & placed).any() else ()

    def _accepted(
        self, priorities: UpdatePriorities, view: ReplayClusterView, aged_at: int, killed_at: int
    ) -> BoolArray:
        """Tell which pods are to be updated, by their ages at one time and their kills at another."""
        quickly = killed_at - self._quickly_killed_at < QUICK_KILL_SECONDS
        return priorities.is_update_needed(aged_at - view.created_at, quickly)

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Remember the kill for the recommender; the updater sees it at its next loop."""
        self._meet(view)
        self._kills.append((kill.container, int(view.sizes.memory_bytes[kill.container]), kill.time))
        # A kill is dated at its step's end, and a container takes a moment to start: ten minutes at most are less here.
        quickly = kill.time - self._started_at[kill.container] <= QUICK_KILL_SECONDS
        self._quickly_killed_at[kill.container] = kill.time if quickly else _NEVER
        self._started_at[kill.container] = kill.time
        return ReplayedOomReaction()

    def _meet(self, view: ReplayClusterView) -> None:
        """Forget what belonged to pods that were replaced, then take in the samples of those that run."""
        new = np.flatnonzero(view.creation_count != self._creation_counts)
        if new.size:
            self._creation_counts[new] = view.creation_count[new]
            self._started_at[new] = view.created_at[new]
            self._quickly_killed_at[new] = _NEVER
            self._in_place.drop(new)
            self._recommender.reset(new)
        if self._samples is not None:
            self._take_in(*self._samples)
            self._samples = None

    def _take_in(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Add the samples, then the kills among them, as upstream does once a minute."""
        self._recommender.add(time, cpu, memory if self._has_memory else None)
        for container, requested_bytes, killed_at in self._kills:
            self._recommender.add_oom_kill(container, requested_bytes, killed_at)
        self._kills.clear()

    def _demands(self, view: ReplayClusterView) -> tuple[UpdateDemand, UpdateDemand]:
        cpu, memory = self._recommender.recommendations()
        cpu_known, memory_known = self._recommender.is_known()

        def of(requested: Int64Array, recommended: VpaRecommendation, known: BoolArray) -> UpdateDemand:
            return UpdateDemand(requested, recommended.take(self._row_of_container), known[self._row_of_container])

        sizes = view.sizes
        return of(sizes.cpu_millicores, cpu, cpu_known), of(sizes.memory_bytes, memory, memory_known)

    def _wanted(self, demands: tuple[UpdateDemand, UpdateDemand], otherwise: ContainerSizes) -> ContainerSizes:
        """Return the targets of all containers, and other sizes where a resource is not known."""
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
        """Keep what each workload's budget allows: updates in place come first, evictions after all of them."""
        order = np.concatenate([priorities.order(np.flatnonzero(one)) for one in (resize, evict)])
        if not order.size:
            return resize, evict
        rows = int(self._row_of_container.max()) + 1
        pods, alive = (np.bincount(self._row_of_container[one], minlength=rows) for one in (configured, running))
        kept = np.zeros(len(resize), dtype=np.bool_)
        kept[
            order[
                apply_eviction_tolerance(
                    self._row_of_container[order], compute_eviction_tolerance(pods, alive, _SMALLEST_GROUP)
                )
            ]
        ] = True
        return resize & kept, evict & kept
