"""The node-load pass: readings in, cruise's own taint put on or taken off."""

from collections.abc import Sequence
from datetime import datetime

from cruise.decisions.node_load import READINGS_IN_A_ROW, decide_node_load, load_of
from cruise.domain.actions import Outcome
from cruise.domain.policy import Policy
from cruise.runtime.ports import Cluster, Store, UsageSource
from cruise.runtime.writing.writer import Writer


class NodeLoads:
    """The latest readings of every node, oldest first; None for a reading that was not there."""

    def __init__(self) -> None:
        self._readings: dict[str, list[float | None]] = {}

    def add(self, node: str, reading: float | None) -> Sequence[float | None]:
        """Add a reading and return those that decide."""
        kept = [*self._readings.get(node, []), reading][-READINGS_IN_A_ROW:]
        self._readings[node] = kept
        return kept

    def keep_only(self, nodes: frozenset[str]) -> None:
        """Forget nodes that are gone."""
        self._readings = {name: readings for name, readings in self._readings.items() if name in nodes}


async def node_load_pass(
    cluster: Cluster,
    source: UsageSource,
    store: Store,
    loads: NodeLoads,
    policy: Policy,
    now: datetime,
    *,
    writer: Writer | None = None,
) -> list[Outcome]:
    """Read every node's load once and act on two readings in a row."""
    snapshot = await cluster.snapshot()
    load1 = await source.node_loads(int(now.timestamp()))
    loads.keep_only(frozenset(node.name for node in snapshot.nodes))
    decided = [
        decide_node_load(node, loads.add(node.name, load_of(load1.get(node.name), node)), policy)
        for node in snapshot.nodes
    ]
    actions = [action for action in decided if action is not None]
    return await (writer or Writer(cluster, store, policy)).apply(actions, snapshot, now) if actions else []
