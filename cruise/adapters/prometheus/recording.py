"""Days of usage in two matrices, read in pieces of at most a day.

The series and the rules for counters are those of the controller. So CPU is demand, usage × (1 + psi), where pressure
is known.

The index is read first, and shows which series existed, also of deleted pods. Each query is then cut so that its points
times its series stay within the configured number of samples.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.counter_rows import EarlierCounters
from cruise.adapters.prometheus.counters import join_tails
from cruise.adapters.prometheus.series_selectors import SeriesListing, list_usage_series
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import MAX_CORES, UsagePiece, UsageQueries
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.usage import ContainerKey, CounterTail, SampleBlock
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
        self._listings: list[SeriesListing] = []

    @property
    def client(self) -> PrometheusClient:
        """The connection, for other queries to the same server."""
        return self._client

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def list_containers(self) -> list[ContainerKey]:
        """Return every container that had a CPU counter in the time range, sorted."""
        list_series = partial(list_usage_series, self._settings, self._client)
        self._listings = []
        for day in self._days:
            request = partial(list_series, int(day[0]), int(day[-1]))
            self._listings.append(retry_when_unavailable(request, answered=bool(self._listings)))
        return sorted(set().union(*(one.containers for one in self._listings)))

    def read(
        self, containers: Sequence[ContainerKey], on_progress: Callable[[float], None] | None = None
    ) -> tuple[Float32Array, Float32Array]:
        """Return the CPU demand in millicores and the memory in bytes of some of the `list_containers`.

        One row per grid time and one column per container; NaN is no sample.
        """
        shape = (int(self._grid[-1] - self._start) // self._settings.step_seconds, len(containers))
        cpu, memory = np.full(shape, np.nan, dtype=np.float32), np.full(shape, np.nan, dtype=np.float32)
        columns = {key: column for column, key in enumerate(containers)}
        tail: CounterTail | None = None
        with ThreadPoolExecutor(self._settings.concurrency) as pool:
            for day, listing in zip(self._days, self._listings, strict=True):
                points = listing.count_samples(len(day), self._settings)
                for times in np.array_split(day, range(points, len(day), points)):
                    pieces = listing.split_into_pieces(points, self._settings)
                    tail = self._read_pieces(pool, pieces, times, tail, (columns, cpu, memory))
                    if on_progress is not None:
                        on_progress(float(times[-1] - self._grid[0]) / float(self._grid[-1] - self._grid[0]))
        return cpu, memory

    def _read_pieces(
        self,
        pool: ThreadPoolExecutor,
        pieces: Sequence[str],
        times: Int64Array,
        tail: CounterTail | None,
        target: tuple[dict[ContainerKey, int], Float32Array, Float32Array],
    ) -> CounterTail | None:
        if not pieces:
            return None
        before = EarlierCounters.create(tail)

        def query(pods: str) -> UsagePiece:
            return retry_when_unavailable(partial(self._queries.query, pods, times, before, self._cores))

        tails = []
        for block, piece_tail in pool.map(query, pieces):
            self._fill(target, block)
            tails.append(piece_tail)
        return join_tails(tails, int(times[-1]))

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
