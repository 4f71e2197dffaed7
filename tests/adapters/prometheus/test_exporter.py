"""Selection of the exporters that are trusted for container usage."""

import pytest

from cruise.adapters.prometheus.series_selectors import Exporter, build_matchers, choose_exporters
from cruise.domain.usage import ContainerKey

CONTAINERS = [ContainerKey("shop", f"web-{number}", "app") for number in range(100)]


def exporter(job, count, path="", first=0):
    return Exporter((job, path), frozenset(CONTAINERS[first : first + count]))


@pytest.mark.parametrize(
    ("job", "path"),
    [
        ("kubelet", "/metrics/cadvisor"),  # kube-prometheus-stack, OpenShift, VictoriaMetrics
        ("kubernetes-nodes-cadvisor", ""),  # the community's chart
        ("integrations/kubernetes/cadvisor", ""),  # Grafana Alloy
        ("my-nodes", "/some/path"),
        ("", ""),
    ],
)
def test_reads_the_largest_exporter_and_not_one_of_a_pod(job, path):
    real, spoofed = exporter(job, 98, path), exporter("payments", 3, "/metrics")
    assert choose_exporters([spoofed, real]) == ((real,), (spoofed,))


def test_a_kubelet_is_read_only_from_the_cadvisor_path():
    cadvisor, resource = exporter("kubelet", 95, "/metrics/cadvisor"), exporter("kubelet", 100, "/metrics/resource")
    assert choose_exporters([resource, cadvisor]) == ((cadvisor,), (resource,))


def test_reads_both_of_two_equal_exporters():
    first, second = exporter("nodes", 100), exporter("cadvisor", 97, "/metrics/cadvisor")
    read, left_out = choose_exporters([first, second])
    assert (set(read), left_out) == ({first, second}, ())


def test_also_reads_the_exporter_of_another_part_of_the_cluster():
    most, pool = exporter("kubelet", 70, "/metrics/cadvisor"), exporter("gpu-nodes", 20, first=70)
    few = exporter("payments", 3, first=95)
    read, left_out = choose_exporters([few, pool, most])
    assert (read, left_out) == ((most, pool), (few,))


def test_without_any_exporter_no_job_is_chosen():
    assert choose_exporters([]) == ((), ())
    assert build_matchers([]) == ""


def test_matchers_select_what_was_chosen():
    kubelet, pool = exporter("kubelet", 1, "/metrics/cadvisor"), exporter("gpu.nodes", 1)
    assert build_matchers([kubelet]) == 'job="kubelet",metrics_path="/metrics/cadvisor"'
    assert build_matchers([kubelet, pool]) == (r'job=~"gpu\\.nodes|kubelet",metrics_path=~"|/metrics/cadvisor"')
