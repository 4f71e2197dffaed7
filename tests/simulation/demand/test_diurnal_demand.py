"""Synthetic demand has the stated shape, and is reproducible for a seed."""

from collections.abc import Callable

import numpy as np
import pytest

from cruise.simulation.demand.demand import (
    DAY_SECONDS,
    BurstyDemand,
    CorrelatedDemand,
    DemandSource,
    DiurnalDemand,
    LeakingDemand,
)

GIB = float(1 << 30)
START = 1_767_571_200  # a midnight, UTC
MEMBERS = np.arange(8)[:, None]
DAY = START + np.arange(0, DAY_SECONDS, 60)[None, :]

MAKERS: list[Callable[[int], DemandSource]] = [
    lambda seed: DiurnalDemand(seed, 100, 900, GIB, 2 * GIB),
    lambda seed: BurstyDemand(seed, 20, 800, GIB, 2 * GIB),
    lambda seed: LeakingDemand(seed, 100, GIB, GIB),
    lambda seed: CorrelatedDemand(seed, 100, 400, GIB, GIB),
]


@pytest.mark.parametrize("make", MAKERS)
def test_seed_member_and_time_alone_decide(make: Callable[[int], DemandSource]) -> None:
    whole = make(7).compute_demand(MEMBERS, DAY, DAY - START)
    again = make(7).compute_demand(MEMBERS, DAY, DAY - START)
    single = make(7).compute_demand(np.array([3]), np.array([START + 600]), np.array([600]))
    other = make(8).compute_demand(MEMBERS, DAY, DAY - START)
    for matrix, same, one in zip(whole, again, single, strict=True):
        assert matrix.tobytes() == same.tobytes()
        assert matrix[3, 10] == one[0]
        assert matrix.shape == (8, 1440)
        assert np.isfinite(matrix).all()
        assert (matrix >= 0).all()
    assert whole[0].tobytes() != other[0].tobytes()


def test_diurnal_peaks_at_its_hour() -> None:
    cpu, memory = DiurnalDemand(1, 100, 900, GIB, 2 * GIB, peak_hour=14, noise_share=0).compute_demand(
        MEMBERS, DAY, DAY - START
    )
    assert (cpu.argmax(axis=1) == 14 * 60).all()
    assert cpu[0, 14 * 60] == pytest.approx(900)
    assert cpu[0, 2 * 60] == pytest.approx(100)
    assert memory[0].min() == pytest.approx(GIB)


def test_bursty_is_idle_except_for_its_bursts() -> None:
    cpu, _ = BurstyDemand(1, 20, 800, GIB, GIB, period_seconds=3600, burst_seconds=300, share=0.5).compute_demand(
        MEMBERS, DAY, DAY - START
    )
    assert set(np.unique(cpu)) == {20, 800}
    # 8 members × 24 h × a burst of 5 min in half of the hours: a share of 1/24.
    assert (cpu == 800).mean() == pytest.approx(1 / 24, rel=0.3)


def test_leaking_increases_with_the_age_of_the_process_only() -> None:
    _, memory = LeakingDemand(1, 100, GIB, 2 * GIB).compute_demand(
        np.array([0, 0]), np.array([START, START]), np.array([0, 1800])
    )
    assert memory.tolist() == [GIB, 2 * GIB]


def test_coupling_decides_how_far_members_move_together() -> None:
    def correlation(coupling: float) -> float:
        cpu, _ = CorrelatedDemand(1, 0, 100, 0, 0, coupling).compute_demand(MEMBERS, DAY, DAY - START)
        return float(np.asarray(np.corrcoef(cpu))[np.triu_indices(8, 1)].mean())

    assert correlation(1.0) == pytest.approx(1)
    assert abs(correlation(0.0)) < 0.2
    assert correlation(0.3) < correlation(0.7)
