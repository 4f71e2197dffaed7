"""Shows how the sizes of a Guaranteed pod were computed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.guaranteed import get_guaranteed_usage
from cruise.decisions.sizing.node_sizes import SizingResult
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable


@dataclass(frozen=True, slots=True)
class GuaranteedStep:
    """How a request, which is the limit as well, was computed, in millicores or bytes.

    It is increased to `grown` and decreased to `shrunk`, each a margin above the `largest_use`, and stays in between.
    It increases only within its ceiling and the free capacity of the node, and decreases only if the history is long.
    """

    largest_use: int
    growth_margin: float
    grown: int
    shrink_margin: float
    shrunk: int
    has_long_history: bool


def build_guaranteed_steps(
    sized: SizingResult, at: int, statistics: StatisticsTable, policy: Policy
) -> Mapping[ResourceName, GuaranteedStep]:
    """Return the steps of one container by resource, none for a pod of another QoS class."""
    table = sized.columns.table
    if not table.candidates.guaranteed[table.candidates.pod_of_container[at]]:
        return {}
    uses = get_guaranteed_usage(statistics, table.rows[at : at + 1], policy)
    return {
        resource: GuaranteedStep(
            int(use.largest[0]),
            policy.guaranteed_growth_margin,
            int(np.ceil(use.largest[0] * policy.guaranteed_growth_margin)),
            policy.guaranteed_shrink_margin,
            int(np.ceil(use.largest[0] * policy.guaranteed_shrink_margin)),
            bool(use.has_long_history[0]),
        )
        for resource, use in uses.items()
    }
