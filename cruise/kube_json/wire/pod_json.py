"""Structs of pods with the fields that cruise reads, for JSON text and decoded JSON.

Unknown fields are skipped; fields that Go clients may print as null are optional.
"""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct, field

# Quantities are strings, but the API server also accepts numbers.
QuantityText = str | int | float
QuantityMap = dict[str, QuantityText | None]
# Files written by hand may have numbers where the API server requires strings.
PlainText = str | int | float | bool
Timestamp = Annotated[datetime, Meta(tz=True)]
# The API's integers; larger ones in a file would fit no array.
Int32 = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]


class JsonStruct(Struct, rename="camel", frozen=True, gc=False):
    """Base of all structs, which have no cycles and are not tracked by the garbage collector."""


class OwnerReference(JsonStruct, frozen=True):
    """An owner; only the controller is read."""

    kind: str
    name: str
    controller: bool | None = None
    api_version: str = ""
    uid: str | None = None


class Metadata(JsonStruct, frozen=True):
    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class ResourceRequirements(JsonStruct, frozen=True):
    """Requests and limits of a container or a pod, or as reported by the kubelet."""

    requests: QuantityMap | None = None
    limits: QuantityMap | None = None


class ResizeRule(JsonStruct, frozen=True):
    """One entry of `resizePolicy`."""

    resource_name: str
    restart_policy: str


class ContainerPort(JsonStruct, frozen=True):
    """A port of a container; only host ports are read."""

    container_port: Int32 = 0
    host_port: Int32 | None = None
    protocol: str | None = None
    host_ip: str | None = field(name="hostIP", default=None)


class RestartRule(JsonStruct, frozen=True):
    """The action after a container terminates."""

    action: str = ""


class PresenceOnlyObject(JsonStruct, frozen=True):
    """A field of which only the presence is read."""


class ResourceFieldReference(JsonStruct, frozen=True):
    """A resource of a container that its environment gets, in units of `divisor`."""

    resource: str = ""
    container_name: str | None = None
    divisor: QuantityText | None = None


class VariableSource(JsonStruct, frozen=True):
    """The source of a variable; of other sources than resources only the presence is known."""

    resource_field_ref: ResourceFieldReference | None = None


class EnvironmentVariable(JsonStruct, frozen=True):
    """A variable of a container's environment; values are read when a pod is decoded, and not kept."""

    name: str
    value: PlainText | None = None
    value_from: VariableSource | None = None


class ContainerSpec(JsonStruct, frozen=True):
    """A container; image, command and environment show what its heap may grow to."""

    name: str
    image: str | None = None
    command: tuple[PlainText, ...] | None = None
    args: tuple[PlainText, ...] | None = None
    env: tuple[EnvironmentVariable, ...] | None = None
    env_from: tuple[PresenceOnlyObject, ...] | None = None
    ports: tuple[ContainerPort, ...] | None = None
    resources: ResourceRequirements | None = None
    resize_policy: tuple[ResizeRule, ...] | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[RestartRule, ...] | None = None


class TerminatedState(JsonStruct, frozen=True):
    reason: str | None = None
    finished_at: Timestamp | None = None


class RunningState(JsonStruct, frozen=True):
    """State of a running container."""


class ContainerState(JsonStruct, frozen=True):
    """The state of a container; neither running nor terminated means waiting."""

    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(JsonStruct, frozen=True):
    name: str
    restart_count: Int32 = 0
    allocated_resources: QuantityMap | None = None
    resources: ResourceRequirements | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodCondition(JsonStruct, frozen=True):
    type: str
    status: str
    reason: str | None = None
    last_transition_time: Timestamp | None = None
    message: str | None = None


class SelectorRequirementJson(JsonStruct, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class LabelSelectorJson(JsonStruct, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[SelectorRequirementJson, ...] | None = None


class NodeSelectorTermJson(JsonStruct, frozen=True):
    match_expressions: tuple[SelectorRequirementJson, ...] | None = None
    match_fields: tuple[SelectorRequirementJson, ...] | None = None


class NodeSelector(JsonStruct, frozen=True):
    node_selector_terms: tuple[NodeSelectorTermJson, ...]


class NodeAffinity(JsonStruct, frozen=True):
    """Node affinity; preferences are not read."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTermJson(JsonStruct, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelectorJson | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelectorJson | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class PodAffinity(JsonStruct, frozen=True):
    """Pod affinity or anti-affinity; preferences are not read."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTermJson, ...] | None = None


class Affinity(JsonStruct, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraintJson(JsonStruct, frozen=True):
    max_skew: Int32
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelectorJson | None = None
    min_domains: Int32 | None = None
    match_label_keys: tuple[str, ...] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class ClaimSource(JsonStruct, frozen=True):
    """A volume with a PersistentVolumeClaim."""

    claim_name: str


class PodVolume(JsonStruct, frozen=True):
    """A volume of a pod: a claim, a generic ephemeral volume, or a disk that only one node can attach."""

    name: str
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: PresenceOnlyObject | None = None
    gce_persistent_disk: PresenceOnlyObject | None = None
    aws_elastic_block_store: PresenceOnlyObject | None = None
    azure_disk: PresenceOnlyObject | None = None
    cinder: PresenceOnlyObject | None = None
    rbd: PresenceOnlyObject | None = None
    iscsi: PresenceOnlyObject | None = None


class PodResourceClaim(JsonStruct, frozen=True):
    """A claim on dynamically allocated devices."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(JsonStruct, frozen=True):
    """The ResourceClaim that was created for a pod from a template."""

    name: str
    resource_claim_name: str | None = None


class TolerationJson(JsonStruct, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class OperatingSystem(JsonStruct, frozen=True):
    """`spec.os`."""

    name: str


class SchedulingGate(JsonStruct, frozen=True):
    name: str


class SchedulingGroup(JsonStruct, frozen=True):
    """The PodGroup of a pod."""

    pod_group_name: str | None = None


class PodSpec(JsonStruct, frozen=True):
    containers: tuple[ContainerSpec, ...]
    init_containers: tuple[ContainerSpec, ...] | None = None
    node_name: str | None = None
    priority: Int32 | None = None
    overhead: QuantityMap | None = None
    resources: ResourceRequirements | None = None
    os: OperatingSystem | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[TolerationJson, ...] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    host_network: bool | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraintJson, ...] | None = None
    volumes: tuple[PodVolume, ...] | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    scheduler_name: str | None = None
    restart_policy: str | None = None
    host_users: bool | None = None
    scheduling_group: SchedulingGroup | None = None


class PodStatus(JsonStruct, frozen=True):
    phase: str | None = None
    start_time: Timestamp | None = None
    nominated_node_name: str | None = None
    qos_class: str | None = None
    conditions: tuple[PodCondition, ...] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: QuantityMap | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None


class PodObject(JsonStruct, frozen=True, tag_field="kind", tag="Pod"):
    metadata: Metadata
    spec: PodSpec
    status: PodStatus | None = None
