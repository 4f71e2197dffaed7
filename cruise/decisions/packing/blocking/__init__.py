"""Why a pod stays pending: a smallest set of obstacles that together keep it out, and the same in words."""

from cruise.decisions.packing.blocking.unplaced import why_unplaced

__all__ = ["why_unplaced"]
