"""The prices of a core-hour and a GiB-hour in a cluster."""

from collections.abc import Iterable

from cruise.domain.annotations import INSTANCE_TYPE
from cruise.domain.cluster import Node
from cruise.domain.prices import LIST_PRICES, PriceSettings, ResourcePrices


def estimate_prices(nodes: Iterable[Node], settings: PriceSettings) -> ResourcePrices | None:
    """Return the average prices of what pods can request of the nodes, None if no price is known.

    The price of a node is shared between its CPU and memory in the ratio of the stated prices, or of the list prices.
    A node of another instance type, or with accelerators, whose price it includes, has the stated prices; without these
    it is left out.
    """
    stated = settings.resources
    # Two prices of 0 have no ratio.
    ratio = stated if stated is not None and (stated.cpu_core_hour or stated.memory_gib_hour) else LIST_PRICES
    paid, at_ratio = 0.0, 0.0
    for node in nodes if settings.nodes else ():
        price = settings.nodes.get(node.labels.get(INSTANCE_TYPE, ""))
        usual = ratio.compute_hourly_cost(node.allocatable)
        if price is None or _has_accelerator(node):
            if stated is None:
                continue
            price = stated.compute_hourly_cost(node.allocatable)
        paid += price
        at_ratio += usual
    if not at_ratio:
        return settings.resources
    factor = paid / at_ratio
    return ResourcePrices(ratio.cpu_core_hour * factor, ratio.memory_gib_hour * factor)


# Prefixes of the resources by which device plugins offer accelerators.
_ACCELERATORS = (
    "nvidia.com/",
    "amd.com/gpu",
    "gpu.intel.com/",
    "habana.ai/",
    "google.com/tpu",
    "aws.amazon.com/neuron",
)


def _has_accelerator(node: Node) -> bool:
    return any(count and name.startswith(_ACCELERATORS) for name, count in node.allocatable_extended.items())
