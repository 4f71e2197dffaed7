"""A promise is judged by the last two days, against what was known before them."""

import numpy as np
import pytest

from cruise.decisions.sizing.headroom.margins import margin_for, margin_of
from cruise.decisions.sizing.headroom.prior import prior_of
from cruise.decisions.sizing.headroom.promise import Promise, promised
from cruise.decisions.sizing.headroom.scores import MEASURE, count_scores
from cruise.domain.headroom import PlaceScores
from cruise.domain.resources import ResourceName

TODAY, CPU = 20_000, ResourceName.CPU
USUAL = count_scores(np.geomspace(0.01, 1, 5000))
NO_COUNTS = np.zeros_like(USUAL)
PRIOR = prior_of([PlaceScores("one", CPU, MEASURE, USUAL, USUAL)], CPU)


def judged(days, today, risk, prior):
    return promised(days, today, risk, prior)[1]


def test_what_is_as_it_was_does_not_drift():
    found = judged({TODAY - age: USUAL for age in range(9)}, TODAY, 0.01, None)
    assert (found.scores, found.passed > 0, found.drifts) == (10_000, True, False)
    assert found.observed == pytest.approx(0.01, rel=0.4)
    assert found.borrowed == 0


def test_a_change_of_the_last_two_days_drifts_although_the_week_knows_of_it():
    past = {TODAY - age: USUAL for age in range(2, 9)}
    found = judged({**past, TODAY: count_scores(np.geomspace(0.1, 10, 5000))}, TODAY, 0.01, None)
    assert found.drifts
    assert found.observed > 0.3


def test_in_the_first_two_days_it_is_the_prior_that_is_judged():
    alike, unlike = (judged({TODAY: counts}, TODAY, 0.01, PRIOR) for counts in (USUAL, 3 * USUAL[::-1]))
    assert not alike.drifts
    assert unlike.drifts


def test_where_the_past_does_not_fit_the_last_two_days_speak_for_themselves():
    past, changed = {TODAY - age: USUAL for age in range(2, 9)}, count_scores(np.geomspace(0.1, 10, 5000))
    margin, promise = promised({**past, TODAY: changed}, TODAY, 0.01, None)
    assert margin.score == promise.margin == margin_of(changed, 0.01, cautious=True).score
    assert margin.score > margin_for({**past, TODAY: changed}, TODAY, 0.01).score
    quiet = {**past, TODAY: USUAL}
    assert promised(quiet, TODAY, 0.01, None)[0] == margin_for(quiet, TODAY, 0.01)


@pytest.mark.parametrize(("asked", "kept", "broken"), [(0.07, 129, 131), (0.01, 30, 31), (0.001, 19, 20)])
def test_far_more_than_asked_is_drift(asked, kept, broken):
    assert not Promise(asked, 1.0, 0.0, 1000, kept).drifts
    assert Promise(asked, 1.0, 0.0, 1000, broken).drifts


def test_a_few_intervals_are_no_drift():
    few = count_scores(np.full(19, 100.0))
    assert not judged({TODAY: few}, TODAY, 0.01, PRIOR).drifts


@pytest.mark.parametrize("days", [{}, {TODAY: USUAL}])
def test_where_nothing_was_promised_nothing_is_judged(days):
    found = judged(days, TODAY, 0.01, None)
    assert (found.scores, found.passed, found.observed, found.drifts) == (0, 0, 0.0, False)
