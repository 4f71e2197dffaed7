"""Overrides: read from annotations, resolved nearest first, each value with its source."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from cruise.domain.annotations import (
    BOUNDS,
    CRUISE_RECORDS,
    EXCLUDED_LABEL,
    MEMORY_LIMITS,
    MODE,
    OVERRIDES,
    PER_CONTAINER,
    PREFIX,
    SETTINGS,
    SIZED_BY_KRR,
    TENANT_SOURCES,
    USER_MINIMUM_ANNOTATIONS,
    EffectivePolicy,
    Overrides,
    OverrideSource,
    UnreadableAnnotations,
)
from cruise.domain.cluster import ClusterSnapshot, VerticalPodAutoscaler, WorkloadRef
from cruise.domain.policy import MINIMUM_REQUEST, Mode, RequestBounds
from cruise.domain.resources import ResourceName, StatedResources

StoredOverrides = Mapping[tuple[str, WorkloadRef], Overrides]
# What VerticalPodAutoscalers state that size no pods, by namespace and target.
VpaOverrides = Mapping[tuple[str, WorkloadRef], Sequence[tuple["SettingSource", "Overrides | UnreadableAnnotations"]]]


def parse_overrides(annotations: Mapping[str, str]) -> Overrides | UnreadableAnnotations:
    """Read the override annotations of one object; other annotations are passed over."""
    values: dict[str, Any] = {}
    for key, text in sorted(annotations.items()):
        if not key.startswith(PREFIX) or key in CRUISE_RECORDS:
            continue
        setting, _, container = key.removeprefix(PREFIX).partition(".")
        override = OVERRIDES.get(setting)
        if override is None or (container and override not in PER_CONTAINER):
            near = get_close_matches(setting, OVERRIDES, n=1)
            return UnreadableAnnotations(
                f"{key}: no such setting" + (f"; did you mean {PREFIX}{near[0]}?" if near else "")
            )
        try:
            values[f"{setting}.{container}" if container else setting] = override.read(text.strip())
        except ValueError as error:
            return UnreadableAnnotations(f"{key}: {error}")
    for off in (EXCLUDED_LABEL, SIZED_BY_KRR):
        try:
            if off.read(annotations.get(off.name, "false")):
                values[MODE.setting] = Mode.OFF
        except ValueError as error:
            return UnreadableAnnotations(f"{off.name}: {error}")
    read = Overrides(**build_override_fields(values))
    crossed = _crossed(EffectivePolicy(Mode.OFF, bounds=read.bounds, container_bounds=read.container_bounds))
    return read if crossed is None else UnreadableAnnotations(crossed)


def _crossed(guidance: EffectivePolicy) -> str | None:
    """Say which minimum is above the maximum that holds for the same container; None where none is."""
    for container in ("", *guidance.container_bounds):
        bounds = guidance.get_container_bounds(container)
        if _above(bounds.minimum, bounds.maximum):
            return f"{PREFIX}…-min{'.' + container if container else ''}: the minimum is above the maximum"
    return None


def _above(low: StatedResources, high: StatedResources) -> bool:
    pairs = ((low.cpu_millicores, high.cpu_millicores), (low.memory_bytes, high.memory_bytes))
    return any(least is not None and most is not None and least > most for least, most in pairs)


def iterate_settings(overrides: Overrides) -> Iterator[tuple[str, Any]]:
    """Yield each stated setting, `NAME.CONTAINER` for one that holds for one container, and its value."""
    for override in SETTINGS:
        value = getattr(overrides, override.field)
        if value is not None:
            yield override.setting, value
    for container, limits in sorted(overrides.container_memory_limits.items()):
        yield f"{MEMORY_LIMITS.setting}.{container}", limits
    for container, bounds in [("", overrides.bounds), *sorted(overrides.container_bounds.items())]:
        for override in BOUNDS:
            value = attrgetter(override.field)(bounds)
            if value is not None:
                yield f"{override.setting}.{container}" if container else override.setting, value


def build_override_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Overrides` or `Guidance` for values as `values_of` yields them."""
    fields = {one.field: values[one.setting] for one in SETTINGS if one.setting in values}
    by_setting: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        setting, _, container = name.partition(".")
        if container:
            by_setting.setdefault(setting, {})[container] = value
    limits = by_setting.pop(MEMORY_LIMITS.setting, {})
    return {
        **fields,
        "bounds": _bounds(values, ""),
        "container_bounds": {
            container: _bounds(values, f".{container}") for container in sorted({*chain(*by_setting.values())})
        },
        "container_memory_limits": limits,
    }


def _bounds(values: Mapping[str, Any], suffix: str) -> RequestBounds:
    cpu_min, memory_min, cpu_max, memory_max = (values.get(f"{one.setting}{suffix}") for one in BOUNDS)
    return RequestBounds(StatedResources(cpu_min, memory_min), StatedResources(cpu_max, memory_max))


def format_setting_value(setting: str, value: object) -> str:
    """Write the value of a setting as its annotation has it."""
    return OVERRIDES[setting.partition(".")[0]].write(value)


def format_settings(overrides: Overrides) -> dict[str, str]:
    """Return what overrides state as annotations have it: names without their prefix, and values."""
    return {setting: format_setting_value(setting, value) for setting, value in iterate_settings(overrides)}


def read_vpa_overrides(snapshot: ClusterSnapshot) -> VpaOverrides:
    """Read the VerticalPodAutoscalers whose bounds hold: those of mode `Off`, and those that name cruise.

    One that sizes pods by itself holds them whole, and one that cruise has made says nothing new.
    """
    found: dict[tuple[str, WorkloadRef], list[tuple[SettingSource, Overrides | UnreadableAnnotations]]] = {}
    for one in snapshot.vertical_autoscalers:
        if one.target is not None and one.rules and not one.changes_pods and not one.is_published:
            layer = SettingSource(OverrideSource.VERTICAL_POD_AUTOSCALER, one.name), get_vpa_overrides(one)
            found.setdefault((one.namespace, one.target), []).append(layer)
    return found


def get_vpa_overrides(one: VerticalPodAutoscaler) -> Overrides | UnreadableAnnotations:
    """Return what a VerticalPodAutoscaler states as overrides.

    A container that is to be left as it is takes its pods along, since a pod is sized whole; so it is with a resource.
    """
    controlled = [rule.controlled for rule in one.rules if rule.controlled is not None]
    resources = frozenset(ResourceName).intersection(*controlled) if controlled else None
    if any(rule.off for rule in one.rules) or (controlled and not resources):
        return Overrides(mode=Mode.OFF)
    for rule in one.rules:
        if _above(rule.minimum, rule.maximum):
            return UnreadableAnnotations(f"minAllowed of {rule.container or '*'} is above maxAllowed")
        if _above(StatedResources(MINIMUM_REQUEST.cpu_millicores, MINIMUM_REQUEST.memory_bytes), rule.maximum):
            return UnreadableAnnotations(
                f"maxAllowed of {rule.container or '*'} is below the smallest request, 10m and 16Mi"
            )
    bounds = {rule.container: RequestBounds(rule.minimum, rule.maximum) for rule in one.rules}
    rest = bounds.pop("", RequestBounds())
    return Overrides(resources=resources, bounds=rest, container_bounds=bounds)


class SettingSource(NamedTuple):
    """Where something is stated: at what, and its name where there are several."""

    setter: OverrideSource
    name: str = ""

    def __str__(self) -> str:
        """Name it as an unreadable annotation's place is named."""
        if self.setter is OverrideSource.VERTICAL_POD_AUTOSCALER:
            return f"VPA {self.name}"
        return f"namespace {self.name}" if self.setter is OverrideSource.NAMESPACE else self.name or self.setter.value


@dataclass(frozen=True, slots=True)
class StatedSetting:
    """One override: `setting` and `value` as an annotation has them, its source, and whether it holds."""

    setting: str
    value: str
    source: SettingSource
    is_effective: bool


@dataclass(frozen=True, slots=True)
class ResolvedOverrides:
    """What holds for a pod, and all statements on it, grouped by setting, nearest first.

    Of an unreadable layer there are no statements.
    """

    effective_policy: EffectivePolicy | UnreadableAnnotations
    statements: tuple[StatedSetting, ...]


def resolve_overrides(
    annotations: Mapping[str, str],
    namespace: str,
    ref: WorkloadRef | None,
    snapshot: ClusterSnapshot,
    stored: StoredOverrides,
    cluster_mode: Mode,
    vertical: VpaOverrides,
) -> ResolvedOverrides:
    """Resolve what a pod's own annotations, its workload, its namespace and the store state, nearest first.

    What a VerticalPodAutoscaler states comes right after its target.
    """
    workload = snapshot.workloads.get((namespace, ref)) if ref is not None else None
    stated = (
        (SettingSource(OverrideSource.POD), annotations),
        (SettingSource(OverrideSource.WORKLOAD, str(ref)), workload.annotations if workload is not None else {}),
        (SettingSource(OverrideSource.NAMESPACE, namespace), snapshot.namespace_annotations.get(namespace, {})),
    )
    layers = [(source, parse_overrides(found)) for source, found in stated if found]
    if ref is not None and (namespace, ref) in vertical:
        after_workload = sum(bool(found) for _, found in stated[:2])
        layers[after_workload:after_workload] = vertical[namespace, ref]
    if ref is not None and (namespace, ref) in stored:
        layers.append((SettingSource(OverrideSource.DATABASE, str(ref)), stored[namespace, ref]))
    if not layers:
        return _of_cluster(cluster_mode)
    unreadable = next(
        (
            UnreadableAnnotations(f"{source}: {layer.detail}")
            for source, layer in layers
            if isinstance(layer, UnreadableAnnotations)
        ),
        None,
    )
    readable = [(source, layer) for source, layer in layers if isinstance(layer, Overrides)]
    resolution = resolve_layers(cluster_mode, readable)
    if unreadable is None and isinstance(resolution.effective_policy, EffectivePolicy):
        crossed = _crossed(resolution.effective_policy)
        unreadable = None if crossed is None else UnreadableAnnotations(f"{_places(resolution)}: {crossed}")
    return resolution if unreadable is None else ResolvedOverrides(unreadable, resolution.statements)


def _places(resolution: ResolvedOverrides) -> str:
    """Name where the bounds that hold are stated."""
    names = {override.setting for override in BOUNDS}
    held = [one for one in resolution.statements if one.is_effective and one.setting.partition(".")[0] in names]
    return " and ".join(dict.fromkeys(str(one.source) for one in held))


@cache
def _of_cluster(mode: Mode) -> ResolvedOverrides:
    """Resolve no overrides: most workloads state none, and share what holds then."""
    return resolve_layers(mode, ())


def resolve_layers(cluster_mode: Mode, layers: Sequence[tuple[SettingSource, Overrides]]) -> ResolvedOverrides:
    """Resolve layers that are given nearest first: the nearest value holds, of the modes the lowest."""
    values, statements = _resolved(cluster_mode, layers)
    guidance = EffectivePolicy(**build_override_fields(values))
    if any(
        one.is_effective
        and one.source.setter in TENANT_SOURCES
        and one.setting.partition(".")[0] in USER_MINIMUM_ANNOTATIONS
        for one in statements
    ):
        administered, _ = _resolved(cluster_mode, [layer for layer in layers if layer[0].setter not in TENANT_SOURCES])
        guidance = replace(guidance, set_by_administrator=EffectivePolicy(**build_override_fields(administered)))
    return ResolvedOverrides(guidance, tuple(statements))


def _resolved(
    cluster_mode: Mode, layers: Sequence[tuple[SettingSource, Overrides]]
) -> tuple[dict[str, Any], list[StatedSetting]]:
    stated: dict[str, list[tuple[Any, SettingSource]]] = {MODE.setting: []}
    for source, layer in layers:
        for setting, value in iterate_settings(layer):
            stated.setdefault(setting, []).append((value, source))
    stated[MODE.setting].append((cluster_mode, SettingSource(OverrideSource.CLUSTER)))
    values: dict[str, Any] = {}
    statements: list[StatedSetting] = []
    for setting, found in stated.items():
        values[setting] = min(value for value, _ in found) if setting == MODE.setting else found[0][0]
        holding = next(at for at, (value, _) in enumerate(found) if value is values[setting])
        statements += [
            StatedSetting(setting, format_setting_value(setting, value), source, at == holding)
            for at, (value, source) in enumerate(found)
        ]
    return values, statements
