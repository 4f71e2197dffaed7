"""A plan that is being carried out: what comes next, from how far it is and from the cluster as it is now."""

from cruise.decisions.packing.execution.next_step import Step, begun, decide_next_step
from cruise.decisions.packing.execution.outcomes import learnt
from cruise.decisions.packing.execution.rest import Subjects, subjects_of

__all__ = ["Step", "Subjects", "begun", "decide_next_step", "learnt", "subjects_of"]
