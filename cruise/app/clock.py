"""The clock of the real world, read here and nowhere else."""

from datetime import UTC, datetime


def wall_clock() -> datetime:
    """Return the time now."""
    return datetime.now(UTC)  # noqa: TID251 - the edge that hands time to everything else
