"""A packing in the cluster's own names, with the order in which it can be carried out."""

from cruise.domain.packing import Arrival, Preemption, Proposal, Sizes, Stage, TierLine, Unplaced

__all__ = ["Arrival", "Preemption", "Proposal", "Sizes", "Stage", "TierLine", "Unplaced"]
