"""The prices of a core-hour and a GiB-hour in a cluster."""

from collections.abc import Iterable, Mapping

from cruise.domain.annotations import INSTANCE_TYPE, SPOT_NODE_LABELS
from cruise.domain.cluster import Node
from cruise.domain.prices import LIST_PRICES, SPOT_SUFFIX, PriceSettings, ResourcePrices


def estimate_prices(nodes: Iterable[Node], settings: PriceSettings) -> ResourcePrices | None:
    """Return the average prices of what pods can request of the nodes, None if no price is known.

    The price of a node is shared between its CPU and memory in the ratio of the stated prices, or of the list prices.
    A spot node has the price stated for its type on spot, if one is. A node of another instance type, or with
    accelerators, whose price it includes, has the stated prices; without these it is left out.
    """
    stated = settings.resources
    # Two prices of 0 have no ratio.
    ratio = stated if stated is not None and (stated.cpu_core_hour or stated.memory_gib_hour) else LIST_PRICES
    paid, at_ratio = 0.0, 0.0
    for node in nodes if settings.nodes else ():
        price = _find_price(node, settings.nodes)
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
    currency = LIST_PRICES.currency if stated is None else stated.currency
    return ResourcePrices(ratio.cpu_core_hour * factor, ratio.memory_gib_hour * factor, currency)


def _find_price(node: Node, prices: Mapping[str, float]) -> float | None:
    """Return the stated price of a node, None without one."""
    name = node.labels.get(INSTANCE_TYPE, "")
    is_spot = any(node.labels.get(label) == value for label, value in SPOT_NODE_LABELS.items())
    price = prices.get(f"{name}{SPOT_SUFFIX}") if is_spot else None
    return prices.get(name) if price is None else price


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
