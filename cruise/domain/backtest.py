"""Terms and results of backtests: counts, scores by policy, comparisons of two configurations, and prices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from cruise.domain.prices import CORE_HOUR, GIBIBYTE_HOUR
from cruise.domain.resources import Resources

if TYPE_CHECKING:
    # The command line imports the terms and metrics, and starts without numpy.
    from cruise.domain.arrays import Float64Array, Int64Array

# What is replayed.


class PodCreationTime(StrEnum):
    """When the pods of a recording are created."""

    FIRST_SAMPLE = "first-sample"
    START = "start"


class RecordingHalf(StrEnum):
    """A half of the containers, sorted by name: the even or the odd places. One to tune rules on, one to test them."""

    TUNE = "tune"
    REPORT = "report"


# Counts by hour and by group of workloads, from which uncertainty is estimated.

HOUR_SECONDS = 3600


class ReplayQuantity(StrEnum):
    """The quantities that a replay counts, over samples, time or events."""

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


# Counts of H hours, each a matrix (H, groups); one column holds the counts of the cluster as a whole.
HourlyCounts = Mapping[ReplayQuantity, "Float64Array"]


@dataclass(frozen=True, slots=True)
class ResourceScore:
    """Scores of one resource under one policy; formulas in docs/backtest.md.

    `relative_slack` is Σ(request − use) / Σ request. `starved_share` is the share of container-minutes in which a
    container used more than its request while its node's use was above allocatable. `short_share` is the share of node
    intervals in which the peak of the summed use exceeded the summed requests. `mean_slack` is the mean of request −
    use of a container, in millicores or bytes.
    """

    relative_slack: float
    starved_share: float
    short_share: float
    mean_slack: float = 0.0


@dataclass(frozen=True, slots=True)
class ContainerScore:
    """Slack and disturbances of one container under one policy."""

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
    """One node over the replay, one entry a pass; base and headroom are None for policies without them.

    `peak_*` is the largest summed use within the interval that ends at the time.
    """

    node: str
    times: "Int64Array"
    allocatable: Resources
    requested_cpu_millicores: "Int64Array"
    requested_memory_bytes: "Int64Array"
    peak_cpu_millicores: "Int64Array"
    peak_memory_bytes: "Int64Array"
    base_cpu_millicores: "Int64Array | None" = None
    base_memory_bytes: "Int64Array | None" = None
    headroom_cpu_millicores: "Int64Array | None" = None
    headroom_memory_bytes: "Int64Array | None" = None


@dataclass(frozen=True, slots=True)
class AutoscalingScore:
    """What HPAs did under one policy, summed over workloads; `unchanged` is what they would have done without it.

    `differing_minutes` are minutes of workloads with another number of replicas than with the requests as they were;
    `unexplained_minutes` those of them that did not begin within an hour of use above all of the 7 days before.
    Core-minutes are requested while the HPA would be at its minimum with the requests as they were.
    """

    workload_minutes: float = 0.0
    replica_minutes: float = 0.0
    unchanged_replica_minutes: float = 0.0
    scale_events: int = 0
    unchanged_scale_events: int = 0
    differing_minutes: float = 0.0
    unexplained_minutes: float = 0.0
    core_minutes_at_minimum: float = 0.0
    unchanged_core_minutes_at_minimum: float = 0.0

    @property
    def reclaimed_share_at_minimum(self) -> float:
        """The share of the CPU requests at the minimum of replicas that the policy reclaimed."""
        before = self.unchanged_core_minutes_at_minimum
        return 1 - self.core_minutes_at_minimum / before if before else 0.0


@dataclass(frozen=True, slots=True)
class PolicyScore:
    """Scores of one policy; `memory` is None if memory was not recorded.

    `evictions_per_1000_pod_days` includes consolidation's moves, `moves_per_1000_pod_days` counts only those.
    `nodes_mean_by_requests` and `moves_by_requests` are the figures of consolidation by present requests, None if that
    was not replayed. `cost` is None without prices, `autoscaling` without HPAs. `seconds` is the run time of the
    replays.
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
    autoscaling: AutoscalingScore | None = None

    @property
    def own_evictions_per_1000_pod_days(self) -> float:
        """Evictions by the policy itself, without consolidation's moves."""
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


# Comparison of two configurations over the same recording.


class ComparedMetric(StrEnum):
    """The compared metrics; for each, less is better."""

    CPU_SLACK = "cpu-slack"
    MEMORY_SLACK = "memory-slack"
    CPU_STARVED = "cpu-starved"
    OOM_KILLS = "oom-kills"
    RESIZES = "resizes"
    OWN_EVICTIONS = "own-evictions"
    NODES = "nodes"


RATIO_METRICS = frozenset({ComparedMetric.CPU_SLACK, ComparedMetric.MEMORY_SLACK, ComparedMetric.CPU_STARVED})
"""These metrics are shares; their differences are in percentage points."""


class BoundResult(StrEnum):
    """The result of checking a difference against its bound."""

    WITHIN_BOUND = "within-bound"
    INCONCLUSIVE = "inconclusive"  # the difference is within the bound, its interval is not
    EXCEEDED = "exceeded"
    NOT_RECORDED = "not-recorded"


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric under both configurations; `delta` is current − reference, `low` and `high` the ends of its interval.

    `forecasts` counts forecasts from the first part of the recording, `confirmed_forecasts` those whose interval
    contained the later value.
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
    """The bound that was stated for a metric, and its result."""

    bound: float
    result: BoundResult


@dataclass(frozen=True, slots=True)
class ConfigurationComparison:
    """The recorded metrics of a recording, in order; `block_hours` is the length of the bootstrap blocks by metric."""

    result: "BacktestResult"
    metrics: Mapping[ComparedMetric, MetricComparison]
    block_hours: Mapping[ComparedMetric, int]
    skipped_hours: int
    bounds: Mapping[ComparedMetric, BoundCheck] = field(default_factory=dict)

    def find_exceeded_bounds(self, by_interval: bool) -> list[ComparedMetric]:
        """Return the metrics whose bound is exceeded; `by_interval` adds those whose interval exceeds it."""
        wrong = {BoundResult.EXCEEDED, BoundResult.NOT_RECORDED} | (
            {BoundResult.INCONCLUSIVE} if by_interval else set()
        )
        return [metric for metric, check in self.bounds.items() if check.result in wrong]


# Prices of resources and disturbances in dollars; reasons in docs/backtest.md.


@dataclass(frozen=True, slots=True)
class ObjectivePrices:
    """Prices of a core-hour, a GiB-hour, a starved container-minute, an OOM kill, an eviction and a resize.

    Each field is the setting of the same name with the prefix `price_`.
    """

    core_hour: float = CORE_HOUR
    gibibyte_hour: float = GIBIBYTE_HOUR
    starved_minute: float = 0.01
    oom_kill: float = 1.0
    eviction: float = 0.05
    resize: float = 0.0002
