"""What the pass before saw, as far as evictions go by it."""

from dataclasses import dataclass

from cruise.domain.resources import ResourceName


@dataclass(frozen=True, slots=True)
class Earlier:
    """What nodes were short of a pass ago, by node name, and the uids of the pods whose eviction was refused then.

    Where `short` is None there was no pass before: it is taken to have seen the same.
    """

    short: frozenset[tuple[str, ResourceName]] | None = None
    refused: frozenset[str] = frozenset()

    def was_short(self, node: str, resource: ResourceName) -> bool:
        """Tell whether a node was short of a resource a pass ago."""
        return self.short is None or (node, resource) in self.short


SAME_AGAIN = Earlier()
NOTHING_SEEN = Earlier(frozenset())
