"""Nested control groups and per-CPU series, in any order and with replicas."""

from itertools import permutations

import numpy as np
import pytest

from cruise.adapters.prometheus.counter_rows import CounterReadingOptions, EarlierCounters
from cruise.adapters.prometheus.counters import UsageAnswers, compute_usage
from cruise.adapters.prometheus.queries import SeriesLabelValues, SeriesMatrix
from cruise.domain.usage import ContainerKey, PartitionCounterTail, SampleBlock

APP = ContainerKey("shop", "builder-1", "docker")
SLICE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-abc.scope"
TIMES = 60 * np.arange(1, 13)
NOTHING = SeriesMatrix((), np.empty((0, len(TIMES))))

Row = tuple[str, str, float]


def matrix(*rows: Row, counter: bool = True, later: int = 0) -> SeriesMatrix:
    """Rows are (id, core, cores used or bytes)."""
    names = [SeriesLabelValues(*APP, id_, "n1", core) for id_, core, _ in rows]
    values = [1000.0 + each * (TIMES + later) if counter else np.full(len(TIMES), each) for _, _, each in rows]
    return SeriesMatrix(names, np.array(values, dtype=np.float64).reshape(len(rows), len(TIMES)))


def usage(
    cpu: SeriesMatrix, waiting: SeriesMatrix = NOTHING, memory: SeriesMatrix = NOTHING, fills_holes: bool = True
) -> tuple[SampleBlock, PartitionCounterTail]:
    options = CounterReadingOptions(60, 8.0, fills_holes)
    return compute_usage(UsageAnswers(cpu, waiting, memory), TIMES, EarlierCounters.create(None), options, set())


@pytest.mark.parametrize("fills_holes", [True, False])
@pytest.mark.parametrize(
    "nested",
    [
        (f"{SLICE}/docker/4f1", f"{SLICE}/docker/9a2"),
        (f"{SLICE}/system.slice/sshd.service", f"{SLICE}/init.scope"),
        # As crun makes it.
        (f"{SLICE}/container", f"{SLICE}/container/inner"),
    ],
)
def test_groups_inside_a_containers_own_are_a_part_of_its_use(nested: tuple[str, str], fills_holes: bool) -> None:
    rows: list[Row] = [(SLICE, "", 0.5), (nested[0], "", 0.3), (nested[1], "", 0.1)]
    for ordered in permutations(rows):
        memory = [(id_, core, use * 2**31) for id_, core, use in ordered]
        block, tail = usage(matrix(*ordered), matrix(*ordered), matrix(*memory, counter=False), fills_holes)
        assert block.keys == [APP]
        assert block.rejected is None or not block.rejected.any()
        assert block.cpu_use_millicores is not None
        np.testing.assert_allclose(block.cpu_use_millicores[0, 2:], 500)
        np.testing.assert_allclose(block.cpu_demand_millicores[0, 2:], 750)
        assert set(block.memory_bytes[0].tolist()) == {2.0**30}
        assert tail.series == [SLICE[-24:]]


def test_ids_with_the_same_prefix_are_not_nested() -> None:
    block, _ = usage(matrix(("/kubepods/pod1/a", "", 0.5), ("/kubepods/pod1/ab", "", 0.5)))
    assert len(block.keys) == 1
    _, tail = usage(matrix(("/kubepods/pod1/a", "", 0.5), ("/kubepods/pod1/ab", "", 0.5)))
    assert sorted(tail.series) == ["/kubepods/pod1/a", "/kubepods/pod1/ab"]


CORES: list[Row] = [(SLICE, f"cpu{core:02}", 0.2) for core in range(4)]


@pytest.mark.parametrize("fills_holes", [True, False])
@pytest.mark.parametrize("whole", [[], [(SLICE, "total", 0.8)], [(SLICE, "", 0.8)]])
def test_sums_processors_if_no_series_has_the_total(whole: list[Row], fills_holes: bool) -> None:
    for rows in ([*CORES, *whole], [*whole, *CORES]):
        block, tail = usage(matrix(*rows), fills_holes=fills_holes)
        assert block.rejected is None or not block.rejected.any()
        np.testing.assert_allclose(block.cpu_demand_millicores[0, 2:], 800, rtol=1e-5)
        assert tail.series == [SLICE[-24:]]
        # The next read continues from there.
        further = matrix(*rows, later=720)
        block, _ = compute_usage(
            UsageAnswers(further, NOTHING, NOTHING),
            TIMES + 720,
            EarlierCounters.create(tail),
            CounterReadingOptions(60, 8.0, fills_holes),
            set(),
        )
        assert np.isfinite(block.cpu_demand_millicores[0]).all()


def test_replicas_of_the_server_are_not_summed() -> None:
    block, _ = usage(matrix(*CORES, *CORES))
    assert block.rejected is None or not block.rejected.any()
    np.testing.assert_allclose(block.cpu_demand_millicores[0, 2:], 800, rtol=1e-5)


def test_a_core_without_a_value_leaves_no_sum() -> None:
    cores = matrix(*CORES)
    cores.values[2, 5] = np.nan
    block, _ = usage(cores)
    np.testing.assert_allclose(block.cpu_demand_millicores[0, 2:], 800, rtol=1e-5)
    cores.values[3] = np.nan
    block, _ = usage(cores)
    assert np.isnan(block.cpu_demand_millicores).all()
