"""Days of usage in two matrices, read in pieces of at most a day, and the owners and requests of their pods.

The series and the rules for counters are those of the controller. So CPU is demand, usage × (1 + psi), where pressure
is known.

The index is read first, and shows which series existed, also of deleted pods. Each query is then cut so that its points
times its series stay within the configured number of samples.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.counter_rows import EarlierCounters
from cruise.adapters.prometheus.counters import join_tails_of_disjoint_series
from cruise.adapters.prometheus.queries import (
    MatrixDecoder,
    SeriesMatrix,
    build_selector,
    query_range_in_parts,
    quote_promql,
)
from cruise.adapters.prometheus.seen_pods import PARTITIONS, get_partition
from cruise.adapters.prometheus.series_selectors import (
    LOOKBACK_SECONDS,
    UsageSeriesCounts,
    count_usage_series,
    create_series_decoder,
)
from cruise.adapters.prometheus.settings import PrometheusSettings, SeriesLabelNames
from cruise.adapters.prometheus.source import MAX_CORES, UsagePiece, UsageQueries
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.resources import Resources
from cruise.domain.usage import ContainerKey, PartitionCounterTail, SampleBlock
from cruise.errors import ThrottledError, UnavailableError, UnreachableError

T = TypeVar("T")

DAY = 86_400
# One failed answer does not end a read of minutes.
_RETRY_SECONDS = (1.0, 5.0)
_MAX_RETRY_SECONDS = 60.0


class RecordingReader:
    """Reads the usage of every container at the grid times after `start` up to `end`; blocks.

    Both are Unix seconds on the grid of the settings' step. All methods raise BadInputError, ThrottledError and
    UnavailableError.
    """

    def __init__(self, settings: PrometheusSettings, start: int, end: int, cores: float = MAX_CORES) -> None:
        step = settings.step_seconds
        if start % step or end % step or end <= start:
            raise ValueError(f"cannot read from {start} to {end} every {step} s")
        self._settings = settings
        self._client = PrometheusClient(settings)
        self._queries = UsageQueries(settings, self._client, server_merges=False)
        self._cores = cores
        # Usage of the first step is growth since `start`. The age of the very first values is unknown, so one more step
        # is read before them.
        self._start = start
        self._grid = np.arange(start - step * settings.plausible, end + 1, step, dtype=np.int64)
        self._days = np.array_split(self._grid, range(DAY // step, len(self._grid), max(1, DAY // step)))
        self._series_counts: list[UsageSeriesCounts] = []

    @property
    def client(self) -> PrometheusClient:
        """The connection, for other queries to the same server."""
        return self._client

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def list_containers(self) -> list[ContainerKey]:
        """Return every container that had a CPU counter in the time range, sorted."""
        count_series = partial(count_usage_series, self._settings, self._client)
        self._series_counts = []
        for day in self._days:
            request = partial(count_series, int(day[0]), int(day[-1]))
            self._series_counts.append(retry_when_unavailable(request, answered=bool(self._series_counts)))
        return sorted(set().union(*(one.containers for one in self._series_counts)))

    def read(
        self, containers: Sequence[ContainerKey], on_progress: Callable[[float], None] | None = None
    ) -> tuple[Float32Array, Float32Array]:
        """Return the CPU demand in millicores and the memory in bytes of some of the `list_containers`.

        One row per grid time and one column per container; NaN is no sample.
        """
        shape = (int(self._grid[-1] - self._start) // self._settings.step_seconds, len(containers))
        cpu, memory = np.full(shape, np.nan, dtype=np.float32), np.full(shape, np.nan, dtype=np.float32)
        columns = {key: column for column, key in enumerate(containers)}
        tail: PartitionCounterTail | None = None
        with ThreadPoolExecutor(self._settings.concurrency) as pool:
            for day, series_counts in zip(self._days, self._series_counts, strict=True):
                points = series_counts.count_samples(len(day), self._settings)
                for times in np.array_split(day, range(points, len(day), points)):
                    pieces = series_counts.split_into_pieces(points, self._settings)
                    tail = self._read_pieces(pool, pieces, times, tail, (columns, cpu, memory))
                    if on_progress is not None:
                        on_progress(float(times[-1] - self._grid[0]) / float(self._grid[-1] - self._grid[0]))
        return cpu, memory

    def _read_pieces(
        self,
        pool: ThreadPoolExecutor,
        pieces: Sequence[str],
        times: Int64Array,
        tail: PartitionCounterTail | None,
        target: tuple[dict[ContainerKey, int], Float32Array, Float32Array],
    ) -> PartitionCounterTail | None:
        if not pieces:
            return None
        before = EarlierCounters.create(tail)

        def query(pods: str) -> UsagePiece:
            return retry_when_unavailable(partial(self._queries.query, pods, times, before, self._cores))

        tails = []
        for block, piece_tail in pool.map(query, pieces):
            self._fill(target, block)
            tails.append(piece_tail)
        return join_tails_of_disjoint_series(tails, int(times[-1]))

    def _fill(self, target: tuple[dict[ContainerKey, int], Float32Array, Float32Array], block: SampleBlock) -> None:
        columns, cpu, memory = target
        indexes = np.fromiter((columns.get(key, -1) for key in block.keys), np.int64, len(block.keys))
        known = indexes >= 0
        # Times up to the start have no row; they are read only for their counters.
        within = block.times > self._start
        rows = (block.times[within] - self._start) // self._settings.step_seconds - 1
        cells = np.ix_(rows, indexes[known])
        # A block may have steps that the previous one could not know.
        cpu[cells] = np.fmax(cpu[cells], block.cpu_demand_millicores[np.ix_(known, within)].T)
        memory[cells] = np.fmax(memory[cells], block.memory_bytes[np.ix_(known, within)].T)


def retry_when_unavailable(
    request: Callable[[], T], wait: Callable[[float], object] = time.sleep, *, answered: bool = True
) -> T:
    """Repeat a request after a while if the server cannot answer at present.

    If the server has not `answered` anything yet, an unreachable address is taken to be wrong.
    """
    for seconds in _RETRY_SECONDS:
        try:
            return request()
        except ThrottledError as error:
            wait(max(seconds, min(error.retry_after_seconds or 0.0, _MAX_RETRY_SECONDS)))
        except UnavailableError as error:
            if isinstance(error, UnreachableError) and not answered:
                raise
            wait(seconds)
    return request()


REQUESTS = "kube_pod_container_resource_requests"
HOUR = 3600

PodKey = tuple[str, str]
OwnerKey = tuple[str, str, str]
Owner = tuple[str, str]


@dataclass(frozen=True, slots=True)
class KubeStateMetrics:
    """Owners as (kind, name): of pods by (namespace, name), of ReplicaSets and Jobs by (namespace, kind, name)."""

    owner_of_pod: dict[PodKey, Owner] = field(default_factory=dict)
    owner_of_controller: dict[OwnerKey, Owner] = field(default_factory=dict)
    requests: dict[ContainerKey, Resources] = field(default_factory=dict)


def read_pod_owners_and_requests(
    settings: PrometheusSettings, client: PrometheusClient, start: int, end: int
) -> KubeStateMetrics:
    """Return the owners and requests of pods between two times in Unix seconds, which may be empty; blocks.

    Owners are labels, so they are read from the index. Requests are read for every hour; the first value counts, with
    which the pod was created. If the scraper kept its own labels, those of the metrics begin with `exported_`.
    Raises BadInputError, ThrottledError and UnavailableError.
    """
    return _KubeStateReader(settings, client).read(start, end)


@dataclass(frozen=True, slots=True)
class _OwnerSeries:
    """The labels of an owner series; `exported` if the scraper kept its own labels."""

    namespace: str
    pod: str
    exported: bool
    controller: str
    owner: Owner | None


class _KubeStateReader:
    def __init__(self, settings: PrometheusSettings, client: PrometheusClient) -> None:
        self._settings = settings
        self._client = client
        self._found = KubeStateMetrics()
        self._job = ""

    def read(self, start: int, end: int) -> KubeStateMetrics:
        # Full hours, so that every read uses the same times.
        for first in range(start // HOUR * HOUR, end, DAY):
            last = min(first + DAY - HOUR, end)
            self._job = self._find_job(first, last + HOUR)
            self._read_owners(first, last + HOUR)
            self._read_requests(first, last)
        return self._found

    def _find_job(self, first: int, last: int) -> str:
        """Return the matcher of the job that reports most pods, because any pod may expose such series."""
        settings = self._settings
        if settings.kube_state_matchers or not settings.plausible:
            return ""
        decode = create_series_decoder({"job": "job"}, settings.accept_partial)
        series = build_selector("kube_pod_owner", settings.matchers)
        found = decode(
            retry_when_unavailable(partial(self._client.query_series, [series], first - LOOKBACK_SECONDS, last))
        )
        jobs = Counter(one.job for one in found)
        return f"job={quote_promql(jobs.most_common(1)[0][0])}" if jobs else ""

    def _selector(self, family: str, *matchers: str) -> str:
        return build_selector(family, *matchers, self._settings.matchers, self._settings.kube_state_matchers, self._job)

    def _read_owners(self, first: int, last: int) -> None:
        for one in self._read_owner_series("kube_pod_owner", first, last):
            if one.owner is not None:
                self._found.owner_of_pod[one.namespace, one.pod] = one.owner
        for family, kind, label in (
            ("kube_replicaset_owner", "ReplicaSet", "replicaset"),
            ("kube_job_owner", "Job", "job_name"),
        ):
            for one in self._read_owner_series(family, first, last, label):
                if one.owner is not None:
                    self._found.owner_of_controller[one.namespace, kind, one.controller] = one.owner

    def _read_owner_series(
        self, family: str, first: int, last: int, controller: str = "", matchers: str = ""
    ) -> Iterator[_OwnerSeries]:
        labels = {"kind": "owner_kind", "owner": "owner_name", "controller": controller or "controller"}
        for name in ("namespace", "pod"):
            labels |= {name: name, f"exported_{name}": f"exported_{name}"}
        decode = create_series_decoder(labels, self._settings.accept_partial)
        series = self._selector(family, matchers)
        for one in decode(
            retry_when_unavailable(partial(self._client.query_series, [series], first - LOOKBACK_SECONDS, last))
        ):
            # Without an owner, the labels are <none>.
            has_owner = one.kind and one.owner and not one.owner.startswith("<")
            yield _OwnerSeries(
                one.exported_namespace or one.namespace,
                one.exported_pod or one.pod,
                bool(one.exported_pod),
                one.controller,
                (one.kind, one.owner) if has_owner else None,
            )

    def _read_requests(self, first: int, last: int) -> None:
        resource_matcher = 'resource=~"cpu|memory"'
        counts = {name: Counter[str]() for name in PARTITIONS}
        prefix = ""
        for one in self._read_owner_series(REQUESTS, first, last, matchers=resource_matcher):
            prefix = "exported_" if one.exported else prefix
            counts[get_partition(one.pod)][one.pod] += 1
        series_counts = UsageSeriesCounts(series_of_pod=counts)
        # The resource distinguishes the series of one container, in place of the runtime's id.
        labels = SeriesLabelNames(f"{prefix}namespace", f"{prefix}pod", f"{prefix}container", id="resource", node="")
        decoder = MatrixDecoder(labels, self._settings.accept_partial)
        points = series_counts.count_samples((last - first) // HOUR + 1, self._settings)
        for start in range(first, last + 1, points * HOUR):
            end = min(start + (points - 1) * HOUR, last // HOUR * HOUR)
            for piece in series_counts.split_into_pieces(points, self._settings):
                series = self._selector(REQUESTS, resource_matcher, f"{labels.pod}=~{quote_promql(piece)}")
                by = ", ".join((labels.namespace, labels.pod, labels.container, labels.id))
                query = f"max by ({by}) ({series})"
                self._add_requests(
                    retry_when_unavailable(
                        partial(query_range_in_parts, self._client, decoder, query, start, end, HOUR)
                    )
                )

    def _add_requests(self, matrix: SeriesMatrix) -> None:
        requests: dict[ContainerKey, Resources] = {}
        for name, values in zip(matrix.series, matrix.values, strict=True):
            key = ContainerKey(name.namespace, name.pod, name.container)
            samples = values[~np.isnan(values)]
            if key in self._found.requests or not len(samples):
                continue
            one = float(samples[0])
            amount = Resources(cpu_millicores=round(one * 1000)) if name.id == "cpu" else Resources(0, round(one))
            requests[key] = requests.get(key, Resources()) + amount
        self._found.requests.update(requests)
