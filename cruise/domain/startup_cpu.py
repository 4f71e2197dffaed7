"""How much CPU a container requests while it starts: a factor of its own size, or an amount."""

import math
from dataclasses import dataclass

from cruise.domain.policy import parse_size
from cruise.domain.resources import ResourceName, format_cpu_millicores, quote_text

LARGEST_STARTUP_FACTOR = 10


@dataclass(frozen=True, slots=True)
class StartupCpu:
    """Either `factor`, of the size after the start, or `cpu_millicores`; the other is 0."""

    factor: float = 0.0
    cpu_millicores: int = 0

    def apply_to(self, cpu_millicores: int) -> int:
        """Return the CPU during the start for a size after it, never less than that."""
        return max(cpu_millicores, math.ceil(cpu_millicores * self.factor), self.cpu_millicores)


def read_startup_cpu(text: str) -> StartupCpu:
    """Parse `2x` or a quantity; ValueError with the fix."""
    if not text.endswith("x"):
        return StartupCpu(cpu_millicores=parse_size(ResourceName.CPU, text))
    try:
        factor = float(text[:-1])
    except ValueError:
        factor = math.nan
    if not 1 <= factor <= LARGEST_STARTUP_FACTOR:
        raise ValueError(
            f"{quote_text(text)} is no factor; write one from 1x to {LARGEST_STARTUP_FACTOR}x, such as 2x, or an amount"
        )
    return StartupCpu(factor=factor)


def write_startup_cpu(startup_cpu: StartupCpu) -> str:
    """Write what `read_startup_cpu` parses."""
    if not startup_cpu.factor:
        return format_cpu_millicores(startup_cpu.cpu_millicores)
    short = f"{startup_cpu.factor:g}"
    return f"{short if float(short) == startup_cpu.factor else repr(startup_cpu.factor)}x"
