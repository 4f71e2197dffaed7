"""Detection of node autoscalers from their Deployments."""

import json

import pytest

from cruise.domain.autoscalers import NodeAutoscalerKind
from cruise.domain.policy import NodeAutoscalerSetting
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.builders import make_workload_json

KARPENTER, CLUSTER_AUTOSCALER = NodeAutoscalerKind.KARPENTER, NodeAutoscalerKind.CLUSTER_AUTOSCALER


def seen(*documents: object) -> NodeAutoscalerKind | None:
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": documents}).encode()
    return read_snapshot([text], "cluster.json").node_autoscaler


def deployment(name: str, namespace: str = "kube-system", replicas: int = 1, label: str = "") -> dict[str, object]:
    document = make_workload_json("Deployment", name, namespace, replicas=replicas)
    document["metadata"]["labels"] = {"app.kubernetes.io/name": label} if label else {}
    return document


def node(**labels: str) -> object:
    named = {name.replace("__", "/").replace("_", "."): value for name, value in labels.items()}
    return {"kind": "Node", "metadata": {"name": "n1", "labels": named}}


def config_map(namespace: str = "kube-system") -> object:
    return {"kind": "ConfigMap", "metadata": {"name": "cluster-autoscaler-status", "namespace": namespace}}


def node_pool(group: str) -> object:
    return {"kind": "NodePool", "apiVersion": f"{group}/v1", "metadata": {"name": "default"}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (node(karpenter_sh__nodepool="default"), KARPENTER),
        ({"kind": "Node", "metadata": {"name": "n1", "labels": {"karpenter.sh/provisioner-name": "x"}}}, KARPENTER),
        (node(kubernetes_io__os="linux"), None),
        (node_pool("karpenter.sh"), KARPENTER),
        (node_pool("hypershift.openshift.io"), None),
        (deployment("karpenter", "karpenter"), KARPENTER),
        (deployment("controller", label="karpenter"), KARPENTER),
        (deployment("cluster-autoscaler"), CLUSTER_AUTOSCALER),
        (deployment("scaler", label="aws-cluster-autoscaler"), CLUSTER_AUTOSCALER),
        (deployment("ca-aws-cluster-autoscaler", "cluster-autoscaler"), CLUSTER_AUTOSCALER),
        (config_map(), CLUSTER_AUTOSCALER),
        # Scaled to zero it adds no node; and objects that tenants may create say nothing about the cluster's nodes.
        (deployment("cluster-autoscaler", replicas=0), None),
        (deployment("cluster-autoscaler", "shop"), None),
        (deployment("karpenter", "shop", label="karpenter"), None),
        (config_map("shop"), None),
        (deployment("coredns"), None),
    ],
)
def test_a_trace_of_a_node_autoscaler(document, expected):
    assert seen(document) is expected


def test_karpenter_counts_where_both_are_seen():
    assert seen(config_map(), deployment("karpenter", "karpenter")) is KARPENTER
    assert seen(deployment("cluster-autoscaler"), node(karpenter_sh__nodepool="default")) is KARPENTER


@pytest.mark.parametrize("one", [None, *NodeAutoscalerKind])
def test_what_is_stated_counts_more_than_what_is_seen(one):
    assert NodeAutoscalerSetting.DETECT.resolve(one) is one
    assert NodeAutoscalerSetting.NONE.resolve(one) is None
    assert NodeAutoscalerSetting.KARPENTER.resolve(one) is KARPENTER
    assert NodeAutoscalerSetting.CLUSTER_AUTOSCALER.resolve(one) is CLUSTER_AUTOSCALER
