"""Whole snapshots: the combination of many objects, and messages about invalid files."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.cluster import ClusterSnapshot, QosClass, WorkloadRef
from cruise.errors import BadInputError
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.builders import (
    NOW,
    Json,
    make_autoscaler_json,
    make_budget_json,
    make_container_json,
    make_deployment_json,
    make_limit_range_json,
    make_list_json,
    make_namespace_json,
    make_node_json,
    make_pod_json,
    make_replica_set_json,
    make_usage_json,
    make_workload_json,
    stamp,
)

N1 = make_node_json("n1")
HOW = "print it with: kubectl get no,po,rs,deploy,sts,ds,job,cj,pdb,hpa,limits,quota,ns -Ao json"


def read(document: Json | bytes, size: int = 1000, **layout: Any) -> ClusterSnapshot:
    text = document if isinstance(document, bytes) else json.dumps(document, **layout).encode()
    return read_snapshot((text[start : start + size] for start in range(0, len(text), size)), "cluster.json")


def read_items(*items: Json) -> ClusterSnapshot:
    return read(make_list_json(*items))


def error_line(document: Json | bytes, size: int = 1000) -> str:
    with pytest.raises(BadInputError) as refused:
        read(document, size)
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith("cluster.json: ")
    return message.removeprefix("cluster.json: ")


EVERYTHING = [
    make_node_json("n2"),
    N1,
    make_pod_json("web-7d9f8b6c5d-b", node="n2"),
    make_pod_json("web-7d9f8b6c5d-a"),
    make_pod_json("api-1", "app", node=None),
    make_replica_set_json(),
    make_deployment_json(),
    make_workload_json("StatefulSet", "db"),
    make_workload_json("DaemonSet", "agent"),
    make_workload_json("CronJob", "nightly", jobTemplate={}),
    make_workload_json("Job", "nightly-1", owner="CronJob/nightly"),
    make_budget_json(selector={}),
    make_autoscaler_json(),
    {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}},
    },
    make_limit_range_json({"type": "Container", "min": {"cpu": "1m"}}),
    make_limit_range_json({"type": "Pod", "max": {"cpu": "9"}}, name="more"),
    make_namespace_json("shop", {"cruise.io/mode": "resize", "x": "y"}),
    {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"cpu": "wrong"}}},
    {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": "unlike any other"},
]


def test_everything_is_put_together_and_sorted():
    snapshot = read_items(*EVERYTHING)
    assert [node.name for node in snapshot.nodes] == ["n1", "n2"]
    assert [(pod.namespace, pod.name) for pod in snapshot.pods] == [
        ("app", "api-1"),
        ("shop", "web-7d9f8b6c5d-a"),
        ("shop", "web-7d9f8b6c5d-b"),
    ]
    # Neither the ReplicaSet nor the Job is a workload: a Deployment and a CronJob control them.
    assert sorted(str(ref) for _, ref in snapshot.workloads) == [
        "CronJob/nightly",
        "DaemonSet/agent",
        "Deployment/web",
        "StatefulSet/db",
    ]
    assert [budget.name for budget in snapshot.budgets] == ["web"]
    assert [autoscaler.name for autoscaler in snapshot.autoscalers] == ["web"]
    [vertical] = snapshot.vertical_autoscalers
    assert (vertical.name, str(vertical.target), vertical.changes_pods) == ("db", "StatefulSet/db", True)
    assert [item.is_for_pod for item in snapshot.limit_ranges["shop"]] == [False, True]
    assert snapshot.namespace_annotations == {"shop": {"cruise.io/mode": "resize"}}


@given(
    order=st.permutations(range(len(EVERYTHING))),
    size=st.sampled_from([40, 700, 1 << 20]),
    layout=st.sampled_from([{"indent": 4}, {"separators": (",", ":")}, {}]),
)
def test_neither_order_nor_layout_nor_chunks_change_a_snapshot(order, size, layout):
    shuffled = read(make_list_json(*(EVERYTHING[index] for index in order)), size, **layout)
    # Limit ranges of one namespace keep their order, which means nothing.
    expected, found = read_items(*EVERYTHING), shuffled
    assert sorted(map(repr, found.limit_ranges["shop"])) == sorted(map(repr, expected.limit_ranges["shop"]))
    for part in (
        "nodes",
        "pods",
        "workloads",
        "budgets",
        "autoscalers",
        "vertical_autoscalers",
        "namespace_annotations",
        "oom_kills",
    ):
        assert getattr(found, part) == getattr(expected, part)


def test_an_empty_list_is_an_empty_cluster():
    assert read_items() == ClusterSnapshot()


@pytest.mark.parametrize("with_kind", [True, False])
def test_a_list_of_one_kind_is_read_with_or_without_the_items_kind(with_kind):
    pod = make_pod_json(node=None)
    if not with_kind:
        del pod["kind"], pod["apiVersion"]
    snapshot = read({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [pod]})
    assert [pod.name for pod in snapshot.pods] == ["web-7d9f8b6c5d-x2x4z"]
    assert read({"kind": "EventList", "items": [{"reason": "Started"}]}) == ClusterSnapshot()


# ---- facts from other objects ----


@pytest.mark.parametrize("pod_first", [True, False])
def test_the_owner_chain_is_followed_in_any_order_of_its_links(pod_first):
    items = [
        make_pod_json("a", owner="ReplicaSet/web-1"),
        make_pod_json("b", owner="Job/nightly-1"),
        make_pod_json("c", owner="ReplicaSet/alone"),
    ]
    links = [
        make_replica_set_json("web-1", owner="Rollout/web"),
        make_workload_json("Job", "nightly-1", owner="CronJob/nightly"),
        make_replica_set_json("alone", owner=None),
    ]
    snapshot = read_items(N1, *(items + links if pod_first else links + items))
    assert [str(pod.workload) for pod in snapshot.pods] == ["Rollout/web", "CronJob/nightly", "ReplicaSet/alone"]
    assert [ref for _, ref in snapshot.workloads] == [WorkloadRef("ReplicaSet", "alone")]


def test_a_pod_on_a_windows_node_is_a_windows_pod():
    windows = make_node_json("w1", labels={"kubernetes.io/os": "windows"})
    snapshot = read_items(make_pod_json("a", node="w1"), windows, N1, make_pod_json("b"))
    assert [pod.runs_on_windows for pod in snapshot.pods] == [True, False]


def test_finished_pods_on_a_removed_node_are_left_out():
    going = make_pod_json("going", node="gone", metadata={"deletionTimestamp": stamp(NOW)})
    snapshot = read_items(N1, make_pod_json("done", node="gone", phase="Succeeded"), going, make_pod_json("here"))
    assert [pod.name for pod in snapshot.pods] == ["here"]


def test_oom_kills_are_in_the_order_of_the_pods_with_the_final_workload():
    def killed(name: str) -> Json:
        state = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": stamp(NOW)}}
        return make_pod_json(name, owner="ReplicaSet/web-1", container_statuses=[{"name": "app", "lastState": state}])

    snapshot = read_items(killed("b"), killed("a"), make_replica_set_json("web-1"), N1)
    assert [(kill.pod, str(kill.workload)) for kill in snapshot.oom_kills] == [
        ("a", "Deployment/web"),
        ("b", "Deployment/web"),
    ]


def test_an_oom_kill_is_kept_after_the_node_of_its_pod_is_removed():
    state = {"terminated": {"reason": "OOMKilled", "exitCode": 1, "finishedAt": stamp(NOW)}}
    ended = make_pod_json(
        "report-29-x",
        node="gone",
        phase="Failed",
        owner="Job/report-29",
        container_statuses=[{"name": "app", "state": state}],
    )
    snapshot = read_items(ended, make_workload_json("Job", "report-29", owner="CronJob/report"), N1)
    assert snapshot.pods == ()
    assert [(kill.pod, str(kill.workload)) for kill in snapshot.oom_kills] == [("report-29-x", "CronJob/report")]


def test_absent_qos_is_computed():
    assert read_items(N1, make_pod_json(containers=[{"name": "app"}])).pods[0].qos is QosClass.BEST_EFFORT


# ---- bad files ----

WHOLE = json.dumps(make_list_json(N1, make_pod_json("web-1"), make_pod_json("web-2")), indent=4).encode()


def test_a_truncated_file_is_reported_with_its_place_and_after_what():
    assert error_line(WHOLE[:-200]).startswith(f"truncated: the text ends inside the list (byte {len(WHOLE) - 200}, ")
    inside_web_2 = WHOLE.index(b'"web-2"') + 20
    for size in (64, 1000, 1 << 20):
        assert error_line(WHOLE[:inside_web_2], size) == (
            f"truncated: the text ends inside the list (byte {inside_web_2}, after Pod shop/web-1); {HOW}"
        )
    before_items = WHOLE.index(b'"items"') - 3
    assert error_line(WHOLE[:before_items]) == f"truncated: the text ends before the list (byte {before_items}); {HOW}"


def test_a_fault_inside_an_item_is_reported_with_its_place_and_after_what():
    at = WHOLE.index(b'"web-2"')
    broken = WHOLE[:at] + b"web-2" + WHOLE[at + 7 :]
    assert error_line(broken) == f"not JSON: expecting value (byte {at}, after Pod shop/web-1); {HOW}"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"", f"empty (byte 0); {HOW}"),
        (b"NAME  READY\nweb-1 1/1", f"not a JSON object (byte 0); {HOW}"),
        (b"\x00\x01\x02\x03", f"not a JSON object (byte 0); {HOW}"),
        (make_pod_json(), f"is a Pod, not a List; {HOW}"),
        (make_usage_json(), f"is a UsageStatistics, not a List; {HOW}"),
        ({"kind": 3, "items": []}, f"is a 3, not a List; {HOW}"),
        ({"items": []}, f"is not a List: it has no kind; {HOW}"),
        ({"a": 1}, f"no list: it has no items (byte 0); {HOW}"),
        ({"kind": "List", "items": {}}, f"no list: it has no items (byte 0); {HOW}"),
        (b'{"kind":"List","items":[{"kind":"Pod"} {"kind":"Pod"}]}', None),
        (b'{"kind":"List","items":[{"kind":"Namespace","metadata":{"name":"\xff"}}]}', None),
    ],
)
def test_what_is_no_list_is_rejected(document, message):
    refused = error_line(document)
    assert message is None or refused == message


def test_text_that_is_not_utf8_is_reported_with_its_place():
    text = b'{"kind":"List","items":[{"kind":"Namespace","metadata":{"name":"\xff"}}]}'
    assert error_line(text) == f"not UTF-8 text (byte {text.index(0xFF)}); {HOW}"


def test_a_missing_comma_is_reported_with_its_place():
    text = b'{"kind":"List","items":[{"kind":"Foo"} {"kind":"Pod"}]}'
    assert error_line(text) == f"not JSON: expected a comma (byte 39); {HOW}"


def test_nesting_without_end_is_rejected():
    text = b'{"kind":"List","items":[{"kind":"Foo","a":' + b"[" * 200_000 + b"]" * 200_000 + b"}]}"
    assert error_line(text).startswith("nested too deeply (byte ")


def test_a_number_with_thousands_of_digits_is_rejected():
    text = b'{"kind":"List","items":[{"kind":"Foo","a":' + b"1" * 6000 + b"}]}"
    assert error_line(text) == f"a number with too many digits (byte 24); {HOW}"
    for size in (64, 1 << 20):
        assert error_line(b'{"kind":' + b"1" * 6000 + b"}", size) == f"a number with too many digits (byte 8); {HOW}"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (
            [N1, make_pod_json("web-1", containers=[make_container_json(cpu="1.5Gx")])],
            'Pod shop/web-1: spec.containers[0].resources.requests.cpu: "1.5Gx" is not a quantity; '
            "write e.g. 500m, 2 or 1.5Gi",
        ),
        (
            [N1, make_pod_json("web-1", containers=[make_container_json(memory=float("nan"))])],
            'Pod shop/web-1: spec.containers[0].resources.requests.memory: "nan" is not a quantity; '
            "write e.g. 500m, 2 or 1.5Gi",
        ),
        (
            [N1, make_pod_json("web-1", containers=[make_container_json(cpu="-100m")])],
            'Pod shop/web-1: spec.containers[0].resources.requests.cpu: "-100m" is negative; '
            "write an amount of 0 or more",
        ),
        (
            [make_pod_json("web-1")],
            "Pod shop/web-1: is on node n1, and no node is listed; print nodes and pods together",
        ),
        (
            [N1, make_pod_json("web-1"), make_pod_json("web-2"), make_pod_json("web-1")],
            "Pod shop/web-1: is in the list twice; remove one",
        ),
        ([N1, make_node_json("n2"), N1], "Node n1: is in the list twice; remove one"),
        ([make_pod_json("")], "Pod in namespace shop: has no name; add metadata.name"),
        ([{"kind": "Node", "metadata": {}}], "Node: has no name; add metadata.name"),
        (
            [make_pod_json("web-1", containers=[make_container_json(), make_container_json()])],
            'Pod shop/web-1: spec: two containers have the name "app"; rename one',
        ),
        (
            [N1, make_pod_json("web-1", spec={"nodeName": 7})],
            "Pod shop/web-1: spec.nodeName: is a whole number instead of a text; write a text",
        ),
        (
            [N1, make_pod_json("web-1", metadata={"name": "web-1", "namespace": "shop", "deletionTimestamp": 7})],
            "Pod shop/web-1: metadata.deletionTimestamp: is a whole number instead of a time such as "
            "2026-01-01T00:00:00Z; write a time such as 2026-01-01T00:00:00Z",
        ),
        *(
            (
                [N1, make_pod_json("web-1", spec={"priority": priority})],
                "Pod shop/web-1: spec.priority: is out of range; write a whole number of 32 bits",
            )
            for priority in (1 << 31, -(1 << 31) - 1, 10**30)
        ),
        ([{"metadata": {"name": "x"}}], f"an object without kind x: has no kind; {HOW}"),
        ([{"kind": "Pod"}], "Pod without a name: has no metadata; add it"),
        ([make_pod_json("we\nb\x1b[31m", spec={"nodeName": 7})], None),
    ],
)
def test_a_bad_object_is_rejected_by_name(items, message):
    refused = error_line(make_list_json(*items))
    assert message is None or refused == message
