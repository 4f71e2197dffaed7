"""What is published about a workload's sizes: targets between bounds, as a VerticalPodAutoscaler shows them."""

from dataclasses import dataclass

from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import Resources

# A target that moves by less is not worth a write.
_WORTH_SHARE, _WORTH_CPU_MILLICORES, _WORTH_MEMORY_BYTES = 0.05, 10, 16 << 20


@dataclass(frozen=True, slots=True)
class ContainerRecommendation:
    """One container: what it usually uses, what it should request, what it used most; `uncapped` without any bound."""

    name: str
    lower: Resources
    target: Resources
    upper: Resources
    uncapped: Resources

    def differs(self, other: "ContainerRecommendation") -> bool:
        """Tell whether the targets are far enough apart to be worth a write."""
        mine, theirs = self.target, other.target
        return (
            self.name != other.name
            or _far(mine.cpu_millicores, theirs.cpu_millicores, _WORTH_CPU_MILLICORES)
            or _far(mine.memory_bytes, theirs.memory_bytes, _WORTH_MEMORY_BYTES)
        )


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What is published about one workload, whose `uid` it is; `is_confident` tells whether a day was seen."""

    namespace: str
    workload: WorkloadRef
    uid: str
    containers: tuple[ContainerRecommendation, ...]
    is_confident: bool
    api_version: str = "apps/v1"

    @property
    def name(self) -> str:
        """What its VerticalPodAutoscaler is called: like none of a user's, and one for each kind."""
        return f"cruise-{self.workload.kind.lower()}-{self.workload.name}"

    def differs(self, other: "Recommendation | None") -> bool:
        """Tell whether it is worth a write after another one."""
        if other is None or (self.uid, self.is_confident) != (other.uid, other.is_confident):
            return True
        if len(self.containers) != len(other.containers):
            return True
        return any(mine.differs(theirs) for mine, theirs in zip(self.containers, other.containers, strict=True))


def _far(one: int, other: int, least: int) -> bool:
    return abs(one - other) > max(least, _WORTH_SHARE * max(one, other))
