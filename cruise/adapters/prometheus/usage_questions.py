"""One question about usage: the three families of some pods over some times, made into samples."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.counter_rows import CountersBefore, Counting
from cruise.adapters.prometheus.counters import Answers, usage_of
from cruise.adapters.prometheus.matrix import Matrix, MatrixDecoder, SeriesName, ask_range
from cruise.adapters.prometheus.queries import root_group_selector, usage_query, usage_selector
from cruise.adapters.prometheus.scrape_times import ScrapeTimes
from cruise.adapters.prometheus.seen_pods import SeenPods
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import Snapshot
from cruise.domain.usage import ContainerKey, CounterTail, NodeUse, SampleBlock
from cruise.errors import BadInput

# What one container may use within a step, where no node reports its cores.
MANY_CORES = 1024.0
# A read without a tail knows nothing of its first two steps.
_STEPS_BEFORE = 2

Piece = tuple[SampleBlock, CounterTail]


def with_steps_before(times: Int64Array, step: int) -> Int64Array:
    """Return the times, which are a `step` apart, with those before them that a read without a tail needs."""
    return np.concatenate((times[0] - step * np.arange(_STEPS_BEFORE, 0, -1), times))


def use_of_nodes(cpu: Matrix, memory: Matrix, times: Int64Array, step: int, cores: float) -> NodeUse:
    """Turn the counters and gauges of root control groups at the times of `with_steps_before` into the nodes' use."""
    cpu, memory = (
        Matrix(
            [SeriesName("nodes", one.node, one.id, one.id, one.node, one.core) for one in family.series], family.values
        )
        for family in (cpu, memory)
    )
    answers = Answers(cpu, Matrix((), np.empty((0, len(times)))), memory)
    # A group is read as a container is: missed scrapes, servers that disagree, a node that was started anew.
    block, _ = usage_of(answers, times, CountersBefore(), Counting(step, cores), set())
    use = block.cpu_demand_millicores[:, _STEPS_BEFORE:].astype(np.float64)
    return NodeUse([key.pod for key in block.keys], times[_STEPS_BEFORE:], use, block.memory_bytes[:, _STEPS_BEFORE:])


class UsageQuestions:
    """Queries a server; blocks, and may be shared by threads. It remembers on which nodes pressure was ever seen.

    Twins of a series come whole, so that it shows whether they agree. Where samples need not be plausible, the server
    may fold them: over few steps the labels that it then leaves out would be most of the answer, but it does so anew at
    each step, which over a day costs it four times the reading.
    """

    def __init__(self, settings: PrometheusSettings, client: PrometheusClient, server_folds: bool = True) -> None:
        self.settings = settings
        self.only_seen: SeenPods | None = None
        """The pods that count, where series of other pods may be another cluster's."""
        self._client = client
        self._query = usage_query if server_folds and not settings.plausible else usage_selector
        self._matrices = MatrixDecoder(settings.labels, settings.accept_partial)
        self.scrape_times = ScrapeTimes(settings, client)
        self._pressured_nodes: set[str] = set()
        self._lately: dict[ContainerKey, float] = {}

    def choose(self, snapshot: Snapshot) -> None:
        """Take over which pods run: whose times and whose pressure are asked for in the reads that follow."""
        self.scrape_times.choose(snapshot)
        running = {(pod.namespace, pod.name) for pod in snapshot.pods} if self._lately else set()
        self._lately = {key: share for key, share in self._lately.items() if key[:2] in running}

    def ask(self, pods: str, times: Int64Array, before: CountersBefore, cores: float) -> Piece:
        """Return the usage of the pods whose names match at the `times`, which are a step apart.

        `cores` bounds what one container can use. Raises BadInput, Throttled, Unavailable.
        """
        metrics = self.settings.metrics
        spared = self.scrape_times.spare(pods, len(times))
        families = [
            self._matrix(metrics.cpu, pods, times),
            self._matrix(metrics.cpu_waiting, pods, times, spared),
            self._matrix(metrics.memory, pods, times),
        ]
        of_others: tuple[int, ContainerKey] | None = None
        if self.only_seen is not None:
            families, of_others = self.only_seen.only(families, times)
        answers = Answers(families[0], families[1], families[2], pods)
        counting = Counting(self.settings.step_seconds, cores, self.settings.plausible)
        ages_of = partial(self.scrape_times.ages, self.settings)
        block, tail = usage_of(answers, times, before, counting, self._pressured_nodes, ages_of, self._lately)
        return replace(block, of_others=of_others), tail

    def of_nodes(self, nodes: Sequence[str], times: Int64Array, cores: float) -> NodeUse:
        """Return what nodes used in all at the `times`, which are a step apart, by their root control groups.

        Raises BadInput, Throttled, Unavailable.
        """
        metrics, step = self.settings.metrics, self.settings.step_seconds
        wider = with_steps_before(times, step)
        cpu, memory = (self._of_roots(metric, nodes, wider) for metric in (metrics.cpu, metrics.memory))
        return use_of_nodes(cpu, memory, wider, step, cores)

    def _of_roots(self, metric: str, nodes: Sequence[str], times: Int64Array) -> Matrix:
        first, last, step = int(times[0]), int(times[-1]), self.settings.step_seconds
        query = root_group_selector(self.settings, metric, nodes)
        return ask_range(self._client, self._matrices, query, first, last, step)

    def _matrix(self, metric: str, pods: str, times: Int64Array, spared: Sequence[str] = ()) -> Matrix:
        first, last, step = int(times[0]), int(times[-1]), self.settings.step_seconds
        query = self._query(self.settings, metric, pods, spared)
        matrix = ask_range(self._client, self._matrices, query, first, last, step)
        if matrix.series and not any(name.namespace and name.pod and name.container for name in matrix.series):
            labels = self.settings.labels
            raise BadInput(
                f"the series of {metric} lack a label {labels.namespace}, {labels.pod} or {labels.container}: "
                "set the label names"
            )
        return matrix
