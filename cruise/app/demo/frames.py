"""What the demo's picture shows, read off the two clusters and the controller's activity."""

import time
from collections.abc import Iterable
from datetime import timedelta

from cruise.app.demo.pacing import DemoClock
from cruise.app.serve.activity import Activity
from cruise.domain.actions import EvictPod, Outcome, ResizePod, TaintNode, UntaintNode, Verdict
from cruise.domain.quantity import format_cpu_millicores, format_memory_bytes
from cruise.domain.resources import NO_RESOURCES, Amounts, ResourceName, Resources
from cruise.interfaces.demo_view import DemoFrame, EventLine, NodeLine, Tally
from cruise.runtime.oom import Reaction
from cruise.simulation.cluster.cluster import SimulatedCluster

_EVENTS = 10
_RARE_EVENTS = 4


class FrameMaker:
    """Makes frames of one demo run."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        twin: SimulatedCluster,
        activity: Activity,
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
        self._before = _tally(cluster)

    def frame(self) -> DemoFrame:
        """Return the picture of this moment."""
        running = timedelta(seconds=time.monotonic() - self._began)
        return DemoFrame(
            at=self._cluster.now,
            running=running,
            left=None if self._seconds is None else timedelta(seconds=self._seconds) - running,
            simulated=self._cluster.now - self._began_at,
            pace=self._pace,
            speed=self._clock.speed,
            store=self._store,
            nodes=[
                NodeLine(figure.node, figure.allocatable, figure.requested, figure.used, figure.pods, figure.load > 1)
                for figure in self._cluster.node_figures()
            ],
            before=self._before,
            now=_tally(self._cluster),
            without=_tally(self._twin),
            kills_by_cruise=kills_more(self._cluster, self._twin),
            events=self._events(),
            kept_risks={} if self._activity.node_pass is None else self._activity.node_pass.kept_risks,
        )

    def _events(self) -> list[EventLine]:
        """Return the newest events, newest first; the many resizes leave room for what is rarer."""
        done = [outcome for outcome in self._activity.outcomes if outcome.verdict is Verdict.DONE]
        resizes = [outcome for outcome in done if isinstance(outcome.action, ResizePod)]
        rare = [_line(outcome) for outcome in done if not isinstance(outcome.action, ResizePod)]
        rare += [_kill(reaction) for reaction in self._activity.reactions]
        lines = sorted(rare, key=lambda line: line.at)[-_RARE_EVENTS:]
        lines += [self._resize(outcome) for outcome in resizes[-(_EVENTS - len(lines)) :]]
        return sorted(lines, key=lambda line: line.at, reverse=True)

    def _resize(self, outcome: Outcome) -> EventLine:
        action = outcome.action
        assert isinstance(action, ResizePod)
        before = self._activity.requested_before.get((action.uid, outcome.at))
        after = _total(target.requests for target in action.containers)
        what = f"{_name(action)} {sizes_text(before, after)}"
        return EventLine(outcome.at, "resized", what, action.cause or action.reason)


def kills_more(cluster: SimulatedCluster, twin: SimulatedCluster) -> int:
    """Count the out-of-memory kills in one cluster that its twin did not have, container by container."""
    spared = twin.tally.kills_of
    return sum(max(0, kills - spared.get(key, 0)) for key, kills in cluster.tally.kills_of.items())


def _tally(cluster: SimulatedCluster) -> Tally:
    requested = used = allocatable = NO_RESOURCES
    for figure in cluster.node_figures():
        requested += figure.requested
        used += figure.used
        allocatable += figure.allocatable
    counted = cluster.tally
    return Tally(
        requested=requested,
        used=used,
        allocatable=allocatable,
        pending=cluster.pending_pods,
        resizes=counted.resizes_done,
        evictions=counted.evictions,
        kills=counted.kills,
    )


def _line(outcome: Outcome) -> EventLine:
    action = outcome.action
    match action:
        case EvictPod():
            why = f"{action.reason}: {action.resource}, ranking {action.ranking.label}"
            return EventLine(outcome.at, "evicted", _name(action), why)
        case TaintNode() | UntaintNode():
            kind = "tainted" if isinstance(action, TaintNode) else "untainted"
            return EventLine(outcome.at, kind, action.node, action.reason)
        case _:
            raise AssertionError(f"a resize is told with what was before it: {action}")


def sizes_text(before: Resources | None, after: Resources) -> str:
    """Say how a pod's requests change; where they stay it is a limit that was written."""
    texts = {ResourceName.CPU: format_cpu_millicores, ResourceName.MEMORY: format_memory_bytes}
    if before is None:
        return ", ".join(text(after.of(resource)) for resource, text in texts.items())
    changes = [
        f"{text(before.of(resource))} → {text(after.of(resource))}"
        for resource, text in texts.items()
        if before.of(resource) != after.of(resource)
    ]
    return ", ".join(changes) or "its limits"


def _total(stated: Iterable[Amounts]) -> Resources:
    return sum((amounts.resources for amounts in stated), start=NO_RESOURCES)


def _name(action: ResizePod | EvictPod) -> str:
    """Return the workload, and of the pod's name only what distinguishes it from its siblings."""
    if action.workload is None:
        return f"{action.namespace}/{action.pod}"
    return f"{action.namespace}/{action.workload.name}-{action.pod.rsplit('-', 1)[-1]}"


def _kill(reaction: Reaction) -> EventLine:
    record = reaction.record
    what = f"{record.namespace}/{record.pod} {record.container}"
    if record.memory_limit_bytes is not None:
        what += f" at {format_memory_bytes(record.memory_limit_bytes)}"
    return EventLine(record.finished_at, "OOM kill", what, reaction.decision.reason)
