"""Shows how the sizes of a Guaranteed pod came about."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.guaranteed import get_guaranteed_use
from cruise.decisions.sizing.node_sizes import SizingResult
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable


@dataclass(frozen=True, slots=True)
class GuaranteedStep:
    """How a request, which is the limit as well, came about, in millicores or bytes.

    `wanted` is the `largest_use` times `margin`; it is more than the present size only as far as the node has free
    capacity, and less only if the history is long.
    """

    largest_use: int
    margin: float
    wanted: int
    has_long_history: bool


def build_guaranteed_steps(
    sized: SizingResult, at: int, statistics: StatisticsTable, policy: Policy
) -> Mapping[ResourceName, GuaranteedStep]:
    """Return the steps of one container by resource, none for a pod of another QoS class."""
    table = sized.columns.table
    if not table.candidates.guaranteed[table.candidates.pod_of_container[at]]:
        return {}
    uses = get_guaranteed_use(statistics, table.rows[at : at + 1], policy)
    return {
        resource: GuaranteedStep(
            int(use.largest[0]),
            policy.guaranteed_margin,
            int(np.ceil(use.largest[0] * policy.guaranteed_margin)),
            bool(use.has_long_history[0]),
        )
        for resource, use in uses.items()
    }
