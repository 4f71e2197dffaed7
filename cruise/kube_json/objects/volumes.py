"""Decode PersistentVolumes and VolumeAttachments: topology, and driver for attach limits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from sys import intern
from typing import NamedTuple

from cruise.domain.annotations import OLD_REGION, OLD_ZONE, REGION, ZONE
from cruise.domain.scheduling import AttachedVolume, LabelRequirement, NodeSelectorTerm, SelectorOperator
from cruise.kube_json.object_errors import name_object_in_errors
from cruise.kube_json.objects.scheduling import read_node_terms
from cruise.kube_json.wire import storage_json

Terms = tuple[NodeSelectorTerm, ...] | None
"""A node must match one of the terms; None: every node."""


class InTreePlugin(NamedTuple):
    """The CSI driver that replaces an in-tree plugin, and its zone label if it has one."""

    driver: str
    zone_key: str = ""


IN_TREE_PLUGINS: Mapping[str, InTreePlugin] = {
    "kubernetes.io/aws-ebs": InTreePlugin("ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    "kubernetes.io/azure-disk": InTreePlugin("disk.csi.azure.com"),
    "kubernetes.io/cinder": InTreePlugin("cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"),
    "kubernetes.io/gce-pd": InTreePlugin("pd.csi.storage.gke.io", "topology.gke.io/zone"),
}
"""Plugins whose volumes kube-scheduler translates to a CSI driver on nodes with migration."""
_CURRENT_KEYS = {OLD_ZONE: ZONE, OLD_REGION: REGION}
_ZONE_KEYS = (*_CURRENT_KEYS, *_CURRENT_KEYS.values())
_WITHOUT_ZONE = NodeSelectorTerm(tuple(LabelRequirement(key, SelectorOperator.DOES_NOT_EXIST) for key in _ZONE_KEYS))


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """A PersistentVolume: its topology, and the driver whose attach limit it counts against.

    `migrated_terms` replaces `terms` if its in-tree `plugin` is migrated, and only then it counts.
    """

    name: str
    terms: Terms
    driver: str | None
    handle: str
    plugin: str = ""
    migrated_terms: Terms = None


def decode_volume(document: storage_json.PersistentVolumeObject) -> PersistentVolume:
    """Return a volume; BadInputError names volume, place and fix."""
    spec, name = document.spec or storage_json.PersistentVolumeSpec(), document.metadata.name
    required = spec.node_affinity.required if spec.node_affinity else None
    with name_object_in_errors("PersistentVolume", None, name):
        affinity = None if required is None else read_node_terms(required, "spec.nodeAffinity")
    zones = {
        key: values
        for key in _ZONE_KEYS
        if (values := _parse_zones((document.metadata.labels or {}).get(key))) is not None
    }
    driver, handle, plugin = _get_driver(spec)
    found = IN_TREE_PLUGINS.get(plugin)
    migrated = _translate_zone(affinity, zones, found.zone_key) if found and found.zone_key else affinity
    return PersistentVolume(
        intern(name),
        _restrict_to_zones(affinity, zones),
        intern(driver) if driver else None,
        handle or name,
        plugin,
        _restrict_to_zones(migrated, zones) if plugin else None,
    )


def _parse_zones(label: str | None) -> tuple[str, ...] | None:
    """Parse the label of a volume in several zones; kube-scheduler ignores one with an empty zone."""
    zones = None if label is None else tuple(zone.strip() for zone in label.split("__"))
    return zones if zones and all(zones) else None


def _restrict_to_zones(terms: Terms, zones: Mapping[str, tuple[str, ...]]) -> Terms:
    for key, values in zones.items():
        terms = intersect_terms(terms, _get_zone_terms(key, values))
    return terms


def _get_zone_terms(key: str, zones: tuple[str, ...]) -> Terms:
    """Return where a volume with a zone label can be used: in the zone, and on nodes without any zone label."""
    terms = [NodeSelectorTerm((LabelRequirement(key, SelectorOperator.IN, zones),)), _WITHOUT_ZONE]
    if key in _CURRENT_KEYS:
        by_current_key = (
            LabelRequirement(key, SelectorOperator.DOES_NOT_EXIST),
            LabelRequirement(_CURRENT_KEYS[key], SelectorOperator.IN, zones),
        )
        terms.append(NodeSelectorTerm(by_current_key))
    return tuple(terms)


def _translate_zone(affinity: Terms, zones: Mapping[str, tuple[str, ...]], csi_key: str) -> Terms:
    """Return the node affinity of a migrated volume, with the zone label of the CSI driver.

    The zone comes from the node affinity, or else from the volume's label. Source: csi-translation-lib.
    """
    keys = {one.key for term in affinity or () for one in term.expressions}
    stated = [key for key in (ZONE, OLD_ZONE) if key in keys]
    zone_key = stated[0] if stated else next((key for key in (ZONE, OLD_ZONE) if key in zones), ZONE)
    if any(one.key == zone_key and one.values for term in affinity or () for one in term.expressions):
        affinity = _rename_key(affinity, zone_key, csi_key)
    elif zone_key in zones:
        csi_zone = LabelRequirement(csi_key, SelectorOperator.IN, tuple(sorted(set(zones[zone_key]))))
        affinity = tuple(
            NodeSelectorTerm((*term.expressions, csi_zone), term.fields) for term in affinity or (NodeSelectorTerm(),)
        )
    return _rename_key(affinity, OLD_REGION, REGION) if zone_key == OLD_ZONE else affinity


def _rename_key(terms: Terms, old: str, new: str) -> Terms:
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


def _get_driver(spec: storage_json.PersistentVolumeSpec) -> tuple[str | None, str, str]:
    """Return CSI driver, volume handle and in-tree plugin of a volume."""
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
    """A VolumeAttachment; `volume` is the name of the PersistentVolume."""

    node: str
    driver: str
    volume: str


def decode_attachment(document: storage_json.AttachmentObject) -> VolumeAttachment | None:
    """Return an attachment; None without driver or volume, which kube-scheduler does not count."""
    spec = document.spec
    volume = spec.source.persistent_volume_name if spec and spec.source else None
    if spec is None or not (spec.attacher and spec.node_name and volume):
        return None
    return VolumeAttachment(intern(spec.node_name), intern(spec.attacher), volume)


def group_attachments_by_node(
    attachments: Iterable[VolumeAttachment], volumes: Mapping[str, PersistentVolume]
) -> dict[str, frozenset[AttachedVolume]]:
    """Return the attached volumes by node that count against limits: those of CSI drivers. Source: NodeVolumeLimits."""
    found: dict[str, set[AttachedVolume]] = {}
    for one in attachments:
        volume = volumes.get(one.volume)
        if volume is not None and volume.driver is not None and not volume.plugin:
            found.setdefault(one.node, set()).add((one.driver, volume.handle))
    return {node: frozenset(attached) for node, attached in found.items()}


def intersect_terms(one: Terms, other: Terms) -> Terms:
    """Return terms that match where both match; an empty term matches nothing."""
    if one is None or other is None:
        return other if one is None else one
    return _combine(one, other)


def _combine(one: Sequence[NodeSelectorTerm], other: Sequence[NodeSelectorTerm]) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        NodeSelectorTerm(a.expressions + b.expressions, a.fields + b.fields)
        for a, b in product(one, other)
        if (a.expressions or a.fields) and (b.expressions or b.fields)
    )
