"""Overrides that VerticalPodAutoscalers state."""

from cruise.domain.annotations import ContainerOverrides, Overrides, OverrideSource, UnreadableAnnotations
from cruise.domain.autoscalers import VpaContainerPolicy
from cruise.domain.cluster import ClusterSnapshot, VerticalPodAutoscaler, WorkloadRef
from cruise.domain.overrides import OverrideLayer, SettingSource, VpaOverrides, exceeds_any_amount
from cruise.domain.policy import MINIMUM_REQUEST, Mode, RequestBounds
from cruise.domain.resources import ResourceName, StatedResources


def read_vpa_overrides(snapshot: ClusterSnapshot) -> VpaOverrides:
    """Return the overrides of VerticalPodAutoscalers with update mode `Off` or with cruise as recommender.

    Pods of one that changes pods are skipped, and one that cruise created states nothing.
    """
    found: dict[tuple[str, WorkloadRef], list[OverrideLayer]] = {}
    for vpa in snapshot.vertical_autoscalers:
        if vpa.target is not None and vpa.rules and not vpa.changes_pods and not vpa.is_published:
            layer = SettingSource(OverrideSource.VERTICAL_POD_AUTOSCALER, vpa.name), get_vpa_overrides(vpa)
            found.setdefault((vpa.namespace, vpa.target), []).append(layer)
    return found


def get_vpa_overrides(vpa: VerticalPodAutoscaler) -> Overrides | UnreadableAnnotations:
    """Return the overrides that a VerticalPodAutoscaler states.

    A container of mode `Off`, or of which no resource is controlled, is not sized.
    """
    for rule in vpa.rules:
        if exceeds_any_amount(rule.minimum, rule.maximum):
            return UnreadableAnnotations(f"minAllowed of {rule.container or '*'} is above maxAllowed")
        if exceeds_any_amount(
            StatedResources(MINIMUM_REQUEST.cpu_millicores, MINIMUM_REQUEST.memory_bytes), rule.maximum
        ):
            return UnreadableAnnotations(
                f"maxAllowed of {rule.container or '*'} is below the smallest request, 10m and 16Mi"
            )
    default = next((rule for rule in vpa.rules if not rule.container), VpaContainerPolicy())
    named = [rule for rule in vpa.rules if rule.container]
    if _is_off(default) and not named:
        return Overrides(mode=Mode.OFF)
    # The policy for all containers does not apply to one that has its own.
    controlled = None if default.controlled_resources is None and not default.is_off else frozenset(ResourceName)
    return Overrides(
        resources=frozenset() if _is_off(default) else default.controlled_resources,
        bounds=RequestBounds(default.minimum, default.maximum),
        containers={
            rule.container: ContainerOverrides(
                mode=Mode.OFF if _is_off(rule) else None,
                resources=None if _is_off(rule) else rule.controlled_resources or controlled,
                bounds=RequestBounds(rule.minimum, rule.maximum),
            )
            for rule in named
        },
    )


def _is_off(rule: VpaContainerPolicy) -> bool:
    return rule.is_off or rule.controlled_resources == frozenset()
