"""Amounts of resources as people read them."""

from cruise.decisions.packing.building.amounts import ATTACH
from cruise.domain.resources import MEBIBYTE

_GIBIBYTE = 1024 * MEBIBYTE


def amount_words(resource: str, amount: int) -> str:
    """An amount that is short, never understated: `700 m CPU`, `1.5 GiB memory`, `2 nvidia.com/gpu`."""
    if resource == "cpu":
        return f"{amount:,} m CPU"
    if resource == "memory":
        return f"{_bytes(amount)} memory"
    if resource == "pods":
        return "1 pod" if amount == 1 else f"{amount} pods"
    if resource.startswith(ATTACH):
        return f"{amount} volume{'' if amount == 1 else 's'} of {resource.removeprefix(ATTACH)}"
    return f"{amount} {resource}"


def joined(parts: list[str], word: str = "and") -> str:
    """Parts of a sentence as a list."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def _bytes(amount: int) -> str:
    if amount >= _GIBIBYTE:
        tenths = -(-amount * 10 // _GIBIBYTE)
        return f"{tenths // 10}.{tenths % 10} GiB" if tenths % 10 else f"{tenths // 10} GiB"
    return f"{-(-amount // MEBIBYTE)} MiB"
