"""How much CPU and memory a machine can have: what states more is a slip of the unit."""

from cruise.domain.policy import FLOOR
from cruise.domain.quantity import (
    format_cpu_millicores,
    format_memory_bytes,
    parse_cpu_millicores,
    parse_memory_bytes,
)
from cruise.domain.quoting import quoted
from cruise.domain.resources import ResourceName, Resources

# More than any machine has that can be bought, and the largest that is rented by the hour.
LARGEST_MACHINE = Resources(2_048_000, 64 << 40)
LARGEST_RENTED = Resources(448_000, 24 << 40)
# A quantity without its `m`, and one with the next larger binary suffix.
_SLIP = {ResourceName.CPU: 1000, ResourceName.MEMORY: 1024}
_WRITE = {ResourceName.CPU: format_cpu_millicores, ResourceName.MEMORY: format_memory_bytes}
_PARSE = {ResourceName.CPU: parse_cpu_millicores, ResourceName.MEMORY: parse_memory_bytes}
_EXAMPLE = {ResourceName.CPU: "500m", ResourceName.MEMORY: "512Mi"}


def why_too_large(resource: ResourceName, text: str, largest: Resources = LARGEST_MACHINE) -> str:
    """Say that a quantity is more than any node has, and what was probably meant; empty where it is not.

    `largest` is what the largest node has.
    """
    amount, most, write = _PARSE[resource](text), largest.of(resource), _WRITE[resource]
    if amount <= most:
        return ""
    meant = -(-amount // _SLIP[resource])
    likely = FLOOR.of(resource) <= meant <= most
    ending = f"did you mean {write(meant)}?" if likely else f"write e.g. {_EXAMPLE[resource]}"
    return f"{quoted(text)} is more than any node has (at most {write(most)}); {ending}"


def read_size(resource: ResourceName, text: str, *, may_be_zero: bool = False) -> int:
    """Read a size from the smallest request to the largest machine. Raises ValueError with the fix."""
    amount, least = _PARSE[resource](text), FLOOR.of(resource)
    if amount < 0:
        raise ValueError(f"{quoted(text)} is negative")
    if amount < least and (amount or not may_be_zero):
        smallest = _WRITE[resource](least)
        raise ValueError(f"{quoted(text)} is below {smallest}, the smallest request; write e.g. {_EXAMPLE[resource]}")
    too_large = why_too_large(resource, text)
    if too_large:
        raise ValueError(too_large)
    return amount
