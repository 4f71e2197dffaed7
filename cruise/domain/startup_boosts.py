"""The CPU that admission gave a pod for its start, as the pod's annotation records it.

Everything about a boost is in the pod itself, so any process can end it: the record, the present requests, and the
times at which the pod started and became ready.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache

import msgspec

from cruise.domain.actions import ContainerTarget
from cruise.domain.annotations import STARTUP_BOOST
from cruise.domain.cluster import Container, Pod
from cruise.domain.pod_resources import replace_spec_resources
from cruise.domain.resources import format_cpu_millicores, parse_cpu_millicores

# A process does its last work of starting, and compiles the first requests, after it reports to be ready.
READY_TIME = timedelta(seconds=30)
# A pod that is not ready by then keeps nothing longer; Deployments count as failed after the same time by default.
LONGEST_START = timedelta(minutes=10)

_CACHE_SIZE = 16_384
# Enough for twenty containers; users may write longer ones.
_LONGEST_READ = 4096


@dataclass(frozen=True, slots=True)
class StartupBoost:
    """The CPU of a container while it starts (`boosted`) and afterwards, in millicores; limits are None if unstated."""

    container: str
    boosted_request: int
    boosted_limit: int | None
    request: int
    limit: int | None

    def applies_to(self, container: Container) -> bool:
        """Return whether a container still has its boosted sizes."""
        present = container.requests.cpu_millicores, container.limits.cpu_millicores
        return present == (self.boosted_request, self.boosted_limit)

    def get_sizes_after_start(self, container: Container) -> ContainerTarget:
        """Return the container's sizes after its start."""
        requests, limits = container.requests, container.limits
        return ContainerTarget(
            container.name,
            container.role,
            replace(requests, cpu_millicores=self.request),
            replace(limits, cpu_millicores=self.limit),
        )


class _RecordedBoost(msgspec.Struct, omit_defaults=True):
    boosted: str
    request: str
    boosted_limit: str | None = msgspec.field(name="boostedLimit", default=None)
    limit: str | None = None


def format_startup_boosts(boosts: Sequence[StartupBoost]) -> str:
    """Write the annotation of a pod, sorted by container."""
    recorded = {
        one.container: _RecordedBoost(
            format_cpu_millicores(one.boosted_request),
            format_cpu_millicores(one.request),
            None if one.boosted_limit is None else format_cpu_millicores(one.boosted_limit),
            None if one.limit is None else format_cpu_millicores(one.limit),
        )
        for one in sorted(boosts, key=lambda one: one.container)
    }
    return msgspec.json.encode(recorded).decode()


def find_startup_boosts(pod: Pod) -> tuple[StartupBoost, ...]:
    """Return the boosts that are in force: the containers still have the sizes that admission gave them.

    An annotation that cruise did not write can only decrease its pod's CPU.
    """
    text = pod.annotations.get(STARTUP_BOOST)
    if text is None or len(text) > _LONGEST_READ:
        return ()
    boosts = _read_boosts(text)
    return tuple(
        [boosts[one.name] for one in pod.containers if one.name in boosts and boosts[one.name].applies_to(one)]
    )


def settle_boosted_pod(pod: Pod) -> Pod:
    """Return the pod with the sizes that its boosted containers have after its start."""
    boosts = {one.container: one for one in find_startup_boosts(pod)}
    if not boosts:
        return pod
    targets = [boosts[one.name].get_sizes_after_start(one) for one in pod.containers if one.name in boosts]
    return replace_spec_resources(pod, targets)


@lru_cache(_CACHE_SIZE)
def _read_boosts(text: str) -> dict[str, StartupBoost]:
    """Read the annotation; what is no decrease is ignored."""
    try:
        recorded = msgspec.json.decode(text, type=dict[str, _RecordedBoost])
        boosts = [
            StartupBoost(
                name,
                parse_cpu_millicores(one.boosted),
                None if one.boosted_limit is None else parse_cpu_millicores(one.boosted_limit),
                parse_cpu_millicores(one.request),
                None if one.limit is None else parse_cpu_millicores(one.limit),
            )
            for name, one in recorded.items()
        ]
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return {}
    return {one.container: one for one in boosts if _is_decrease(one)}


def _is_decrease(boost: StartupBoost) -> bool:
    """Return whether the sizes after the start are no larger, and valid."""
    if not 0 < boost.request < boost.boosted_request:
        return False
    if boost.limit is None or boost.boosted_limit is None:
        # A limit can neither be added nor removed in place.
        return boost.limit is boost.boosted_limit
    return boost.request <= boost.limit <= boost.boosted_limit
