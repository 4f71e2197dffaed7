"""The node-load pass: readings in, cruise's own taint put on or taken off."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from cruise.decisions.node_load import (
    LONGEST_WITHOUT_READING,
    READINGS_IN_A_ROW,
    LoadReadings,
    decide_node_load,
    has_successor,
    is_plausible,
    leftover_taints,
    load_of,
    tainted_nodes,
)
from cruise.domain.actions import Outcome, Reason, UntaintNode
from cruise.domain.cluster import Node
from cruise.domain.policy import Policy
from cruise.domain.usage import LoadSample
from cruise.errors import CruiseError
from cruise.runtime.ports import Cluster, Store, UsageSource
from cruise.runtime.writing.writer import Writer

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NodeLoadPass:
    """What one pass saw and did.

    `implausible` are the nodes whose load cannot be true, `crowd` how many are overloaded where that is more than half
    of the `nodes`; `tainted` are those that bear cruise's taint after it, `stuck` those of them that cruise would free
    and has no right to. `failure` is why no load could be read.
    """

    at: datetime
    nodes: int
    outcomes: Sequence[Outcome] = ()
    implausible: Sequence[str] = ()
    crowd: int = 0
    tainted: Sequence[str] = ()
    stuck: Sequence[str] = ()
    failure: CruiseError | None = None


class NodeLoads:
    """The latest readings of every node. A sample that was seen before is no new reading, and breaks no row either."""

    def __init__(self) -> None:
        self._readings: dict[str, LoadReadings] = {}
        self._sampled_at: dict[str, float] = {}
        self._said: tuple[tuple[str, ...], bool] = ((), False)
        self._no_right_until: datetime | None = None

    def add(self, node: Node, sample: LoadSample | None, now: datetime) -> bool:
        """Take over a look at a node; False where its load cannot be true, which is as good as none."""
        before = self._readings.setdefault(node.name, LoadReadings((), now))
        load = load_of(sample.load1, node) if sample is not None else None
        plausible = load is None or is_plausible(load)
        if sample is not None and load is not None and plausible:
            if sample.at <= self._sampled_at.get(node.name, float("-inf")):
                return True
            self._sampled_at[node.name] = sample.at
        reading = load if plausible else None
        latest = (*before.latest, reading)[-READINGS_IN_A_ROW:]
        self._readings[node.name] = LoadReadings(latest, before.known_at if reading is None else now)
        return plausible

    def keep_only(self, nodes: frozenset[str]) -> dict[str, LoadReadings]:
        """Forget nodes that are gone, and return the readings of the others."""
        self._readings = {name: readings for name, readings in self._readings.items() if name in nodes}
        self._sampled_at = {name: at for name, at in self._sampled_at.items() if name in nodes}
        return self._readings

    def may_free(self, now: datetime) -> bool:
        """Tell whether it was not found lately that cruise has no right to take taints off."""
        return self._no_right_until is None or now >= self._no_right_until

    def learn_rights(self, outcomes: Sequence[Outcome], now: datetime) -> None:
        """Remember whether the server lets cruise take taints off: where not, it is asked again in an hour."""
        freed = [one for one in outcomes if isinstance(one.action, UntaintNode)]
        if any(one.reason is Reason.FORBIDDEN for one in freed):
            self._no_right_until = now + LONGEST_WITHOUT_READING
        elif freed:
            self._no_right_until = None

    def say(self, implausible: Sequence[str], crowd: int, nodes: int) -> None:
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


async def node_load_pass(
    cluster: Cluster,
    source: UsageSource,
    store: Store,
    loads: NodeLoads,
    policy: Policy,
    now: datetime,
    *,
    writer: Writer | None = None,
) -> NodeLoadPass:
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
    loads.say(implausible, decided.crowd, len(nodes))
    may_free = loads.may_free(now)
    actions = [action for action in decided.actions if may_free or not isinstance(action, UntaintNode)]
    writer = writer or Writer(cluster, store, policy)
    freeing = [action for action in actions if isinstance(action, UntaintNode)]
    tainting = [action for action in actions if not isinstance(action, UntaintNode)]
    # Apart, since taints come off without a database as well, and none is put on without one.
    outcomes = await writer.apply(freeing, snapshot, now) if freeing else []
    loads.learn_rights(outcomes, now)
    outcomes += await writer.apply(tainting, snapshot, now) if tainting else []
    after = (await cluster.snapshot()).nodes if outcomes else nodes
    tainted = tainted_nodes(after)
    wanted = {action.node for action in decided.actions if isinstance(action, UntaintNode)}
    stuck = [] if loads.may_free(now) else [name for name in tainted if name in wanted]
    return NodeLoadPass(now, len(nodes), outcomes, implausible, decided.crowd, tainted, stuck, failure)


async def leave_nodes(
    cluster: Cluster, writer: Writer, namespace: str, process: str, now: datetime
) -> Sequence[Outcome]:
    """Take cruise's taint off every node where nobody is left to do it: `process` is the pod that ends.

    A rolling update or a restart leaves the taints to the next leader.
    """
    snapshot = await cluster.snapshot()
    taints = leftover_taints(snapshot.nodes)
    if not taints or has_successor(snapshot, namespace, process):
        return ()
    return await writer.apply(taints, snapshot, now)
