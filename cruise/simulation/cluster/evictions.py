"""The Eviction API: disruption budgets and what they allow."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cruise.domain.cluster import DisruptionBudget
from cruise.domain.scheduling import LabelSelector
from cruise.errors import Refused, Throttled
from cruise.simulation.cluster.state import PodRecord


@dataclass(frozen=True, slots=True)
class BudgetRule:
    """A PodDisruptionBudget's spec: either bound, as a number of pods or as a share such as `50%`."""

    namespace: str
    name: str
    selector: LabelSelector
    min_available: int | str | None = None
    max_unavailable: int | str | None = None

    def covers(self, record: PodRecord) -> bool:
        """Tell whether the budget is about the pod."""
        return record.pod.namespace == self.namespace and self.selector.selects(record.pod.labels)


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """What the disruption controller writes: healthy pods now, and how many there have to be."""

    healthy: int
    desired: int
    expected: int

    @property
    def allowed(self) -> int:
        """How many pods may be disrupted now."""
        return max(0, self.healthy - self.desired) if self.expected > 0 else 0


def budget_status(rule: BudgetRule, records: Iterable[PodRecord]) -> BudgetStatus:
    """Return the status of a budget over all pods of the cluster.

    Healthy is what is ready and not about to end. Expected are the replicas of the covered pods' controllers, or the
    pods themselves where a plain number has to be available. Shares round up. Source: the disruption controller's
    documentation.
    """
    covered = [record for record in records if rule.covers(record) and not record.pod.terminal]
    healthy = sum(_is_healthy(record) for record in covered)
    # Of a controller without a number of replicas each pod counts for itself.
    scaled = {id(record.workload): record.workload for record in covered if record.workload.counts_replicas}
    expected = sum(workload.replicas for workload in scaled.values())
    expected += sum(not record.workload.counts_replicas for record in covered)
    if rule.max_unavailable is not None:
        return BudgetStatus(healthy, max(0, expected - _number(rule.max_unavailable, expected)), expected)
    if isinstance(rule.min_available, str):
        return BudgetStatus(healthy, _number(rule.min_available, expected), expected)
    return BudgetStatus(healthy, rule.min_available or 0, len(covered))


def budgets_seen(rules: Sequence[BudgetRule], records: Sequence[PodRecord]) -> tuple[DisruptionBudget, ...]:
    """Return the budgets as decisions read them, sorted by namespace and name."""
    return tuple(
        DisruptionBudget(rule.namespace, rule.name, rule.selector, budget_status(rule, records).allowed)
        for rule in sorted(rules, key=lambda rule: (rule.namespace, rule.name))
    )


def check_eviction(record: PodRecord, rules: Sequence[BudgetRule], records: Sequence[PodRecord]) -> None:
    """Raise Throttled where a budget forbids the eviction now, Refused where more than one covers the pod."""
    pod = record.pod
    if pod.terminal or pod.terminating or pod.phase == "Pending":
        return
    covering = [rule for rule in rules if rule.covers(record)]
    if not covering:
        return
    if len(covering) > 1:
        raise Refused(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            "MultipleDisruptionBudgets",
        )
    status = budget_status(covering[0], records)
    # An unready pod is disrupted already: it may go as long as enough others are healthy.
    if not record.pod.ready and 0 < status.desired <= status.healthy:
        return
    if status.allowed < 1:
        raise Throttled(
            "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget "
            f"{covering[0].name} needs {status.desired} healthy pods and has {status.healthy} currently",
            cause="DisruptionBudget",
        )


def _is_healthy(record: PodRecord) -> bool:
    return record.pod.ready and not record.pod.terminating


def _number(bound: int | str, expected: int) -> int:
    """Return a bound as a number of pods, shares rounded up."""
    return bound if isinstance(bound, int) else -(-expected * int(bound.removesuffix("%")) // 100)
