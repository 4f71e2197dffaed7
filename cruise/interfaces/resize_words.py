"""What a resize changes and why, in words, for Events and for pages."""

from collections.abc import Iterable, Sequence

from cruise.domain.actions import ContainerTarget, ResizePod
from cruise.domain.cluster import Container
from cruise.domain.quantity import format_cpu_millicores, format_memory_bytes
from cruise.domain.resources import NO_AMOUNTS, Amounts
from cruise.interfaces.reasons import CAUSES, WORDS

_MOST_CONTAINERS = 4


def why_resized(action: ResizePod) -> str:
    """Return the cause of a resize, as exactly as it is known."""
    return WORDS[action.reason] if action.cause is None else CAUSES[action.cause]


def changes_text(action: ResizePod, before: Sequence[Container | ContainerTarget], arrow: str = "->") -> str:
    """Write what a resize changes, as `cpu 500m -> 130m, memory 512Mi -> 270Mi`; containers by name if several.

    `before` are the sizes that it found, empty where they are not known: then what it wrote is told.
    """
    known = {one.container if isinstance(one, ContainerTarget) else one.name: one for one in before}
    parts = [
        (target.container, list(_of_container(target, known.get(target.container), arrow)))
        for target in action.containers
    ]
    changed = [(name, changes) for name, changes in parts if changes]
    if not changed:
        return "as it was"
    if len(action.containers) == 1:
        return ", ".join(changed[0][1])
    listed = "; ".join(f"{name} {', '.join(changes)}" for name, changes in changed[:_MOST_CONTAINERS])
    more = len(changed) - _MOST_CONTAINERS
    return f"{listed}; and {more} more" if more > 0 else listed


def _of_container(target: ContainerTarget, before: Container | ContainerTarget | None, arrow: str) -> Iterable[str]:
    requests, limits = (NO_AMOUNTS, NO_AMOUNTS) if before is None else (before.requests, before.limits)
    yield from _of_amounts("", target.requests, requests, arrow)
    yield from _of_amounts(" limit", target.limits, limits, arrow)


def _of_amounts(suffix: str, wanted: Amounts, now: Amounts, arrow: str) -> Iterable[str]:
    pairs = (
        ("cpu", wanted.cpu_millicores, now.cpu_millicores, format_cpu_millicores),
        ("memory", wanted.memory_bytes, now.memory_bytes, format_memory_bytes),
    )
    for name, value, old, text in pairs:
        if value is not None and value != old:
            yield (
                f"{name}{suffix} {text(value)}" if old is None else f"{name}{suffix} {text(old)} {arrow} {text(value)}"
            )
