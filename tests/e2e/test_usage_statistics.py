"""Statistics of 500 containers over 8 days from a real Prometheus, compared with a simple reference."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pytest

from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.domain.policy import Policy
from cruise.domain.usage import Statistic, StatisticsTable
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests import cadvisor_cluster, usage_reference
from tests.cadvisor_cluster import END, ClusterMember
from tests.prometheus_server import running_prometheus
from tests.shown_cluster import ReadOnlyCluster
from tests.usage_reference import ReferenceUsage, find_largest

HOUR = 3600
SETTLE = 30


@dataclass(frozen=True)
class Expectation:
    """Every container's minutes, and those of its workload and identity."""

    of: dict[tuple[str, str, str], ReferenceUsage]
    members: dict[tuple[str, str, str], ClusterMember]
    minutes: np.ndarray

    def siblings(self, key, with_identity):
        member = self.members[key]
        return [
            other
            for other, its in self.members.items()
            if (its.namespace, its.workload, other[2]) == (member.namespace, member.workload, key[2])
            and (its.workload is not None or its.name == member.name)
            and (not with_identity or its.identity == member.identity)
        ]

    def base(self, key, resource, window):
        own = usage_reference.compute_reference_base(getattr(self.of[key], resource), window)
        if not math.isnan(own):
            return own
        others = [other for other in self.siblings(key, False) if not self.members[other].gone]
        return find_largest(
            usage_reference.compute_reference_base(getattr(self.of[other], resource), window) for other in others
        )

    def peak(self, key, resource, counts):
        own = self.siblings(key, True)
        first = min(np.flatnonzero(~np.isnan(self.of[other].memory))[0] for other in own)
        if END - self.minutes[first] < HOUR:
            own = self.siblings(key, False)
        return find_largest(value for other in own for value in getattr(self.of[other], resource)[counts])


@pytest.fixture(scope="module")
def expectation() -> Expectation:
    first = (END // HOUR - 7 * 24) * HOUR
    minutes = np.arange(first, END + 1, 60)
    of, members = {}, {}
    for one in cadvisor_cluster.measure_usage():
        key = (one.member.namespace, one.member.name, one.container)
        of[key] = usage_reference.compute_reference_usage(one.series, minutes, max_cores=16)
        members[key] = one.member
    return Expectation(of, members, minutes[1:])


@pytest.fixture(scope="module")
def prometheus():
    with running_prometheus(cadvisor_cluster.blocks()) as address:
        yield address


# The plain reference alone computes for a quarter of a minute, which is five on a machine with twenty others at work.
@pytest.mark.timeout(900)
async def test_the_statistics_of_every_container_equal_the_plain_reference(prometheus, expectation):
    cluster = ReadOnlyCluster(cadvisor_cluster.snapshot())
    source, store, state = PrometheusUsageSource(PrometheusSettings(prometheus)), InMemoryStore(), UsageState()
    for until in (END - 1200, END):
        now = datetime.fromtimestamp(until + SETTLE, UTC)
        table = await run_usage_pass(cluster, source, store, state, Policy(), now)
        assert state.failures == []
    live = [key for key, member in expectation.members.items() if not member.gone]
    assert len(live) == cadvisor_cluster.CONTAINERS
    assert set(table.row_of_container) == set(live)
    counts = usage_reference.peak_minutes(expectation.minutes, END, look_ahead=900)
    for key in live:
        statistic = table.get_row(table.row_of_container[key])
        compare_cpu(statistic.cpu_base_millicores, expectation.base(key, "cpu", 10), key)
        compare_cpu(statistic.cpu_peak_millicores, expectation.peak(key, "cpu", counts), key)
        assert statistic.memory_base_bytes == math.ceil(expectation.base(key, "memory", 30)), key
        assert statistic.memory_peak_bytes == expectation.peak(key, "memory", counts), key
        assert statistic.memory_7d_max_bytes == expectation.peak(key, "memory", counts | True), key
        assert statistic.updated_at == END
        assert statistic.psi_known == (expectation.members[key].node < 13), key
    assert_workloads(table, expectation)


def compare_cpu(actual: int, expected: float, key: tuple[str, str, str]) -> None:
    """To 1 %, in addition to the rounding up to whole millicores."""
    assert expected * 0.99 <= actual <= math.ceil(expected * 1.01), (key, actual, expected)


def assert_workloads(table: StatisticsTable, expectation: Expectation) -> None:
    """A workload's base is the largest of its pods'."""
    largest_base: dict[tuple[str, str, str], int] = {}
    rows: list[Statistic] = [table.get_row(row) for row in table.row_of_container.values()]
    for row in rows:
        of = (row.key.namespace, row.key.workload, row.key.container)
        largest_base[of] = max(row.memory_base_bytes, largest_base.get(of, 0))
    whole = {key: table.get_row(row) for key, row in table.row_of_workload.items() if not key.identity}
    assert len(whole) == len({of for of in largest_base if of[1]})
    for key, statistic in whole.items():
        assert statistic.memory_base_bytes == largest_base[key.namespace, key.workload, key.container]
