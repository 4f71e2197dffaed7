"""Scores of other places stand in for those that are missing, and are gone when there are enough."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.sizing.headroom.margins import LEAST_DAYS, margin_for, margin_of, margin_with
from cruise.decisions.sizing.headroom.prior import FIRST_DAYS, Prior, prior_of
from cruise.decisions.sizing.headroom.scores import BUCKETS, GROWTH, LEAST, MEASURE, WANTED, count_scores
from cruise.domain.headroom import PlaceScores
from cruise.domain.resources import ResourceName

CPU = ResourceName.CPU
NOTHING = np.zeros(BUCKETS, dtype=np.int64)
buckets = st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(1, 500), max_size=12)
risks = st.sampled_from([0.5, 0.1, 0.07, 1e-2, 1e-3, 1e-4])


def counts_of(chosen):
    counts = NOTHING.copy()
    for bucket, count in chosen.items():
        counts[bucket] = count
    return counts


def place(first, later=NOTHING, resource=CPU, name="one", measure=MEASURE):
    return PlaceScores(name, resource, measure, first, later)


def pooled(*places: PlaceScores) -> Prior:
    prior = prior_of(places, CPU)
    assert prior is not None
    return prior


@st.composite
def priors(draw):
    drawn = draw(st.lists(st.tuples(buckets.filter(bool), buckets), min_size=1, max_size=4))
    return pooled(*(place(counts_of(first), counts_of(later)) for first, later in drawn))


@given(priors())
def test_shares_sum_to_one(prior):
    for days in range(LEAST_DAYS):
        assert prior.shares(days).sum() == pytest.approx(1)
        assert (prior.shares(days) >= 0).all()


def test_every_place_counts_the_same_however_long_it_was_seen():
    short, long = place(count_scores(np.ones(100))), place(count_scores(np.full(100_000, 10.0)))
    prior = pooled(short, long)
    assert sorted(prior.first_day[prior.first_day > 0]) == [0.5, 0.5]
    assert prior.least_risk == WANTED / 100


def test_a_place_that_was_seen_for_a_day_only_goes_on_like_that():
    first, later = count_scores(np.ones(10)), count_scores(np.full(10, 5.0))
    prior = pooled(place(first), place(first, later))
    assert (prior.shares(FIRST_DAYS) == first / 10).all()
    assert (prior.shares(FIRST_DAYS + 1) == (first + later) / 20).all()


def test_scores_of_another_measure_or_resource_are_left_aside():
    counts = count_scores(np.ones(10))
    assert prior_of([place(counts, measure=MEASURE + 1), place(counts, resource=ResourceName.MEMORY)], CPU) is None
    assert prior_of([place(np.ones(10, dtype=np.int64))], CPU) is None


@given(priors(), risks)
def test_without_own_scores_it_is_the_prior_s_own_quantile(prior, risk):
    margin = margin_with(prior, 1, NOTHING, risk)
    bucket = round(np.log(margin.score / LEAST) / np.log(GROWTH))
    shares = prior.first_day
    assert shares[bucket + 1 :].sum() <= risk + 1e-9
    # One score that is yet to come is counted as large, as in every conformal quantile.
    assert shares[bucket:].sum() >= risk / WANTED - 1e-9
    assert margin.borrowed == 1


@given(priors(), st.integers(1, 20), buckets.filter(bool), risks)
def test_with_enough_own_scores_it_is_their_quantile(prior, times, chosen, risk):
    counts = counts_of(chosen)
    counts = counts * times * int(np.ceil(WANTED / risk / counts.sum()))
    for cautious in (False, True):
        assert margin_with(prior, 1, counts, risk, cautious) == margin_of(counts, risk, cautious)


@given(priors(), buckets, risks, st.booleans())
def test_it_is_never_below_what_own_scores_leave(prior, chosen, risk, cautious):
    counts = counts_of(chosen)
    margin, own = margin_with(prior, 1, counts, risk, cautious), margin_of(counts, risk, cautious)
    assert margin.score >= own.score
    assert margin.proven >= own.proven


@given(priors(), buckets, risks, risks, st.booleans())
def test_who_asks_for_less_risk_gets_no_smaller_margin(prior, chosen, one, other, cautious):
    less, more = sorted((one, other))
    counts = counts_of(chosen)
    assert margin_with(prior, 1, counts, less, cautious).score >= margin_with(prior, 1, counts, more, cautious).score


@given(priors(), buckets, risks)
def test_what_is_borrowed_falls_with_every_own_score(prior, chosen, risk):
    counts = counts_of(chosen)
    more = counts + count_scores(np.ones(7))
    before, after = margin_with(prior, 1, counts, risk).borrowed, margin_with(prior, 1, more, risk).borrowed
    assert 0 <= after <= before <= 1
    assert after < before or before == 0


def test_a_risk_of_which_the_prior_knows_too_little_is_not_proven():
    prior = pooled(place(count_scores(np.geomspace(1, 9, 1000))))
    assert margin_with(prior, 1, NOTHING, WANTED / 1000).proven
    assert not margin_with(prior, 1, NOTHING, WANTED / 1001).proven


def test_a_shipped_margin_needs_neither_a_week_nor_a_day():
    prior = Prior(count_scores(np.ones(10)) / 10, count_scores(np.full(10, 5.0)) / 10, least_risk=1e-3)
    today = 20_000
    assert margin_for({}, today, 0.01, prior).proven
    assert margin_for({}, today, 0.01).proven is False
    third = {today - age: count_scores(np.ones(1)) for age in range(3)}
    assert margin_for(third, today, 0.01, prior).score > 4 > margin_for({}, today, 0.01, prior).score
