"""What a headroom model answers: the room that the pods of a node share above their bases."""

from typing import Protocol

from cruise.decisions.sizing.headroom.risk_level import KeptRisk
from cruise.decisions.sizing.recommendation import Demand
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.resources import ResourceName


class Headroom(Protocol):
    """One model, prepared for the statistics of one pass.

    What it has to know about a node beside the sum of the bases and the largest single headroom are sums over the
    containers of the node's pods that stay.
    """

    def rule(self, resource: ResourceName) -> str:
        """Name the model by which the headroom of a resource is found."""
        ...

    def kept_risk(self, resource: ResourceName) -> KeptRisk | None:
        """Return how the stated risk was kept lately, None for a model without one."""
        ...

    def extras(self, resource: ResourceName, rows: Int64Array, demand: Demand) -> Float64Array:
        """Return what is to be summed up over a node's containers: (C, W), W may be 0.

        `rows` are the containers' rows in the statistics, `demand` what they need of the resource.
        """
        ...

    def of_nodes(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return each node's headroom, from the sum of its bases, its largest single headroom, and its sums (N, W)."""
        ...
