"""How a HorizontalPodAutoscaler scales by utilization: its metrics, its replicas, and its tolerance.

Utilization is the use of the ready pods divided by their requests, in whole percent. A metric wants
ceil(utilization / target × replicas), and the present replicas while the quotient is within the tolerance around 1.
The largest number that any metric wants counts (pkg/controller/podautoscaler of Kubernetes).
"""

from dataclasses import dataclass
from typing import NamedTuple

from cruise.domain.resources import ResourceName

DEFAULT_TOLERANCE = 0.1
"""The controller manager's flag --horizontal-pod-autoscaler-tolerance by default."""
DEFAULT_SCALE_DOWN_SECONDS = 300
"""The window whose largest wanted number of replicas counts before pods are removed, by default."""


class UtilisationMetric(NamedTuple):
    """A metric with target type Utilization, of all containers or of one `container`.

    `reported_percent` is what the controller measured last, at least the target, and at most one more unless the
    replicas are at their maximum: decisions do not depend on more, and it changes with every sync. None if it could not
    measure. `average_request` is the mean request of the measured pods, in millicores or bytes, to a few percent; None
    at the minimum of replicas unless the metric is above its target and may add pods, or if unknown.
    """

    resource: ResourceName
    container: str
    target_percent: int
    reported_percent: int | None = None
    average_request: int | None = None


def report_utilization(
    metric: UtilisationMetric, percent: int, average_request: int | None, *, is_at_minimum: bool, is_at_maximum: bool
) -> UtilisationMetric:
    """Return a metric with what the controller measured, as far as decisions depend on it."""
    most = percent if is_at_maximum else metric.target_percent + 1
    adds_or_removes_pods = not is_at_minimum or percent > metric.target_percent
    average = _round_to_steps(average_request) if average_request and adds_or_removes_pods else None
    return metric._replace(reported_percent=max(metric.target_percent, min(percent, most)), average_request=average)


def _round_to_steps(amount: int) -> int:
    """Round to five significant bits, so that the percent's rounding changes the result rarely."""
    unit = 1 << max(0, amount.bit_length() - 5)
    return (amount + unit // 2) // unit * unit


@dataclass(frozen=True, slots=True)
class UtilisationScaling:
    """The metrics on utilization and the replicas of an HPA, as its controller reported them.

    `is_active`: the controller can compute and change the number of replicas. `tolerance` applies before pods are
    removed, `scale_down_seconds` is the stabilization window of that.
    """

    metrics: tuple[UtilisationMetric, ...]
    min_replicas: int
    max_replicas: int
    current_replicas: int
    desired_replicas: int
    is_active: bool
    tolerance: float = DEFAULT_TOLERANCE
    scale_down_seconds: int = DEFAULT_SCALE_DOWN_SECONDS
