"""A usage source that compares its samples with those of some kubelets, other ones in each pass."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import islice

import structlog

from cruise.decisions.usage.plausibility import compare_counters, compare_memory
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.preflight import CrossCheckCounts, CrossCheckResult, KubeletReport
from cruise.domain.usage import CounterTail, NodeLoadSample, NodeUsage, SampleBlock
from cruise.errors import CruiseError
from cruise.runtime.ports import UsageSourcePort

log = structlog.get_logger()

# After this many passes without a readable node, only every twelfth pass tries.
_MAX_FAILED_PASSES, _RETRY_INTERVAL_PASSES = 3, 12


class CrossCheckedUsageSource:
    """Implements UsageSourcePort over another source; the comparison changes no samples, and is counted in `counts`.

    `ask` returns a kubelet's report; `nodes_a_pass` kubelets are read in each pass. A report is compared with the
    counters of the same pass, and with those of the next pass.
    """

    def __init__(
        self,
        source: UsageSourcePort,
        ask: Callable[[Node], Awaitable[KubeletReport]],
        nodes_a_pass: int,
        step_seconds: int,
    ) -> None:
        self._source, self._ask, self._nodes_a_pass, self._step = source, ask, nodes_a_pass, step_seconds
        self._reports: list[KubeletReport] = []
        self._earlier_reports: list[KubeletReport] = []
        self._pass_number, self._failed_passes = 0, 0
        self.pass_result = CrossCheckResult()
        self.counts = CrossCheckCounts()
        """The counts of all earlier passes."""

    async def list_partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        """Return the other source's partitions, and read the next kubelets."""
        found = await self._source.list_partitions(snapshot)
        self._earlier_reports, self._reports = self._reports, []
        self.counts, before, self.pass_result = self.counts.add(self.pass_result), self.pass_result, CrossCheckResult()
        occupied = {pod.node for pod in snapshot.pods}
        nodes = [node for node in snapshot.nodes if node.ready and node.name in occupied]
        self._pass_number += 1
        if nodes and (self._failed_passes < _MAX_FAILED_PASSES or self._pass_number % _RETRY_INTERVAL_PASSES == 0):
            start = self._pass_number * self._nodes_a_pass
            chosen = [nodes[(start + more) % len(nodes)] for more in range(min(self._nodes_a_pass, len(nodes)))]
            for node in chosen:
                await self._read_kubelet(node, before.unreadable_reason)
            self._failed_passes = 0 if self._reports else self._failed_passes + 1
        return found

    async def read(
        self, partition: str, start: int, end: int, tail: CounterTail | None
    ) -> tuple[SampleBlock, CounterTail | None]:
        """Return the other source's samples, and compare them."""
        block, after = await self._source.read(partition, start, end, tail)
        known = len(self.pass_result.disagreements)
        for report in (*self._reports, *self._earlier_reports):
            if after is not None:
                compare_counters(report, after, self._step, self.pass_result)
        for report in (*self._reports, *self._earlier_reports):
            compare_memory(report, block, self.pass_result)
        for key, one in islice(self.pass_result.disagreements.items(), known, None):
            log.warning(
                "a kubelet contradicts the usage source",
                container="/".join(key),
                node=one.node,
                resource=one.resource,
                source_value=one.prometheus_value,
                kubelet_value=one.kubelet_value,
            )
        return block, after

    async def read_node_usage(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        """Return the other source's node usage."""
        return await self._source.read_node_usage(nodes, start, end)

    async def read_node_loads(self, at: int) -> Mapping[str, NodeLoadSample]:
        """Return the other source's node loads."""
        return await self._source.read_node_loads(at)

    async def _read_kubelet(self, node: Node, known: str) -> None:
        self.pass_result.nodes += 1
        try:
            self._reports.append(await self._ask(node))
        except CruiseError as error:
            if str(error) != known:
                log.info("cannot read a kubelet for comparison", node=node.name, error=str(error))
            self.pass_result.unreadable_nodes += 1
            self.pass_result.unreadable_reason = str(error)
