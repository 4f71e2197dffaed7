"""Amounts as people read them: three significant digits at most, the unit always there."""

import math
from datetime import datetime

from cruise.domain.resources import MEBIBYTE, ResourceName

GIBIBYTE = 1 << 30
_MANY = 100
_EXACT_UNITS = {ResourceName.CPU: "m", ResourceName.MEMORY: "Mi"}


def cpu_text(millicores: int) -> str:
    """Write CPU in millicores below ten cores, in cores above: `130m`, `2500m`, `12.5`; none as `–`."""
    if abs(millicores) < 10_000:
        return f"{millicores}m" if millicores else "–"
    return cores_text(millicores)


def cores_text(millicores: int) -> str:
    """Write CPU in cores: `0.13`, `12.5`, `1,204`."""
    cores = millicores / 1000
    if abs(cores) >= _MANY:
        return f"{cores:,.0f}"
    return f"{cores:.1f}" if abs(cores) >= 10 else f"{cores:.2f}"


def memory_text(memory_bytes: int) -> str:
    """Write memory as Kubernetes does, shortened: `257Mi`, `1.5Gi`; none as `–`."""
    if abs(memory_bytes) >= _MANY * GIBIBYTE:
        return f"{memory_bytes / GIBIBYTE:,.0f}Gi"
    if abs(memory_bytes) >= GIBIBYTE:
        return f"{memory_bytes / GIBIBYTE:.1f}Gi"
    if abs(memory_bytes) >= MEBIBYTE or not memory_bytes:
        return f"{memory_bytes / MEBIBYTE:.0f}Mi" if memory_bytes else "–"
    return f"{memory_bytes}B"


def gibibytes_text(memory_bytes: int) -> str:
    """Write memory in GiB without the unit: `0.25`, `12.5`, `1,204`."""
    return cores_text(round(memory_bytes * 1000 / GIBIBYTE))


def exact_text(resource: ResourceName, value: float) -> str:
    """Write an amount so that sums can be followed: CPU to 0.1m, memory to 0.1Mi."""
    amount = round(value, 1) if resource is ResourceName.CPU else round(value / MEBIBYTE, 1)
    return f"{amount:.0f}{_EXACT_UNITS[resource]}" if amount == int(amount) else f"{amount}{_EXACT_UNITS[resource]}"


def age_text(now: datetime, then: datetime, ago: bool = True) -> str:
    """Write how long ago something was: `40s ago`, `12m ago`, `3h ago`, `5d ago`; what is ahead is `just now`."""
    seconds = max(0, int((now - then).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size or (seconds >= size and not seconds % size):
            return f"{seconds // size}{unit}{' ago' if ago else ''}"
    if not seconds and ago:
        return "just now"
    return f"{seconds}s{' ago' if ago else ''}"


def share_text(part: float, whole: float) -> str:
    """Write a share in whole percent, `–` of nothing; what is not quite nothing or all does not read so."""
    if whole <= 0:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "<1%"
    if 99.5 <= percent < 100:
        return ">99%"
    return f"{percent:.0f}%"


def count_text(number: int, one: str, many: str | None = None) -> str:
    """Write a count with its noun: `1 pod`, `1,204 pods`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def money_text(amount: float) -> str:
    """Write an amount of money in whole dollars, in cents where there are few: `$1,204`, `$3.20`, `-$12`."""
    sign, size = ("-" if amount < 0 else ""), abs(amount)
    return f"{sign}${size:,.0f}" if size >= 10 else f"{sign}${size:.2f}"


def percent_text(share: float) -> str:
    """Write a share in percent without the sign, in five characters: `0`, `0.012`, `3.21`, `54.3`; unknown as `–`."""
    percent = 100 * share
    if not math.isfinite(percent):
        return "–"
    size = abs(percent)
    if 0 < size < 0.001:
        return "<.001"
    digits = 0 if not size or size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{percent:,.{digits}f}"


def rate_text(rate: float) -> str:
    """Write how often something happens: `0`, `0.31`, `12.5`, `1,204`; unknown as `–`."""
    if not math.isfinite(rate):
        return "–"
    if 0 < rate < 0.01:
        return "<.01"
    digits = 0 if not rate or rate >= 100 else 1 if rate >= 10 else 2
    return f"{rate:,.{digits}f}"
