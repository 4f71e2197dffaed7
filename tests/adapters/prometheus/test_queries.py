from cruise.adapters.prometheus.queries import (
    build_node_load_query,
    build_node_name_query,
    build_root_cgroup_query,
    build_usage_query,
    build_usage_selector,
    quote_promql,
)
from cruise.adapters.prometheus.settings import PrometheusSettings, SeriesLabelNames


def settings(**given):
    return PrometheusSettings("http://prometheus", **given)


def test_a_usage_query_selects_containers_by_the_pods_names():
    assert build_usage_query(settings(), "cpu_total", ".*[bcd0]") == (
        'max by (namespace, pod, container, id, node, cpu) (cpu_total{container!="",container!="POD",pod=~".*[bcd0]"})'
    )


def test_further_matchers_and_other_labels_are_used():
    labels = SeriesLabelNames(pod="pod_name", id="", node="instance")
    assert build_usage_query(settings(matchers='cluster="a"', labels=labels), "m", "x.*") == (
        "max by (namespace, pod_name, container, instance, cpu) "
        '(m{container!="",container!="POD",cluster="a",pod_name=~"x.*"})'
    )


def test_node_load_is_known_by_its_label_or_by_instance():
    assert (
        build_node_load_query(settings(matchers='cluster="a"'))
        == 'max by (node, instance, job) (node_load1{cluster="a"})'
    )
    assert build_node_load_query(settings(node_load_label="", node_load_matchers='job="node-exporter"')) == (
        'max by (instance, job) (node_load1{job="node-exporter"})'
    )


def test_strings_are_escaped():
    assert quote_promql('a\\.b"c\nd') == r'"a\\.b\"c\nd"'


def test_queries_a_root_group_at_present():
    assert build_root_cgroup_query(settings(matchers='cluster="a"'), "cpu_total") == (
        'max by (node, instance) (irate(cpu_total{id="/",cluster="a"}[3m]) or '
        'sum without (cpu) (irate(cpu_total{id="/",cluster="a",cpu!~"|total"}[3m])))'
    )
    assert build_root_cgroup_query(settings(labels=SeriesLabelNames(id="cgroup", node="")), "cpu_total") == (
        'max by (instance) (irate(cpu_total{cgroup="/"}[3m]) or '
        'sum without (cpu) (irate(cpu_total{cgroup="/",cpu!~"|total"}[3m])))'
    )


def test_a_node_is_named_as_its_exporter_names_it():
    assert build_node_name_query(settings(matchers='cluster="a"')) == (
        'max by (nodename, instance, job) (node_uname_info{cluster="a"})'
    )


def test_adds_matchers_of_a_family_to_those_of_all():
    narrowed = settings(
        matchers='cluster="a"', cadvisor_matchers='job="kubelet"', series_selectors={"cpu_total": 'path="/x"'}
    )
    ending = 'cluster="a",job="kubelet"'
    assert build_usage_selector(narrowed, "cpu_total").endswith(f'{ending},path="/x"}}')
    assert build_usage_selector(narrowed, "memory").endswith(f"{ending}}}")
    assert f'{ending},path="/x"}}' in build_root_cgroup_query(narrowed, "cpu_total")
