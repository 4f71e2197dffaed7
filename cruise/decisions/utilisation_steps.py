"""Shows how far an HPA on utilization lets a request change."""

import math
from dataclasses import dataclass

from cruise.decisions.pod_policy.use_history import get_usage_history
from cruise.decisions.sizing.node_sizes import SizingResult
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable


@dataclass(frozen=True, slots=True)
class UtilisationStep:
    """The bounds of an HPA for one container's request, in millicores or bytes.

    `target_percent` is the lowest target of the metrics that count the container, and `margin` the share below it that
    stays free at the `largest_use` of the last 7 days (None: unknown). With `others_rely_on_it` it does not shrink,
    because another pod needs more than it requests. At the maximum of replicas it may only grow, and with
    `is_restoring` only back to what use needs.
    """

    autoscaler: str
    is_at_minimum: bool
    is_restoring: bool
    target_percent: int
    margin: float
    largest_use: int | None
    others_rely_on_it: bool
    lower: int
    upper: int


def build_utilisation_step(
    sized: SizingResult, at: int, resource: ResourceName, statistics: StatisticsTable
) -> UtilisationStep | None:
    """Return the step of one container, None if no HPA bounds its request."""
    table = sized.columns.table
    pod = table.candidates.pods[int(table.candidates.pod_of_container[at])]
    bounds, found = pod.utilisation_bounds, table.utilisation_bounds.get(resource)
    if bounds is None or found is None or resource not in bounds.metrics:
        return None
    lower, upper = (int(one[at]) for one in found)
    name = pod.sized[at - int(table.candidates.first_container[table.candidates.pod_of_container[at]])].name
    counting = [one for one in bounds.metrics[resource] if one.container in ("", name)]
    if not counting:
        return None
    metric = min(counting, key=lambda one: one.target_percent)
    largest = int(get_usage_history(statistics, table.rows[at : at + 1], resource).largest[0])
    return UtilisationStep(
        autoscaler=bounds.autoscaler,
        is_at_minimum=bounds.is_at_minimum,
        is_restoring=bool(bounds.restoring_only),
        target_percent=metric.target_percent,
        margin=max(0.0, 1 - 100 / (metric.target_percent * metric.peak_factor)),
        largest_use=None if largest >= UNBOUNDED else largest,
        others_rely_on_it=bounds.is_at_minimum and math.isinf(metric.peak_factor),
        lower=lower,
        upper=upper,
    )
