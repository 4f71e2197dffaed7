from cruise.adapters.prometheus.queries import node_load_query, quoted, usage_query
from cruise.adapters.prometheus.settings import Labels, PrometheusSettings


def settings(**given):
    return PrometheusSettings("http://prometheus", **given)


def test_a_usage_query_selects_containers_by_the_pods_names():
    assert usage_query(settings(), "cpu_total", ".*[bcd0]") == (
        'max by (namespace, pod, container, id, node) (cpu_total{container!="",container!="POD",pod=~".*[bcd0]"})'
    )


def test_further_matchers_and_other_labels_are_used():
    labels = Labels(pod="pod_name", id="", node="instance")
    assert usage_query(settings(matchers='cluster="a"', labels=labels), "m", "x.*") == (
        "max by (namespace, pod_name, container, instance) "
        '(m{container!="",container!="POD",cluster="a",pod_name=~"x.*"})'
    )


def test_node_load_is_known_by_its_label_or_by_instance():
    assert node_load_query(settings(matchers='cluster="a"')) == 'max by (node, instance) (node_load1{cluster="a"})'
    assert node_load_query(settings(node_load_label="")) == "max by (instance) (node_load1{})"


def test_strings_are_escaped():
    assert quoted('a\\.b"c\nd') == r'"a\\.b\"c\nd"'
