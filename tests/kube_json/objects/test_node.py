"""Nodes from wire JSON."""

import msgspec
import pytest

from cruise.domain.cluster import Node
from cruise.domain.resources import Resources
from cruise.domain.scheduling import Taint, TaintEffect
from cruise.errors import BadInputError
from cruise.kube_json.objects.node import decode_node
from cruise.kube_json.wire.object_json import NodeObject
from tests.builders import GIBIBYTE, Json, make_node_json


def decode(document: Json) -> Node:
    return decode_node(msgspec.convert(document, NodeObject))


def test_a_plain_node():
    node = decode(make_node_json("n1", cpu="7910m", memory="32Gi", pods="58", labels={"zone": "a"}))
    assert node.name == "n1"
    assert node.allocatable == Resources(7910, 32 * GIBIBYTE)
    assert node.allocatable_pods == 58
    assert node.labels["zone"] == "a"
    assert node.kubelet_version == (1, 34)
    assert (node.ready, node.unschedulable, node.taints) == (True, False, ())


def test_what_the_machine_has_is_more_than_pods_may_take():
    document = make_node_json(cpu="7910m")
    assert (
        decode(document | {"status": document["status"] | {"capacity": {"cpu": "8"}}}).cpu_capacity_millicores == 8000
    )
    document["status"].pop("capacity", None)
    assert decode(document).cpu_capacity_millicores is None


def test_what_a_node_offers_next_tos():
    more = {"nvidia.com/gpu": "4", "ephemeral-storage": "1Ti", "hugepages-2Mi": "0", "attachable-volumes-csi-x": "25"}
    assert decode(make_node_json(allocatable=more)).allocatable_extended == {
        "ephemeral-storage": 1 << 40,
        "hugepages-2Mi": 0,
        "nvidia.com/gpu": 4,
    }


def test_a_node_with_a_deletion_timestamp_takes_no_pods():
    document = make_node_json()
    assert decode(document).accepts_pods
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    node = decode(document)
    assert node.ready and node.deleting and not node.accepts_pods


def test_a_cordoned_and_tainted_node():
    taints = [{"key": "gpu", "effect": "NoSchedule"}, {"key": "gone", "value": "1", "effect": "NoExecute"}]
    node = decode(make_node_json(unschedulable=True, taints=taints))
    assert node.unschedulable
    assert node.taints == (Taint("gpu", "", TaintEffect.NO_SCHEDULE), Taint("gone", "1", TaintEffect.NO_EXECUTE))


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_ready_is_what_the_condition_says(status, ready):
    document = make_node_json()
    document["status"]["conditions"] = [
        {"type": "DiskPressure", "status": "False"},
        {"type": "Ready", "status": status},
    ]
    assert decode(document).ready is ready


@pytest.mark.parametrize(
    ("text", "version"),
    [("v1.33.4-gke.1001", (1, 33)), ("v1.9.0", (1, 9)), ("1.35.0+k3s1", (1, 35)), ("unknown", None), ("", None)],
)
def test_the_kubelets_version(text, version):
    assert decode(make_node_json(version=text)).kubelet_version == version


def test_a_node_that_does_not_report_has_its_capacity_or_nothing():
    document = make_node_json(cpu="4")
    del document["status"]["allocatable"]
    assert decode(document).allocatable.cpu_millicores == 4000
    del document["status"]
    assert decode(document).allocatable == Resources(0, 0)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            make_node_json(cpu="four"),
            'Node n1: status.allocatable.cpu: "four" is not a quantity; write e.g. 500m, 2 or 1.5Gi',
        ),
        (
            make_node_json(memory="-1Gi"),
            'Node n1: status.allocatable.memory: "-1Gi" is negative; write an amount of 0 or more',
        ),
        (
            make_node_json(taints=[{"key": "k", "effect": "Never"}]),
            'Node n1: spec.taints: "Never" is not an effect; write one of NoSchedule, PreferNoSchedule, NoExecute',
        ),
    ],
)
def test_an_error_is_one_line_with_place_and_fix(document, message):
    with pytest.raises(BadInputError) as refused:
        decode(document)
    assert str(refused.value) == message
