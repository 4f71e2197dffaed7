"""From a snapshot to a packing problem: classes of pods, what each may do, and the rules between them."""

from cruise.decisions.packing.building.build import AS_FULL, NOTHING_KNOWN, build_problem
from cruise.decisions.packing.building.built import Built, Usage

__all__ = ["AS_FULL", "NOTHING_KNOWN", "Built", "Usage", "build_problem"]
