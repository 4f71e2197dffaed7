"""What would make a skipped pod sized: one table from skip reasons to settings, annotations and other changes.

Scan, dashboard, check, `explain` and the page of reasons show it, and coverage decides by it what a change would save.
To add a skip reason, add its row here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from cruise.decisions.pod_policy.policy_objects import PolicyIndex
from cruise.decisions.pod_policy.resizable_pod import (
    FIRST_KUBELET_RESIZING_POD_LEVEL,
    FIRST_RESIZING_KUBELET,
    resizes_no_pods,
    supports_pod_level_resize,
)
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import EXCLUDED_LABEL, PREFIX, SIZED_BY_KRR, WORKLOAD
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.overrides import NO_PAUSED_WORKLOADS, PausedWorkloads
from cruise.domain.policy import GuaranteedPolicy, HpaPolicy, Mode, Policy


class SkipReasonUnlockKind(StrEnum):
    """Who or what makes a skipped pod sized; stable for users and scripts."""

    SETTING = "setting"
    ANNOTATION = "annotation"
    OBJECT = "object"  # a change of the pod template or of another object
    CLUSTER = "cluster"  # an upgrade, a permission, or what the cluster measures
    TIME = "time"  # it ends without a change
    NOTHING = "nothing"


class EligibilityInputs(NamedTuple):
    """What decides whether a pod is skipped, besides statistics; `policy_index` is used as far as it is current."""

    snapshot: ClusterSnapshot
    paused_workloads: PausedWorkloads
    policy: Policy
    policy_index: PolicyIndex | None = None


@dataclass(frozen=True, slots=True)
class SkipReasonUnlock:
    """What makes the pods of a skip reason sized, in words, and as a setting or an annotation if one does.

    `apply` returns the inputs of decisions after that change, None if no decision can tell what it would save.
    """

    kind: SkipReasonUnlockKind
    description: str
    setting: str = ""
    value: str = ""
    annotation: str = ""
    apply: Callable[[EligibilityInputs], EligibilityInputs] | None = None


def _change_pods(inputs: EligibilityInputs, change: Callable[[Pod], Pod]) -> EligibilityInputs:
    return inputs._replace(snapshot=replace(inputs.snapshot, pods=tuple(map(change, inputs.snapshot.pods))))


def _remove_annotations(inputs: EligibilityInputs, *names: str) -> EligibilityInputs:
    """Return inputs without some annotations of pods, workloads and namespaces, for pods and single containers."""
    prefixes = tuple(f"{name}." for name in names)

    def select(annotations: Mapping[str, str]) -> Mapping[str, str]:
        kept = {name: text for name, text in annotations.items() if name not in names and not name.startswith(prefixes)}
        return kept if len(kept) < len(annotations) else annotations

    def change(pod: Pod) -> Pod:
        kept = select(pod.annotations) if pod.annotations else pod.annotations
        return pod if kept is pod.annotations else replace(pod, annotations=kept)

    snapshot = replace(
        inputs.snapshot,
        workloads={
            key: replace(one, annotations=kept) if (kept := select(one.annotations)) is not one.annotations else one
            for key, one in inputs.snapshot.workloads.items()
        },
        namespace_annotations={
            namespace: select(annotations) for namespace, annotations in inputs.snapshot.namespace_annotations.items()
        },
    )
    return _change_pods(inputs._replace(snapshot=snapshot), change)


def _remove_override(inputs: EligibilityInputs, name: str) -> EligibilityInputs:
    """Return inputs without an override in annotations; without a mode, no workload is paused either."""
    changed = _remove_annotations(inputs, f"{PREFIX}{name}")
    return changed._replace(paused_workloads=NO_PAUSED_WORKLOADS) if name == "mode" else changed


def _include_all_namespaces(inputs: EligibilityInputs) -> EligibilityInputs:
    policy = replace(
        inputs.policy,
        excluded_namespaces=frozenset(),
        included_namespaces=frozenset(),
        namespace_selector=None,
    )
    return inputs._replace(policy=policy)


def _raise_mode(inputs: EligibilityInputs) -> EligibilityInputs:
    changed = _remove_annotations(_remove_override(inputs, "mode"), EXCLUDED_LABEL.name, SIZED_BY_KRR.name)
    return changed._replace(policy=replace(inputs.policy, mode=max(inputs.policy.mode, Mode.RESIZE)))


def _size_guaranteed(inputs: EligibilityInputs) -> EligibilityInputs:
    """Return inputs that size Guaranteed pods, also if the history is too short to decrease them yet."""
    policy = replace(inputs.policy, guaranteed=GuaranteedPolicy.RESIZE, memory_limit_history=timedelta(0))
    return _remove_override(inputs, "guaranteed")._replace(policy=policy)


def _size_within_target(inputs: EligibilityInputs) -> EligibilityInputs:
    return _remove_override(inputs, "hpa")._replace(policy=replace(inputs.policy, hpa=HpaPolicy.WITHIN_TARGET))


def _size_device_pods(inputs: EligibilityInputs) -> EligibilityInputs:
    return inputs._replace(policy=replace(inputs.policy, allow_extended_resources=True))


def _switch_off_vpas(inputs: EligibilityInputs) -> EligibilityInputs:
    vertical = tuple(replace(one, mode="Off") for one in inputs.snapshot.vertical_autoscalers)
    return inputs._replace(snapshot=replace(inputs.snapshot, vertical_autoscalers=vertical))


def _upgrade_kubelets(inputs: EligibilityInputs) -> EligibilityInputs:
    nodes = tuple(
        replace(one, kubelet_version=FIRST_RESIZING_KUBELET) if resizes_no_pods(one) else one
        for one in inputs.snapshot.nodes
    )
    return inputs._replace(snapshot=replace(inputs.snapshot, nodes=nodes))


def _upgrade_for_pod_level(inputs: EligibilityInputs) -> EligibilityInputs:
    nodes = tuple(
        one
        if supports_pod_level_resize(one)
        else replace(one, kubelet_version=FIRST_KUBELET_RESIZING_POD_LEVEL, declared_features=None)
        for one in inputs.snapshot.nodes
    )
    return inputs._replace(snapshot=replace(inputs.snapshot, nodes=nodes))


def _resize_without_restarts(inputs: EligibilityInputs) -> EligibilityInputs:
    def change(pod: Pod) -> Pod:
        if not any(one.cpu_resize_restarts or one.memory_resize_restarts for one in pod.containers):
            return pod
        containers = (replace(one, cpu_resize_restarts=False, memory_resize_restarts=False) for one in pod.containers)
        return replace(pod, containers=tuple(containers))

    return _change_pods(inputs, change)


def _setting(
    setting: str, value: str, description: str, apply: Callable[[EligibilityInputs], EligibilityInputs]
) -> SkipReasonUnlock:
    """Return a change of a setting that has no annotation."""
    return SkipReasonUnlock(SkipReasonUnlockKind.SETTING, description, setting, value, apply=apply)


def _override(
    setting: str, value: str, apply: Callable[[EligibilityInputs], EligibilityInputs], condition: str = ""
) -> SkipReasonUnlock:
    """Return a change of a setting that an annotation of the same name overrides."""
    annotation = f"{PREFIX}{setting.replace('_', '-')}: {value}"
    description = f"{setting}: {value}, or {annotation}{condition}"
    return SkipReasonUnlock(SkipReasonUnlockKind.SETTING, description, setting, value, annotation, apply)


def _annotation(
    annotation: str, description: str, apply: Callable[[EligibilityInputs], EligibilityInputs] | None = None
) -> SkipReasonUnlock:
    return SkipReasonUnlock(SkipReasonUnlockKind.ANNOTATION, description, annotation=annotation, apply=apply)


_object = partial(SkipReasonUnlock, SkipReasonUnlockKind.OBJECT)
_cluster = partial(SkipReasonUnlock, SkipReasonUnlockKind.CLUSTER)
_time = partial(SkipReasonUnlock, SkipReasonUnlockKind.TIME)


def _nothing(description: str) -> SkipReasonUnlock:
    return SkipReasonUnlock(SkipReasonUnlockKind.NOTHING, f"nothing: {description}")


_MODE = SkipReasonUnlock(
    SkipReasonUnlockKind.SETTING,
    "mode: resize, and no annotation cruise.io/mode with a lower one",
    "mode",
    "resize",
    f"{PREFIX}mode: resize",
    _raise_mode,
)
_RESOURCES = _annotation(
    f"{PREFIX}resources: cpu,memory",
    f"{PREFIX}resources: cpu,memory, or no such annotation",
    partial(_remove_override, name="resources"),
)
_USAGE = _cluster("let its usage be measured; cruise check shows what is missing")
_HAND_WRITE = _object("change the LimitRange, or the resources in the pod template")
_NEXT_PASS = _time("wait: the next pass decides again")
_BUDGET = "wait for the next period, or raise {0}"

UNLOCKS: Mapping[ReasonCode, SkipReasonUnlock] = {
    ReasonCode.EXCLUDED_NAMESPACE: _setting(
        "excluded_namespaces",
        "!NAMESPACE",
        "excluded_namespaces without it, or with !NAMESPACE if it is a default",
        _include_all_namespaces,
    ),
    ReasonCode.NAMESPACE_NOT_INCLUDED: _setting(
        "included_namespaces",
        "NAMESPACE",
        "included_namespaces with its name or pattern, and a namespace_selector that matches its labels",
        _include_all_namespaces,
    ),
    ReasonCode.MODE_OFF: _MODE,
    ReasonCode.MODE_OBSERVE: _MODE,
    ReasonCode.MODE_INITIAL: _MODE,
    ReasonCode.UNREADABLE_ANNOTATION: _annotation(
        "", "correct the annotation or policy object that cruise explain names"
    ),
    ReasonCode.UNSIGNED_ANNOTATION: _nothing("cruise does not restore sizes that it cannot verify"),
    ReasonCode.STATIC_POD: _nothing("change the manifest on the node"),
    ReasonCode.WINDOWS: _nothing("Kubernetes resizes no Windows pods; change the pod template, see cruise export"),
    ReasonCode.VIRTUAL_NODE: _nothing("the provider bills its requests; change the pod template, see cruise export"),
    ReasonCode.COMPLETED: _nothing("it requests nothing any more"),
    ReasonCode.TERMINATING: _time("wait until it is gone"),
    ReasonCode.GUARANTEED: _override(
        "guaranteed", "resize", _size_guaranteed, "; decreases wait for memory_limit_history"
    ),
    ReasonCode.BEST_EFFORT: SkipReasonUnlock(
        SkipReasonUnlockKind.SETTING,
        f"best_effort: adopt, or {PREFIX}best-effort: adopt, for new pods",
        "best_effort",
        "adopt",
        f"{PREFIX}best-effort: adopt",
    ),
    ReasonCode.POD_LEVEL_RESOURCES: _cluster(
        "upgrade the node to Kubernetes 1.36 or later", apply=_upgrade_for_pod_level
    ),
    ReasonCode.EXTENDED_RESOURCES: _setting(
        "allow_extended_resources", "true", "allow_extended_resources: true", _size_device_pods
    ),
    ReasonCode.NO_CONTROLLER: _object(f"label {WORKLOAD.name}, or a controller that creates it"),
    ReasonCode.NO_STATISTICS: _USAGE,
    ReasonCode.STALE_STATISTICS: _USAGE,
    ReasonCode.IMPLAUSIBLE_USAGE: _cluster(
        "select cAdvisor's series by prometheus_cadvisor_matchers; see cruise check"
    ),
    ReasonCode.NEW_WORKLOAD: _time("wait for new_workload_age, or until a first run has ended", "new_workload_age"),
    ReasonCode.STARTING: _time("wait until it has been ready for 30 seconds"),
    ReasonCode.NEW_TEMPLATE_REVISION: _time("wait for samples of the new revision"),
    ReasonCode.MANAGED_BY_HPA: SkipReasonUnlock(
        SkipReasonUnlockKind.SETTING,
        f"hpa: within-target, or {PREFIX}hpa: within-target, and the HPA at its minimum of replicas; or another metric "
        "than utilization",
        "hpa",
        HpaPolicy.WITHIN_TARGET.value,
        f"{PREFIX}hpa: within-target",
        _size_within_target,
    ),
    ReasonCode.MANAGED_BY_OTHER_AUTOSCALER: _object("set the VPA's updateMode to Off", apply=_switch_off_vpas),
    ReasonCode.AMBIGUOUS_WORKLOAD: _object("rename one of the two workloads"),
    ReasonCode.LOOKUP_PENDING: _time("wait; if it lasts, cruise check shows the missing permission"),
    ReasonCode.RESIZE_UNSUPPORTED: _cluster("upgrade the node to Kubernetes 1.33 or later", apply=_upgrade_kubelets),
    ReasonCode.RESIZE_RESTARTS: _object("resizePolicy NotRequired in the pod template", apply=_resize_without_restarts),
    ReasonCode.LIMIT_RANGE: _HAND_WRITE,
    ReasonCode.QOS_CHANGE: _HAND_WRITE,
    ReasonCode.RESIZE_REFUSED: _time("wait: another size is tried when the target changes"),
    ReasonCode.WAITING_FOR_CAPACITY: _time("wait until pods of the node shrink or end"),
    ReasonCode.RESIZE_DEFERRED: _time("wait until pods of the node shrink or end"),
    ReasonCode.RESIZE_INFEASIBLE: _time("wait: cruise withdraws the resize"),
    ReasonCode.STATIC_CPU_MANAGER: _cluster("cpuManagerPolicy none in the kubelet's configuration"),
    ReasonCode.STATIC_MEMORY_MANAGER: _cluster("memoryManagerPolicy None in the kubelet's configuration"),
    ReasonCode.NODE_SWAP: _cluster("memorySwap.swapBehavior NoSwap in the kubelet's configuration"),
    ReasonCode.MEMORY_LEAK_SUSPECTED: _object("look for the memory leak, or raise the limit in the pod template"),
    ReasonCode.NO_CHANGE_NEEDED: _nothing("its size is right"),
    ReasonCode.PAUSED: _annotation("", "cruise resume"),
    ReasonCode.MODE_FORBIDS: _MODE,
    ReasonCode.COOLDOWN: _NEXT_PASS,
    ReasonCode.NODE_EVICTION_BUDGET_SPENT: _time(_BUDGET.format("max_evictions_per_node"), "max_evictions_per_node"),
    ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT: _time(
        _BUDGET.format("max_evictions_per_workload"), "max_evictions_per_workload"
    ),
    ReasonCode.HOURLY_EVICTION_BUDGET_SPENT: _time(_BUDGET.format("max_evictions_per_hour"), "max_evictions_per_hour"),
    ReasonCode.REPLACEMENT_NOT_RESIZED: _cluster("install the webhook; cruise check shows what it lacks"),
    ReasonCode.CHANGED: _NEXT_PASS,
    ReasonCode.STALE_DECISION: _time("wait: the next pass decides again; if it lasts, raise max_decision_age"),
    ReasonCode.HISTORY_INCOMPLETE: _time("wait until usage is read again"),
    ReasonCode.USAGE_INCREASED: _NEXT_PASS,
    ReasonCode.HPA_CHANGED: _NEXT_PASS,
    ReasonCode.NOT_FOUND: _nothing("it is gone"),
    ReasonCode.THROTTLED: _NEXT_PASS,
    ReasonCode.POD_DISRUPTION_BUDGET: _object("wait until its budget allows an eviction, or change the budget"),
    ReasonCode.NOT_EVICTABLE: _annotation(f"{PREFIX}eviction-ranking: low", f"{PREFIX}eviction-ranking: low"),
    ReasonCode.CPU_NOT_MANAGED: _RESOURCES,
    ReasonCode.MEMORY_NOT_MANAGED: _RESOURCES,
    ReasonCode.INSUFFICIENT_CAPACITY: _time("wait until pods of the node shrink or end"),
    ReasonCode.NODE_NOT_READY: _cluster("repair the node"),
    ReasonCode.FORBIDDEN: _cluster("grant the permission; cruise check shows which"),
    ReasonCode.QUOTA_EXCEEDED: _object("raise the ResourceQuota"),
    ReasonCode.CANNOT_RESTORE: _object("restart the workload: its template has the original sizes"),
    ReasonCode.START_UNKNOWN: _time("wait until three pods have started, or state the CPU of a start"),
    ReasonCode.AT_MAXIMUM: _annotation(f"{PREFIX}cpu-max, {PREFIX}memory-max", "raise its maximum"),
    ReasonCode.RECORDED_ONLY: SkipReasonUnlock(
        SkipReasonUnlockKind.SETTING, "oom_reaction: resize-then-evict", "oom_reaction", "resize-then-evict"
    ),
    ReasonCode.PACKING_PLAN_ACTIVE: _time("wait until the packing plan ends"),
}
