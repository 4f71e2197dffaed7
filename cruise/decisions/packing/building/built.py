"""A packing problem with the objects that its indices stand for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.domain.actions import RefusedTarget
from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing import Sizes
from cruise.domain.policy import Policy
from cruise.domain.unplaced import Unplaced
from cruise.domain.usage import StatisticsTable
from cruise.packer.answer import Note
from cruise.packer.problem import Problem


@dataclass(frozen=True, slots=True)
class Usage:
    """What sizes are decided from: the same as the node pass reads.

    `unsizable` are uids of pods that keep the sizes they have: a plan found that nothing smaller can be written.
    """

    statistics: StatisticsTable
    now: datetime
    stored: StoredOverrides = field(default_factory=dict)
    refused: Mapping[str, RefusedTarget] = field(default_factory=dict)
    unsizable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A problem, and by its indices: `pods` (sorted by namespace and name) and `nodes` (sorted by name).

    `left_out` are pending pods that no place could help: they are in no class. `exclusion_obstacles` and
    `limit_obstacles` have what each exclusion and each eviction limit is, `unmovable` the detail for which each running
    pod stays (None: it may be moved).
    """

    snapshot: Snapshot
    policy: Policy
    sizes: Sizes
    usage: Usage
    problem: Problem
    pods: tuple[Pod, ...]
    nodes: tuple[Node, ...]
    left_out: tuple[Unplaced, ...] = ()
    notes: tuple[Note, ...] = ()
    exclusion_obstacles: tuple[Obstacle, ...] = ()
    limit_obstacles: tuple[Obstacle, ...] = ()
    unmovable: tuple[str | None, ...] = ()
