"""Days of usage into two matrices, a piece at a time: never more than a day's samples are held beside them.

What is read is what the controller reads: the same series, the same rules for counters. So CPU is demand, usage ×
(1 + psi), where pressure is known, and whatever is called use in scores of such a recording is demand.

The index gives first which series there were, pods that are gone included. From that, every query is cut so that its
points times its series stay within the set number of samples.
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
# A read of minutes is not given up for one answer that failed.
_WAITS_SECONDS = (1.0, 5.0)
_LONGEST_WAIT_SECONDS = 60.0


class RecordingReader:
    """Reads the usage of every container that there was at the grid times after `start` up to `end`; blocks.

    Both are Unix seconds on the grid of the settings' step. Every method raises BadInputError, Throttled, Unavailable.
    """

    def __init__(self, settings: PrometheusSettings, start: int, end: int, cores: float = MAX_CORES) -> None:
        step = settings.step_seconds
        if start % step or end % step or end <= start:
            raise ValueError(f"cannot read from {start} to {end} every {step} s")
        self._settings = settings
        self._client = PrometheusClient(settings)
        self._questions = UsageQueries(settings, self._client, server_folds=False)
        self._cores = cores
        # The start itself is asked for as well: the first step's use is what the counters grew by since then. How old
        # the very first values are is not known, so there is one more before them.
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

    def containers(self) -> list[ContainerKey]:
        """Return every container that had a CPU counter within the time, sorted."""
        ask = partial(list_usage_series, self._settings, self._client)
        self._listings = []
        for day in self._days:
            asked = partial(ask, int(day[0]), int(day[-1]))
            self._listings.append(retry_when_unavailable(asked, answered=bool(self._listings)))
        return sorted(set().union(*(one.containers for one in self._listings)))

    def read(
        self, containers: Sequence[ContainerKey], on_progress: Callable[[float], None] | None = None
    ) -> tuple[Float32Array, Float32Array]:
        """Return CPU demand in millicores and memory in bytes of some of the `containers`.

        One row a grid time and one column a container; NaN is no sample.
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
        into: tuple[dict[ContainerKey, int], Float32Array, Float32Array],
    ) -> CounterTail | None:
        if not pieces:
            return None
        before = EarlierCounters.create(tail)

        def ask(pods: str) -> UsagePiece:
            return retry_when_unavailable(partial(self._questions.query, pods, times, before, self._cores))

        tails = []
        for block, ended in pool.map(ask, pieces):
            self._fill(into, block)
            tails.append(ended)
        return join_tails(tails, int(times[-1]))

    def _fill(self, into: tuple[dict[ContainerKey, int], Float32Array, Float32Array], block: SampleBlock) -> None:
        columns, cpu, memory = into
        places = np.fromiter((columns.get(key, -1) for key in block.keys), np.int64, len(block.keys))
        wanted = places >= 0
        # What is not after the start has no row: it is there for its counters.
        within = block.times > self._start
        rows = (block.times[within] - self._start) // self._settings.step_seconds - 1
        cells = np.ix_(rows, places[wanted])
        # A block may tell of steps that the one before could not know.
        cpu[cells] = np.fmax(cpu[cells], block.cpu_demand_millicores[np.ix_(wanted, within)].T)
        memory[cells] = np.fmax(memory[cells], block.memory_bytes[np.ix_(wanted, within)].T)


def retry_when_unavailable(
    ask: Callable[[], T], wait: Callable[[float], object] = time.sleep, *, answered: bool = True
) -> T:
    """Ask again, after a while, what could not be answered for now.

    Before the server has `answered` anything, an address where nothing can be reached is taken to be wrong.
    """
    for seconds in _WAITS_SECONDS:
        try:
            return ask()
        except ThrottledError as error:
            wait(max(seconds, min(error.retry_after_seconds or 0.0, _LONGEST_WAIT_SECONDS)))
        except UnavailableError as error:
            if isinstance(error, UnreachableError) and not answered:
                raise
            wait(seconds)
    return ask()
