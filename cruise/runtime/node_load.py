"""The node-load pass: readings in, cruise's own taint put on or taken off."""

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
    is_plausible,
)
from cruise.domain.actions import Outcome, ReasonCode, UntaintNode
from cruise.domain.cluster import Node
from cruise.domain.policy import Policy
from cruise.domain.usage import NodeLoadSample
from cruise.errors import CruiseError
from cruise.runtime.ports import ClusterPort, StorePort, UsageSourcePort
from cruise.runtime.writing.writer import ClusterWriter

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NodeLoadPassResult:
    """What one pass saw and did.

    `implausible` are the nodes whose load cannot be true, `crowd` how many are overloaded where that is more than half
    of the `nodes`; `tainted` are those that bear cruise's taint after it, `stuck` those of them that cruise would free
    and has no right to. `failure` is why no load could be read.
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
    """The latest readings of every node. A sample that was seen before is no new reading, and breaks no row either."""

    def __init__(self) -> None:
        self._readings: dict[str, NodeLoadReadings] = {}
        self._sampled_at: dict[str, float] = {}
        self._said: tuple[tuple[str, ...], bool] = ((), False)
        self._no_right_until: datetime | None = None

    def add(self, node: Node, sample: NodeLoadSample | None, now: datetime) -> bool:
        """Take over a look at a node; False where its load cannot be true, which is as good as none."""
        before = self._readings.setdefault(node.name, NodeLoadReadings((), now))
        load = compute_relative_load(sample.load1, node) if sample is not None else None
        plausible = load is None or is_plausible(load)
        if sample is not None and load is not None and plausible:
            if sample.at <= self._sampled_at.get(node.name, float("-inf")):
                return True
            self._sampled_at[node.name] = sample.at
        reading = load if plausible else None
        latest = (*before.latest, reading)[-REQUIRED_READINGS:]
        self._readings[node.name] = NodeLoadReadings(latest, before.known_at if reading is None else now)
        return plausible

    def keep_only(self, nodes: frozenset[str]) -> dict[str, NodeLoadReadings]:
        """Forget nodes that are gone, and return the readings of the others."""
        self._readings = {name: readings for name, readings in self._readings.items() if name in nodes}
        self._sampled_at = {name: at for name, at in self._sampled_at.items() if name in nodes}
        return self._readings

    def can_untaint(self, now: datetime) -> bool:
        """Tell whether it was not found lately that cruise has no right to take taints off."""
        return self._no_right_until is None or now >= self._no_right_until

    def update_permissions(self, outcomes: Sequence[Outcome], now: datetime) -> None:
        """Remember whether the server lets cruise take taints off: where not, it is asked again in an hour."""
        freed = [one for one in outcomes if isinstance(one.action, UntaintNode)]
        if any(one.reason is ReasonCode.FORBIDDEN for one in freed):
            self._no_right_until = now + MAX_READING_AGE
        elif freed:
            self._no_right_until = None

    def log_changes(self, implausible: Sequence[str], crowd: int, nodes: int) -> None:
        """Log loads that taint no node, when they begin and when they end."""
        news = (tuple(implausible), crowd > 0)
        if news == self._said:
            return
        if implausible:
            log.warning("loads that cannot be true are ignored", nodes=len(implausible), such_as=implausible[0])
        if crowd:
            log.warning("too many nodes are overloaded at once to be true: none is tainted", overloaded=crowd, of=nodes)
        if not implausible and not crowd:
            log.info("node loads are plausible again")
        self._said = news


async def run_node_load_pass(
    cluster: ClusterPort,
    source: UsageSourcePort,
    store: StorePort,
    loads: NodeLoadHistory,
    policy: Policy,
    now: datetime,
    *,
    writer: ClusterWriter | None = None,
) -> NodeLoadPassResult:
    """Read every node's load once and act on two readings in a row; where none can be read, act on that."""
    snapshot = await cluster.snapshot()
    failure: CruiseError | None = None
    try:
        samples = await source.node_loads(int(now.timestamp()))
    except CruiseError as error:
        samples, failure = {}, error
    nodes = snapshot.nodes
    implausible = [node.name for node in nodes if not loads.add(node, samples.get(node.name), now)]
    decided = decide_node_load(nodes, loads.keep_only(frozenset(node.name for node in nodes)), policy, now)
    loads.log_changes(implausible, decided.overloaded_at_once, len(nodes))
    may_free = loads.can_untaint(now)
    actions = [action for action in decided.actions if may_free or not isinstance(action, UntaintNode)]
    writer = writer or ClusterWriter(cluster, store, policy)
    freeing = [action for action in actions if isinstance(action, UntaintNode)]
    tainting = [action for action in actions if not isinstance(action, UntaintNode)]
    # Apart, since taints come off without a database as well, and none is put on without one.
    outcomes = await writer.apply_plan(freeing, snapshot, now) if freeing else []
    loads.update_permissions(outcomes, now)
    outcomes += await writer.apply_plan(tainting, snapshot, now) if tainting else []
    after = (await cluster.snapshot()).nodes if outcomes else nodes
    tainted = find_tainted_nodes(after)
    wanted = {action.node for action in decided.actions if isinstance(action, UntaintNode)}
    stuck = [] if loads.can_untaint(now) else [name for name in tainted if name in wanted]
    return NodeLoadPassResult(
        now, len(nodes), outcomes, implausible, decided.overloaded_at_once, tainted, stuck, failure
    )


async def remove_taints_on_exit(
    cluster: ClusterPort, writer: ClusterWriter, namespace: str, process: str, now: datetime
) -> Sequence[Outcome]:
    """Take cruise's taint off every node where nobody is left to do it: `process` is the pod that ends.

    A rolling update or a restart leaves the taints to the next leader.
    """
    snapshot = await cluster.snapshot()
    taints = build_taint_removals(snapshot.nodes)
    if not taints or has_running_successor(snapshot, namespace, process):
        return ()
    return await writer.apply_plan(taints, snapshot, now)
