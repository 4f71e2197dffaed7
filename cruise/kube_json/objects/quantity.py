"""Quantities where they stand in objects: refusals name the place."""

from cruise.domain.quantity import QuantityError, parse_cpu_millicores, parse_memory_bytes
from cruise.domain.resources import NO_AMOUNTS, Amounts
from cruise.errors import BadInput
from cruise.kube_json.wire.pod_json import QuantityMap, QuantityText

MOST = 1 << 53
"""More millicores or bytes than any machine has; capped here, so that the sums of a node stay within 64 bits."""


def read_cpu(value: QuantityText | None, place: str) -> int | None:
    """Read a CPU quantity in millicores; None for null. Raises BadInput that names `place`."""
    if value is None:
        return None
    try:
        return _checked(parse_cpu_millicores(value if type(value) is str else str(value)), value, place)
    except QuantityError as error:
        raise BadInput(f"{place}: {error}") from error


def read_memory(value: QuantityText | None, place: str) -> int | None:
    """Read a memory quantity in bytes, or a plain count; None for null. Raises BadInput that names `place`."""
    if value is None:
        return None
    try:
        return _checked(parse_memory_bytes(value if type(value) is str else str(value)), value, place)
    except QuantityError as error:
        raise BadInput(f"{place}: {error}") from error


def _checked(amount: int, value: QuantityText, place: str) -> int:
    if amount < 0:
        raise BadInput(f'{place}: "{value}" is negative; write an amount of 0 or more')
    return min(amount, MOST)


def read_amounts(values: QuantityMap | None, place: str) -> Amounts:
    """Read CPU and memory of a resource list; what is absent or null stays absent."""
    if not values:
        return NO_AMOUNTS
    return Amounts(
        read_cpu(values.get("cpu"), f"{place}.cpu"),
        read_memory(values.get("memory"), f"{place}.memory"),
    )


def is_counted(resource: str) -> bool:
    """Tell whether kube-scheduler adds up a resource by its name: all but CPU, memory, pods and attached volumes."""
    return resource not in ("cpu", "memory", "pods") and not resource.startswith("attachable-volumes-")


def read_extended(values: QuantityMap | None, place: str) -> dict[str, int]:
    """Read how much of extended resources, huge pages and local storage a resource list has."""
    counts = {}
    for resource, value in (values or {}).items():
        if is_counted(resource):
            count = read_memory(value, f"{place}.{resource}")
            if count is not None:
                counts[resource] = count
    return counts
