"""Missed, late and repeated scrapes: a steady container stays steady or has unknown usage."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.prometheus.counter_rows import CounterReadingOptions, EarlierCounters
from cruise.adapters.prometheus.counters import UsageAnswers, compute_usage
from cruise.adapters.prometheus.queries import SeriesLabelValues, SeriesMatrix
from cruise.domain.usage import ContainerKey, PartitionCounterTail, SampleBlock

NAN = float("nan")
STEP = 60
CORES = 16.0


def series(pod: str, node: str = "n1", id_: str = "/1") -> SeriesLabelValues:
    return SeriesLabelValues("shop", pod, "app", id_, node)


class Reads:
    """Reads one after the other, put together as the windows do."""

    def __init__(self, fills_holes: bool = True) -> None:
        self.options = CounterReadingOptions(STEP, CORES, fills_holes)
        self.tail: PartitionCounterTail | None = None
        self.at = 0
        self.cpu: dict[tuple[str, int], float] = {}

    def read(self, *rows, waiting=(), memory=()) -> SampleBlock:
        """Rows are (series, values of the steps)."""
        steps = len(rows[0][1])
        times = self.at + STEP * np.arange(1, steps + 1)

        def matrix(of) -> SeriesMatrix:
            return SeriesMatrix(
                [name for name, _ in of], np.array([values for _, values in of], float).reshape(-1, steps)
            )

        answers = UsageAnswers(matrix(rows), matrix(waiting), matrix(memory))
        block, self.tail = compute_usage(answers, times, EarlierCounters.create(self.tail), self.options, set())
        self.at = int(times[-1])
        for row, key in enumerate(block.keys):
            for at, value in zip(block.times.tolist(), block.cpu_demand_millicores[row].tolist(), strict=True):
                if not np.isnan(value):
                    self.cpu[key.pod, at] = max(value, self.cpu.get((key.pod, at), 0.0))
        return block

    def compute_demand(self, pod: str = "web") -> list[float]:
        """CPU in millicores of every step so far, NaN where it is not known."""
        return [self.cpu.get((pod, at), NAN) for at in range(STEP, self.at + 1, STEP)]


def same(actual, expected) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def steady(steps: int, missed: range = range(0), millicores: float = 1000.0) -> list[float]:
    """A counter of constant use, which repeats itself in the steps that were missed."""
    values: list[float] = []
    for step in range(steps):
        values.append(values[-1] if step in missed else (100 + step) * STEP * millicores / 1000)
    return values


@pytest.mark.parametrize(("missed", "peak"), [(1, 2000), (2, 3000), (4, 5000)])
def test_missed_scrapes_make_no_peak(missed: int, peak: int) -> None:
    values = steady(15, range(5, 5 + missed))
    first = Reads(fills_holes=False)
    first.read((series("web"), values))
    assert np.nanmax(first.compute_demand()) == pytest.approx(peak)
    now = Reads()
    now.read((series("web"), values))
    same(now.compute_demand(), [NAN, NAN] + [1000] * 13)


@pytest.mark.parametrize("missed", [1, 2, 4])
def test_pressure_is_spread_over_the_same_steps(missed: int) -> None:
    cpu, waiting = steady(15, range(5, 5 + missed)), steady(15, range(5, 5 + missed), millicores=300.0)
    first = Reads(fills_holes=False)
    first.read((series("web"), cpu), waiting=[(series("web"), waiting)])
    assert np.nanmax(first.compute_demand()) >= 3200
    now = Reads()
    now.read((series("web"), cpu), waiting=[(series("web"), waiting)])
    same(now.compute_demand(), [NAN, NAN] + [1300] * 13)


def test_usage_of_a_series_that_was_absent_is_spread_too() -> None:
    """A failed scrape leaves a mark, and the server then answers with nothing."""
    values = np.array(steady(12))
    values[5:8] = NAN
    reads = Reads()
    reads.read((series("web"), values))
    same(reads.compute_demand(), [NAN, NAN] + [1000] * 10)


def test_steps_of_a_longer_hole_are_unknown() -> None:
    values = np.array(steady(20))
    values[5:11] = NAN
    reads = Reads()
    reads.read((series("web"), values))
    same(reads.compute_demand(), [NAN, NAN] + [1000] * 3 + [NAN] * 7 + [1000] * 8)


def test_a_constant_counter_next_to_others_is_idle() -> None:
    busy = steady(8)
    idle_then_busy = [50.0, 50, 50, 50, 50, 110, 110, 170]
    reads = Reads()
    reads.read((series("busy"), busy), (series("web"), idle_then_busy))
    same(reads.compute_demand("web"), [NAN, NAN, 0, 0, 0, 1000, 0, 1000])


@pytest.mark.parametrize("other", ["waiting", "memory"])
def test_any_change_on_the_node_shows_a_scrape(other: str) -> None:
    reads = Reads()
    moving = [(series("other"), [1.0, 2, 3, 4, 5, 6])]
    also = [(series("other"), [7.0] * 6)] if other == "waiting" else []
    reads.read((series("web"), [50.0, 50, 50, 50, 50, 110]), *also, **{other: moving})
    same(reads.compute_demand("web"), [NAN, NAN, 0, 0, 0, 1000])


def test_the_scrape_of_another_node_does_not_count() -> None:
    reads = Reads()
    reads.read((series("web"), steady(8, range(3, 5))), (series("other", "n2"), steady(8)))
    same(reads.compute_demand("web"), [NAN, NAN] + [1000] * 6)


def test_without_node_labels_each_pod_is_a_target() -> None:
    reads = Reads()
    reads.read((series("web", ""), steady(8, range(3, 5))), (series("other", ""), steady(8)))
    same(reads.compute_demand("web"), [NAN, NAN] + [1000] * 6)


def test_a_node_whose_values_are_constant_for_long_is_idle() -> None:
    values = [60.0, 120, *[120.0] * 9, 180, 240]
    reads = Reads()
    reads.read((series("web"), values))
    same(reads.compute_demand(), [NAN, NAN] + [0] * 9 + [1000, 1000])


def test_a_constant_counter_continues_in_the_next_read() -> None:
    reads = Reads()
    reads.read((series("web"), [60.0, 120, 120, 120, 120]))
    same(reads.compute_demand(), [NAN] * 5)
    for _ in range(3):
        reads.read((series("web"), [120.0] * 5))
    same(reads.compute_demand(), [NAN, NAN] + [0] * 18)
    reads.read((series("web"), [120.0, 180, 240, 300, 360]))
    same(reads.compute_demand()[20:], [0] + [1000] * 4)


def test_the_next_read_completes_the_steps_after_the_last_scrape() -> None:
    values = steady(10, range(3, 6))
    reads = Reads()
    reads.read((series("web"), values[:5]))
    same(reads.compute_demand(), [NAN, NAN, 1000, NAN, NAN])
    assert reads.tail is not None
    assert (reads.tail.at, reads.tail.changed_at.tolist()) == (300, [180])
    block = reads.read((series("web"), values[5:]))
    assert block.times.tolist() == list(range(240, 601, 60))
    same(reads.compute_demand(), [NAN, NAN] + [1000] * 8)


def test_samples_two_minutes_late_cause_no_zeros_and_no_peaks() -> None:
    """Each read sees the last scrape of two minutes before its end."""
    first, now = Reads(fills_holes=False), Reads()
    for start in range(0, 30, 5):
        seen = [steady(31)[min(start + step, start + 3)] for step in range(5)]
        first.read((series("web"), seen))
        now.read((series("web"), seen))
    assert np.nanmin(first.compute_demand()) == 0
    assert np.nanmax(first.compute_demand()) == pytest.approx(2000)
    same(now.compute_demand(), [NAN, NAN] + [1000] * 27 + [NAN])


def test_a_series_that_is_away_between_two_reads_is_kept_for_five_minutes() -> None:
    values = np.array(steady(15))
    values[3:7] = NAN
    reads = Reads()
    for start in range(0, 15, 5):
        reads.read((series("web"), values[start : start + 5]))
    same(reads.compute_demand(), [NAN, NAN] + [1000] * 13)


def test_a_restart_between_two_scrapes_belongs_to_the_time_between_them() -> None:
    old = [1000.0, 1060, 1120, 1120, 1120, NAN, NAN]
    new = [NAN, NAN, NAN, NAN, NAN, 150.0, 210]
    reads = Reads()
    reads.read((series("web", id_="/old"), old), (series("web", id_="/new"), new))
    same(reads.compute_demand(), [NAN, NAN, 1000, 833.3333, 833.3333, 833.3333, 1000])


def test_a_reset_is_counted_from_zero() -> None:
    reads = Reads()
    reads.read((series("web"), [1000.0, 1060, 1120, 30, 90]))
    same(reads.compute_demand(), [NAN, NAN, 1000, 500, 1000])


def test_a_replica_that_is_behind_is_no_reset() -> None:
    """Half a minute's growth less, from a young container: as a reset it would have been 2,167 m."""
    values = [40.0, 100, 160, 130, 250, 310]
    first = Reads(fills_holes=False)
    first.read((series("web"), values))
    assert first.compute_demand()[3] == pytest.approx(2166.667)
    reads = Reads()
    reads.read((series("web"), values))
    same(reads.compute_demand(), [NAN, NAN, 1000, 750, 750, 1000])


SCRAPED = st.lists(st.booleans(), min_size=12, max_size=40)


@given(
    millicores=st.integers(1, 15_000),
    waits=st.floats(0, 1),
    scraped=SCRAPED,
    vanishes=st.booleans(),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_reads_constant_usage_correctly_despite_missed_scrapes(
    millicores: int, waits: float, scraped: list[bool], vanishes: bool, lengths: list[int]
) -> None:
    """Every known step has the use, and what lies between two scrapes within five minutes is known."""
    counter, pressure = np.full(len(scraped), NAN), np.full(len(scraped), NAN)
    last: int | None = None
    for step, seen in enumerate(scraped):
        last = step if seen else last
        # A value is repeated for five minutes.
        if last is not None and (seen or (step - last < 5 and not vanishes)):
            counter[step] = (1000 + last) * STEP * millicores / 1000
            pressure[step] = (1000 + last) * STEP * waits
    reads, start, part = Reads(), 0, 0
    while start < len(scraped):
        end = min(len(scraped), start + lengths[part % len(lengths)])
        reads.read((series("web"), counter[start:end]), waiting=[(series("web"), pressure[start:end])])
        start, part = end, part + 1
    demand = np.array(reads.compute_demand())
    np.testing.assert_allclose(demand[~np.isnan(demand)], millicores * (1 + waits), rtol=1e-4)
    # The first scrape of all may be one that the first read finds and cannot date.
    scrapes = [step for step, seen in enumerate(scraped) if seen and step > 0]
    for earlier, later in pairwise(scrapes):
        if later - earlier <= 5:
            assert not np.isnan(demand[earlier + 1 : later + 1]).any()


@given(
    growths=st.lists(st.floats(0.01, 900), min_size=10, max_size=40),
    missed=st.sets(st.integers(2, 39)),
    cut=st.integers(1, 9),
)
def test_growth_is_conserved_over_what_is_known(growths: list[float], missed: set[int], cut: int) -> None:
    total = np.cumsum(growths)
    seen = [max(earlier for earlier in range(step + 1) if earlier not in missed) for step in range(len(growths))]
    counter = np.array([total[last] if step - last <= 5 else NAN for step, last in enumerate(seen)])
    reads = Reads()
    for start in range(0, len(counter), cut):
        reads.read((series("web"), counter[start : start + cut]))
    demand = np.nan_to_num(np.array(reads.compute_demand()))
    scrapes = [step for step in range(1, len(growths)) if step not in missed]
    counted = sum(total[later] - total[earlier] for earlier, later in pairwise(scrapes) if later - earlier <= 5)
    assert demand.sum() * STEP / 1000 == pytest.approx(counted, rel=1e-4)


def test_keys_stay_those_of_the_answer() -> None:
    """A series that is missing in this read stays only in the tail."""
    reads = Reads()
    reads.read((series("web"), steady(5)), (series("gone"), steady(5)))
    block = reads.read((series("web"), steady(10)[5:]))
    assert list(block.keys) == [ContainerKey("shop", "web", "app")]
    assert reads.tail is not None
    assert {key.pod for key in reads.tail.keys} == {"web", "gone"}
    reads.read((series("web"), steady(15)[10:]))
    assert {key.pod for key in reads.tail.keys} == {"web"}
