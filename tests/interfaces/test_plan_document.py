import json

from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.cluster import ContainerRole
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.interfaces.plan_document import render_plan_json
from tests.builders import NOW, make_container, make_node, make_pod, make_snapshot, make_statistic_for, make_table

FULL = Policy(mode=Mode.FULL)


def document(pods, *rows, nodes=None):
    plans = decide_node_plans(make_snapshot(pods, nodes=nodes), make_table(*rows), FULL, NOW)
    return json.loads(b"".join(render_plan_json(plans)))


def test_a_node_has_exactly_the_keys_of_the_contract():
    pod = make_pod(containers=[make_container(memory_limit_mib=512)])
    held = make_pod("held", workload=None)
    [node] = document([pod, held], make_statistic_for(pod))["nodes"]
    assert node == {
        "node": "n1",
        "fits": True,
        "reason": None,
        "available": {"cpuMillicores": 3900, "memoryBytes": 16256 * MEBIBYTE},
        "evict": [],
        "targets": [
            {
                "namespace": "shop",
                "pod": "web-1",
                "container": "app",
                "cpuMillicores": 200,
                "memoryBytes": 100 * MEBIBYTE,
                "memoryLimitBytes": 200 * MEBIBYTE,
            }
        ],
        "resize": [
            {
                "namespace": "shop",
                "pod": "web-1",
                "patch": {
                    "metadata": {"uid": "uid-shop-web-1"},
                    "spec": {
                        "containers": [
                            {
                                "name": "app",
                                "resources": {
                                    "requests": {"cpu": "200m", "memory": "100Mi"},
                                    "limits": {"memory": "200Mi"},
                                },
                            }
                        ]
                    },
                },
            }
        ],
        "hold": [{"namespace": "shop", "pod": "held", "reason": "no-controller"}],
    }


def test_nodes_and_lists_are_sorted():
    pods = [
        make_pod(f"web-{pod}", namespace=namespace, node=node)
        for namespace, pod, node in (("b", 2, "n2"), ("b", 1, "n2"), ("a", 9, "n2"), ("a", 1, "n1"))
    ]
    nodes = document(pods, *(make_statistic_for(pod) for pod in pods))["nodes"]
    assert [node["node"] for node in nodes] == ["n1", "n2"]
    names = [("a", "web-9"), ("b", "web-1"), ("b", "web-2")]
    assert [(one["namespace"], one["pod"]) for one in nodes[1]["targets"]] == names
    assert [(one["namespace"], one["pod"]) for one in nodes[1]["resize"]] == names


def test_containers_are_sorted_by_name_and_sidecars_are_patched_under_init_containers():
    pod = make_pod(
        containers=[make_container("zebra", role=ContainerRole.SIDECAR), make_container("main"), make_container("aux")]
    )
    [node] = document([pod], *(make_statistic_for(pod, name) for name in ("zebra", "main", "aux")))["nodes"]
    assert [target["container"] for target in node["targets"]] == ["aux", "main", "zebra"]
    patch = node["resize"][0]["patch"]["spec"]
    assert [container["name"] for container in patch["initContainers"]] == ["zebra"]
    assert [container["name"] for container in patch["containers"]] == ["main", "aux"]


def test_evictions_keep_their_marking_order_and_say_on_whose_account():
    pods = [make_pod(name) for name in ("a", "b", "c")]
    rows = [
        make_statistic_for(pod, cpu_base=300, cpu_peak=peak) for pod, peak in zip(pods, (400, 900, 600), strict=True)
    ]
    [node] = document(pods, *rows, nodes=[make_node(cpu=450)])["nodes"]
    assert node["evict"] == [
        {"namespace": "shop", "pod": "b", "ranking": "low", "resource": "cpu"},
        {"namespace": "shop", "pod": "c", "ranking": "low", "resource": "cpu"},
    ]
    assert [target["pod"] for target in node["targets"]] == ["a"]


def test_a_node_that_cannot_fit_says_so():
    pod = make_pod("agent", workload="DaemonSet/agent", identity="n1")
    [node] = document([pod], make_statistic_for(pod, cpu_base=900), nodes=[make_node(cpu=500)])["nodes"]
    assert (node["fits"], node["reason"], node["evict"]) == (False, "overcommitted", [])


def test_an_absent_limit_is_null():
    pod = make_pod(annotations={"cruise.io/resources": "cpu"})
    [node] = document([pod], make_statistic_for(pod))["nodes"]
    assert node["targets"][0]["memoryLimitBytes"] is None


def test_without_nodes_the_document_is_empty_and_whole():
    assert b"".join(render_plan_json([])) == b'{"nodes":[]}\n'


def test_a_large_document_is_sent_in_pieces():
    pods = [make_pod(f"web-{index}", node=f"n{index % 500}") for index in range(4000)]
    plans = decide_node_plans(make_snapshot(pods), make_table(*(make_statistic_for(pod) for pod in pods)), FULL, NOW)
    pieces = list(render_plan_json(plans))
    assert len(pieces) > 1
    assert len(json.loads(b"".join(pieces))["nodes"]) == 500
