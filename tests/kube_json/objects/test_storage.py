"""Claims and the objects that resolve them, from JSON as kubectl prints it."""

import json
from dataclasses import replace

import pytest

from cruise.domain.scheduling import (
    LabelRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaim,
    SelectorOperator,
    StorageAndNamespaces,
)
from cruise.errors import BadInputError
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.builders import Json, make_list_json, make_metadata, make_namespace_json, make_pod_json
from tests.storage_builders import (
    DRIVER,
    make_attachment_json,
    make_claim_json,
    make_drivers_json,
    make_storage_class_json,
    make_volume_json,
)

ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


def read(*items: Json) -> StorageAndNamespaces:
    return read_snapshot([json.dumps(make_list_json(*items)).encode()], "f.json").storage_and_namespaces


def claim_of(*items: Json) -> PersistentVolumeClaim | None:
    return read(*items, make_drivers_json(ebs_csi_aws_com=25)).claims.get(("shop", "data"))


def within(key: str, *values: str) -> LabelRequirement:
    return LabelRequirement(key, SelectorOperator.IN, values)


def test_a_bound_claim_is_usable_where_its_volume_is():
    affinity = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]}
    }
    volume = make_volume_json(csi={"driver": DRIVER, "volumeHandle": "vol-1"}, nodeAffinity=affinity)
    assert claim_of(volume, make_claim_json(volume="pv-1", storage="fast")) == PersistentVolumeClaim(
        "shop", "data", terms=(NodeSelectorTerm((within(ZONE, "a"),)),), driver=DRIVER, volume="vol-1", single_node=True
    )


def test_a_volume_that_is_no_drivers_counts_against_no_limit():
    assert claim_of(make_volume_json(nfs={"path": "/"}), make_claim_json(volume="pv-1")) == PersistentVolumeClaim(
        "shop", "data", volume="pv-1", single_node=True
    )


EBS: Json = {"awsElasticBlockStore": {"volumeID": "aws://a/vol-7"}}
BEFORE_CSI = "kubernetes.io/aws-ebs"


def claim_where_migrated(
    *items: Json, migrated: str = f"kubernetes.io/azure-disk,{BEFORE_CSI}"
) -> PersistentVolumeClaim | None:
    return read(*items, make_drivers_json(migrated=migrated, ebs_csi_aws_com=25)).claims.get(("shop", "data"))


@pytest.mark.parametrize(("migrated", "driver"), [(BEFORE_CSI, DRIVER), ("kubernetes.io/gce-pd", None), ("", None)])
def test_a_volume_from_before_csi_counts_for_the_driver_that_its_plugin_is_migrated_to(migrated, driver):
    claim = claim_where_migrated(make_volume_json(**EBS), make_claim_json(volume="pv-1"), migrated=migrated)
    assert claim is not None
    assert (claim.driver, claim.volume) == (driver, "aws://a/vol-7")
    waiting = claim_where_migrated(
        make_storage_class_json(provisioner=BEFORE_CSI), make_claim_json(storage="fast"), migrated=migrated
    )
    assert waiting is not None
    assert waiting.driver == driver


CSI_ZONE = "topology.ebs.csi.aws.com/zone"


def in_zones(key: str, *zones: str) -> Json:
    expression = {"key": key, "operator": "In", "values": list(zones)}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


@pytest.mark.parametrize(
    ("volume", "node", "admitted"),
    [
        (make_volume_json(**EBS, **in_zones(ZONE, "a")), {CSI_ZONE: "a", ZONE: "a"}, True),
        (make_volume_json(**EBS, **in_zones(ZONE, "a")), {ZONE: "a"}, False),
        (make_volume_json(**EBS, **in_zones(OLD_ZONE, "a")), {CSI_ZONE: "a"}, True),
        (make_volume_json(**EBS, **in_zones(CSI_ZONE, "a")), {CSI_ZONE: "a"}, True),
        (make_volume_json(labels={ZONE: "a__b"}, **EBS), {CSI_ZONE: "b", ZONE: "b"}, True),
        (make_volume_json(labels={ZONE: "a__b"}, **EBS), {ZONE: "b"}, False),
        (make_volume_json(labels={OLD_ZONE: "a"}, **EBS), {CSI_ZONE: "a", ZONE: "a"}, True),
        (make_volume_json(labels={OLD_ZONE: "a"}, **EBS), {CSI_ZONE: "b", ZONE: "a"}, False),
        (make_volume_json(labels={ZONE: "a__"}, **EBS), {}, True),
        (make_volume_json(labels={ZONE: "a"}, **EBS, **in_zones(ZONE, "b")), {CSI_ZONE: "b", ZONE: "b"}, False),
        (make_volume_json(azureDisk={"diskName": "d"}, **in_zones(ZONE, "a")), {ZONE: "a"}, True),
    ],
)
def test_a_volume_of_a_migrated_plugin_uses_its_drivers_zones(volume, node, admitted):
    claim = claim_where_migrated(volume, make_claim_json(volume="pv-1"))
    assert claim is not None
    assert (claim.terms is None or any(term.matches("n1", node) for term in claim.terms)) is admitted


def test_a_volume_of_a_plugin_that_some_nodes_have_migrated_is_unsupported():
    nodes = [make_drivers_json("n1", migrated=BEFORE_CSI, ebs_csi_aws_com=25), make_drivers_json("n2")]
    found = read(make_volume_json(**EBS), make_claim_json(volume="pv-1"), *nodes)
    assert found.unsupported == {
        ("shop", "data"): "volume pv-1 is of kubernetes.io/aws-ebs, which is migrated to CSI only on some nodes"
    }
    of_class = read(make_storage_class_json(provisioner=BEFORE_CSI), make_claim_json(storage="fast"), *nodes)
    assert of_class.unsupported.keys() == {("shop", "data")}


def test_attachments_are_counted_by_node_driver_and_volume():
    volumes = [make_volume_json("pv-1"), make_volume_json("pv-2"), make_volume_json("old", **EBS)]
    attachments = [make_attachment_json(name) for name in ("pv-1", "old", "gone")]
    others = [make_attachment_json("pv-2", "n2"), make_attachment_json("pv-2", "n3", source={}, attacher="")]
    assert read(*volumes, *attachments, *others).attached == {
        "n1": frozenset({(DRIVER, "vol-pv-1")}),
        "n2": frozenset({(DRIVER, "vol-pv-2")}),
    }


def test_a_claim_knows_the_pod_that_it_was_made_with():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": "uid-7", "controller": True}
    metadata = make_metadata("data", ownerReferences=[owner])
    claim = claim_of(make_storage_class_json(), make_claim_json(storage="fast", metadata=metadata))
    assert claim is not None
    assert claim.controller == "uid-7"
    assert claim.replacement_claim is not None
    assert claim.replacement_claim.controller == ""


@pytest.mark.parametrize(
    ("labels", "node", "admitted"),
    [
        ({ZONE: "a__b"}, {ZONE: "b"}, True),
        ({ZONE: "a__b"}, {ZONE: "c"}, False),
        ({ZONE: "a"}, {}, True),
        ({ZONE: "a"}, {"topology.kubernetes.io/region": "a"}, False),
        ({OLD_ZONE: "a"}, {OLD_ZONE: "a"}, True),
        ({OLD_ZONE: "a"}, {ZONE: "a"}, True),
        ({OLD_ZONE: "a"}, {OLD_ZONE: "b", ZONE: "a"}, False),
        ({ZONE: "a"}, {OLD_ZONE: "a"}, False),
        ({ZONE: "a", "topology.kubernetes.io/region": "r"}, {ZONE: "a"}, False),
        ({ZONE: "a", "topology.kubernetes.io/region": "r"}, {ZONE: "a", "topology.kubernetes.io/region": "r"}, True),
    ],
)
def test_a_volumes_zone_labels_bind_it_as_kube_scheduler_reads_them(labels, node, admitted):
    claim = claim_of(make_volume_json(labels=labels), make_claim_json(volume="pv-1"))
    assert claim is not None
    assert claim.terms is not None
    assert any(term.matches("n1", node) for term in claim.terms) is admitted


def test_a_pending_claim_is_provisioned_where_its_class_permits():
    topologies = [
        {"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]},
        {"matchLabelExpressions": None},
    ]
    storage = make_storage_class_json(allowedTopologies=topologies)
    claim = claim_of(storage, make_claim_json(storage="fast"))
    assert claim is not None
    assert replace(claim, replacement_claim=None) == PersistentVolumeClaim(
        "shop",
        "data",
        bound=False,
        waits_for_first_consumer=True,
        terms=(NodeSelectorTerm((within(ZONE, "a", "b"),)),),
        driver=DRIVER,
        volume="shop/data",
        single_node=True,
    )
    assert claim.replacement_claim == replace(claim, replacement_claim=None)


def test_a_claim_with_a_selected_node_is_placed_there():
    chosen = {"volume.kubernetes.io/selected-node": "n7"}
    claim = claim_of(make_storage_class_json(), make_claim_json(storage="fast", annotations=chosen))
    assert claim is not None
    assert claim.terms == (NodeSelectorTerm(fields=(within("metadata.name", "n7"),)),)


@pytest.mark.parametrize(
    "items",
    [
        [make_storage_class_json(volumeBindingMode="Immediate"), make_claim_json(storage="fast")],
        [make_storage_class_json(volumeBindingMode=None), make_claim_json(storage="fast")],
        [make_claim_json(storage="")],
        [make_claim_json()],
        [make_volume_json(), make_claim_json(volume="pv-1", status={"phase": "Lost"})],
        [
            make_storage_class_json(),
            make_claim_json(storage="fast", metadata=make_metadata("data", deletionTimestamp="2026-01-01T00:00:00Z")),
        ],
        [make_volume_json(), make_claim_json(spec={"volumeName": "pv-1"})],
    ],
)
def test_a_claim_that_no_driver_serves_keeps_its_pod_pending(items):
    claim = claim_of(*items)
    assert claim is not None
    assert (claim.bound, claim.waits_for_first_consumer) == (False, False)


@pytest.mark.parametrize(
    "items",
    [
        [],
        [make_claim_json(volume="pv-1")],
        [make_claim_json(storage="fast")],
        [make_storage_class_json(provisioner="kubernetes.io/no-provisioner"), make_claim_json(storage="fast")],
    ],
)
def test_a_claim_of_which_not_all_is_known_is_left_out(items):
    assert claim_of(*items) is None


def test_without_any_nodes_limits_a_drivers_claims_are_left_out():
    items = [make_volume_json(), make_claim_json(volume="pv-1")]
    assert read(*items).claims == {}
    assert read(*items, make_drivers_json()).claims.keys() == {("shop", "data")}
    assert read(make_volume_json(nfs={}), items[1]).claims.keys() == {("shop", "data")}


def test_a_claim_for_one_pod_alone():
    claim = claim_of(make_volume_json(), make_claim_json(volume="pv-1", spec={"accessModes": ["ReadWriteOncePod"]}))
    assert claim is not None
    assert claim.single_pod


def test_attach_limits_are_those_that_drivers_state():
    limits = read(make_drivers_json("n1", a_csi=3, b_csi=None), make_drivers_json("n2", b_csi=None)).attach_limits
    assert limits == {"n1": {"a.csi": 3}}


def test_namespaces_have_their_labels_and_their_name():
    namespace = make_namespace_json("bank")
    namespace["metadata"]["labels"] = {"team": "a"}
    labels = read(namespace, make_pod_json(node=None)).namespace_labels
    assert labels == {
        "bank": {"team": "a", "kubernetes.io/metadata.name": "bank"},
        "shop": {"kubernetes.io/metadata.name": "shop"},
    }


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (
            make_drivers_json("n1", a=-1),
            "CSINode n1: spec.drivers[0].allocatable.count: -1 is negative; write 0 or more",
        ),
        (
            make_storage_class_json(volumeBindingMode="Later"),
            'StorageClass fast: volumeBindingMode: "Later" is unknown; write one of Immediate, WaitForFirstConsumer',
        ),
        (
            make_volume_json(
                nodeAffinity={
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Is"}]}]}
                }
            ),
            'PersistentVolume pv-1: spec.nodeAffinity: "Is" is not an operator; '
            "write one of DoesNotExist, Exists, Gt, In, Lt, NotIn",
        ),
    ],
)
def test_a_value_that_makes_no_sense_is_rejected_by_its_place(item, words):
    with pytest.raises(BadInputError) as refused:
        read(item)
    assert str(refused.value) == f"f.json: {words}"
