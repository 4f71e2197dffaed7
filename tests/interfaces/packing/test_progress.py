import numpy as np

from cruise.interfaces.packing.progress import progress_text
from cruise.packer.answer import Figures, Packing, Status, TierFigures
from cruise.packer.problem import Objective

NOTHING = np.zeros(0, dtype=np.int64)


def packing(after, bound):
    now = Figures((TierFigures(9, 3, 3), TierFigures(0, 5, 5)), 0)
    return Packing(NOTHING, now, Figures(after, 2), bound, Status.FEASIBLE)


def test_incumbent_and_bound_of_the_papers_objective():
    best = packing((TierFigures(9, 4, 3), TierFigures(0, 5, 3)), (4, 3, 7, 5))
    text = progress_text(best, Objective.PAPER, 12)
    assert text == "9 of 12 pods placed, at most 11; 2 leave"


def test_incumbent_and_bound_of_an_operators_objective():
    best = packing((TierFigures(9, 4, 3), TierFigures(0, 6, 5)), (4, 6, -1))
    text = progress_text(best, Objective.OPERATOR, 12)
    assert text == "10 of 12 pods placed, no more can be; 0 leave"
