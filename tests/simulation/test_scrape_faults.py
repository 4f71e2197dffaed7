"""Samples of a simulated cluster with missed and late scrapes."""

import numpy as np
import pytest

from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import SampleBlock
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.usage_source import ScrapeFaults, SimulatedUsageSource
from tests.simulation.scenes import (
    NAMESPACE,
    START,
    AdjustableDemand,
    cluster,
    container,
    node,
    run,
    template,
    workload,
)

NOW = int(START.timestamp())


def rising() -> SimulatedCluster:
    """A cluster of two nodes whose containers use 10 m and 1 MiB more in each minute, for 20 minutes."""
    dial = AdjustableDemand(cpu=0, mebibytes=0)
    world = cluster(
        workload(replicas=2, pod=template(container(1500, 100)), dial=dial),
        [node("n1", 2000), node("n2", 2000)],
        SimulationSettings(step_seconds=60),
    )
    for _ in range(20):
        dial.cpu += 10
        dial.mebibytes += 1
        run(world, 60)
    return world


def without(*minutes: int, node: str = "n1") -> ScrapeFaults:
    def missed(name: str, times: Int64Array) -> BoolArray:
        found: BoolArray = np.isin(times, [NOW + 60 * minute for minute in minutes]) & (name == node)
        return found

    return ScrapeFaults(missed)


async def samples(scrapes: ScrapeFaults, first: int, last: int) -> SampleBlock:
    """Read the samples of some minutes, both ends included."""
    usage = SimulatedUsageSource(rising(), scrapes)
    block, _ = await usage.read(NAMESPACE, NOW + 60 * (first - 1), NOW + 60 * last, None)
    return block


async def rows(scrapes: ScrapeFaults, first: int, last: int) -> dict[str, tuple[list[float], list[float]]]:
    block = await samples(scrapes, first, last)
    return {
        name: (cpu.tolist(), (memory / MEBIBYTE).tolist())
        for name, cpu, memory in zip(block.nodes, block.cpu_demand_millicores, block.memory_bytes, strict=True)
    }


async def test_growth_over_a_missed_scrape_is_spread_and_memory_repeated() -> None:
    found = await rows(without(6, 7), 5, 9)
    assert found["n1"] == ([50, 70, 70, 70, 90], [5, 5, 5, 8, 9])
    assert found["n2"] == ([50, 60, 70, 80, 90], [5, 6, 7, 8, 9])


@pytest.mark.parametrize(("first", "last"), [(6, 6), (6, 7), (7, 8), (8, 9)])
async def test_it_makes_no_difference_in_how_many_reads(first: int, last: int) -> None:
    whole = await rows(without(6, 7), 5, 9)
    part = await rows(without(6, 7), first, last)
    assert part["n1"] == tuple(column[first - 5 : last - 4] for column in whole["n1"])


async def test_nothing_is_known_of_a_longer_gap() -> None:
    cpu, memory = (await rows(without(5, 6, 7, 8, 9, 10), 4, 12))["n1"]
    np.testing.assert_array_equal(cpu, [40, *[np.nan] * 7, 120])
    np.testing.assert_array_equal(memory, [4, 4, 4, 4, 4, np.nan, np.nan, 11, 12])


async def test_gap_that_is_not_over_has_no_cpu_yet() -> None:
    cpu, memory = (await rows(without(19, 20), 18, 20))["n1"]
    np.testing.assert_array_equal(cpu, [180, np.nan, np.nan])
    assert memory == [18, 18, 18]


async def test_late_samples_are_not_there_yet() -> None:
    block = await samples(ScrapeFaults(late_seconds=120), 16, 20)
    assert np.isfinite(block.cpu_demand_millicores[0]).tolist() == [True, True, True, False, False]
    assert np.isfinite(block.memory_bytes[0]).tolist() == [True, True, True, False, False]
    assert len(block.times) == 5


async def test_irregular_scrapes_show_the_usage_between_them() -> None:
    def ages(name: str, times: Int64Array) -> Float64Array:
        return np.where((times - NOW) // 60 % 2 == 1, 30.0, 0.0) * (name == "n1")

    found = await rows(ScrapeFaults(ages=ages), 6, 9)
    # The scrape of minute 6 shows what was used since the middle of minute 5, and so on.
    assert found["n1"] == ([pytest.approx(170 / 3), 70, pytest.approx(230 / 3), 90], [6, 6, 8, 8])
    assert found["n2"] == ([60, 70, 80, 90], [6, 7, 8, 9])
