"""How much CPU a container requests while it starts: a factor of its size, an amount, or what its starts used."""

import math
from dataclasses import dataclass

from cruise.domain.policy import parse_size
from cruise.domain.resources import ResourceName, format_cpu_millicores, quote_text

LARGEST_STARTUP_FACTOR = 10
_LEARN, _OFF = "learn", "off"


@dataclass(frozen=True, slots=True)
class StartupCpu:
    """Either `factor`, of the size after the start, or `cpu_millicores`, or what is learned; all 0: no more than that.

    `is_learned`: the amount is that of the workload's earlier starts.
    """

    factor: float = 0.0
    cpu_millicores: int = 0
    is_learned: bool = False

    def apply_to(self, cpu_millicores: int) -> int:
        """Return the CPU during the start for a size after it, never less than that."""
        return max(cpu_millicores, math.ceil(cpu_millicores * self.factor), self.cpu_millicores)


def parse_startup_cpu(text: str) -> StartupCpu:
    """Parse `2x`, a quantity, `learn` or `off`; ValueError with the fix."""
    if text in (_LEARN, _OFF):
        return StartupCpu(is_learned=text == _LEARN)
    if not text.endswith("x"):
        return StartupCpu(cpu_millicores=parse_size(ResourceName.CPU, text))
    factor = parse_factor(text[:-1])
    if not 1 <= factor <= LARGEST_STARTUP_FACTOR:
        raise ValueError(
            f"{quote_text(text)} is no factor; write one from 1x to {LARGEST_STARTUP_FACTOR}x, such as 2x, an amount, "
            "learn or off"
        )
    return StartupCpu(factor=factor)


def format_startup_cpu(startup_cpu: StartupCpu) -> str:
    """Write what `parse_startup_cpu` parses."""
    if startup_cpu.is_learned:
        return _LEARN
    if startup_cpu == StartupCpu():
        return _OFF
    if not startup_cpu.factor:
        return format_cpu_millicores(startup_cpu.cpu_millicores)
    return f"{format_factor(startup_cpu.factor)}x"


def parse_factor(text: str) -> float:
    """Parse a factor; NaN, which is within no bounds, for any other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def format_factor(factor: float) -> str:
    """Write a factor in the shortest form that is exact."""
    short = f"{factor:g}"
    return short if float(short) == factor else repr(factor)
