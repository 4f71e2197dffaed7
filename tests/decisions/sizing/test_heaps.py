"""Heaps in a node pass: memory is not cut below what the process may use, and nothing grows for it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.explanation.pod_explanation import explain_pod
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.cluster import Container, QosClass
from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.policy import SEED_RULES, GuaranteedPolicy, HeapBoundPolicy, MemoryLimitPolicy, Mode, Policy
from cruise.domain.resources import MEBIBYTE
from tests.builders import (
    NOW,
    TRACKING,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)
from tests.strategies import heaps

FULL = Policy(mode=Mode.FULL, rules=TRACKING)
XMX_1G = HeapBound(HeapRuntime.JVM, "-Xmx1g in JAVA_TOOL_OPTIONS", fixed_bytes=1024 * MEBIBYTE)
NEEDED_MIB = XMX_1G.compute_memory(0, 0) // MEBIBYTE
THREE_QUARTERS = HeapBound(HeapRuntime.JVM, "-XX:MaxRAMPercentage=75 in args", limit_share=0.75)
GO_2G = HeapBound(HeapRuntime.GO, "2GiB in GOMEMLIMIT", fixed_bytes=2048 * MEBIBYTE, holds_request=False)
UNKNOWN = HeapBound(HeapRuntime.JVM, "options from a Secret", is_known=False)


def heap_container(heap: HeapBound | None, memory_mib: int = 3072, limit_mib: int | None = 4096) -> Container:
    return make_container(memory_mib=memory_mib, memory_limit_mib=limit_mib, heap=heap)


def plan(container: Container, policy: Policy = FULL, peak_mib: int = 300, **more):
    pod = make_pod(containers=[container], **more)
    template = make_workload(memory_limits={"app": container.limits.memory_bytes or 0})
    snapshot = make_snapshot([pod], nodes=[make_node()], workloads=[template])
    row = make_statistic_for(pod, memory_base_mib=peak_mib // 2, memory_peak_mib=peak_mib, memory_last_mib=peak_mib)
    return snapshot, make_table(row), decide_node_plans(snapshot, make_table(row), policy, NOW)[0]


def sizes(container: Container, policy: Policy = FULL, **more) -> tuple[int, int]:
    """The planned memory request and limit in MiB, 0 for none."""
    _, _, decided = plan(container, policy, **more)
    amounts = [one for resize in decided.resize for one in resize.containers] or [container]
    request, limit = ((amount.memory_bytes or 0) // MEBIBYTE for amount in (amounts[0].requests, amounts[0].limits))
    return request, limit


def test_a_stated_heap_holds_request_and_limit():
    assert sizes(heap_container(XMX_1G)) == (NEEDED_MIB, NEEDED_MIB)
    without, limit = sizes(heap_container(None))
    assert without <= 330 and limit == 600


def test_more_use_than_the_heap_counts_as_without_one():
    assert sizes(heap_container(XMX_1G), peak_mib=2000) == sizes(heap_container(None), peak_mib=2000)


def test_nothing_grows_to_the_bound():
    assert sizes(heap_container(XMX_1G, 256, 512)) == sizes(heap_container(None, 256, 512))
    request, limit = sizes(heap_container(XMX_1G, 800, 1000))
    assert (request, limit) == (800, 1000)


def test_a_limit_is_kept_while_a_process_runs_whose_heap_is_a_share_of_it():
    request, limit = sizes(heap_container(THREE_QUARTERS))
    assert (request, limit) == (3072, 4096)
    request, limit = sizes(heap_container(UNKNOWN))
    assert request <= 330 and limit == 4096


def test_a_heap_that_is_not_filled_holds_only_the_limit():
    request, limit = sizes(heap_container(GO_2G))
    assert request <= 330 and limit == GO_2G.compute_memory(0, 0) // MEBIBYTE


def test_a_guaranteed_pod_keeps_what_its_heap_needs():
    policy = replace(FULL, guaranteed=GuaranteedPolicy.RESIZE)
    equal = make_container("app", 1000, 3072, 1000, 3072, heap=XMX_1G)
    assert sizes(equal, policy, qos=QosClass.GUARANTEED) == (NEEDED_MIB, NEEDED_MIB)
    assert sizes(replace(equal, heap=THREE_QUARTERS), policy, qos=QosClass.GUARANTEED) == (3072, 3072)


def test_no_limit_is_added_that_would_reduce_the_heap():
    always = replace(FULL, memory_limits=MemoryLimitPolicy.ALWAYS)
    assert sizes(heap_container(THREE_QUARTERS, limit_mib=None), always)[1] == 0
    assert sizes(heap_container(XMX_1G, limit_mib=None), always)[1] == NEEDED_MIB
    assert sizes(heap_container(None, limit_mib=None), always)[1] == 600


@pytest.mark.parametrize("policy", [replace(FULL, heap_bounds=HeapBoundPolicy.IGNORE), replace(FULL, rules=SEED_RULES)])
@pytest.mark.parametrize("heap", [XMX_1G, THREE_QUARTERS, UNKNOWN])
def test_settings_and_the_first_rules_ignore_heaps(policy, heap):
    assert sizes(heap_container(heap), policy) == sizes(heap_container(None), policy)


def test_a_setting_holds_only_limits():
    request, limit = sizes(heap_container(XMX_1G), replace(FULL, heap_bounds=HeapBoundPolicy.LIMITS))
    assert request <= 330 and limit == NEEDED_MIB


mebibytes = st.integers(16, 4096)


@given(heaps, mebibytes, mebibytes, mebibytes)
def test_a_heap_only_holds_cuts_back(heap, memory_mib, more_mib, peak_mib):
    limit_mib = memory_mib + more_mib
    held, free = (sizes(heap_container(one, memory_mib, limit_mib), peak_mib=peak_mib) for one in (heap, None))
    assert held[0] >= min(free[0], memory_mib) and held[0] <= max(free[0], memory_mib)
    assert held[1] >= min(free[1], limit_mib) and held[1] <= max(free[1], limit_mib)
    if heap.follows_size:
        assert held[1] >= limit_mib
    elif heap.is_known:
        assert held[1] >= min(limit_mib, heap.compute_memory(0, 0) // MEBIBYTE)


def test_explain_names_the_option_and_the_bound():
    snapshot, table, _ = plan(heap_container(XMX_1G))
    explained = explain_pod(snapshot.pods[0], snapshot, table, FULL, NOW)
    [steps] = explained.steps
    assert steps.memory.lower.source == "heap"
    assert steps.heap is not None
    assert (steps.heap.source, steps.heap.request_floor) == (XMX_1G.source, NEEDED_MIB * MEBIBYTE)
