"""Savings compared with the requests before cruise."""

from cruise.decisions.scan.waste import RequestSavings, sum_savings
from tests.builders import make_amounts, make_container, make_pod, make_resources, make_snapshot

NOTHING = make_amounts(None, None)


def test_pods_count_from_their_original_sizes_where_these_are_known():
    pods = [
        make_pod("small", containers=[make_container(cpu=100, memory_mib=128)]),
        make_pod("larger", containers=[make_container(cpu=300, memory_mib=512)]),
        make_pod("unknown", containers=[make_container(cpu=900, memory_mib=900)]),
        make_pod("waiting", node=None),
    ]
    before = {pod.uid: {"app": (make_amounts(200, 256), NOTHING)} for pod in pods if pod.name != "unknown"}
    found = sum_savings(make_snapshot(pods), before)
    assert found == RequestSavings(2, make_resources(400, 512), make_resources(400, 640))
    assert found.saved == make_resources(0, -128)


def test_containers_without_an_original_size_count_as_they_are():
    pod = make_pod(containers=[make_container("app", cpu=100), make_container("added", cpu=50)])
    found = sum_savings(make_snapshot([pod]), {pod.uid: {"app": (make_amounts(400, 128), NOTHING)}})
    assert (found.before.cpu_millicores, found.now.cpu_millicores) == (450, 150)
