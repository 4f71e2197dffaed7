"""What a replay of recorded usage found, policy by policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from cruise.domain.resources import Float64Array, Int64Array, Resources

# What a replay counted, hour by hour and by groups of workloads: what uncertainty is estimated from.

HOUR_SECONDS = 3600


class ReplayCount(StrEnum):
    """What is counted; samples and sums of one resource are over samples, the others over time or events."""

    CPU_REQUESTED = "cpu-requested"
    CPU_USED = "cpu-used"
    CPU_SAMPLES = "cpu-samples"
    CPU_STARVED = "cpu-starved"
    MEMORY_REQUESTED = "memory-requested"
    MEMORY_USED = "memory-used"
    CONTAINER_MINUTES = "container-minutes"
    OOM_KILLS = "oom-kills"
    RESIZES = "resizes"
    EVICTIONS = "evictions"
    CONSOLIDATION_MOVES = "consolidation-moves"
    NODE_MINUTES = "node-minutes"
    MINUTES = "minutes"


@dataclass(frozen=True, slots=True)
class HourlyCounts:
    """Counts of H hours: each a matrix (H, groups), with one column for what belongs to the cluster as a whole."""

    counts: Mapping[ReplayCount, Float64Array]


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
    worst_containers: Sequence[ContainerScore] = ()
    time_line: NodeTimeLine | None = None
    hourly_counts: HourlyCounts | None = None
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


# What two configurations make of the same recording, and how sure that is.

if TYPE_CHECKING:
    # The command line names the figures, and starts without numpy.
    pass


class ComparedMetric(StrEnum):
    """What is compared; less is better of each."""

    CPU_SLACK = "cpu-slack"
    MEMORY_SLACK = "memory-slack"
    CPU_STARVED = "cpu-starved"
    OOM_KILLS = "oom-kills"
    RESIZES = "resizes"
    OWN_EVICTIONS = "own-evictions"
    NODES = "nodes"


RATIO_METRICS = frozenset({ComparedMetric.CPU_SLACK, ComparedMetric.MEMORY_SLACK, ComparedMetric.CPU_STARVED})
"""The figures that are shares, and differ by percentage points."""


class BoundResult(StrEnum):
    """How a difference stands to its bound."""

    WITHIN_BOUND = "within-bound"
    INCONCLUSIVE = "inconclusive"  # the difference is within the bound, and its interval reaches beyond
    EXCEEDED = "exceeded"
    NOT_RECORDED = "not-recorded"


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One figure: `delta` is this configuration's less the other's, `low` and `high` the ends of its interval.

    Of `forecasts` made from the first part of the recording, `held` had what came next within their interval.
    """

    current: float
    reference: float
    delta: float
    low: float
    high: float
    forecasts: int
    confirmed_forecasts: int


@dataclass(frozen=True, slots=True)
class BoundCheck:
    """The largest difference that was stated for a figure, and how it stands."""

    bound: float
    result: BoundResult


@dataclass(frozen=True, slots=True)
class ConfigurationComparison:
    """A recording's figures that were recorded, in order; `block_hours` is how long the blocks were, for each."""

    result: "BacktestResult"
    metrics: Mapping[ComparedMetric, MetricComparison]
    block_hours: Mapping[ComparedMetric, int]
    skipped_hours: int
    bounds: Mapping[ComparedMetric, BoundCheck] = field(default_factory=dict)

    def find_exceeded_bounds(self, whole_interval: bool) -> list[ComparedMetric]:
        """Return the figures whose bound is broken; with `whole_interval` those as well that may break it."""
        wrong = {BoundResult.EXCEEDED, BoundResult.NOT_RECORDED} | (
            {BoundResult.INCONCLUSIVE} if whole_interval else set()
        )
        return [figure for figure, judged in self.bounds.items() if judged.result in wrong]


# What resources and disturbances cost, in dollars unless somebody states other prices; reasons in docs/backtest.md.

CORE_HOUR = 0.0145
GIBIBYTE_HOUR = 0.00724


@dataclass(frozen=True, slots=True)
class ObjectivePrices:
    """Prices of an hour of a core and of a GiB, of a starved container-minute, and of single kills, evictions, resizes.

    The fields are the settings of the same names with `price_` before them.
    """

    core_hour: float = CORE_HOUR
    gibibyte_hour: float = GIBIBYTE_HOUR
    starved_minute: float = 0.01
    oom_kill: float = 1.0
    eviction: float = 0.05
    resize: float = 0.0002
