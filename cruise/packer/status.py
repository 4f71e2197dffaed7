"""What is known about a packing."""

from enum import StrEnum


class Status(StrEnum):
    """What is known about a plan."""

    OPTIMAL = "optimal"
    ALREADY_OPTIMAL = "already-optimal"
    FEASIBLE = "feasible"
    NO_IMPROVEMENT = "no-improvement"
