"""From statistics to demand: bounds, bases, headrooms and wanted limits of single containers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.pod_policy.container_bounds import ContainerBounds, compute_container_bounds
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.sizing.demand import DemandTable, build_demand_table
from cruise.domain.annotations import ContainerOverrides, EffectivePolicy
from cruise.domain.arrays import UNBOUNDED, cap_against_overflow, convert_to_int64, round_up, round_up_integers
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ContainerRole, Pod
from cruise.domain.policy import Mode, Policy, RequestBounds
from cruise.domain.resources import MEBIBYTE
from tests.builders import (
    NOW,
    make_amounts,
    make_autoscaler,
    make_container,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
)

FULL = Policy(mode=Mode.FULL)
FREE = (math.inf, math.inf)


def bounds_of(
    effective_policy: EffectivePolicy | None = None, *items: LimitRangeItem, container="app"
) -> ContainerBounds:
    return compute_container_bounds(effective_policy or EffectivePolicy(Mode.FULL), container, items, FULL)


def whole(bounds: ContainerBounds) -> tuple[int, ...]:
    """The bounds with memory in MiB, -1 for unbounded."""
    in_mib = [value // (1 if index in (0, 1, 4) else MEBIBYTE) for index, value in enumerate(bounds.whole_unit_bounds)]
    return tuple(
        -1 if value >= UNBOUNDED else shown for value, shown in zip(bounds.whole_unit_bounds, in_mib, strict=True)
    )


def table_of(*pods: Pod, rows, limit_ranges=None, **snapshot) -> DemandTable:
    statistics = make_table(*rows)
    eligibility = Eligibility(make_snapshot(pods, **snapshot), statistics, {}, FULL, NOW)
    resizable = [verdict for pod in pods if isinstance(verdict := eligibility.check(pod), ResizablePod)]
    return build_demand_table(resizable, statistics, limit_ranges or {}, FULL)


# ---- bounds ----


def test_without_overrides_or_limit_ranges_only_the_floor_applies():
    assert whole(bounds_of()) == (10, -1, 16, -1, -1, -1)
    assert bounds_of().ratios == FREE


@pytest.mark.parametrize(
    ("minimum", "maximum", "expected"),
    [
        (make_amounts(50, 64), make_amounts(500, 512), (50, 500, 64, 512)),
        (make_amounts(5, 8), make_amounts(), (10, -1, 16, -1)),  # the floor remains below smaller requests
        (make_amounts(), make_amounts(5, 8), (5, 5, 8, 8)),  # a largest value under the floor is meant
        (make_amounts(5, 8), make_amounts(7, 10), (7, 7, 10, 10)),
    ],
)
def test_overrides(minimum, maximum, expected):
    assert whole(bounds_of(EffectivePolicy(Mode.FULL, bounds=RequestBounds(minimum, maximum))))[:4] == expected


def test_a_containers_override_takes_precedence_over_the_pods():
    effective_policy = EffectivePolicy(
        Mode.FULL,
        bounds=RequestBounds(make_amounts(50, 64), make_amounts(500, None)),
        containers={"app": ContainerOverrides(bounds=RequestBounds(make_amounts(70, None)))},
    )
    assert whole(bounds_of(effective_policy))[:4] == (70, 500, 64, -1)
    assert whole(bounds_of(effective_policy, container="other"))[:4] == (50, 500, 64, -1)


def test_the_narrowest_limit_range_applies_and_takes_precedence_over_an_override():
    items = (
        LimitRangeItem(False, make_amounts(20, 32), make_amounts(2000, None), max_cpu_ratio=4.0),
        LimitRangeItem(
            False, make_amounts(40, None), make_amounts(1000, 4096), max_cpu_ratio=2.0, max_memory_ratio=3.0
        ),
        LimitRangeItem(True, make_amounts(900, 900), make_amounts(901, 901), max_memory_ratio=1.0),  # of the whole pod
    )
    assert whole(bounds_of(None, *items)) == (40, 1000, 32, 4096, 1000, 4096)
    assert bounds_of(None, *items).ratios == (2.0, 3.0)
    far_out = EffectivePolicy(Mode.FULL, bounds=RequestBounds(make_amounts(5000, 1), make_amounts(6000, 2)))
    assert whole(bounds_of(far_out, *items)) == (1000, 1000, 32, 32, 1000, 4096)


# ---- columns ----


def test_base_is_clamped_for_the_fit_and_headroom_is_not():
    pod, of_namespace = make_pod(), {"shop": {"cruise.io/cpu-max": "100m", "cruise.io/memory-min": "200Mi"}}
    row = make_statistic_for(pod, cpu_base=300, cpu_peak=900, memory_base_mib=50, memory_peak_mib=80)
    table = table_of(pod, rows=[row], namespace_annotations=of_namespace)
    assert (table.cpu.raw_base.tolist(), table.cpu.base.tolist(), table.cpu.headroom.tolist()) == ([300], [100], [600])
    assert table.memory.base.tolist() == [200 * MEBIBYTE]
    assert table.memory.headroom.tolist() == [30 * MEBIBYTE]


@pytest.mark.parametrize(("factor", "headroom"), [("0", 0), ("0.5", 51), ("1", 101), ("2.5", 253), ("10", 1010)])
def test_the_factor_multiplies_the_headroom_and_rounds_up(factor, headroom):
    pod, of_namespace = make_pod(), {"shop": {"cruise.io/headroom-factor": factor}}
    row = make_statistic_for(pod, cpu_base=100, cpu_peak=201)
    table = table_of(pod, rows=[row], namespace_annotations=of_namespace)
    assert table.cpu.headroom.tolist() == [headroom]


def test_an_unmanaged_resource_has_no_demand():
    pod = make_pod()
    row = make_statistic_for(pod, cpu_base=100, cpu_peak=300)
    table = table_of(pod, rows=[row], autoscalers=[make_autoscaler()])
    assert (table.cpu.base.tolist(), table.cpu.headroom.tolist(), table.cpu.managed.tolist()) == ([0], [0], [False])
    assert table.cpu.current.tolist() == [100]
    assert table.memory.managed.tolist() == [True]


def test_containers_are_grouped_by_pod_without_init_containers():
    first = make_pod(
        "a", containers=[make_container("setup", role=ContainerRole.INIT), make_container("b"), make_container("c")]
    )
    second = make_pod("z", containers=[make_container(cpu=None, memory_limit_mib=300, cpu_limit=50)])
    rows = [make_statistic_for(first, name, cpu_base=base) for name, base in (("b", 11), ("c", 12))]
    table = table_of(first, second, rows=[*rows, make_statistic_for(second, cpu_base=13)])
    assert table.candidates.first_container.tolist() == [0, 2]
    assert table.candidates.pod_of_container.tolist() == [0, 0, 1]
    assert table.cpu.raw_base.tolist() == [11, 12, 13]
    assert table.cpu.current.tolist() == [100, 100, 0]
    assert (table.cpu_limit.tolist(), table.memory_limit.tolist()) == ([0, 0, 50], [0, 0, 300 * MEBIBYTE])


def test_the_wanted_and_the_safe_memory_limit():
    pod = make_pod()
    row = make_statistic_for(pod, memory_7d_max_mib=300, oom_memory_mib=200, memory_last_mib=100)
    table = table_of(pod, rows=[row, replace(row, key=row.key._replace(pod="other"))])
    assert table.limit_demand.target.tolist() == [600 * MEBIBYTE]
    assert table.limit_demand.minimum_safe.tolist() == [120 * MEBIBYTE]
    killed = table_of(pod, rows=[replace(row, oom_memory_bytes=301 * MEBIBYTE)])
    assert killed.limit_demand.target.tolist() == [602 * MEBIBYTE]


@pytest.mark.parametrize(("most_used", "upper"), [(100, 300), (200, 300)])
def test_no_request_raises_a_limit_that_use_does_not_raise(most_used, upper):
    """Usage of 200 MiB needs a limit of 400, which an unknown template does not allow."""
    pod = make_pod(containers=[make_container(memory_limit_mib=300)])
    row = make_statistic_for(pod, memory_base_mib=90, memory_peak_mib=most_used, memory_7d_max_mib=most_used)
    assert table_of(pod, rows=[row]).memory.upper.tolist() == [upper * MEBIBYTE]


def test_without_a_limit_or_for_a_configured_minimum_requests_rise_further():
    free, limited = make_pod("free"), make_pod("limited", containers=[make_container(memory_limit_mib=300)])
    of_namespace = {"shop": {"cruise.io/memory-min": "400Mi"}}
    assert table_of(free, rows=[make_statistic_for(free)]).memory.upper.tolist() == [UNBOUNDED]
    stated = table_of(limited, rows=[make_statistic_for(limited)], namespace_annotations=of_namespace).memory
    assert (stated.lower.tolist(), stated.upper.tolist()) == ([400 * MEBIBYTE], [400 * MEBIBYTE])


def test_bounds_belong_to_the_namespace():
    pods = [make_pod("a"), make_pod("b", namespace="team")]
    ranges = {"team": (LimitRangeItem(False, make_amounts(70, None)),)}
    table = table_of(*pods, rows=[make_statistic_for(pod) for pod in pods], limit_ranges=ranges)
    assert table.cpu.lower.tolist() == [10, 70]


def test_no_pods_make_an_empty_table():
    table = table_of(rows=[])
    assert (table.candidates.pods, table.candidates.pod_of_container.tolist(), table.cpu.base.tolist()) == ([], [], [])


# ---- numbers ----


def test_numbers_are_capped_so_that_sums_do_not_overflow():
    pod = make_pod()
    row = replace(make_statistic_for(pod), cpu_base_millicores=2**62, cpu_peak_millicores=2**63 - 1)
    table = table_of(pod, rows=[replace(row, memory_last_bytes=2**63 - 1, oom_memory_bytes=2**63 - 1)])
    assert table.cpu.base.tolist() == [UNBOUNDED]
    assert table.cpu.headroom.tolist() == [0]
    assert table.limit_demand.target.tolist() == [2 * UNBOUNDED]
    assert 0 < table.limit_demand.minimum_safe.tolist()[0] <= 2 * UNBOUNDED


@given(st.lists(st.integers(-(1 << 70), 1 << 70), max_size=5))
def test_whole_numbers_are_kept_or_brought_back(values):
    assert convert_to_int64(values).tolist() == [max(-UNBOUNDED, min(value, UNBOUNDED)) for value in values]
    inside = [value for value in values if abs(value) < 1 << 63]
    assert cap_against_overflow(np.array(inside, dtype=np.int64)).tolist() == convert_to_int64(inside).tolist()


@given(st.integers(0, 1 << 45), st.sampled_from([1, MEBIBYTE]))
def test_rounding_up_is_the_next_whole_unit(value, unit):
    [up] = round_up_integers(np.array([value]), unit).tolist()
    assert up % unit == 0
    assert value <= up < value + unit
    [of_float] = round_up(np.array([float(value)]), unit).tolist()
    # A billionth of a unit is ignored.
    assert value - unit * 1e-8 - 1 < of_float <= up
