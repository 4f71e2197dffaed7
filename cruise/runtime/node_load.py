"""The node load pass: reads load averages, and adds or removes cruise's own taint."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from cruise.decisions.node_load import (
    MAX_READING_AGE,
    REQUIRED_READINGS,
    NodeLoadReadings,
    build_taint_removals,
    compute_relative_load,
    decide_node_load,
    find_tainted_nodes,
    has_running_successor,
    is_plausible_load,
)
from cruise.domain.actions import Outcome, ReasonCode, UntaintNode
from cruise.domain.cluster import Node
from cruise.domain.usage import NodeLoadAverage
from cruise.errors import CruiseError
from cruise.runtime.ports import ClusterPort, PassContext, UsageSourcePort
from cruise.runtime.writing.writer import ClusterWriter

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NodeLoadPassResult:
    """What one pass read and did.

    `implausible` are the nodes whose load cannot be true; `overloaded_at_once` is how many nodes are overloaded if that
    is more than half of `nodes`; `tainted` are the nodes with cruise's taint after the pass, `unremovable` those of
    them whose taint cruise lacks the permission to remove. `failure` is why no load could be read.
    """

    at: datetime
    nodes: int
    outcomes: Sequence[Outcome] = ()
    implausible: Sequence[str] = ()
    overloaded_at_once: int = 0
    tainted: Sequence[str] = ()
    unremovable: Sequence[str] = ()
    failure: CruiseError | None = None


class NodeLoadHistory:
    """The latest readings of every node; a repeated sample is not a new reading."""

    def __init__(self) -> None:
        self._readings: dict[str, NodeLoadReadings] = {}
        self._sampled_at: dict[str, float] = {}
        self._logged_state: tuple[tuple[str, ...], bool] = ((), False)
        self._forbidden_until: datetime | None = None

    def add(self, node: Node, sample: NodeLoadAverage | None, now: datetime) -> bool:
        """Add a sample of a node; return False if its load cannot be true, which counts as no reading."""
        before = self._readings.setdefault(node.name, NodeLoadReadings((), now))
        load = compute_relative_load(sample.load1, node) if sample is not None else None
        plausible = load is None or is_plausible_load(load)
        if sample is not None and load is not None and plausible:
            if sample.at <= self._sampled_at.get(node.name, float("-inf")):
                return True
            self._sampled_at[node.name] = sample.at
        reading = load if plausible else None
        latest = (*before.latest, reading)[-REQUIRED_READINGS:]
        self._readings[node.name] = NodeLoadReadings(latest, before.known_at if reading is None else now)
        return plausible

    def keep_only(self, nodes: frozenset[str]) -> dict[str, NodeLoadReadings]:
        """Drop the readings of other nodes, and return those of these nodes."""
        self._readings = {name: readings for name, readings in self._readings.items() if name in nodes}
        self._sampled_at = {name: at for name, at in self._sampled_at.items() if name in nodes}
        return self._readings

    def can_untaint(self, now: datetime) -> bool:
        """Return whether the API server did not recently forbid the removal of taints."""
        return self._forbidden_until is None or now >= self._forbidden_until

    def update_permissions(self, outcomes: Sequence[Outcome], now: datetime) -> None:
        """Record whether the API server permits the removal of taints; if not, it is tried again in an hour."""
        removals = [one for one in outcomes if isinstance(one.action, UntaintNode)]
        if any(one.reason is ReasonCode.FORBIDDEN for one in removals):
            self._forbidden_until = now + MAX_READING_AGE
        elif removals:
            self._forbidden_until = None

    def log_changes(self, implausible: Sequence[str], overloaded_at_once: int, nodes: int) -> None:
        """Log when implausible loads begin and end."""
        state = (tuple(implausible), overloaded_at_once > 0)
        if state == self._logged_state:
            return
        if implausible:
            log.warning("implausible node loads are ignored", nodes=len(implausible), example=implausible[0])
        if overloaded_at_once:
            log.warning(
                "most nodes are overloaded, which is implausible: none is tainted",
                overloaded=overloaded_at_once,
                nodes=nodes,
            )
        if not implausible and not overloaded_at_once:
            log.info("node loads are plausible again")
        self._logged_state = state


async def run_node_load_pass(
    inputs: PassContext,
    source: UsageSourcePort,
    loads: NodeLoadHistory,
    *,
    writer: ClusterWriter | None = None,
) -> NodeLoadPassResult:
    """Read every node's load once, and act on two consecutive readings or on their absence."""
    cluster, now = inputs.cluster, inputs.now
    snapshot = await cluster.snapshot()
    failure: CruiseError | None = None
    try:
        samples = await source.read_node_loads(int(now.timestamp()))
    except CruiseError as error:
        samples, failure = {}, error
    nodes = snapshot.nodes
    implausible = [node.name for node in nodes if not loads.add(node, samples.get(node.name), now)]
    decided = decide_node_load(nodes, loads.keep_only(frozenset(node.name for node in nodes)), inputs.policy, now)
    loads.log_changes(implausible, decided.overloaded_at_once, len(nodes))
    can_untaint = loads.can_untaint(now)
    actions = [action for action in decided.actions if can_untaint or not isinstance(action, UntaintNode)]
    writer = writer or ClusterWriter(cluster, inputs.store, inputs.policy)
    removals = [action for action in actions if isinstance(action, UntaintNode)]
    additions = [action for action in actions if not isinstance(action, UntaintNode)]
    # Separately: taints are removed even without a database, and added only with one.
    outcomes = await writer.apply_plan(removals, snapshot, now) if removals else []
    loads.update_permissions(outcomes, now)
    outcomes += await writer.apply_plan(additions, snapshot, now) if additions else []
    nodes_after = (await cluster.snapshot()).nodes if outcomes else nodes
    tainted = find_tainted_nodes(nodes_after)
    to_untaint = {action.node for action in decided.actions if isinstance(action, UntaintNode)}
    unremovable = [] if loads.can_untaint(now) else [name for name in tainted if name in to_untaint]
    return NodeLoadPassResult(
        now, len(nodes), outcomes, implausible, decided.overloaded_at_once, tainted, unremovable, failure
    )


async def remove_taints_on_exit(
    cluster: ClusterPort, writer: ClusterWriter, namespace: str, process: str, now: datetime
) -> Sequence[Outcome]:
    """Remove cruise's taint from every node if no other process remains to do so; `process` is the pod that ends.

    After a rolling update or a restart the next leader handles the taints.
    """
    snapshot = await cluster.snapshot()
    taints = build_taint_removals(snapshot.nodes)
    if not taints or has_running_successor(snapshot, namespace, process):
        return ()
    return await writer.apply_plan(taints, snapshot, now)
