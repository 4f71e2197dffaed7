"""What the passes before saw, as far as evictions and the calm of sizes go by it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from cruise.domain.resources import ResourceName


class PodWrite(NamedTuple):
    """A resize of a pod that was done, by the pod's uid."""

    uid: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Earlier:
    """What nodes were short of a pass ago, by node name, and the uids of the pods whose eviction was refused then.

    A node was short of CPU only where its pods contended for it.

    Since when, in all passes up to the last: the sum of a node has been `above` its band, by name; a container's base
    has been above its request, `below`, by the pod's uid and the container's name. `resized` has when a pod's request
    for a resource was last written within a day, by uid, and `writes` all resizes of a day, the oldest first. Where
    `short`, `above` or `below` is None there was no pass before: it is taken to have seen the same.
    """

    short: frozenset[tuple[str, ResourceName]] | None = None
    refused: frozenset[str] = frozenset()
    above: Mapping[tuple[str, ResourceName], datetime] | None = None
    below: Mapping[tuple[str, str, ResourceName], datetime] | None = None
    resized: Mapping[tuple[str, ResourceName], datetime] = field(default_factory=dict)
    writes: tuple[PodWrite, ...] = ()

    def was_short(self, node: str, resource: ResourceName) -> bool:
        """Tell whether a node was short of a resource a pass ago."""
        return self.short is None or (node, resource) in self.short


SAME_AGAIN = Earlier()
NOTHING_SEEN = Earlier(frozenset(), above={}, below={})
