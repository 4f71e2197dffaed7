"""The frames of the demo's picture, from the two clusters and the controller's activity."""

import time
from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta

from cruise.app.serve.activity import ServeActivity
from cruise.domain.actions import ActionResult, EvictPod, Outcome, ResizePod, TaintNode, UntaintNode
from cruise.domain.resources import (
    NO_RESOURCES,
    ResourceName,
    Resources,
    StatedResources,
    format_cpu_millicores,
    format_memory_bytes,
)
from cruise.interfaces.demo_screen import ClusterTotals, DemoEvent, DemoFrame, DemoNode
from cruise.runtime.oom import OomReactionResult
from cruise.simulation.cluster.cluster import SimulatedCluster

# After a stop of the process, the clock does not jump by more than this.
_MOST_SECONDS_AT_ONCE = 1.0
_MEASURED_SECONDS = 10.0
_EVENTS = 10
_RARE_EVENTS = 4


class DemoClock:
    """Simulated time at `pace` times real time, at most `ahead` of the last statistics and the last node pass.

    On a slow machine the clock waits for the passes, so that statistics do not become too old.
    """

    def __init__(self, start: datetime, pace: float, ahead: timedelta, activity: ServeActivity) -> None:
        self.now = start
        self._pace = pace
        self._ahead = ahead
        self._activity = activity
        self._real_seconds = 0.0
        self._ticks: deque[tuple[float, datetime]] = deque([(0.0, start)])

    def tick(self, seconds: float) -> datetime:
        """Advance by real seconds, and return the simulated time."""
        wanted = self.now + timedelta(seconds=self._pace * min(seconds, _MOST_SECONDS_AT_ONCE))
        done = self._activity.node_pass
        kept_up = [self._activity.refreshed_at, done.at if done is not None else None]
        latest = min((at + self._ahead for at in kept_up if at is not None), default=wanted)
        self.now = max(self.now, min(wanted, latest))
        self._real_seconds += seconds
        self._ticks.append((self._real_seconds, self.now))
        while len(self._ticks) > 2 and self._ticks[1][0] <= self._real_seconds - _MEASURED_SECONDS:
            self._ticks.popleft()
        return self.now

    @property
    def get_speed(self) -> float:
        """Return the speed of the last ten seconds relative to real time; the pace before the first tick."""
        (began, then), (now, _) = self._ticks[0], self._ticks[-1]
        return (self.now - then).total_seconds() / (now - began) if now > began else self._pace


class DemoFrameBuilder:
    """Builds the frames of one demo run."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        twin: SimulatedCluster,
        activity: ServeActivity,
        clock: DemoClock,
        pace: float,
        store: str,
        seconds: float | None,
    ) -> None:
        self._cluster = cluster
        self._twin = twin
        self._activity = activity
        self._clock = clock
        self._pace = pace
        self._store = store
        self._seconds = seconds
        self._began, self._began_at = time.monotonic(), cluster.now
        self._before = _count_kills(cluster)

    def build(self) -> DemoFrame:
        """Return the present frame."""
        running = timedelta(seconds=time.monotonic() - self._began)
        return DemoFrame(
            at=self._cluster.now,
            running=running,
            remaining=None if self._seconds is None else timedelta(seconds=self._seconds) - running,
            simulated=self._cluster.now - self._began_at,
            pace=self._pace,
            speed=self._clock.get_speed,
            store=self._store,
            nodes=[
                DemoNode(figure.node, figure.allocatable, figure.requested, figure.used, figure.pods, figure.load > 1)
                for figure in self._cluster.get_node_usage()
            ],
            before=self._before,
            with_cruise=_count_kills(self._cluster),
            without_cruise=_count_kills(self._twin),
            oom_kills_by_cruise=count_oom_kills_beyond_twin(self._cluster, self._twin),
            events=self._collect_events(),
            observed_risks={} if self._activity.node_pass is None else self._activity.node_pass.observed_risks,
        )

    def _collect_events(self) -> list[DemoEvent]:
        """Return the newest events, newest first; resizes are limited so that rarer events are shown."""
        done = [outcome for outcome in self._activity.outcomes if outcome.result is ActionResult.DONE]
        resizes = [outcome for outcome in done if isinstance(outcome.action, ResizePod)]
        rare = [_format_outcome(outcome) for outcome in done if not isinstance(outcome.action, ResizePod)]
        rare += [_format_kill(reaction) for reaction in self._activity.reactions]
        lines = sorted(rare, key=lambda line: line.at)[-_RARE_EVENTS:]
        lines += [self._resize(outcome) for outcome in resizes[-(_EVENTS - len(lines)) :]]
        return sorted(lines, key=lambda line: line.at, reverse=True)

    def _resize(self, outcome: Outcome) -> DemoEvent:
        action = outcome.action
        assert isinstance(action, ResizePod)
        before = self._activity.requested_before.get((action.uid, outcome.at))
        after = _sum_requests(target.requests for target in action.containers)
        what = f"{_format_name(action)} {format_size_change(before, after)}"
        return DemoEvent(outcome.at, "resized", what, action.cause or action.reason)


def count_oom_kills_beyond_twin(cluster: SimulatedCluster, twin: SimulatedCluster) -> int:
    """Count the out-of-memory kills of containers in one cluster beyond those in the other."""
    spared = twin.counts.oom_kills_by_container
    return sum(max(0, kills - spared.get(key, 0)) for key, kills in cluster.counts.oom_kills_by_container.items())


def _count_kills(cluster: SimulatedCluster) -> ClusterTotals:
    requested = used = allocatable = NO_RESOURCES
    for figure in cluster.get_node_usage():
        requested += figure.requested
        used += figure.used
        allocatable += figure.allocatable
    counted = cluster.counts
    return ClusterTotals(
        requested=requested,
        used=used,
        allocatable=allocatable,
        pending=cluster.pending_pods,
        resizes=counted.resizes_done,
        evictions=counted.evictions,
        oom_kills=counted.oom_kills,
    )


def _format_outcome(outcome: Outcome) -> DemoEvent:
    action = outcome.action
    match action:
        case EvictPod():
            reason = f"{action.reason}: {action.resource}, ranking {action.ranking.label}"
            return DemoEvent(outcome.at, "evicted", _format_name(action), reason)
        case TaintNode() | UntaintNode():
            kind = "tainted" if isinstance(action, TaintNode) else "untainted"
            return DemoEvent(outcome.at, kind, action.node, action.reason)
        case _:
            raise AssertionError(f"a resize event has no sizes before it: {action}")


def format_size_change(before: Resources | None, after: Resources) -> str:
    """Describe how a pod's requests change; if they do not, a limit was written."""
    texts = {ResourceName.CPU: format_cpu_millicores, ResourceName.MEMORY: format_memory_bytes}
    if before is None:
        return ", ".join(text(after.get(resource)) for resource, text in texts.items())
    changes = [
        f"{text(before.get(resource))} → {text(after.get(resource))}"
        for resource, text in texts.items()
        if before.get(resource) != after.get(resource)
    ]
    return ", ".join(changes) or "its limits"


def _sum_requests(stated: Iterable[StatedResources]) -> Resources:
    return sum((amounts.resources for amounts in stated), start=NO_RESOURCES)


def _format_name(action: ResizePod | EvictPod) -> str:
    """Return the workload, and the part of the pod's name that distinguishes it from its siblings."""
    if action.workload is None:
        return f"{action.namespace}/{action.pod}"
    return f"{action.namespace}/{action.workload.name}-{action.pod.rsplit('-', 1)[-1]}"


def _format_kill(reaction: OomReactionResult) -> DemoEvent:
    record = reaction.record
    what = f"{record.namespace}/{record.pod} {record.container}"
    if record.memory_limit_bytes is not None:
        what += f" at {format_memory_bytes(record.memory_limit_bytes)}"
    return DemoEvent(record.finished_at, "OOM kill", what, reaction.decision.reason)
