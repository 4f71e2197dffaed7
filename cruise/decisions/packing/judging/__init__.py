"""The judge of plans: it replays a proposal on the snapshot's own objects and says what is wrong with it."""

from cruise.decisions.packing.judging.objections import find_objections
from cruise.decisions.packing.judging.sizing import Demand

__all__ = ["Demand", "find_objections"]
