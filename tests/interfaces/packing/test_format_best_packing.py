import numpy as np

from cruise.interfaces.packing.table import format_best_packing
from cruise.packer.answer import Packing, PackingFigures, PackingStatus, PriorityFigures
from cruise.packer.problem import PackingObjective

NOTHING = np.zeros(0, dtype=np.int64)


def packing(after, bound):
    now = PackingFigures((PriorityFigures(9, 3, 3), PriorityFigures(0, 5, 5)), 0)
    return Packing(NOTHING, now, PackingFigures(after, 2), bound, PackingStatus.FEASIBLE)


def test_incumbent_and_bound_of_the_papers_objective():
    best = packing((PriorityFigures(9, 4, 3), PriorityFigures(0, 5, 3)), (4, 3, 7, 5))
    text = format_best_packing(best, PackingObjective.PAPER, 12)
    assert text == "9 of 12 pods placed, at most 11; 2 evicted"


def test_incumbent_and_bound_of_an_operators_objective():
    best = packing((PriorityFigures(9, 4, 3), PriorityFigures(0, 6, 5)), (4, 6, -1))
    text = format_best_packing(best, PackingObjective.OPERATOR, 12)
    assert text == "10 of 12 pods placed, no more can be; 0 evicted"
