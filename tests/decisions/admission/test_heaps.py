"""Heaps at admission: the limit covers the workload's earlier usage, the request covers the whole heap."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.admission import (
    MutatePod,
    compute_admitted_resources,
    decide_admission,
    get_original_resources,
)
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Container, Pod, QosClass
from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.original_resources import format_original_resources
from cruise.domain.policy import GuaranteedPolicy, HeapBoundPolicy, MemoryLimitPolicy, Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.kube_json.objects.heaps import DEFAULT_JVM_HEAP
from tests.builders import (
    NOW,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic,
    make_table,
    make_workload,
)
from tests.strategies import heaps

INITIAL = Policy(mode=Mode.INITIAL)
NODES = (make_node(memory_mib=65536),)
XMX_1G = HeapBound(HeapRuntime.JVM, "-Xmx1g in args", fixed_bytes=1024 * MEBIBYTE)
NEEDED_MIB = XMX_1G.compute_memory(0, 0) // MEBIBYTE
THREE_QUARTERS = HeapBound(HeapRuntime.JVM, "-XX:MaxRAMPercentage=75 in args", limit_share=0.75)


def new_pod(container: Container, qos: QosClass = QosClass.BURSTABLE) -> Pod:
    return make_pod("", node=None, containers=[container], qos=qos)


def heap_container(heap: HeapBound | None, memory_mib: int = 3072, limit_mib: int | None = 4096) -> Container:
    return make_container(memory_mib=memory_mib, memory_limit_mib=limit_mib, settled=False, heap=heap)


def admit(pod: Pod, peak_mib: int = 300, policy: Policy = INITIAL) -> Pod:
    """Return the pod as it is created."""
    row = make_statistic("", memory_base_mib=1, memory_peak_mib=peak_mib)
    table = make_table(row)
    snapshot = make_snapshot([], nodes=NODES, workloads=[make_workload()])
    eligibility = Eligibility(snapshot, table, {}, policy, NOW)
    decision = decide_admission(pod, eligibility, table, NodeIndex(NODES), (), policy)
    if not isinstance(decision, MutatePod):
        return pod
    submitted = {ORIGINAL_RESOURCES: format_original_resources(get_original_resources(pod, decision))}
    return compute_admitted_resources(pod, decision).apply_to(pod, submitted)


def sizes(container: Container, *args, qos: QosClass = QosClass.BURSTABLE, **more) -> tuple[int, int]:
    [created] = admit(new_pod(container, qos), *args, **more).containers
    request, limit = ((one.memory_bytes or 0) // MEBIBYTE for one in (created.requests, created.limits))
    return request, limit


def test_a_stated_heap_holds_request_and_limit():
    assert sizes(heap_container(XMX_1G)) == (NEEDED_MIB, NEEDED_MIB)
    assert sizes(heap_container(None)) == (300, 600)
    assert sizes(heap_container(XMX_1G, 256, 512)) == sizes(heap_container(None, 256, 512))


def test_a_lower_limit_leaves_the_heap_the_largest_known_use():
    # With 600 MiB the JVM would take 150 MiB of heap at most, and throw OutOfMemoryError.
    request, limit = sizes(heap_container(DEFAULT_JVM_HEAP))
    assert (request, limit) == (300, 1200)
    assert DEFAULT_JVM_HEAP.compute_heap(limit * MEBIBYTE, 0) >= 300 * MEBIBYTE
    assert sizes(heap_container(DEFAULT_JVM_HEAP), 2000)[1] == 4096


def test_the_request_is_held_for_the_heap_of_the_new_limit():
    request, limit = sizes(heap_container(THREE_QUARTERS))
    assert limit == 600
    assert request == THREE_QUARTERS.compute_memory(600 * MEBIBYTE, 0) // MEBIBYTE


def test_a_request_that_sets_the_heap_is_not_cut_below_its_use():
    heap = HeapBound(HeapRuntime.GO, "GOMEMLIMIT", request_share=0.5, holds_request=False)
    assert sizes(heap_container(heap))[0] == 600


def test_an_unknown_heap_keeps_its_limit():
    assert sizes(heap_container(HeapBound(HeapRuntime.JVM, "a Secret", is_known=False))) == (300, 4096)


def test_no_limit_is_added_that_would_reduce_the_heap():
    policy = replace(INITIAL, memory_limits=MemoryLimitPolicy.ALWAYS)
    assert sizes(heap_container(THREE_QUARTERS, limit_mib=None), policy=policy) == (300, 0)
    assert sizes(heap_container(XMX_1G, limit_mib=None), policy=policy) == (NEEDED_MIB, NEEDED_MIB)


def test_a_guaranteed_pod_keeps_what_its_heap_needs():
    policy = replace(INITIAL, guaranteed=GuaranteedPolicy.RESIZE)
    equal = make_container("app", 1000, 3072, 1000, 3072, settled=False, heap=XMX_1G)
    assert sizes(equal, policy=policy, qos=QosClass.GUARANTEED) == (NEEDED_MIB, NEEDED_MIB)
    equal = replace(equal, heap=DEFAULT_JVM_HEAP)
    assert sizes(equal, policy=policy, qos=QosClass.GUARANTEED) == (1200, 1200)


def test_settings_ignore_heaps():
    policy = replace(INITIAL, heap_bounds=HeapBoundPolicy.IGNORE)
    for heap in (XMX_1G, THREE_QUARTERS, DEFAULT_JVM_HEAP):
        assert sizes(heap_container(heap), policy=policy) == (300, 600)


mebibytes = st.integers(16, 4096)


@given(heaps | st.just(DEFAULT_JVM_HEAP), mebibytes, mebibytes | st.just(0), mebibytes)
def test_deciding_again_changes_nothing_and_the_heap_fits(heap, memory_mib, more_mib, peak_mib):
    stated_mib = memory_mib + more_mib
    created = admit(new_pod(heap_container(heap, memory_mib, stated_mib)), peak_mib)
    assert admit(created, peak_mib) == created
    free = admit(new_pod(heap_container(None, memory_mib, stated_mib)), peak_mib)
    limit, limit_without = (pod.containers[0].limits.memory_bytes for pod in (created, free))
    assert limit >= min(limit_without, stated_mib * MEBIBYTE)
    if heap.limit_share and heap.is_known and limit < stated_mib * MEBIBYTE:
        assert heap.compute_heap(limit, 0) >= peak_mib * MEBIBYTE
    if not heap.is_known:
        assert limit >= stated_mib * MEBIBYTE
