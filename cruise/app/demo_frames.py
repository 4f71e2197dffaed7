"""What the demo's picture shows, read off the two clusters and the controller's doings."""

import time
from datetime import timedelta

from cruise.app.controller import Doings
from cruise.domain.actions import EvictPod, Outcome, ResizePod, TaintNode, UntaintNode, Verdict
from cruise.domain.quantity import format_cpu_millicores, format_memory_bytes
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.interfaces.demo_view import DemoFrame, EventLine, NodeLine, Tally
from cruise.runtime.oom import Reaction
from cruise.simulation.cluster import SimulatedCluster

_EVENTS = 10


class FrameMaker:
    """Makes frames of one demo run."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        twin: SimulatedCluster,
        doings: Doings,
        pace: float,
        store: str,
        seconds: float | None,
    ) -> None:
        self._cluster = cluster
        self._twin = twin
        self._doings = doings
        self._pace = pace
        self._store = store
        self._seconds = seconds
        self._began = time.monotonic()
        self._before = _tally(cluster)

    def frame(self) -> DemoFrame:
        """Return the picture of this moment."""
        running = timedelta(seconds=time.monotonic() - self._began)
        return DemoFrame(
            at=self._cluster.now,
            running=running,
            left=None if self._seconds is None else timedelta(seconds=self._seconds) - running,
            pace=self._pace,
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
        )

    def _events(self) -> list[EventLine]:
        done = [outcome for outcome in self._doings.outcomes if outcome.verdict is Verdict.DONE]
        lines = [_line(outcome) for outcome in done[-_EVENTS:]]
        lines += [_kill(reaction) for reaction in list(self._doings.reactions)[-_EVENTS:]]
        return sorted(lines, key=lambda line: line.at, reverse=True)[:_EVENTS]


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
        case ResizePod():
            return EventLine(outcome.at, "resized", f"{_name(action)} {_sizes(action)}", action.reason)
        case EvictPod():
            why = f"{action.reason}: {action.resource}, ranking {action.ranking.label}"
            return EventLine(outcome.at, "evicted", _name(action), why)
        case TaintNode() | UntaintNode():
            kind = "tainted" if isinstance(action, TaintNode) else "untainted"
            return EventLine(outcome.at, kind, action.node, action.reason)


def _name(action: ResizePod | EvictPod) -> str:
    """Return the workload, which people know, and of the pod's name only what tells it from its siblings."""
    if action.workload is None:
        return f"{action.namespace}/{action.pod}"
    return f"{action.namespace}/{action.workload.name}-{action.pod.rsplit('-', 1)[-1]}"


def _sizes(action: ResizePod) -> str:
    total = sum((target.requests.resources for target in action.containers), start=Resources())
    return f"to {format_cpu_millicores(total.cpu_millicores)} {format_memory_bytes(total.memory_bytes)}"


def _kill(reaction: Reaction) -> EventLine:
    record = reaction.record
    what = f"{record.namespace}/{record.pod} {record.container}"
    if record.memory_limit_bytes is not None:
        what += f" at {format_memory_bytes(record.memory_limit_bytes)}"
    return EventLine(record.finished_at, "OOM kill", what, reaction.decision.reason)
