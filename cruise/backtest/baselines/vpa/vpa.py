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

import numpy as np

from cruise.backtest.baselines.as_requested import provisioned_sizes
from cruise.backtest.baselines.vpa.in_place import ResizesInPlace, refused_for_use
from cruise.backtest.baselines.vpa.recommender import Recommendation, Recommender
from cruise.backtest.baselines.vpa.updating import (
    QUICK_KILL_SECONDS,
    Demand,
    Priorities,
    prioritise,
    touched_at_once,
    within_budget,
)
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.options import ReplayOptions
from cruise.backtest.replay.policy import ClusterView, Decision, Kill, KillReaction, ReplayPolicy, Sizes
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array

_SMALLEST_GROUP = 1
_UPDATER_SECONDS = 60
_NEVER = -(1 << 62)


class Vpa(ReplayPolicy):
    """Recommender, updater and admission of all workloads at once."""

    name = "vpa"

    def __init__(self, recording: Recording, options: ReplayOptions) -> None:
        count = len(recording.containers)
        self._provisioned = provisioned_sizes(recording)
        requested, limit = self._provisioned.memory_bytes, self._provisioned.memory_limit_bytes
        # A limit without a request is taken for the request too.
        self._limit_of_request: Float64Array = np.where(requested > 0, limit / np.maximum(requested, 1), limit > 0)
        self._has_memory = recording.has_memory
        self._loops = max(1, max(options.pass_seconds, recording.step_seconds) // _UPDATER_SECONDS)
        self._row_of = recording.workload_containers()
        self._recommender = Recommender(self._row_of, options.node, recording.step_seconds)
        self._in_place = ResizesInPlace(count)
        self._kills: list[tuple[int, int, int]] = []
        self._samples: tuple[int, Float32Array, Float32Array] | None = None
        self._used_bytes: Int64Array = np.zeros(count, dtype=np.int64)
        self._born: Int64Array = np.zeros(count, dtype=np.int64)
        self._started_at: Int64Array = np.zeros(count, dtype=np.int64)
        self._quickly_killed_at: Int64Array = np.full(count, _NEVER, dtype=np.int64)

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Keep the samples until the view comes that says whose pods they are of."""
        self._samples = at, cpu, memory
        for row in memory:
            seen = ~np.isnan(row)
            self._used_bytes[seen] = row[seen]

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        """Return the targets; what was provisioned where there is no recommendation."""
        self._meet(view)
        return self._wanted(self._demands(view), self._provisioned).take(containers)

    def decide(self, view: ClusterView) -> Decision:
        """Run the updater's loops: resize in place what it accepts; evict what was refused, or waits too long."""
        self._meet(view)
        demands = self._demands(view)
        wanted, priorities = self._wanted(demands, view.sizes), prioritise(demands)
        refused = refused_for_use(view.sizes.memory_limit_bytes, wanted.memory_limit_bytes, self._used_bytes)
        waiting, placed = self._in_place.waiting(view.sizes), view.node >= 0
        resized, evicted = np.zeros_like(placed), np.zeros_like(placed)
        for at in self._loops_until(view, priorities, waiting, placed):
            here = placed & ~evicted
            # What was resized in an earlier loop of the interval is as it should be, unless the kubelet has refused.
            accepted = here & self._accepted(priorities, view, at, at)
            evict = accepted & self._in_place.evictable(at, waiting & here)
            resize = accepted & ~waiting & ~resized
            resize, evict = self._within_budget(priorities, resize, evict, view.node >= -1, here)
            new = np.flatnonzero(resize)
            self._in_place.request(new, wanted.take(new), refused[new])
            waiting |= resize & refused
            resized |= resize
            evicted |= evict
        trying = np.flatnonzero(self._in_place.tried_again((resized | waiting) & placed & ~evicted))
        return Decision(trying, self._in_place.wanted(trying), priorities.order(np.flatnonzero(evicted)))

    def _loops_until(
        self, view: ClusterView, priorities: Priorities, waiting: BoolArray, placed: BoolArray
    ) -> Sequence[int]:
        """Return the times of the updater's loops of an interval, none where they would find nothing to do."""
        first = view.at - (self._loops - 1) * _UPDATER_SECONDS
        found = waiting | self._accepted(priorities, view, view.at, first)
        return range(first, view.at + 1, _UPDATER_SECONDS) if (found & placed).any() else ()

    def _accepted(self, priorities: Priorities, view: ClusterView, aged_at: int, killed_at: int) -> BoolArray:
        """Tell which pods are to be updated, by their ages at one time and their kills at another."""
        quickly = killed_at - self._quickly_killed_at < QUICK_KILL_SECONDS
        return priorities.accepted(aged_at - view.born_at, quickly)

    def killed(self, kill: Kill, view: ClusterView) -> KillReaction:
        """Remember the kill for the recommender; the updater sees it at its next loop."""
        self._meet(view)
        self._kills.append((kill.container, int(view.sizes.memory_bytes[kill.container]), kill.at))
        # A kill is dated at its step's end, and a container takes a moment to start: ten minutes at most are less here.
        quickly = kill.at - self._started_at[kill.container] <= QUICK_KILL_SECONDS
        self._quickly_killed_at[kill.container] = kill.at if quickly else _NEVER
        self._started_at[kill.container] = kill.at
        return KillReaction()

    def _meet(self, view: ClusterView) -> None:
        """Forget what belonged to pods that were replaced, then take in the samples of those that run."""
        new = np.flatnonzero(view.born != self._born)
        if new.size:
            self._born[new] = view.born[new]
            self._started_at[new] = view.born_at[new]
            self._quickly_killed_at[new] = _NEVER
            self._in_place.drop(new)
            self._recommender.start_anew(new)
        if self._samples is not None:
            self._take_in(*self._samples)
            self._samples = None

    def _take_in(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Add the samples, then the kills among them, as upstream does once a minute."""
        self._recommender.add(at, cpu, memory if self._has_memory else None)
        for container, requested_bytes, killed_at in self._kills:
            self._recommender.add_kill(container, requested_bytes, killed_at)
        self._kills.clear()

    def _demands(self, view: ClusterView) -> tuple[Demand, Demand]:
        cpu, memory = self._recommender.recommendations()
        cpu_known, memory_known = self._recommender.known()

        def of(requested: Int64Array, recommended: Recommendation, known: BoolArray) -> Demand:
            return Demand(requested, recommended.take(self._row_of), known[self._row_of])

        sizes = view.sizes
        return of(sizes.cpu_millicores, cpu, cpu_known), of(sizes.memory_bytes, memory, memory_known)

    def _wanted(self, demands: tuple[Demand, Demand], otherwise: Sizes) -> Sizes:
        """Return the targets of all containers, and other sizes where a resource is not known."""
        cpu, memory = demands
        return Sizes(
            np.where(cpu.known, cpu.recommended.target, otherwise.cpu_millicores),
            np.where(memory.known, memory.recommended.target, otherwise.memory_bytes),
            np.where(
                memory.known,
                (memory.recommended.target * self._limit_of_request).astype(np.int64),
                otherwise.memory_limit_bytes,
            ),
        )

    def _within_budget(
        self, priorities: Priorities, resize: BoolArray, evict: BoolArray, configured: BoolArray, running: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """Keep what each workload's budget allows: updates in place come first, evictions after all of them."""
        order = np.concatenate([priorities.order(np.flatnonzero(one)) for one in (resize, evict)])
        if not order.size:
            return resize, evict
        rows = int(self._row_of.max()) + 1
        pods, alive = (np.bincount(self._row_of[one], minlength=rows) for one in (configured, running))
        kept = np.zeros(len(resize), dtype=np.bool_)
        kept[order[within_budget(self._row_of[order], touched_at_once(pods, alive, _SMALLEST_GROUP))]] = True
        return resize & kept, evict & kept
