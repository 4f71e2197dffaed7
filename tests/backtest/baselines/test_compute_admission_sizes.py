import numpy as np

from cruise.backtest.baselines.cruisekube import compute_admission_sizes, compute_sizes_after_node_plan
from cruise.backtest.baselines.cruisekube_statistics import CruiseKubeStatistics
from cruise.backtest.replay.policy import ContainerSizes
from cruise.domain.arrays import BoolArray, Float64Array
from tests.backtest.baselines.recordings import get_sizes

MEGABYTE = 1_000_000
GIBIBYTE = 1 << 30


def known(
    *,
    cpu_max: float = 0.0,
    cpu_predicted: float = 0.0,
    memory_max: float = 0.0,
    memory_predicted: float = 0.0,
    memory_7d: float = 0.0,
) -> CruiseKubeStatistics:
    one = [np.array([value]) for value in (0.0, cpu_max, cpu_predicted, 0.0, memory_max, memory_predicted, memory_7d)]
    return CruiseKubeStatistics(np.array([True]), *one)


def megabytes(value: float) -> Float64Array:
    return np.array([value])


def requests_only(value: bool) -> BoolArray:
    return np.array([value], dtype=np.bool_)


def admitted(
    provisioned: ContainerSizes, statistics: CruiseKubeStatistics, oom: float = 0.0, *, daemon: bool = False
) -> list[int]:
    sizes = compute_admission_sizes(provisioned, statistics, megabytes(oom), requests_only(daemon))
    return [int(sizes.cpu_millicores[0]), int(sizes.memory_bytes[0]), int(sizes.memory_limit_bytes[0])]


def applied(
    current: ContainerSizes, cpu: float, memory: float, statistics: CruiseKubeStatistics | None = None, oom: float = 0.0
) -> list[int]:
    sizes = compute_sizes_after_node_plan(
        current, megabytes(cpu), megabytes(memory), statistics or known(memory_7d=300.0), megabytes(oom)
    )
    return [int(sizes.cpu_millicores[0]), int(sizes.memory_bytes[0]), int(sizes.memory_limit_bytes[0])]


USUAL = known(cpu_max=70.0, cpu_predicted=123.9, memory_max=180.0, memory_predicted=200.0, memory_7d=400.0)


def test_a_new_pod_gets_the_prediction_cut_to_whole_units_and_twice_the_weeks_memory_as_limit() -> None:
    assert admitted(get_sizes([500], [GIBIBYTE], [GIBIBYTE]), USUAL) == [123, 200 * MEGABYTE, 800 * MEGABYTE]


def test_without_a_prediction_it_gets_the_maximum_of_the_short_windows_and_at_least_the_least() -> None:
    short = known(cpu_max=70.0, memory_max=180.0)
    assert admitted(get_sizes([500], [GIBIBYTE], [GIBIBYTE]), short) == [70, 180 * MEGABYTE, 512 * MEGABYTE]
    assert admitted(get_sizes([500], [GIBIBYTE], [GIBIBYTE]), known()) == [1, 0, 512 * MEGABYTE]


def test_oom_memory_above_the_maximum_of_thirty_minutes_is_the_request_and_doubled_the_limit() -> None:
    assert admitted(get_sizes([500], [GIBIBYTE]), USUAL, 900.7) == [123, 900 * MEGABYTE, 1801 * MEGABYTE]
    assert admitted(get_sizes([500], [GIBIBYTE]), USUAL, 180.0) == [123, 200 * MEGABYTE, 800 * MEGABYTE]


def test_memory_within_sixteen_megabytes_of_the_template_is_left_with_its_limit() -> None:
    assert admitted(get_sizes([500], [216 * MEGABYTE], [216 * MEGABYTE]), USUAL) == [
        123,
        216 * MEGABYTE,
        216 * MEGABYTE,
    ]
    assert admitted(get_sizes([500], [217 * MEGABYTE], [217 * MEGABYTE]), USUAL)[1] == 200 * MEGABYTE


def test_a_container_without_a_request_gets_none() -> None:
    assert admitted(get_sizes([0], [0]), USUAL) == [0, 0, 0]


def test_of_a_daemon_sets_pod_only_the_memory_limit_is_raised() -> None:
    assert admitted(get_sizes([500], [GIBIBYTE], [GIBIBYTE]), USUAL, daemon=True) == [500, GIBIBYTE, 1073 * MEGABYTE]
    assert admitted(get_sizes([500], [50 * MEGABYTE], [60 * MEGABYTE]), USUAL, daemon=True) == [
        500,
        50 * MEGABYTE,
        800 * MEGABYTE,
    ]
    assert admitted(get_sizes([500], [GIBIBYTE]), USUAL, daemon=True) == [500, GIBIBYTE, 0], "no limit to raise"


def test_cpu_in_place_is_rounded_to_a_millicore_between_one_millicore_and_ten_cores() -> None:
    now = get_sizes([500], [0])
    assert applied(now, 123.6, 0)[0] == 124
    assert applied(now, -800.0, 0)[0] == 1
    assert applied(now, 12_000.0, 0)[0] == 10_000


def test_cpu_that_moves_by_less_than_a_millicore_or_to_no_number_is_not_written() -> None:
    assert applied(get_sizes([500], [0]), 500.9, 0)[0] == 500
    assert applied(get_sizes([500], [0]), 501.0, 0)[0] == 501
    assert applied(get_sizes([500], [0]), float("nan"), 0)[0] == 500
    assert applied(get_sizes([0], [0]), 70.0, 0)[0] == 0, "no request, none is given"


def test_memory_in_place_follows_the_plan_and_its_limit_is_raised_but_never_lowered() -> None:
    low = get_sizes([0], [100 * MEGABYTE], [500 * MEGABYTE])
    assert applied(low, 0, 250.4) == [0, 250 * MEGABYTE, 600 * MEGABYTE]
    high = get_sizes([0], [100 * MEGABYTE], [GIBIBYTE])
    assert applied(high, 0, 250.4) == [0, 250 * MEGABYTE, 1074 * MEGABYTE], "rounded up, once"
    assert applied(low, 0, 2.0)[1] == 16 * MEGABYTE
    assert applied(low, 0, float("nan")) == [0, 100 * MEGABYTE, 500 * MEGABYTE]
    assert applied(low, 0, 100.0) == [0, 100 * MEGABYTE, 500 * MEGABYTE], "the limit moves with the request only"
    assert applied(low, 0, 250.0, oom=450.0)[2] == 900 * MEGABYTE


def test_without_a_limit_none_is_set() -> None:
    assert applied(get_sizes([0], [100 * MEGABYTE]), 0, 250.0) == [0, 250 * MEGABYTE, 0]


def test_where_request_and_limit_are_one_both_become_twice_the_weeks_maximum_or_stay() -> None:
    assert applied(get_sizes([0], [500 * MEGABYTE], [500 * MEGABYTE]), 0, 50.0) == [0, 600 * MEGABYTE, 600 * MEGABYTE]
    assert applied(get_sizes([0], [601 * MEGABYTE], [601 * MEGABYTE]), 0, 50.0) == [0, 601 * MEGABYTE, 601 * MEGABYTE]
    no_number = float("nan")
    assert applied(get_sizes([0], [500 * MEGABYTE], [500 * MEGABYTE]), 0, no_number)[1] == 600 * MEGABYTE
