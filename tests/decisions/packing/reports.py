"""A receiver for reports of better packings."""

from cruise.packer.answer import Packing


def ignore(_: Packing) -> None:
    """Ignore the report."""
