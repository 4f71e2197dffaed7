"""A source whose figures are compared with what some kubelets say themselves, other ones at each pass."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import islice

import structlog

from cruise.decisions.usage.cross_check import compare_counters, compare_memory
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.preflight import CrossCheckCounts, CrossCheckResult, KubeletReport
from cruise.domain.usage import CounterTail, NodeLoadSample, NodeUsage, SampleBlock
from cruise.errors import CruiseError
from cruise.runtime.ports import UsageSourcePort

log = structlog.get_logger()

# Where none of the nodes could be read in so many passes, only every twelfth pass tries.
_PATIENCE, _SELDOM = 3, 12


class CrossCheckedUsageSource:
    """Implements the UsageSourcePort port over another one; what is compared changes nothing, and is counted in `tally`.

    `ask` returns what one kubelet tells; `nodes_a_pass` of them are asked in each. What they told is compared with the
    counters of the same pass, and in the next with those that are shown for the time after.
    """

    def __init__(
        self,
        source: UsageSourcePort,
        ask: Callable[[Node], Awaitable[KubeletReport]],
        nodes_a_pass: int,
        step_seconds: int,
    ) -> None:
        self._source, self._ask, self._nodes_a_pass, self._step = source, ask, nodes_a_pass, step_seconds
        self._told: list[KubeletReport] = []
        self._earlier: list[KubeletReport] = []
        self._turn, self._in_vain = 0, 0
        self.pass_result = CrossCheckResult()
        self.counts = CrossCheckCounts()
        """Of all passes before this one."""

    async def partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        """Return the other source's, and ask the kubelets whose turn it is."""
        found = await self._source.partitions(snapshot)
        self._earlier, self._told = self._told, []
        self.counts, before, self.pass_result = self.counts.add(self.pass_result), self.pass_result, CrossCheckResult()
        occupied = {pod.node for pod in snapshot.pods}
        nodes = [node for node in snapshot.nodes if node.ready and node.name in occupied]
        self._turn += 1
        if nodes and (self._in_vain < _PATIENCE or self._turn % _SELDOM == 0):
            start = self._turn * self._nodes_a_pass
            chosen = [nodes[(start + more) % len(nodes)] for more in range(min(self._nodes_a_pass, len(nodes)))]
            for node in chosen:
                await self._look_at(node, before.unreadable_reason)
            self._in_vain = 0 if self._told else self._in_vain + 1
        return found

    async def read(
        self, partition: str, start: int, end: int, tail: CounterTail | None
    ) -> tuple[SampleBlock, CounterTail | None]:
        """Return what the other source does, and compare it."""
        block, after = await self._source.read(partition, start, end, tail)
        known = len(self.pass_result.disagreements)
        for told in (*self._told, *self._earlier):
            if after is not None:
                compare_counters(told, after, self._step, self.pass_result)
        for told in (*self._told, *self._earlier):
            compare_memory(told, block, self.pass_result)
        for key, one in islice(self.pass_result.disagreements.items(), known, None):
            log.warning(
                "a kubelet contradicts what is read",
                container="/".join(key),
                node=one.node,
                resource=one.resource,
                shown=one.prometheus_value,
                told=one.kubelet_value,
            )
        return block, after

    async def node_use(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        """Return what the other source does."""
        return await self._source.node_use(nodes, start, end)

    async def node_loads(self, at: int) -> Mapping[str, NodeLoadSample]:
        """Return what the other source does."""
        return await self._source.node_loads(at)

    async def _look_at(self, node: Node, known: str) -> None:
        self.pass_result.nodes += 1
        try:
            self._told.append(await self._ask(node))
        except CruiseError as error:
            if str(error) != known:
                log.info("kubelet not read for comparison", node=node.name, why=str(error))
            self.pass_result.unreadable_nodes += 1
            self.pass_result.unreadable_reason = str(error)
