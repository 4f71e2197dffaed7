"""Claims, volumes, storage classes, drivers and priority classes as kubectl prints them."""

from typing import Any

from tests.builders import Json, make_metadata

DRIVER = "ebs.csi.aws.com"


def make_claim_json(name: str = "data", volume: str = "", storage: str | None = None, **more: Any) -> Json:
    """A claim, bound where it has a volume."""
    spec: Json = {"accessModes": ["ReadWriteOnce"], "volumeName": volume, "storageClassName": storage}
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": make_metadata(name, annotations=annotations | more.pop("annotations", {})),
        "spec": spec | more.pop("spec", {}),
        "status": {"phase": "Bound" if volume else "Pending"},
    } | more


def make_volume_json(name: str = "pv-1", labels: dict[str, str] | None = None, **spec: Any) -> Json:
    """A volume of the driver; `spec` stands in for all of its source."""
    source = {"csi": {"driver": DRIVER, "volumeHandle": f"vol-{name}"}}
    metadata = make_metadata(name, None, labels)
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec or source}


def make_storage_class_json(name: str = "fast", **more: Any) -> Json:
    """A class whose claims wait for their first pods."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": make_metadata(name, None),
        "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
    } | more


def make_drivers_json(node: str = "n1", migrated: str = "", **counts: int | None) -> Json:
    """A node's drivers with how many volumes each attaches; `_` in a name represents a dot.

    `migrated` are the plugins from before CSI that drivers have taken over there.
    """
    drivers = [
        {"name": name.replace("_", "."), "nodeID": node} | ({} if count is None else {"allocatable": {"count": count}})
        for name, count in counts.items()
    ]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": make_metadata(
            node, None, annotations={"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
        ),
        "spec": {"drivers": drivers},
    }


def make_attachment_json(volume: str, node: str = "n1", **spec: Any) -> Json:
    """A volume that the driver attaches to a node."""
    source = {"persistentVolumeName": volume}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": make_metadata(f"csi-{volume}", None),
        "spec": {"attacher": DRIVER, "nodeName": node, "source": source} | spec,
        "status": {"attached": True},
    }


def make_priority_class_json(name: str, value: int, **more: object) -> Json:
    """A priority class."""
    metadata = {"name": name}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value} | more
