import numpy as np
import pytest

from benchmarks.bench_packing_openb import fill, preempt
from benchmarks.openb_cluster import GPU, read_openb
from cruise.domain.resources import MEBIBYTE, Resources

NODES = """sn,cpu_milli,memory_mib,gpu,model
node-0,32000,65536,0,
node-1,16000,32768,2,P100
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-0,4000,8192,1,500,,BE,Running,20,90,20
pod-1,4000,8192,1,500,,BE,Running,10,90,10
pod-2,2000,4096,2,1000,,LS,Running,30,90,30
pod-3,1000,2048,0,,,LS,Running,40,90,40
"""


@pytest.fixture
def trace(tmp_path):
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    return read_openb(tmp_path)


def test_nodes_and_pods_have_the_traces_amounts(trace):
    assert [node.allocatable for node in trace.nodes] == [
        Resources(32000, 65536 * MEBIBYTE),
        Resources(16000, 32768 * MEBIBYTE),
    ]
    assert [dict(node.allocatable_extended) for node in trace.nodes] == [{}, {GPU: 2000}]
    assert {pod.name: pod.extended_requests for pod in trace.arrivals} == {
        "pod-0": ((GPU, 500),),
        "pod-1": ((GPU, 500),),
        "pod-2": ((GPU, 2000),),
        "pod-3": (),
    }


def test_pods_arrive_by_their_time_and_have_their_class_of_service_as_priority(trace):
    assert [pod.name for pod in trace.arrivals] == ["pod-1", "pod-0", "pod-2", "pod-3"]
    assert [pod.priority for pod in trace.arrivals] == [0, 0, 3000, 3000]
    assert trace.arrivals[0].workload == trace.arrivals[1].workload != trace.arrivals[2].workload


def test_placing_ignores_priority_and_preempting_does_not(trace):
    built = fill(trace)
    names = [pod.name for pod in built.pods]
    pending = [names[pod] for pod in np.flatnonzero(built.problem.pod_node < 0).tolist()]
    assert pending == ["pod-2"]
    schedule = preempt(built).schedule
    assert sorted(names[pod] for pod in schedule.evicted) == ["pod-0", "pod-1"]
    assert [names[pod] for pod in np.flatnonzero(schedule.pod_node < 0).tolist()] == ["pod-0", "pod-1"]


def test_fewer_arrivals_are_the_first(trace):
    assert sorted(pod.name for pod in fill(trace, 2).pods) == ["pod-0", "pod-1"]
