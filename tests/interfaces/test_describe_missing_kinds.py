"""Checks that are omitted because a file lacks kinds of objects are named in one line."""

import json

import pytest

from cruise.interfaces.reasons import describe_missing_kinds
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.builders import Json, make_list_json, make_node_json, make_pod_json, make_snapshot

OTHERS: list[Json] = [
    {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"},
    {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "x"}},
    },
    {"apiVersion": "v1", "kind": "LimitRange"},
    {"apiVersion": "v1", "kind": "ResourceQuota"},
    {"apiVersion": "v1", "kind": "Namespace"},
]


def words(*items: Json) -> str:
    named = [
        {"metadata": {"name": f"one-{at}", "namespace": "shop"}, "spec": {}} | item for at, item in enumerate(items)
    ]
    return describe_missing_kinds(read_snapshot([json.dumps(make_list_json(*named)).encode()], "c.json"), "c.json")


def test_a_file_with_only_nodes_and_pods_lists_what_is_not_checked():
    assert words(make_node_json(), make_pod_json(owner="ReplicaSet/web-5d")) == (
        "c.json has no poddisruptionbudgets, horizontalpodautoscalers, limitranges, resourcequotas, namespaces, "
        "replicasets, deployments: disruption budgets, HPAs, LimitRanges, quotas, annotations and labels of "
        "namespaces, annotations and templates of workloads are not checked; add them to the file if there are any"
    )


@pytest.mark.parametrize("at", range(len(OTHERS)))
def test_only_what_is_missing_is_named(at):
    listed = [one for number, one in enumerate(OTHERS) if number != at]
    told = words(make_node_json(), *listed)
    assert told.count(",") <= 1
    assert f"{OTHERS[at]['kind'].lower()}s" in told


def test_nothing_is_said_of_a_file_that_has_all_or_of_a_cluster_that_is_followed():
    assert words(make_node_json(), *OTHERS) == ""
    assert describe_missing_kinds(make_snapshot(), "c.json") == ""
