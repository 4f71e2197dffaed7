"""Watched claims and priority classes, and pods that refer to unreadable ones."""

import json

import msgspec

from cruise.adapters.kube.cache import ClusterCache
from cruise.adapters.kube.kinds import ALL_KINDS
from cruise.domain.scheduling import StorageAndNamespaces
from cruise.kube_json.reading.snapshot import read_snapshot
from cruise.kube_json.reading.stream import StreamDecoder
from tests.adapters.kube.followed import run_watch, wait_until_true
from tests.builders import Json, make_namespace_json, make_pod_json
from tests.controlplane.manifests import container, pod
from tests.storage_builders import (
    DRIVER,
    make_attachment_json,
    make_claim_json,
    make_drivers_json,
    make_priority_class_json,
    make_storage_class_json,
    make_volume_json,
)

KINDS = {str(kind.shape.__struct_config__.tag): kind for kind in ALL_KINDS}
LIMITS = make_drivers_json("n1", ebs_csi_aws_com=25)


def put(cache: ClusterCache, *documents: Json) -> None:
    for document in documents:
        kind = KINDS[document["kind"]]
        page = StreamDecoder(kind.shape).decode_page(msgspec.json.encode({"metadata": {}, "items": [document]}))
        (item,) = page.items or page.unreadable
        cache.get_store(kind).put(item, "1")


def surroundings(*documents: Json) -> StorageAndNamespaces:
    cache = ClusterCache()
    put(cache, *documents)
    return cache.snapshot().storage_and_namespaces


def claims(*documents: Json) -> list[str]:
    return sorted(name for _, name in surroundings(*documents).claims)


def test_resolves_a_claim_with_its_volume_and_class():
    whole = [make_claim_json(volume="pv-1"), make_volume_json(), LIMITS]
    assert claims(*whole) == ["data"]
    for missing in range(3):
        assert claims(*whole[:missing], *whole[missing + 1 :]) == []


def test_a_change_of_what_a_claim_needs_changes_the_claim():
    cache = ClusterCache()
    put(cache, make_claim_json(storage="fast"), make_storage_class_json(), LIMITS)
    before = cache.snapshot().storage_and_namespaces
    put(cache, make_volume_json(), make_claim_json(volume="pv-1", storage="fast"))
    after = cache.snapshot().storage_and_namespaces
    assert before.claims[("shop", "data")].waits_for_first_consumer
    assert after.claims[("shop", "data")].bound
    assert cache.snapshot().storage_and_namespaces is after


def test_an_unreadable_object_leaves_out_its_claims():
    odd = make_storage_class_json(volumeBindingMode="Later")
    assert claims(make_claim_json(storage="fast"), odd, LIMITS) == []


def test_a_node_whose_limits_cannot_be_read_attaches_nothing():
    found = surroundings(make_claim_json(volume="pv-1"), make_volume_json(), make_drivers_json("n2", a=-1))
    assert found.attach_limits == {"n2": {DRIVER: 0}}


def test_attachments_and_the_storage_that_drivers_publish_are_followed():
    cache = ClusterCache()
    driver = {"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}
    room = {
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "room", "namespace": "kube-system"},
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {"zone": "a"}},
        "capacity": "5Gi",
    }
    waiting = make_claim_json(storage="fast", spec={"resources": {"requests": {"storage": "1Gi"}}})
    put(cache, waiting, make_storage_class_json(), LIMITS, make_volume_json(), make_attachment_json("pv-1"))
    before = cache.snapshot().storage_and_namespaces
    assert before.attached == {"n1": frozenset({(DRIVER, "vol-pv-1")})}
    assert before.claims["shop", "data"].terms is None
    put(cache, driver)
    assert cache.snapshot().storage_and_namespaces.claims["shop", "data"].terms == ()
    put(cache, room)
    terms = cache.snapshot().storage_and_namespaces.claims["shop", "data"].terms
    assert terms is not None
    assert [term.matches("n1", {"zone": zone}) for term in terms for zone in "ab"] == [True, False]


def test_namespaces_have_their_names_before_they_are_seen():
    cache = ClusterCache()
    put(cache, make_pod_json(), make_namespace_json("bank"))
    assert cache.snapshot().storage_and_namespaces.namespace_labels == {
        name: {"kubernetes.io/metadata.name": name} for name in ("bank", "shop")
    }


def test_a_pod_that_states_no_priority_has_that_of_its_class():
    cache = ClusterCache()
    put(cache, make_priority_class_json("polite", 500, preemptionPolicy="Never"))
    put(cache, make_pod_json(spec={"priorityClassName": "polite"}), make_pod_json("other", spec={"priority": 3}))
    assert [(one.priority, one.may_preempt) for one in cache.snapshot().pods] == [(3, True), (500, False)]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


async def test_the_watches_and_a_file_give_the_same_snapshot(control_plane, admin, kubelet, namespace):
    node = f"{namespace}-n1"
    kubelet.add_node(node, cpu="4")
    for manifest in _constrained(namespace, node):
        admin.create(manifest)
    kinds = "nodes pods namespaces persistentvolumes persistentvolumeclaims"
    grouped = "storageclasses.storage.k8s.io csinodes.storage.k8s.io priorityclasses.scheduling.k8s.io"

    def from_file():
        items = []
        for resource in [*kinds.split(), *grouped.split()]:
            listed = admin.get(admin.path(resource))
            kind = listed["kind"].removesuffix("List")
            items += [{"apiVersion": listed["apiVersion"], "kind": kind} | item for item in listed["items"]]
        return read_snapshot([json.dumps({"kind": "List", "items": items}).encode()], "cluster.json")

    def own(snapshot):
        found = snapshot.storage_and_namespaces
        return (
            [one for one in snapshot.pods if one.namespace == namespace],
            {key: claim for key, claim in found.claims.items() if key[0] == namespace},
            found.attach_limits.get(node),
            found.namespace_labels[namespace],
        )

    async with run_watch(control_plane) as cluster:

        async def settled():
            watched = own(await cluster.snapshot())
            return watched if watched == own(from_file()) and len(watched[0]) == 3 else None

        try:
            pods, seen, limits, labels = await wait_until_true(settled, "file and watches agree")
        finally:
            for resource in ("persistentvolumes", *grouped.split()):
                for item in admin.items(resource):
                    if namespace in item["metadata"]["name"]:
                        admin.delete(resource, None, item["metadata"]["name"])
    by_name = {one.name: one for one in pods}
    assert by_name["spread"].priority == 4000
    assert not by_name["spread"].may_preempt
    (constraint,) = by_name["spread"].constraints.spread
    assert constraint.selector is not None
    assert [(one.key, one.values) for one in constraint.selector.requirements] == [("app", ("spread",))]
    assert [port.port for port in by_name["host"].constraints.host_ports] == [9100]
    assert by_name["waits"].constraints.claims == ("data", "waits-scratch")
    assert {name: claim.waits_for_first_consumer for (_, name), claim in seen.items()} == {
        "data": True,
        "waits-scratch": True,
    }
    assert limits == {"csi.example.com": 3}
    assert labels["kubernetes.io/metadata.name"] == namespace


def _constrained(namespace: str, node: str) -> list[Json]:
    """Pods with constraints of several kinds, and what these refer to."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["app"],
    }
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
    named = {"name": f"{namespace}-thing"}
    claim_spec = {
        "accessModes": ["ReadWriteOncePod"],
        "storageClassName": named["name"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return [
        make_priority_class_json(named["name"], 4000, preemptionPolicy="Never"),
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": named,
            "provisioner": "csi.example.com",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": node},
            "spec": {"drivers": [{"name": "csi.example.com", "nodeID": node, "allocatable": {"count": 3}}]},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": namespace},
            "spec": claim_spec,
        },
        pod(
            namespace,
            "spread",
            topologySpreadConstraints=[spread],
            affinity={"podAntiAffinity": {REQUIRED: [term | {"namespaceSelector": {}}]}},
            priorityClassName=named["name"],
            nodeSelector={"no": "where"},
        ),
        pod(
            namespace,
            "host",
            container(ports=[{"containerPort": 9100}]),
            hostNetwork=True,
            nodeSelector={"no": "where"},
        ),
        pod(
            namespace,
            "waits",
            nodeSelector={"no": "where"},
            volumes=[
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim_spec}}},
            ],
        ),
    ]
