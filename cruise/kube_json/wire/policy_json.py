"""Structs of policy objects and of their spec."""

from datetime import datetime
from typing import Any

from cruise.kube_json.wire.pod_json import JsonStruct, LabelSelectorJson, Metadata, QuantityMap


class PolicyMetadata(Metadata, frozen=True):
    generation: int = 0


class PolicyObject(JsonStruct, frozen=True):
    """Base of both kinds of policies; `spec` is decoded apart, so that an unreadable one keeps its name."""

    metadata: PolicyMetadata
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class RightsizingPolicyObject(PolicyObject, frozen=True, tag_field="kind", tag="RightsizingPolicy"):
    """A policy for one namespace."""


class ClusterRightsizingPolicyObject(PolicyObject, frozen=True, tag_field="kind", tag="ClusterRightsizingPolicy"):
    """A policy for all namespaces."""


AnyPolicy = RightsizingPolicyObject | ClusterRightsizingPolicyObject


class PolicyConditionJson(JsonStruct, frozen=True):
    type: str
    status: str
    last_transition_time: datetime


class PolicyStatusJson(JsonStruct, frozen=True):
    """What is read of a policy's status."""

    conditions: tuple[PolicyConditionJson, ...] = ()


class PolicyLabelSelectorJson(LabelSelectorJson, frozen=True, forbid_unknown_fields=True):
    """A label selector that is refused with a field of another name, as without it, it would select all."""


class PolicySelectorJson(PolicyLabelSelectorJson, frozen=True, forbid_unknown_fields=True):
    """What selects pods, by their own labels and by their workload."""

    kinds: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    namespaces: tuple[str, ...] | None = None


class ContainerPolicyFields(JsonStruct, frozen=True, forbid_unknown_fields=True):
    """The settings for one container, or for all of them; a field has the name of its annotation."""

    name: str = ""
    mode: str | None = None
    resources: tuple[str, ...] | None = None
    headroom_factor: int | float | None = None
    memory_limits: str | None = None
    cpu_limits: str | None = None
    direction: str | None = None
    startup_cpu: str | int | float | None = None
    min_allowed: QuantityMap | None = None
    max_allowed: QuantityMap | None = None


class FreezeJson(JsonStruct, frozen=True, forbid_unknown_fields=True):
    schedule: str = ""
    duration: str = ""
    time_zone: str | None = None


class PolicySpec(ContainerPolicyFields, frozen=True, forbid_unknown_fields=True):
    selector: PolicySelectorJson | None = None
    namespace_selector: PolicyLabelSelectorJson | None = None
    eviction_ranking: str | None = None
    guaranteed: str | None = None
    best_effort: str | None = None
    hpa: str | None = None
    containers: tuple[ContainerPolicyFields, ...] | None = None
    freeze: tuple[FreezeJson, ...] | None = None
