"""Overrides: parsed from annotations and resolved, nearest first, each with its source."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from cruise.domain.annotations import (
    BOUNDS,
    CONTAINER_SETTINGS,
    CRUISE_RECORDS,
    EXCLUDED_LABEL,
    MODE,
    OVERRIDES,
    POD_SETTINGS,
    POLICY_SOURCES,
    PREFIX,
    SIZED_BY_KRR,
    TENANT_SOURCES,
    USER_MINIMUM_ANNOTATIONS,
    WORKLOAD,
    ContainerOverrides,
    EffectivePolicy,
    Overrides,
    OverrideSource,
    UnreadableAnnotations,
)
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.policy import Mode, RequestBounds
from cruise.domain.resources import StatedResources
from cruise.domain.rightsizing_policies import CLUSTER_POLICY_KIND, POLICY_KIND

PausedWorkloads = Mapping[tuple[str, WorkloadRef], datetime]
"""The workloads that a user paused, by namespace and reference, each since a time."""
NO_PAUSED_WORKLOADS: PausedWorkloads = MappingProxyType({})
_PAUSED = Overrides(mode=Mode.OBSERVE)
_MAXIMUMS = frozenset(one.setting for one in BOUNDS if one.field.startswith("maximum."))
# Overrides from VerticalPodAutoscalers that change no pods, by namespace and target.
VpaOverrides = Mapping[tuple[str, WorkloadRef], Sequence["OverrideLayer"]]
OverrideLayer = tuple["SettingSource", Overrides | UnreadableAnnotations]
SourcedValue = tuple[Any, "SettingSource"]


def parse_overrides(annotations: Mapping[str, str]) -> Overrides | UnreadableAnnotations:
    """Parse the override annotations of one object; other annotations are ignored."""
    values: dict[str, Any] = {}
    for key, text in sorted(annotations.items()):
        if not key.startswith(PREFIX) or key in CRUISE_RECORDS or key == WORKLOAD.name:
            continue
        setting, _, container = key.removeprefix(PREFIX).partition(".")
        override = OVERRIDES.get(setting)
        if container and override in POD_SETTINGS:
            return UnreadableAnnotations(f"{key}: it applies to the whole pod; write {PREFIX}{setting}")
        if override is None:
            near = get_close_matches(setting, OVERRIDES, n=1)
            return UnreadableAnnotations(
                f"{key}: no such setting" + (f"; did you mean {PREFIX}{near[0]}?" if near else "")
            )
        try:
            values[f"{setting}.{container}" if container else setting] = override.read(text.strip())
        except ValueError as error:
            return UnreadableAnnotations(f"{key}: {error}")
    for other in (EXCLUDED_LABEL, SIZED_BY_KRR, WORKLOAD):
        try:
            if other.name in annotations and other.read(annotations[other.name]) is True:
                values[MODE.setting] = Mode.OFF
        except ValueError as error:
            return UnreadableAnnotations(f"{other.name}: {error}")
    read = Overrides(**build_override_fields(values))
    contradictory = find_contradiction(read)
    return read if contradictory is None else UnreadableAnnotations(_explain_contradiction(contradictory))


def parse_settings(stated: Iterable[tuple[str, str, str]]) -> Overrides | UnreadableAnnotations:
    """Parse settings of a policy object: each its place for messages, its name, and its value as in an annotation."""
    values: dict[str, Any] = {}
    for place, setting, text in stated:
        try:
            value = OVERRIDES[setting.partition(".")[0]].read(text)
            values[setting] = min(values.get(setting, value), value) if setting == "mode" else value
        except ValueError as error:
            return UnreadableAnnotations(f"{place}: {error}")
    read = Overrides(**build_override_fields(values))
    contradictory = find_contradiction(read)
    if contradictory is None:
        return read
    where = f"spec.containers[{contradictory}]" if contradictory else "spec"
    return UnreadableAnnotations(f"{where}.minAllowed: the minimum is above the maximum")


def find_contradiction(stated: Overrides | EffectivePolicy) -> str | None:
    """Return the first container whose minimum is above its maximum, empty for all of a pod; None if there is none."""
    policy = EffectivePolicy(Mode.OFF, bounds=stated.bounds, containers=stated.containers)
    for container in ("", *policy.containers):
        bounds = policy.get_for_container(container).bounds
        if exceeds_any_amount(bounds.minimum, bounds.maximum):
            return container
    return None


def _explain_contradiction(container: str) -> str:
    return f"{PREFIX}…-min{'.' + container if container else ''}: the minimum is above the maximum"


def exceeds_any_amount(low: StatedResources, high: StatedResources) -> bool:
    """Return whether one of the first amounts exceeds the second one; unstated ones do not."""
    pairs = ((low.cpu_millicores, high.cpu_millicores), (low.memory_bytes, high.memory_bytes))
    return any(least is not None and most is not None and least > most for least, most in pairs)


def iterate_settings(overrides: Overrides) -> Iterator[tuple[str, Any]]:
    """Yield each stated setting and its value; the name is `NAME.CONTAINER` if it applies to one container."""
    for override in POD_SETTINGS:
        value = getattr(overrides, override.field)
        if value is not None:
            yield override.setting, value
    for container, own in [("", overrides), *sorted(overrides.containers.items())]:
        suffix = f".{container}" if container else ""
        for override in CONTAINER_SETTINGS:
            value = getattr(own, override.field)
            if value is not None:
                yield f"{override.setting}{suffix}", value
        for override in BOUNDS:
            value = attrgetter(override.field)(own.bounds)
            if value is not None:
                yield f"{override.setting}{suffix}", value


def build_override_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Overrides` or `EffectivePolicy` for the settings that `iterate_settings` yields."""
    return {
        **{one.field: values[one.setting] for one in POD_SETTINGS if one.setting in values},
        **_build_container_fields(values, ""),
        "containers": {
            container: ContainerOverrides(**_build_container_fields(values, f".{container}"))
            for container in sorted({name.partition(".")[2] for name in values} - {""})
        },
    }


def _build_container_fields(values: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    stated = {
        one.field: values[f"{one.setting}{suffix}"] for one in CONTAINER_SETTINGS if one.setting + suffix in values
    }
    return {**stated, "bounds": _build_bounds(values, suffix)}


def _build_bounds(values: Mapping[str, Any], suffix: str) -> RequestBounds:
    cpu_min, memory_min, cpu_max, memory_max = (values.get(f"{one.setting}{suffix}") for one in BOUNDS)
    return RequestBounds(StatedResources(cpu_min, memory_min), StatedResources(cpu_max, memory_max))


def format_setting_value(setting: str, value: object) -> str:
    """Format a value as in its annotation."""
    return OVERRIDES[setting.partition(".")[0]].write(value)


def format_settings(overrides: Overrides) -> dict[str, str]:
    """Return overrides as annotations: names without prefix, and values."""
    return {setting: format_setting_value(setting, value) for setting, value in iterate_settings(overrides)}


_POLICY_KINDS: Mapping[OverrideSource, str] = {
    OverrideSource.RIGHTSIZING_POLICY: POLICY_KIND,
    OverrideSource.CLUSTER_RIGHTSIZING_POLICY: CLUSTER_POLICY_KIND,
}


class SettingSource(NamedTuple):
    """The source of a setting, with the name of the object if there are several."""

    setter: OverrideSource
    name: str = ""

    def __str__(self) -> str:
        """Format as in messages about unreadable annotations."""
        if self.setter is OverrideSource.VERTICAL_POD_AUTOSCALER:
            return f"VPA {self.name}"
        if self.setter in POLICY_SOURCES:
            return f"{_POLICY_KINDS[self.setter]} {self.name}"
        return f"namespace {self.name}" if self.setter is OverrideSource.NAMESPACE else self.name or self.setter.value


@dataclass(frozen=True, slots=True)
class StatedSetting:
    """One stated setting: `setting` and `value` as in an annotation, its source, and whether it takes effect.

    `limited_by` is the ClusterRightsizingPolicy whose maximum it exceeds, if any.
    """

    setting: str
    value: str
    source: SettingSource
    is_effective: bool
    limited_by: SettingSource | None = None


@dataclass(frozen=True, slots=True)
class ResolvedOverrides:
    """The effective policy of a pod, and all stated settings, grouped by setting, nearest first.

    Sources that cannot be read have no statements.
    """

    effective_policy: EffectivePolicy | UnreadableAnnotations
    statements: tuple[StatedSetting, ...]


def resolve_overrides(
    annotations: Mapping[str, str],
    namespace: str,
    ref: WorkloadRef | None,
    snapshot: ClusterSnapshot,
    paused_workloads: PausedWorkloads,
    cluster_mode: Mode,
    vertical: VpaOverrides,
    policies: Sequence[OverrideLayer],
) -> ResolvedOverrides:
    """Resolve the annotations of a pod, its workload and its namespace, a pause of the workload, and policy objects.

    Each comes before the next one. `policies` are those that apply to the pod, nearest first.
    """
    own = collect_layers_without_policies(annotations, namespace, ref, snapshot, paused_workloads, vertical)
    return resolve_possibly_unreadable_layers(cluster_mode, [*own, *policies])


def collect_layers_without_policies(
    annotations: Mapping[str, str],
    namespace: str,
    ref: WorkloadRef | None,
    snapshot: ClusterSnapshot,
    paused_workloads: PausedWorkloads,
    vertical: VpaOverrides,
) -> list[OverrideLayer]:
    """Return all layers except policy objects, nearest first; most workloads have none.

    A VerticalPodAutoscaler's come right after those of its target.
    """
    workload = snapshot.workloads.get((namespace, ref)) if ref is not None else None
    stated = (
        (SettingSource(OverrideSource.POD), annotations),
        (SettingSource(OverrideSource.WORKLOAD, str(ref)), workload.annotations if workload is not None else {}),
        (SettingSource(OverrideSource.NAMESPACE, namespace), snapshot.namespace_annotations.get(namespace, {})),
    )
    layers: list[OverrideLayer] = [(source, parse_overrides(found)) for source, found in stated if found]
    if ref is not None and (namespace, ref) in vertical:
        after_workload = sum(bool(found) for _, found in stated[:2])
        layers[after_workload:after_workload] = vertical[namespace, ref]
    if ref is not None and (namespace, ref) in paused_workloads:
        layers.append((SettingSource(OverrideSource.PAUSED_WORKLOAD, str(ref)), _PAUSED))
    return layers


def resolve_possibly_unreadable_layers(cluster_mode: Mode, layers: Sequence[OverrideLayer]) -> ResolvedOverrides:
    """Resolve layers, given nearest first, of which some may be unreadable or contradict others."""
    if not layers:
        return _resolve_cluster_mode(cluster_mode)
    unreadable = next(
        (
            UnreadableAnnotations(f"{source}: {layer.detail}")
            for source, layer in layers
            if isinstance(layer, UnreadableAnnotations)
        ),
        None,
    )
    readable = [(source, layer) for source, layer in layers if isinstance(layer, Overrides)]
    resolution = resolve_override_layers(cluster_mode, readable)
    if unreadable is None and isinstance(resolution.effective_policy, EffectivePolicy):
        container = find_contradiction(resolution.effective_policy)
        unreadable = (
            None
            if container is None
            else UnreadableAnnotations(f"{_list_bound_sources(resolution)}: {_explain_contradiction(container)}")
        )
    return resolution if unreadable is None else ResolvedOverrides(unreadable, resolution.statements)


def _list_bound_sources(resolution: ResolvedOverrides) -> str:
    """Return the sources of the bounds that take effect."""
    names = {override.setting for override in BOUNDS}
    stated = [one for one in resolution.statements if one.setting.partition(".")[0] in names]
    sources = [one.limited_by or one.source for one in stated if one.is_effective or one.limited_by is not None]
    return " and ".join(dict.fromkeys(map(str, sources)))


@cache
def _resolve_cluster_mode(mode: Mode) -> ResolvedOverrides:
    """Resolve no overrides; most workloads have none and share the result."""
    return resolve_override_layers(mode, ())


def resolve_override_layers(cluster_mode: Mode, layers: Sequence[tuple[SettingSource, Overrides]]) -> ResolvedOverrides:
    """Resolve layers, given nearest first: the nearest value takes effect, and the lowest of the modes.

    Of several policy objects of one kind only the first one's mode counts. No maximum exceeds that of the first
    ClusterRightsizingPolicy that states one.
    """
    values, statements = _collect_values(cluster_mode, layers)
    policy = EffectivePolicy(**build_override_fields(values))
    if any(
        one.is_effective
        and one.source.setter in TENANT_SOURCES
        and one.setting.partition(".")[0] in USER_MINIMUM_ANNOTATIONS
        for one in statements
    ):
        administered, _ = _collect_values(
            cluster_mode, [layer for layer in layers if layer[0].setter not in TENANT_SOURCES]
        )
        policy = replace(policy, set_by_administrator=EffectivePolicy(**build_override_fields(administered)))
    return ResolvedOverrides(policy, tuple(statements))


def _collect_values(
    cluster_mode: Mode, layers: Sequence[tuple[SettingSource, Overrides]]
) -> tuple[dict[str, Any], list[StatedSetting]]:
    stated: dict[str, list[SourcedValue]] = {MODE.setting: []}
    for source, layer in layers:
        for setting, value in iterate_settings(layer):
            stated.setdefault(setting, []).append((value, source))
    stated[MODE.setting].append((cluster_mode, SettingSource(OverrideSource.CLUSTER)))
    values: dict[str, Any] = {}
    statements: list[StatedSetting] = []
    for setting, found in stated.items():
        is_mode = setting.partition(".")[0] == MODE.setting
        effective = _find_lowest_mode(found) if is_mode else 0
        values[setting] = found[effective][0]
        limit, limited_by = find_cluster_maximum(setting, stated)
        # A container's mode above its pod's has no effect.
        if is_mode and values[setting] > values[MODE.setting]:
            effective = -1
        elif limited_by is not None and values[setting] > limit:
            # The limit of a container may be the one of all containers, which is stated by itself.
            values[setting], effective = limit, next((n for n, one in enumerate(found) if one[1] == limited_by), -1)
        for index, (value, source) in enumerate(found):
            is_limited = limited_by is not None and source.setter is not limited_by.setter and value > limit
            text = format_setting_value(setting, value)
            statements.append(
                StatedSetting(setting, text, source, index == effective, limited_by if is_limited else None)
            )
    return values, statements


def find_cluster_maximum(
    setting: str, stated: Mapping[str, Sequence[SourcedValue]]
) -> SourcedValue | tuple[None, None]:
    """Return the value that a maximum may not exceed, and the ClusterRightsizingPolicy that states it, None if none.

    `stated` has the values of each setting, nearest first. The limit of one container precedes that of all.
    """
    name = setting.partition(".")[0]
    for each in (setting, name) if name in _MAXIMUMS else ():
        for value, source in stated.get(each, ()):
            if source.setter is OverrideSource.CLUSTER_RIGHTSIZING_POLICY:
                return value, source
    return None, None


def _find_lowest_mode(found: Sequence[SourcedValue]) -> int:
    """Return the index of the mode that takes effect."""
    counted: dict[object, int] = {}
    for index, (_, source) in enumerate(found):
        counted.setdefault(source.setter if source.setter in POLICY_SOURCES else index, index)
    return min(counted.values(), key=lambda index: found[index][0])
