"""Somebody to report better packings to."""

from cruise.decisions.packing.packing import Packing


def ignore(_: Packing) -> None:
    """Nobody listens."""
