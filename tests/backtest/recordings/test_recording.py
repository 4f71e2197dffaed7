import numpy as np
import pytest

from cruise.backtest.recordings.recording import RecordedContainer, RecordingHalf, UsageRecording, select_half
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import Resources
from cruise.errors import BadInputError


def recorded(*pods: str) -> UsageRecording:
    containers = tuple(
        RecordedContainer("shop", pod, "main", WorkloadRef("Deployment", pod), Resources(at, at))
        for at, pod in enumerate(pods)
    )
    values = np.arange(3 * len(pods), dtype=np.float32).reshape(3, len(pods))
    return UsageRecording("trace", containers, 0, 300, values, values + 100)


def pods(recording: UsageRecording) -> list[str]:
    return [container.pod for container in recording.containers]


def test_even_places_by_name_are_to_tune_on_and_odd_ones_to_report_on():
    whole = recorded("d", "a", "c", "b", "e")
    assert pods(select_half(whole, RecordingHalf.TUNE)) == ["a", "c", "e"]
    assert pods(select_half(whole, RecordingHalf.REPORT)) == ["d", "b"]


def test_the_halves_are_the_same_whatever_the_order_of_the_columns():
    for half in RecordingHalf:
        assert set(pods(select_half(recorded(*"abcdef"), half))) == set(pods(select_half(recorded(*"fdbeca"), half)))


def test_usage_stays_with_its_container():
    whole = recorded("d", "a", "c", "b")
    half = select_half(whole, RecordingHalf.REPORT)
    for column, container in enumerate(half.containers):
        before = container.requests.cpu_millicores
        assert half.cpu_millicores[:, column].tolist() == whole.cpu_millicores[:, before].tolist()
        assert half.memory_bytes[:, column].tolist() == whole.memory_bytes[:, before].tolist()
    assert (half.name, half.days) == (whole.name, whole.days)


def test_of_one_series_no_half_is_left_to_report_on():
    assert pods(select_half(recorded("a"), RecordingHalf.TUNE)) == ["a"]
    with pytest.raises(BadInputError, match="--half report: trace has one series only"):
        select_half(recorded("a"), RecordingHalf.REPORT)
