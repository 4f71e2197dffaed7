"""Somebody to report better packings to."""

from cruise.packer.answer import Packing


def ignore(_: Packing) -> None:
    """Nobody listens."""
