"""The starts that a process keeps: the newest of each workload, while they are fresh."""

from cruise.domain.records import CONTAINER_STARTS_KEPT, RETENTION
from cruise.domain.usage import ContainerStart, PeakKey
from cruise.runtime.usage.known_starts import KnownStarts
from tests.builders import NOW_SECONDS

KEY = PeakKey("shop", "Deployment/web", "app", "")


def start(number, cpu=900.0, started_at=NOW_SECONDS - 3600, **fields):
    ends = {"ends_at": started_at + 60, "sampled_until": started_at + 60} | fields
    return ContainerStart(*KEY[:3], f"uid-{number}", started_at, cpu_peak_millicores=cpu, **ends)


def test_a_start_that_is_read_in_two_parts_counts_once_it_is_whole():
    known = KnownStarts([start(0), start(1)])
    recent = NOW_SECONDS - 60
    known.merge([start(2, 700, recent, ends_at=0, sampled_until=recent + 30)])
    assert known.estimate(NOW_SECONDS) == {}
    known.merge([start(2, 1900, recent)])
    assert known.estimate(NOW_SECONDS)[KEY] > 900


def test_a_start_that_never_becomes_ready_is_forgotten():
    known = KnownStarts([start(number) for number in range(3)])
    known.merge([start(9, 5000, NOW_SECONDS - 10_800, ends_at=0)])
    assert known.estimate(NOW_SECONDS) == {KEY: 900}
    known.merge([start(9, 1, NOW_SECONDS - 10_800)])
    assert known.estimate(NOW_SECONDS + 86_400) == {KEY: 900}


def test_the_newest_starts_are_kept():
    known = KnownStarts([start(number, 5000, NOW_SECONDS - 86_400) for number in range(20)])
    known.merge([start(100 + number) for number in range(CONTAINER_STARTS_KEPT)])
    assert known.estimate(NOW_SECONDS) == {KEY: 900}


def test_old_starts_are_no_estimate_any_more():
    known = KnownStarts([start(number) for number in range(3)])
    assert known.estimate(NOW_SECONDS) == {KEY: 900}
    later = NOW_SECONDS + int(RETENTION.container_starts.total_seconds()) + 86_400
    assert known.estimate(later) == {}
