"""The container table: adding and removing rows, and the demand of running containers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.resources import StatedResources
from cruise.simulation.cluster.containers import ContainerTable
from tests.simulation.scenes import AdjustableDemand


def test_only_running_containers_want_anything() -> None:
    table, dial = ContainerTable(), AdjustableDemand(cpu=100, mebibytes=1)
    rows = [table.add(0, dial, member, member) for member in range(3)]
    table.started_at[rows[0]] = 10
    table.started_at[rows[1]] = 30
    demand = table.compute_demand(20)
    assert demand.rows.tolist() == rows
    assert demand.known.tolist() == [True, False, False]
    assert demand.cpu_millicores.tolist() == [100, 0, 0]
    assert np.isnan(demand.memory_bytes[1:]).all()


def test_a_container_without_a_source_uses_nothing() -> None:
    table = ContainerTable()
    row = table.add(0, None, 0, 0)
    table.started_at[row] = 0
    assert table.compute_demand(5).known.tolist() == [False]


def test_absent_limits_bound_nothing() -> None:
    table = ContainerTable()
    row = table.add(0, None, 0, 0)
    table.set_sizes(row, StatedResources(200, None), StatedResources(None, 512))
    assert (table.cpu_request[row], table.cpu_limit[row], table.memory_limit[row]) == (200, np.inf, 512)


@given(st.lists(st.integers(0, 9), max_size=300))
def test_rows_in_use_are_not_merged(actions: list[int]) -> None:
    """Adding and removing at random: containers keep their values while the table grows and rows are reused."""
    table, dials = ContainerTable(), (AdjustableDemand(), AdjustableDemand())
    living: dict[int, int] = {}
    for serial, action in enumerate(actions):
        if action < 3 and living:
            row = sorted(living)[action % len(living)]
            table.remove(row)
            del living[row]
        else:
            row = table.add(0, dials[serial % 2], serial % 16, serial)
            assert row not in living
            living[row] = serial
    assert table.compute_demand(0).rows.tolist() == sorted(living)
    for row, serial in living.items():
        assert table.history_row[row] == serial
        assert table.member[row] == serial % 16
