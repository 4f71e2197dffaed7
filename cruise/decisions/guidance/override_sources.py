"""Who said what about a pod: every override that reaches it, nearest first, and which of them hold."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cruise.decisions.guidance.eligibility import StoredOverrides
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.overrides import Unreadable, parse_overrides
from cruise.domain.policy import Bounds, Overrides, Policy
from cruise.domain.quantity import format_cpu_millicores, format_memory_bytes


@dataclass(frozen=True, slots=True)
class Statement:
    """One override: `setting` and `value` as an annotation has them, `source` in words, and whether it holds."""

    setting: str
    value: str
    source: str
    holds: bool


def override_sources(pod: Pod, snapshot: Snapshot, stored: StoredOverrides, policy: Policy) -> tuple[Statement, ...]:
    """Return all statements on a pod, grouped by setting, nearest first; an unreadable layer says nothing.

    Of a setting that several state the nearest holds; of the modes, which cap each other, the lowest.
    """
    stated: dict[str, list[tuple[str, str]]] = {"mode": []}
    modes = []
    for source, layer in _layers(pod, snapshot, stored):
        if layer.mode is not None:
            modes.append(layer.mode)
        for setting, value in settings_of(layer):
            stated.setdefault(setting, []).append((value, source))
    stated["mode"].append((policy.mode.label, "cluster"))
    lowest = min([*modes, policy.mode])
    statements = []
    for setting, values in stated.items():
        holding = next(i for i, (value, _) in enumerate(values) if setting != "mode" or value == lowest.label)
        statements += [Statement(setting, value, source, i == holding) for i, (value, source) in enumerate(values)]
    return tuple(statements)


def _layers(pod: Pod, snapshot: Snapshot, stored: StoredOverrides) -> Iterator[tuple[str, Overrides]]:
    ref = pod.workload
    workload = snapshot.workloads.get((pod.namespace, ref)) if ref is not None else None
    annotated: list[tuple[str, Mapping[str, str]]] = [
        ("annotation of the pod", pod.annotations),
        (f"annotation of {ref}", workload.annotations if workload is not None else {}),
        (f"annotation of namespace {pod.namespace}", snapshot.namespace_annotations.get(pod.namespace, {})),
    ]
    for source, annotations in annotated:
        layer = parse_overrides(annotations)
        if not isinstance(layer, Unreadable):
            yield source, layer
    if ref is not None and (pod.namespace, ref) in stored:
        yield f"stored for {ref}", stored[(pod.namespace, ref)]


def settings_of(layer: Overrides) -> Iterator[tuple[str, str]]:
    """Yield what an override states as annotations have it: names without their prefix, and values."""
    if layer.mode is not None:
        yield "mode", layer.mode.label
    if layer.ranking is not None:
        yield "eviction-ranking", layer.ranking.label
    if layer.resources is not None:
        yield "resources", ",".join(sorted(layer.resources))
    if layer.headroom_factor is not None:
        short = f"{layer.headroom_factor:g}"
        yield "headroom-factor", short if float(short) == layer.headroom_factor else repr(layer.headroom_factor)
    yield from _bounds(layer.bounds, "")
    for container, bounds in sorted(layer.container_bounds.items()):
        yield from _bounds(bounds, f".{container}")


def _bounds(bounds: Bounds, suffix: str) -> Iterator[tuple[str, str]]:
    for end, amounts in (("min", bounds.minimum), ("max", bounds.maximum)):
        if amounts.cpu_millicores is not None:
            yield f"cpu-{end}{suffix}", format_cpu_millicores(amounts.cpu_millicores)
        if amounts.memory_bytes is not None:
            yield f"memory-{end}{suffix}", format_memory_bytes(amounts.memory_bytes)
