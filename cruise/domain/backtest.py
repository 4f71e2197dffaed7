"""What a replay of recorded usage found, policy by policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cruise.domain.arrays import Int64Array
from cruise.domain.backtest_cells import Cells
from cruise.domain.resources import Resources


@dataclass(frozen=True, slots=True)
class ResourceScore:
    """One resource under one policy; formulas in docs/backtest.md.

    `relative_slack` is Σ(request − use) / Σ request; `starved_share` the share of container-minutes in which a
    container used more than its request while its node's use was over its allocatable; `short_share` the share of
    intervals of nodes in which the largest summed use passed the summed requests. `mean_slack` is the mean of
    request − use of a container, in millicores or bytes.
    """

    relative_slack: float
    starved_share: float
    short_share: float
    mean_slack: float = 0.0


@dataclass(frozen=True, slots=True)
class ContainerScore:
    """One container under one policy: what it wasted and what it suffered."""

    namespace: str
    workload: str
    pod: str
    cpu_slack_millicores: float  # mean of request − use
    memory_slack_bytes: float
    starved_minutes: float
    oom_kills: int
    evictions: int
    resizes: int


@dataclass(frozen=True, slots=True)
class NodeTimeLine:
    """One node over the replay, one entry a pass; base and headroom are None where a policy does not think in them.

    `peak` is the largest summed use within the interval that ends at the time.
    """

    node: str
    times: Int64Array
    allocatable: Resources
    requested_cpu_millicores: Int64Array
    requested_memory_bytes: Int64Array
    peak_cpu_millicores: Int64Array
    peak_memory_bytes: Int64Array
    base_cpu_millicores: Int64Array | None = None
    base_memory_bytes: Int64Array | None = None
    headroom_cpu_millicores: Int64Array | None = None
    headroom_memory_bytes: Int64Array | None = None


@dataclass(frozen=True, slots=True)
class PolicyScore:
    """One policy's replay, summed up; `memory` is None where memory was not recorded.

    `evictions_per_1000_pod_days` has consolidation's moves as well, `moves_per_1000_pod_days` those alone.
    `nodes_mean_by_requests` and `moves_by_requests` are the figures where consolidation judges by the requests that
    pods have, None where that was not replayed. `cost` is an estimate from prices, None without any. `worst` has the
    containers that suffered or wasted most, `cells` what was counted by hour. `seconds` is how long the replays took.
    """

    policy: str
    cpu: ResourceScore
    memory: ResourceScore | None
    oom_per_1000_container_days: float
    resizes_per_container_day: float
    resize_reversal_share: float
    evictions_per_1000_pod_days: float
    moves_per_1000_pod_days: float
    nodes_mean: float
    nodes_peak: int
    pending_pod_minutes: float
    container_days: float
    nodes_mean_by_requests: float | None = None
    moves_by_requests: float | None = None
    cost: float | None = None
    worst: Sequence[ContainerScore] = ()
    time_line: NodeTimeLine | None = None
    cells: Cells | None = None
    seconds: float = 0.0

    @property
    def own_evictions_per_1000_pod_days(self) -> float:
        """The evictions that the policy itself wanted."""
        return self.evictions_per_1000_pod_days - self.moves_per_1000_pod_days


@dataclass(frozen=True, slots=True)
class BacktestResult:
    """All policies over one recording; `capped_containers` requested more than a node has, and were cut to it."""

    trace: str
    containers: int
    days: float
    step_seconds: int
    node: Resources
    policies: Mapping[str, PolicyScore] = field(default_factory=dict)
    capped_containers: int = 0
