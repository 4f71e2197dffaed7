"""What Karpenter may order."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cruise.domain.scheduling import Requirement, Taint


@dataclass(frozen=True, slots=True)
class NodePool:
    """What Karpenter may order: how the nodes of a NodePool are labelled and tainted, and how many more there may be.

    `node_class` names the provider's settings of the machines. `limits` and `used` are by resource: millicores of cpu,
    bytes of memory, numbers of all else, `nodes` among them. Taints that go by themselves are left out. `closed` is
    the detail for which nothing is ordered from it, empty where something may be.
    """

    name: str
    node_class: str = ""
    requirements: tuple[Requirement, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    weight: int = 0
    closed: str = ""
