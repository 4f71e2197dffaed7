"""Which samples belong to the start of a pod, and what a workload's starts need."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.usage.starts import (
    LEAST_STARTS,
    StartWindows,
    add_start_cpu,
    estimate_start_cpu,
    measure_container_starts,
)
from cruise.domain.records import CONTAINER_STARTS_KEPT
from cruise.domain.startup_boosts import LONGEST_START, READY_TIME
from cruise.domain.usage import ContainerKey, ContainerStart, PartitionCounterTail, PeakKey, SampleBlock
from tests.builders import NOW, NOW_SECONDS, make_container, make_pod, make_snapshot, make_statistic, make_table

STEP = 60
BEGIN = NOW_SECONDS // STEP * STEP
WEB = ("shop", "Deployment/web", "app")


def make_window(ready_after=timedelta(seconds=90), started=BEGIN - 10, **fields):
    """The starts of a snapshot with one pod, which became ready some time after its start."""
    started_at = NOW + timedelta(seconds=started - NOW_SECONDS)
    ready_since = None if ready_after is None else started_at + ready_after
    pod = make_pod("web-1", containers=(make_container(),), **fields)
    return StartWindows.from_snapshot(make_snapshot([replace(pod, started_at=started_at, ready_since=ready_since)]))


def make_block(cpu, first=BEGIN):
    """A block of one container: its CPU at each step."""
    return SampleBlock(
        keys=[ContainerKey("shop", "web-1", "app")],
        times=first + STEP * np.arange(len(cpu)),
        cpu_demand_millicores=np.array([cpu], dtype=np.float32),
        memory_bytes=np.ones((1, len(cpu))),
        psi_known=np.ones(1, dtype=np.bool_),
    )


def make_start(cpu=900.0, number=0, started_at=BEGIN, is_complete=True):
    return ContainerStart(*WEB, f"uid-{number}", started_at, started_at + 120, started_at + 120 * is_complete, cpu)


def test_the_steps_until_ready_and_30_seconds_are_the_start():
    # The pod started 10 s before the first sample and was ready 80 s after it: the start ends in the third step.
    [start] = measure_container_starts(make_block([100, 900, 300, 5000]), make_window(), STEP)
    assert (start.namespace, start.workload, start.container) == WEB
    assert start.cpu_peak_millicores == 900
    assert start.is_complete
    [later] = measure_container_starts(make_block([5000, 700], BEGIN - STEP), make_window(), STEP)
    assert (later.cpu_peak_millicores, later.is_complete) == (700, False)


def test_a_pod_that_is_not_ready_yet_still_starts():
    [start] = measure_container_starts(make_block([100, 900]), make_window(None), STEP)
    assert (start.cpu_peak_millicores, start.ends_at, start.is_complete) == (900, 0, False)
    assert not measure_container_starts(make_block([900], BEGIN + 700), make_window(None), STEP)


def test_a_start_without_its_last_sample_is_not_complete():
    [start] = measure_container_starts(make_block([100, 900, np.nan, np.nan]), make_window(), STEP)
    assert not start.is_complete
    [start] = measure_container_starts(make_block([np.nan, np.nan, np.nan]), make_window(), STEP)
    assert (start.cpu_peak_millicores, start.sampled_until) == (0, 0)


def make_tail(at, cpu_seconds=(), series="new"):
    """The counters of a read: those of the container, or of another one."""
    keys = [ContainerKey("shop", "web-1" if cpu_seconds else "api-1", "app")]
    seconds = np.array(cpu_seconds or (5.0,))
    return PartitionCounterTail(at, keys, [series], seconds, np.zeros(1), np.array([at]))


def test_the_first_counter_covers_usage_before_the_first_sample():
    """A container that is ready 20 s after its start has used 48 s of CPU in its first minute."""
    windows, block = make_window(timedelta(seconds=20), BEGIN - 60), make_block([np.nan])
    before, tail = make_tail(BEGIN - 60, series="other"), make_tail(BEGIN, [48.0])
    [start] = measure_container_starts(block, windows, STEP, tail, before)
    assert (start.cpu_peak_millicores, start.is_complete) == (800, True)


UNKNOWN_COUNTERS = {
    "no read before": (make_tail(BEGIN, [48.0]), None),
    "counted before": (make_tail(BEGIN, [48.0]), make_tail(BEGIN - 60, [40.0])),
    "not a counter": (make_tail(BEGIN, [np.nan]), make_tail(BEGIN - 60, series="other")),
    "before the pod": (make_tail(BEGIN - 120, [48.0]), make_tail(BEGIN - 180, series="other")),
    "long after": (make_tail(BEGIN + 600, [48.0]), make_tail(BEGIN - 60, series="other")),
}


@pytest.mark.parametrize(("tail", "before"), UNKNOWN_COUNTERS.values(), ids=UNKNOWN_COUNTERS)
def test_counters_that_may_have_run_for_longer_show_nothing(tail, before):
    windows, block = make_window(timedelta(seconds=20), BEGIN - 60), make_block([np.nan])
    [start] = measure_container_starts(block, windows, STEP, tail, before)
    assert (start.cpu_peak_millicores, start.is_complete) == (0, False)


NOT_LEARNED = {
    "ready only later": make_window(LONGEST_START + timedelta(seconds=1)),
    "no workload": make_window(workload=None),
    "no node": make_window(node=None),
    "runs to completion": make_window(restart_policy="Never"),
    "long ago": make_window(started=BEGIN - 3600),
    "after the samples": make_window(started=BEGIN + 3600),
}


@pytest.mark.parametrize("windows", NOT_LEARNED.values(), ids=NOT_LEARNED)
def test_other_pods_show_no_start(windows):
    assert not measure_container_starts(make_block([900, 900]), windows, STEP)


@given(
    cpu=st.lists(st.integers(0, 4000) | st.just(np.nan), min_size=16, max_size=16),
    cuts=st.sets(st.integers(1, 15)),
    ready=st.integers(0, int(LONGEST_START.total_seconds())),
    offset=st.integers(-59, 200),
)
def test_a_start_is_the_same_however_its_samples_are_read(cpu, cuts, ready, offset):
    """Reads in pieces, in any number, merge to what one read shows; samples after the start never count."""
    windows = make_window(timedelta(seconds=ready), BEGIN + offset)
    [whole] = measure_container_starts(make_block(cpu), windows, STEP)
    edges = [0, *sorted(cuts), 16]
    pieces = [
        one
        for first, last in pairwise(edges)
        for one in measure_container_starts(make_block(cpu[first:last], BEGIN + STEP * first), windows, STEP)
    ]
    merged = pieces[0]
    for one in pieces[1:]:
        merged = one.merge(merged)
    assert merged == whole
    end = BEGIN + offset + min(ready + READY_TIME.total_seconds(), LONGEST_START.total_seconds())
    counted = [
        sample
        for number, sample in enumerate(cpu)
        if BEGIN + offset < BEGIN + STEP * number < end + STEP and not np.isnan(sample)
    ]
    assert whole.cpu_peak_millicores == max(counted, default=0)


def test_three_whole_starts_are_needed():
    starts = [make_start(number=number) for number in range(LEAST_STARTS)]
    assert estimate_start_cpu(starts) == 900
    assert estimate_start_cpu(starts[1:]) == 0
    assert estimate_start_cpu([*starts[1:], make_start(is_complete=False)]) == 0


def test_the_newest_starts_count():
    old = [make_start(4000, number) for number in range(CONTAINER_STARTS_KEPT)]
    new = [make_start(500, 100 + number, BEGIN + 3600) for number in range(CONTAINER_STARTS_KEPT)]
    assert estimate_start_cpu([*new, *old]) == 500


@given(st.lists(st.floats(0, 1e5), min_size=LEAST_STARTS, max_size=30))
def test_the_estimate_is_within_the_starts_and_in_their_upper_half(peaks):
    starts = [make_start(cpu, number, BEGIN + number) for number, cpu in enumerate(peaks)]
    newest = sorted(peaks[-CONTAINER_STARTS_KEPT:])
    assert newest[len(newest) // 2] <= estimate_start_cpu(starts) <= newest[-1] + 1


def test_only_the_row_of_the_workload_gets_the_estimate():
    table = make_table(make_statistic("web-1"), make_statistic(""), make_statistic("", identity="0"))
    found = add_start_cpu(table, {PeakKey(*WEB, ""): 900, PeakKey("shop", "Deployment/gone", "app", ""): 800})
    assert found.cpu_start_millicores.tolist() == [0, 900, 0]
