"""From a packing to a proposal: in the cluster's names, in an order that can be carried out, with sizes."""

from cruise.decisions.packing.proposing.propose import NoOrder, propose

__all__ = ["NoOrder", "propose"]
