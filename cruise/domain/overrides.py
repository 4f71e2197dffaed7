"""Override annotations, and what holds for one pod when cluster, namespace, workload and pod have spoken."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from cruise.domain.policy import Bounds, EvictionRanking, Mode, Overrides
from cruise.domain.quantity import QuantityError, parse_cpu_millicores, parse_memory_bytes
from cruise.domain.resources import Amounts, ResourceName

PREFIX = "cruise.io/"
ORIGINAL_RESOURCES = f"{PREFIX}original-resources"
# On a pod that is steered to a node: the uid of the pod in whose place it comes, and the node.
STEERED = f"{PREFIX}steered"
# What cruise itself writes down on pods, and nobody asks for.
RECORDS = frozenset({ORIGINAL_RESOURCES, STEERED})
FOREIGN_EXCLUSION = "cruisekube.truefoundry.com/excluded"

MODE_NAMES = {mode.label: mode for mode in Mode}
RANKING_NAMES = {ranking.label: ranking for ranking in EvictionRanking} | {"no-eviction": EvictionRanking.NEVER}
_BOUND_KEYS = ("cpu-min", "cpu-max", "memory-min", "memory-max")
_PLAIN_KEYS = ("mode", "eviction-ranking", "resources", "headroom-factor")
BOTH_RESOURCES = frozenset(ResourceName)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Annotations that cannot be read, with the key and the fix in words."""

    detail: str


@dataclass(frozen=True, slots=True)
class Guidance:
    """What holds for one pod: every override resolved, nearest first, the mode capped from above.

    `ranking` is None where nobody asked for one: the default depends on the workload.
    """

    mode: Mode
    ranking: EvictionRanking | None = None
    resources: frozenset[ResourceName] = BOTH_RESOURCES
    headroom_factor: float = 1.0
    bounds: Bounds = Bounds()
    container_bounds: Mapping[str, Bounds] = field(default_factory=dict)

    def bounds_of(self, container: str) -> Bounds:
        """Return the bounds for a container: its own value where there is one, the pod's otherwise."""
        own = self.container_bounds.get(container)
        return self.bounds if own is None else _nearest_bounds((own, self.bounds))


def parse_overrides(annotations: Mapping[str, str]) -> Overrides | Unreadable:
    """Read the override annotations of one object; keys that are not cruise's are passed over."""
    fields: dict[str, object] = {}
    bounds: dict[str, dict[str, int]] = {}
    if annotations.get(FOREIGN_EXCLUSION) == "true":
        fields["mode"] = Mode.OFF
    for key, text in sorted(annotations.items()):
        if not key.startswith(PREFIX) or key in RECORDS:
            continue
        problem = _read_one(key.removeprefix(PREFIX), text.strip(), fields, bounds)
        if problem is not None:
            return Unreadable(f"{key}: {problem}")
    shaped = {container: _bounds_of(values) for container, values in bounds.items()}
    for container, shape in shaped.items():
        if _contradicts(shape):
            return Unreadable(f"{PREFIX}…-min{'.' + container if container else ''}: the minimum is above the maximum")
    pod_bounds = shaped.pop("", Bounds())
    return Overrides(**fields, bounds=pod_bounds, container_bounds=shaped)  # type: ignore[arg-type]


def _read_one(name: str, text: str, fields: dict[str, object], bounds: dict[str, dict[str, int]]) -> str | None:
    """Read one annotation into `fields` or `bounds`; return what is wrong with it, None if nothing is."""
    match name:
        case "mode":
            if text not in MODE_NAMES:
                return f'"{text}" is no mode; write one of {", ".join(MODE_NAMES)}'
            fields["mode"] = min(MODE_NAMES[text], _stated_mode(fields))
        case "eviction-ranking":
            if text not in RANKING_NAMES:
                return f'"{text}" is no ranking; write one of {", ".join(RANKING_NAMES)}'
            fields["ranking"] = RANKING_NAMES[text]
        case "resources":
            names = [part.strip() for part in text.split(",")]
            if not set(names) <= {resource.value for resource in ResourceName}:
                return f'"{text}" names no resources; write cpu, memory or cpu,memory'
            fields["resources"] = frozenset(ResourceName(part) for part in names)
        case "headroom-factor":
            factor = _factor(text)
            if factor is None:
                return f'"{text}" is no factor; write a number from 0 to 100, such as 1.5'
            fields["headroom_factor"] = factor
        case _:
            return _read_bound(name, text, bounds)
    return None


def _stated_mode(fields: Mapping[str, object]) -> Mode:
    mode = fields.get("mode")
    return mode if isinstance(mode, Mode) else Mode.FULL


def _factor(text: str) -> float | None:
    try:
        factor = float(text)
    except ValueError:
        return None
    return factor if math.isfinite(factor) and 0 <= factor <= 100 else None


def _read_bound(name: str, text: str, bounds: dict[str, dict[str, int]]) -> str | None:
    bound, _, container = name.partition(".")
    if bound not in _BOUND_KEYS:
        near = get_close_matches(bound, [*_PLAIN_KEYS, *_BOUND_KEYS], n=1)
        return "no such setting" + (f"; did you mean {PREFIX}{near[0]}?" if near else "")
    try:
        value = parse_cpu_millicores(text) if bound.startswith("cpu") else parse_memory_bytes(text)
    except QuantityError as error:
        return str(error)
    if value < 0:
        return f'"{text}" is negative'
    bounds.setdefault(container, {})[bound] = value
    return None


def _bounds_of(values: Mapping[str, int]) -> Bounds:
    return Bounds(
        Amounts(values.get("cpu-min"), values.get("memory-min")),
        Amounts(values.get("cpu-max"), values.get("memory-max")),
    )


def _contradicts(bounds: Bounds) -> bool:
    low, high = bounds.minimum, bounds.maximum
    return _above(low.cpu_millicores, high.cpu_millicores) or _above(low.memory_bytes, high.memory_bytes)


def _above(low: int | None, high: int | None) -> bool:
    return low is not None and high is not None and low > high


def resolve_guidance(cluster_mode: Mode, layers: Sequence[Overrides]) -> Guidance:
    """Resolve overrides that are given nearest first; every stated mode caps."""
    names = sorted({name for layer in layers for name in layer.container_bounds})
    ranking = next((layer.ranking for layer in layers if layer.ranking is not None), None)
    resources = next((layer.resources for layer in layers if layer.resources is not None), BOTH_RESOURCES)
    factor = next((layer.headroom_factor for layer in layers if layer.headroom_factor is not None), 1.0)
    return Guidance(
        mode=min([cluster_mode, *(layer.mode for layer in layers if layer.mode is not None)]),
        ranking=ranking,
        resources=resources,
        headroom_factor=factor,
        bounds=_nearest_bounds([layer.bounds for layer in layers]),
        container_bounds={
            name: _nearest_bounds([layer.container_bounds[name] for layer in layers if name in layer.container_bounds])
            for name in names
        },
    )


def _nearest_bounds(layers: Sequence[Bounds]) -> Bounds:
    minima, maxima = [layer.minimum for layer in layers], [layer.maximum for layer in layers]
    return Bounds(_nearest_amounts(minima), _nearest_amounts(maxima))


def _nearest_amounts(layers: Sequence[Amounts]) -> Amounts:
    return Amounts(
        next((layer.cpu_millicores for layer in layers if layer.cpu_millicores is not None), None),
        next((layer.memory_bytes for layer in layers if layer.memory_bytes is not None), None),
    )
