"""PersistentVolumes and VolumeAttachments: where a volume may be used, and as what it counts for which driver."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from sys import intern
from typing import NamedTuple

from cruise.domain.annotations import OLD_REGION, OLD_ZONE, REGION, ZONE
from cruise.domain.scheduling import AttachedVolume, LabelRequirement, NodeSelectorTerm, SelectorOperator
from cruise.kube_json.objects.scheduling import read_node_terms
from cruise.kube_json.refusals import name_object_in_errors
from cruise.kube_json.wire import storage_json

Terms = tuple[NodeSelectorTerm, ...] | None
"""The terms of which a node has to meet one; None for every node."""


class InTreePlugin(NamedTuple):
    """The CSI driver that has taken over from a plugin, and the label by which that driver knows zones, if it does."""

    driver: str
    zone_key: str = ""


IN_TREE_PLUGINS: Mapping[str, InTreePlugin] = {
    "kubernetes.io/aws-ebs": InTreePlugin("ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    "kubernetes.io/azure-disk": InTreePlugin("disk.csi.azure.com"),
    "kubernetes.io/cinder": InTreePlugin("cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"),
    "kubernetes.io/gce-pd": InTreePlugin("pd.csi.storage.gke.io", "topology.gke.io/zone"),
}
"""The plugins whose volumes kube-scheduler takes for those of a CSI driver on nodes that say so."""
_NEW_KEYS = {OLD_ZONE: ZONE, OLD_REGION: REGION}
_ZONE_KEYS = (*_NEW_KEYS, *_NEW_KEYS.values())
_UNZONED = NodeSelectorTerm(tuple(LabelRequirement(key, SelectorOperator.DOES_NOT_EXIST) for key in _ZONE_KEYS))


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """A PersistentVolume: where it may be used, and as what it counts against which driver's limit.

    One of a `plugin` from before CSI counts, and may be used by `migrated_terms`, where the plugin is migrated.
    """

    name: str
    terms: Terms
    driver: str | None
    handle: str
    plugin: str = ""
    migrated_terms: Terms = None


def decode_volume(document: storage_json.VolumeObject) -> PersistentVolume:
    """Return a volume. Raises BadInputError that names volume, place and fix."""
    spec, name = document.spec or storage_json.PersistentVolumeSpec(), document.metadata.name
    required = spec.node_affinity.required if spec.node_affinity else None
    with name_object_in_errors("PersistentVolume", None, name):
        affinity = None if required is None else read_node_terms(required, "spec.nodeAffinity")
    zones = {
        key: values
        for key in _ZONE_KEYS
        if (values := _zones_of((document.metadata.labels or {}).get(key))) is not None
    }
    driver, handle, plugin = _driver_of(spec)
    found = IN_TREE_PLUGINS.get(plugin)
    migrated = _with_csi_zone(affinity, zones, found.zone_key) if found and found.zone_key else affinity
    return PersistentVolume(
        intern(name),
        _within(affinity, zones),
        intern(driver) if driver else None,
        handle or name,
        plugin,
        _within(migrated, zones) if plugin else None,
    )


def _zones_of(label: str | None) -> tuple[str, ...] | None:
    """Read the label of a volume in several zones; kube-scheduler passes over one with an empty zone."""
    zones = None if label is None else tuple(zone.strip() for zone in label.split("__"))
    return zones if zones and all(zones) else None


def _within(terms: Terms, zones: Mapping[str, tuple[str, ...]]) -> Terms:
    for key, values in zones.items():
        terms = intersect_terms(terms, _in_zones(key, values))
    return terms


def _in_zones(key: str, zones: tuple[str, ...]) -> Terms:
    """Return where a volume with a zone label may be used: there, and on nodes that know of no zones at all."""
    terms = [NodeSelectorTerm((LabelRequirement(key, SelectorOperator.IN, zones),)), _UNZONED]
    if key in _NEW_KEYS:
        by_new_key = (
            LabelRequirement(key, SelectorOperator.DOES_NOT_EXIST),
            LabelRequirement(_NEW_KEYS[key], SelectorOperator.IN, zones),
        )
        terms.append(NodeSelectorTerm(by_new_key))
    return tuple(terms)


def _with_csi_zone(affinity: Terms, zones: Mapping[str, tuple[str, ...]], csi_key: str) -> Terms:
    """Return the node affinity of a volume of a migrated plugin: zones by the label of the CSI driver.

    Source: csi-translation-lib, by which kube-scheduler translates such a volume. The zone comes from the node
    affinity, else from the volume's label.
    """
    keys = {one.key for term in affinity or () for one in term.expressions}
    stated = [key for key in (ZONE, OLD_ZONE) if key in keys]
    zone_key = stated[0] if stated else next((key for key in (ZONE, OLD_ZONE) if key in zones), ZONE)
    if any(one.key == zone_key and one.values for term in affinity or () for one in term.expressions):
        affinity = _renamed(affinity, zone_key, csi_key)
    elif zone_key in zones:
        csi_zone = LabelRequirement(csi_key, SelectorOperator.IN, tuple(sorted(set(zones[zone_key]))))
        affinity = tuple(
            NodeSelectorTerm((*term.expressions, csi_zone), term.fields) for term in affinity or (NodeSelectorTerm(),)
        )
    return _renamed(affinity, OLD_REGION, REGION) if zone_key == OLD_ZONE else affinity


def _renamed(terms: Terms, old: str, new: str) -> Terms:
    if terms is None:
        return None
    return tuple(
        NodeSelectorTerm(
            tuple(
                LabelRequirement(new if one.key == old else one.key, one.operator, one.values)
                for one in term.expressions
            ),
            term.fields,
        )
        for term in terms
    )


def _driver_of(spec: storage_json.PersistentVolumeSpec) -> tuple[str | None, str, str]:
    """Return the CSI driver, how that one knows the volume, and the plugin of a volume from before CSI."""
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle, ""
    for disk, plugin in (
        (spec.aws_elastic_block_store, "kubernetes.io/aws-ebs"),
        (spec.azure_disk, "kubernetes.io/azure-disk"),
        (spec.cinder, "kubernetes.io/cinder"),
        (spec.gce_persistent_disk, "kubernetes.io/gce-pd"),
    ):
        if disk is not None:
            return IN_TREE_PLUGINS[plugin].driver, disk.volume_id or disk.pd_name or disk.disk_name, plugin
    return None, "", ""


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """A VolumeAttachment: which driver attaches which PersistentVolume, by name, to which node."""

    node: str
    driver: str
    volume: str


def decode_attachment(document: storage_json.AttachmentObject) -> VolumeAttachment | None:
    """Return an attachment; None for one that kube-scheduler does not count, as it names no driver or no volume."""
    spec = document.spec
    volume = spec.source.persistent_volume_name if spec and spec.source else None
    if spec is None or not (spec.attacher and spec.node_name and volume):
        return None
    return VolumeAttachment(intern(spec.node_name), intern(spec.attacher), volume)


def group_attachments_by_node(
    attachments: Iterable[VolumeAttachment], volumes: Mapping[str, PersistentVolume]
) -> dict[str, frozenset[AttachedVolume]]:
    """Return what attach limits count by node. Source: NodeVolumeLimits, which counts volumes of CSI drivers alone."""
    found: dict[str, set[AttachedVolume]] = {}
    for one in attachments:
        volume = volumes.get(one.volume)
        if volume is not None and volume.driver is not None and not volume.plugin:
            found.setdefault(one.node, set()).add((one.driver, volume.handle))
    return {node: frozenset(there) for node, there in found.items()}


def intersect_terms(one: Terms, other: Terms) -> Terms:
    """Return terms that hold where both do; an empty term holds nowhere and takes others with it."""
    if one is None or other is None:
        return other if one is None else one
    return _joined(one, other)


def _joined(one: Sequence[NodeSelectorTerm], other: Sequence[NodeSelectorTerm]) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        NodeSelectorTerm(a.expressions + b.expressions, a.fields + b.fields)
        for a, b in product(one, other)
        if (a.expressions or a.fields) and (b.expressions or b.fields)
    )
