"""Scrapes that are missed, irregular or come late, and what is left of the samples then."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.simulation.cluster.timeline import MINUTE
from cruise.simulation.demand.history import Measurements

# Growth over a longer gap says nothing of its minutes, and Prometheus repeats no older value.
LONGEST_GAP_SECONDS = 300
_LONGEST_GAP = LONGEST_GAP_SECONDS // MINUTE


@dataclass(frozen=True, slots=True)
class Scrapes:
    """How a monitoring system fares.

    `missed` tells for a node and some times which scrapes are missed: those of all its containers. What is scraped is
    there `late_seconds` after its time. `ages` tells by how many seconds, less than 60, scrapes preceded the times that
    show them.
    """

    missed: Callable[[str, Int64Array], BoolArray] | None = None
    late_seconds: int = 0
    ages: Callable[[str, Int64Array], Float64Array] | None = None

    @property
    def in_time(self) -> bool:
        """Tell whether each sample is of its time."""
        return self.missed is None and self.ages is None

    def seen(self, measured: Measurements, times: Int64Array) -> Measurements:
        """Return samples, a minute apart, as they are seen where scrapes were missed.

        CPU comes from counters: what grew between two scrapes is divided by the time between them, and over a gap it is
        spread, up to five minutes, else its minutes are unknown. Memory is what was scraped last, for as long. Where
        nothing was scraped yet after a gap, nothing is known of it.
        """
        if self.in_time:
            return measured
        cpu, memory = measured.cpu_demand_millicores.copy(), measured.memory_bytes.copy()
        if self.ages is not None:
            ages = {node: self.ages(node, times) for node in set(measured.nodes)}
            for row, node in enumerate(measured.nodes):
                cpu[row] = _between(cpu[row], times, times - ages[node])
                earlier = np.concatenate((memory[row, :1], memory[row, :-1]))
                memory[row] = np.where(ages[node] > 0, earlier, memory[row])
        if self.missed is None:
            return Measurements(measured.keys, measured.nodes, cpu, memory)
        missed = {node: self.missed(node, times) for node in set(measured.nodes)}
        for row, node in enumerate(measured.nodes):
            for before, after in _gaps(missed[node]):
                known = before >= 0 and after < len(times) and after - before <= _LONGEST_GAP
                gap = slice(before + 1, after + 1)
                cpu[row, gap] = cpu[row, gap].mean() if known else np.nan
                repeated = memory[row, before] if before >= 0 else np.nan
                memory[row, before + 1 : after] = np.nan
                memory[row, before + 1 : min(after, before + _LONGEST_GAP)] = repeated
        return Measurements(measured.keys, measured.nodes, cpu, memory)


ALL_IN_TIME = Scrapes()


def _between(cpu: Float32Array, times: Int64Array, scraped: Float64Array) -> Float32Array:
    """Return the use between each scrape and the one before, from the use of the minutes that end at the times."""
    counter = np.concatenate(([0.0], np.cumsum(np.nan_to_num(cpu))))
    shown = np.interp(scraped, np.concatenate((times[:1] - MINUTE, times)), counter) * MINUTE
    use = cpu.copy()
    use[1:] = np.diff(shown) / np.diff(scraped)
    # What a minute does not tell, no part of it does.
    use[1:][np.isnan(cpu[1:]) | np.isnan(cpu[:-1])] = np.nan
    return use


def _gaps(missed: BoolArray) -> list[tuple[int, int]]:
    """Return the scrapes before and after each gap: -1 or the length where there is none."""
    done = np.concatenate(([-1], np.flatnonzero(~missed), [len(missed)]))
    wide = np.flatnonzero(np.diff(done) > 1)
    return [(int(done[place]), int(done[place + 1])) for place in wide]
