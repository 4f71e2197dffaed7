"""One question about usage: the three families of some pods over some times, made into samples."""

from functools import partial

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.counter_rows import CountersBefore, Counting
from cruise.adapters.prometheus.counters import Answers, usage_of
from cruise.adapters.prometheus.matrix import Matrix, MatrixDecoder
from cruise.adapters.prometheus.queries import usage_query, usage_selector
from cruise.adapters.prometheus.scrape_times import ScrapeTimes
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.arrays import Int64Array
from cruise.domain.usage import CounterTail, SampleBlock
from cruise.errors import BadInput

# What one container may use within a step, where no node reports its cores.
MANY_CORES = 1024.0

Piece = tuple[SampleBlock, CounterTail]


class UsageQuestions:
    """Queries a server; blocks, and may be shared by threads. It remembers on which nodes pressure was ever seen.

    Twins of a series come whole, so that it shows whether they agree. Where samples need not be plausible, the server
    may fold them: over few steps the labels that it then leaves out would be most of the answer, but it does so anew at
    each step, which over a day costs it four times the reading.
    """

    def __init__(self, settings: PrometheusSettings, client: PrometheusClient, server_folds: bool = True) -> None:
        self.settings = settings
        self._client = client
        self._query = usage_query if server_folds and not settings.plausible else usage_selector
        self._matrices = MatrixDecoder(settings.labels, settings.accept_partial)
        self.scrape_times = ScrapeTimes(settings, client)
        self._pressured_nodes: set[str] = set()

    def ask(self, pods: str, times: Int64Array, before: CountersBefore, cores: float) -> Piece:
        """Return the usage of the pods whose names match at the `times`, which are a step apart.

        `cores` bounds what one container can use. Raises BadInput, Throttled, Unavailable.
        """
        metrics = self.settings.metrics
        answers = Answers(
            cpu_seconds=self._matrix(metrics.cpu, pods, times),
            cpu_waiting_seconds=self._matrix(metrics.cpu_waiting, pods, times),
            memory_bytes=self._matrix(metrics.memory, pods, times),
            pods=pods,
        )
        counting = Counting(self.settings.step_seconds, cores, self.settings.plausible)
        ages_of = partial(self.scrape_times.ages, self.settings)
        return usage_of(answers, times, before, counting, self._pressured_nodes, ages_of)

    def _matrix(self, metric: str, pods: str, times: Int64Array) -> Matrix:
        first, last, step = int(times[0]), int(times[-1]), self.settings.step_seconds
        body = self._client.query_range(self._query(self.settings, metric, pods), first, last, step)
        matrix = self._matrices.matrix(body, first, last, step)
        if matrix.series and not any(name.namespace and name.pod and name.container for name in matrix.series):
            labels = self.settings.labels
            raise BadInput(
                f"the series of {metric} lack a label {labels.namespace}, {labels.pod} or {labels.container}: "
                "set the label names"
            )
        return matrix
