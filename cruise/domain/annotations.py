"""Every annotation and label that cruise reads or writes: name, reader, writer, and who may set it.

To add an override, add a row to OVERRIDES and a field to `Overrides` and `EffectivePolicy`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, StrEnum
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from cruise.domain.policy import (
    BestEffortPolicy,
    CpuLimitPolicy,
    EvictionRanking,
    GuaranteedPolicy,
    HpaPolicy,
    MemoryLimitPolicy,
    Mode,
    RequestBounds,
    ResizeDirection,
    parse_size,
)
from cruise.domain.resources import ResourceName, format_cpu_millicores, format_memory_bytes, quote_text
from cruise.domain.run_to_completion_operators import parse_workload_name
from cruise.domain.startup_cpu import StartupCpu, format_factor, format_startup_cpu, parse_factor, parse_startup_cpu

ChoiceT = TypeVar("ChoiceT", bound=Enum)

PREFIX = "cruise.io/"
_CRUISEKUBE = "cruisekube.truefoundry.com/"
LARGEST_FACTOR = 10


class OverrideSource(StrEnum):
    """Where a value is stated. The first eight are in order of precedence, nearest first."""

    POD = "pod"  # its template
    WORKLOAD = "workload"
    VERTICAL_POD_AUTOSCALER = "vertical-pod-autoscaler"  # one whose update mode changes no pods
    NAMESPACE = "namespace"
    PAUSED_WORKLOAD = "paused-workload"  # through the API or by a revert
    RIGHTSIZING_POLICY = "rightsizing-policy"
    CLUSTER_RIGHTSIZING_POLICY = "cluster-rightsizing-policy"
    CLUSTER = "cluster"  # the settings
    CRUISE = "cruise"
    OTHERS = "others"  # Kubernetes and other tools


_ANYWHERE = (OverrideSource.POD, OverrideSource.WORKLOAD, OverrideSource.NAMESPACE)
# Users of a namespace may write these; only administrators may write the others.
TENANT_SOURCES = frozenset(
    {
        OverrideSource.POD,
        OverrideSource.WORKLOAD,
        OverrideSource.VERTICAL_POD_AUTOSCALER,
        OverrideSource.RIGHTSIZING_POLICY,
    }
)
POLICY_SOURCES = frozenset({OverrideSource.RIGHTSIZING_POLICY, OverrideSource.CLUSTER_RIGHTSIZING_POLICY})
WORKLOAD_SOURCES = frozenset({OverrideSource.POD, OverrideSource.WORKLOAD})


@dataclass(frozen=True, slots=True)
class UnreadableAnnotations:
    """Annotations that cannot be read; `detail` names the key and the fix."""

    detail: str


@dataclass(frozen=True, slots=True)
class ContainerOverrides:
    """The values that apply to one container, or to each of a pod; None or empty where nothing is stated."""

    mode: Mode | None = None
    resources: frozenset[ResourceName] | None = None
    headroom_factor: float | None = None
    memory_limits: MemoryLimitPolicy | None = None
    cpu_limits: CpuLimitPolicy | None = None
    direction: ResizeDirection | None = None
    startup_cpu: StartupCpu | None = None
    bounds: RequestBounds = RequestBounds()


_CONTAINER_FIELDS = tuple(one.name for one in fields(ContainerOverrides) if one.name not in ("mode", "bounds"))


@dataclass(frozen=True, slots=True)
class Overrides(ContainerOverrides):
    """The values that one source states for a pod; None or empty where nothing is stated.

    `containers` holds what applies to one container only, by its name; it takes precedence over the pod's values.
    """

    ranking: EvictionRanking | None = None
    guaranteed: GuaranteedPolicy | None = None
    best_effort: BestEffortPolicy | None = None
    hpa: HpaPolicy | None = None
    containers: Mapping[str, ContainerOverrides] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The settings that apply to one pod after its overrides are resolved.

    `ranking` None: the workload's default. `memory_limits`, `cpu_limits`, `startup_cpu`, `guaranteed`, `best_effort`
    and `hpa` None: the cluster's setting. `containers` holds what applies to one container only. `set_by_administrator`
    is the policy without the workload's own annotations, None if these request no more than it.
    """

    mode: Mode
    ranking: EvictionRanking | None = None
    resources: frozenset[ResourceName] = frozenset(ResourceName)
    headroom_factor: float = 1.0
    memory_limits: MemoryLimitPolicy | None = None
    cpu_limits: CpuLimitPolicy | None = None
    direction: ResizeDirection = ResizeDirection.BOTH
    startup_cpu: StartupCpu | None = None
    guaranteed: GuaranteedPolicy | None = None
    best_effort: BestEffortPolicy | None = None
    hpa: HpaPolicy | None = None
    bounds: RequestBounds = RequestBounds()
    containers: Mapping[str, ContainerOverrides] = field(default_factory=dict)
    set_by_administrator: "EffectivePolicy | None" = None

    def get_for_container(self, container: str) -> "EffectivePolicy":
        """Return the policy as it applies to one container; values that are not stated for it are the pod's.

        The mode is the lower of the two.
        """
        own = self.containers.get(container)
        if own is None:
            return self
        stated = {name: value for name in _CONTAINER_FIELDS if (value := getattr(own, name)) is not None}
        bounds = RequestBounds(
            own.bounds.minimum.with_defaults(self.bounds.minimum), own.bounds.maximum.with_defaults(self.bounds.maximum)
        )
        mode = self.mode if own.mode is None else min(self.mode, own.mode)
        return replace(self, **stated, mode=mode, bounds=bounds, containers={})


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation or a label. `read` raises ValueError with what is wrong and the fix; `write` undoes it."""

    name: str
    allowed_sources: tuple[OverrideSource, ...] = (OverrideSource.OTHERS,)
    read: Callable[[str], Any] = str
    write: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class OverrideAnnotation(Annotation):
    """An annotation that overrides a setting; `field` is its field in `Overrides`, or in `RequestBounds`.

    `choices` are all of its values, if they can be listed.
    """

    field: str = ""
    choices: tuple[str, ...] = ()

    @property
    def setting(self) -> str:
        """The name without prefix, as in the API and in `explain`."""
        return self.name.removeprefix(PREFIX)


def _choice(names: Mapping[str, ChoiceT], kind: str) -> Callable[[str], ChoiceT]:
    def read(text: str) -> ChoiceT:
        if text not in names:
            raise ValueError(f"{quote_text(text)} is no {kind}; write one of {', '.join(names)}")
        return names[text]

    return read


def _read_resources(text: str) -> frozenset[ResourceName]:
    names = {part.strip() for part in text.split(",")}
    if not names <= {resource.value for resource in ResourceName}:
        raise ValueError(f"{quote_text(text)} names no resources; write cpu, memory or cpu,memory")
    return frozenset(map(ResourceName, names))


def _read_excluded(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{quote_text(text)} is neither true nor false")
    return word == "true"


def _write_resources(resources: frozenset[ResourceName]) -> str:
    return ",".join(sorted(resources)) or "none"


def _read_factor(text: str) -> float:
    factor = parse_factor(text)
    if not 0 <= factor <= LARGEST_FACTOR:
        raise ValueError(f"{quote_text(text)} is no factor; write a number from 0 to {LARGEST_FACTOR}, such as 1.5")
    return factor


def _override(
    setting: str,
    field: str,
    read: Callable[[str], Any],
    write: Callable[[Any], str],
    choices: Sequence[str] = (),
) -> OverrideAnnotation:
    return OverrideAnnotation(f"{PREFIX}{setting}", _ANYWHERE, read, write, field, tuple(choices))


def _choice_override(setting: str, field: str, values: type[StrEnum], kind: str) -> OverrideAnnotation:
    names = {one.value: one for one in values}
    return _override(setting, field, _choice(names, kind), attrgetter("value"), list(names))


def _bound(resource: ResourceName, *, may_be_zero: bool = False) -> Callable[[str], int]:
    """Return a reader of request bounds; a minimum of 0 is no minimum."""
    return partial(parse_size, resource, may_be_zero=may_be_zero)


_LABEL = attrgetter("label")
_MODES = {mode.label: mode for mode in Mode}
_RANKINGS = {ranking.label: ranking for ranking in EvictionRanking}
_read_ranking = _choice(_RANKINGS | {"no-eviction": EvictionRanking.NEVER}, "ranking")

MODE = _override("mode", "mode", _choice(_MODES, "mode"), _LABEL, list(_MODES))
RESOURCES = _override(
    "resources", "resources", _read_resources, _write_resources, ["cpu,memory", *(one.value for one in ResourceName)]
)
MEMORY_LIMITS = _choice_override("memory-limits", "memory_limits", MemoryLimitPolicy, "choice of memory limits")
CPU_LIMITS = _choice_override("cpu-limits", "cpu_limits", CpuLimitPolicy, "choice of CPU limits")
DIRECTION = _choice_override("direction", "direction", ResizeDirection, "direction")
STARTUP_CPU = _override("startup-cpu", "startup_cpu", parse_startup_cpu, format_startup_cpu)
# These apply to the whole pod, the others also to one container, as `NAME.CONTAINER`.
POD_SETTINGS = (
    _override("eviction-ranking", "ranking", _read_ranking, _LABEL, list(_RANKINGS)),
    _choice_override("guaranteed", "guaranteed", GuaranteedPolicy, "choice for Guaranteed pods"),
    _choice_override("best-effort", "best_effort", BestEffortPolicy, "choice for BestEffort pods"),
    _choice_override("hpa", "hpa", HpaPolicy, "choice for HPAs"),
)
CONTAINER_SETTINGS = (
    MODE,
    RESOURCES,
    _override("headroom-factor", "headroom_factor", _read_factor, format_factor),
    MEMORY_LIMITS,
    CPU_LIMITS,
    DIRECTION,
    STARTUP_CPU,
)
BOUNDS = (
    _override("cpu-min", "minimum.cpu_millicores", _bound(ResourceName.CPU, may_be_zero=True), format_cpu_millicores),
    _override("memory-min", "minimum.memory_bytes", _bound(ResourceName.MEMORY, may_be_zero=True), format_memory_bytes),
    _override("cpu-max", "maximum.cpu_millicores", _bound(ResourceName.CPU), format_cpu_millicores),
    _override("memory-max", "maximum.memory_bytes", _bound(ResourceName.MEMORY), format_memory_bytes),
)
OVERRIDES = {override.setting: override for override in (*POD_SETTINGS, *CONTAINER_SETTINGS, *BOUNDS)}
# These may request more than the pod's template does.
USER_MINIMUM_ANNOTATIONS = frozenset({"eviction-ranking", "headroom-factor", "cpu-min", "memory-min"})


def parse_placement_hint(text: str) -> tuple[str, str]:
    """Return the uid of the replaced pod and the hinted node."""
    uid, _, node = text.rpartition(" ")
    return uid, node


def format_placement_hint(replaced: tuple[str, str]) -> str:
    """Write what `parse_placement_hint` reads."""
    return " ".join(replaced)


ORIGINAL_RESOURCES = f"{PREFIX}original-resources"
ORIGINAL_RESOURCES_SIGNATURE = f"{ORIGINAL_RESOURCES}-signature"
PLACEMENT_HINT = f"{PREFIX}steered"
STARTUP_BOOST = f"{PREFIX}startup-boost"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = ("karpenter.sh/do-not-disrupt", "karpenter.sh/do-not-evict", f"{_CRUISEKUBE}do-not-disrupt")
MIRROR_POD = "kubernetes.io/config.mirror"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
OPERATING_SYSTEM, ARCHITECTURE = "kubernetes.io/os", "kubernetes.io/arch"
HOSTNAME = "kubernetes.io/hostname"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
# Labels of Karpenter's nodes; the second before version 0.32.
NODE_POOL, OLD_NODE_POOL = "karpenter.sh/nodepool", "karpenter.sh/provisioner-name"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
# Labels of node groups, by provider.
NODE_GROUPS = (
    NODE_POOL,
    OLD_NODE_POOL,
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
)
# Labels of spot nodes: Karpenter's, and those of EKS, GKE (the last two) and AKS.
CAPACITY_TYPE = "karpenter.sh/capacity-type"
SPOT_NODE_LABELS = {
    CAPACITY_TYPE: "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
}
# Labels of nodes that are no machines: Fargate, providers of Virtual Kubelet, and other clusters behind Liqo.
EKS_COMPUTE_TYPE, LIQO_TYPE = "eks.amazonaws.com/compute-type", "liqo.io/type"
VIRTUAL_NODE_LABELS = {EKS_COMPUTE_TYPE: "fargate", LIQO_TYPE: "virtual-node", "type": "virtual-kubelet"}
VIRTUAL_NODE_TAINT = "virtual-kubelet.io/provider"
# Pod groups: labels of scheduler-plugins and Kueue, annotations of Volcano, kube-batch and Koordinator.
POD_GROUP_LABELS = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "kueue.x-k8s.io/pod-group-name",
)
POD_GROUP_ANNOTATIONS = (
    "scheduling.volcano.sh/group-name",
    "scheduling.k8s.io/group-name",
    "gang.scheduling.koordinator.sh/name",
)
# The revision of a StatefulSet's or DaemonSet's pod.
CONTROLLER_REVISION = "controller-revision-hash"
APP_NAME, APP_COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
APP_INSTANCE = "app.kubernetes.io/instance"

# True excludes the object.
EXCLUDED_LABEL = Annotation(f"{_CRUISEKUBE}excluded", _ANYWHERE, _read_excluded)
# Names the workload of pods without a lasting owner; an override in form only.
WORKLOAD = Annotation(f"{PREFIX}workload", (OverrideSource.POD,), parse_workload_name)
# KRR's enforcer sizes pods with this annotation at their creation.
SIZED_BY_KRR = Annotation("admission.robusta.dev/krr-mutation-mode", (OverrideSource.POD,), "enforce".__eq__)
# Label of the VerticalPodAutoscalers and RightsizingPolicies that cruise creates.
MANAGED_BY = "app.kubernetes.io/managed-by"
# True forbids disruption. Karpenter's newer form is a duration: everything except "false" counts.
EVICTION_PROTECTION = (
    Annotation(SAFE_TO_EVICT, (OverrideSource.POD,), lambda text: text.strip().lower() == "false"),
    *(Annotation(name, (OverrideSource.POD,), "false".__ne__) for name in DO_NOT_DISRUPT),
)
ALL_ANNOTATIONS = (
    *OVERRIDES.values(),
    EXCLUDED_LABEL,
    WORKLOAD,
    SIZED_BY_KRR,
    *EVICTION_PROTECTION,
    Annotation(ORIGINAL_RESOURCES, (OverrideSource.CRUISE,)),
    Annotation(ORIGINAL_RESOURCES_SIGNATURE, (OverrideSource.CRUISE,)),
    Annotation(PLACEMENT_HINT, (OverrideSource.CRUISE,), parse_placement_hint, format_placement_hint),
    Annotation(STARTUP_BOOST, (OverrideSource.CRUISE,)),
    *map(Annotation, (MIRROR_POD, BIND_COMPLETED, SELECTED_NODE, MIGRATED_PLUGINS, STORAGE_CLASS)),
    *map(Annotation, (NAMESPACE_NAME, OPERATING_SYSTEM, ARCHITECTURE, HOSTNAME, ZONE, REGION, OLD_ZONE, OLD_REGION)),
    *map(Annotation, (*POD_GROUP_LABELS, *POD_GROUP_ANNOTATIONS)),
    *map(Annotation, (EKS_COMPUTE_TYPE, LIQO_TYPE, *SPOT_NODE_LABELS)),
    *map(Annotation, (APP_NAME, APP_COMPONENT, APP_INSTANCE, MANAGED_BY, INSTANCE_TYPE, *NODE_GROUPS)),
)
CRUISE_RECORDS = frozenset(one.name for one in ALL_ANNOTATIONS if one.allowed_sources == (OverrideSource.CRUISE,))
_READ_BY_DECISIONS = frozenset([*(one.name for one in EVICTION_PROTECTION), MIRROR_POD, SIZED_BY_KRR.name])


def is_read_by_decisions(name: str) -> bool:
    """Return whether decisions read an annotation; the others are not kept in memory."""
    return name in _READ_BY_DECISIONS or name.startswith((PREFIX, _CRUISEKUBE))


def is_override_annotation(name: str) -> bool:
    """Return whether an annotation states an override, valid or not."""
    return name in (EXCLUDED_LABEL.name, SIZED_BY_KRR.name) or (name.startswith(PREFIX) and name not in CRUISE_RECORDS)
