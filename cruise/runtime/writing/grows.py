"""Resizes that take room on a node, from just before they are sent until every snapshot shows them."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from cruise.domain.actions import ContainerTarget, ResizePod
from cruise.domain.cluster import Pod
from cruise.domain.resources import Amounts, Resources

# How much older than its application a snapshot may be: a minute of the cache, and the time to decide.
_SNAPSHOT_SECONDS = 90.0
_KEPT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Grow:
    """A resize that takes room on a node; `by` is the application of a plan that sends it."""

    by: object
    at: float
    growth: Resources
    targets: tuple[ContainerTarget, ...]

    def shows_in(self, pod: Pod) -> bool:
        """Tell whether a picture of the pod has these sizes in its spec."""
        spec = {container.name: container for container in pod.containers}
        return all(
            target.container in spec
            and _has(spec[target.container].requests, target.requests)
            and _has(spec[target.container].limits, target.limits)
            for target in self.targets
        )


class RecentGrows:
    """The last grow of each pod by node, so that two plans under way do not take the same room."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._grows: dict[str | None, dict[str, Grow]] = {}

    def now(self) -> float:
        """Return the time in seconds by which grows are ordered."""
        return self._monotonic()

    def add(self, by: object, action: ResizePod) -> Grow | None:
        """Remember a resize that is about to be sent; return the pod's last one, to be put back if it is not done."""
        on_node = self._grows.setdefault(action.node, {})
        oldest = self.now() - _KEPT_SECONDS
        for uid in [uid for uid, grow in on_node.items() if grow.at < oldest]:
            del on_node[uid]
        before = on_node.get(action.uid)
        on_node[action.uid] = Grow(by, self.now(), action.growth, action.containers)
        return before

    def put_back(self, action: ResizePod, before: Grow | None) -> None:
        """Forget a resize that was not done."""
        on_node = self._grows.get(action.node, {})
        on_node.pop(action.uid, None)
        if before is not None:
            on_node[action.uid] = before

    def on_node(self, node: str | None, began: float) -> dict[str, Grow]:
        """Return by pod uid the grows on a node that a snapshot for an application begun then may not show."""
        on_node = self._grows.get(node, {})
        return {uid: grow for uid, grow in on_node.items() if grow.at >= began - _SNAPSHOT_SECONDS}


def _has(stated: Amounts, wanted: Amounts) -> bool:
    """Tell whether what is wanted is stated; None wants nothing."""
    return wanted.cpu_millicores in (None, stated.cpu_millicores) and wanted.memory_bytes in (
        None,
        stated.memory_bytes,
    )
