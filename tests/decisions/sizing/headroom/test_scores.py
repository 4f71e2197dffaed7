import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.sizing.headroom.margins import LEAST_DAYS, MOST_DAYS, UNKNOWN, margin_for, margin_of
from cruise.decisions.sizing.headroom.scores import BUCKETS, GROWTH, LEAST, count_scores
from cruise.domain.arrays import Int64Array

values = st.floats(2 * LEAST, 1e4)
risks = st.sampled_from([0.5, 0.1, 1e-2, 1e-3])


@given(st.lists(values, min_size=1, max_size=300), risks)
def test_a_margin_is_the_score_at_the_conformal_place_rounded_up_by_less_than_a_bucket(scores, risk):
    margin = margin_of(count_scores(np.array(scores)), risk)
    place = math.ceil((len(scores) + 1) * (1 - risk) - 1e-9)
    exact = sorted(scores)[min(place, len(scores)) - 1]
    assert margin.proven == (place <= len(scores))
    assert exact * (1 - 1e-6) <= margin.score <= exact * GROWTH * (1 + 1e-6)


@given(st.lists(values, min_size=1, max_size=200), risks, risks, st.booleans())
def test_who_asks_for_less_risk_gets_no_smaller_margin(scores, one, other, cautious):
    counts = count_scores(np.array(scores))
    less, more = sorted((one, other))
    assert margin_of(counts, less, cautious).score >= margin_of(counts, more, cautious).score
    assert margin_of(counts, less, True).score >= margin_of(counts, less).score


@given(st.lists(values, min_size=1, max_size=100), st.randoms(use_true_random=False))
def test_the_order_of_scores_counts_for_nothing(scores, random):
    shuffled = list(scores)
    random.shuffle(shuffled)
    assert count_scores(np.array(scores)).tolist() == count_scores(np.array(shuffled)).tolist()


def test_what_is_beyond_the_buckets_is_in_the_outermost():
    counts = count_scores(np.array([-5.0, 0.0, LEAST, 1e300]))
    assert (counts[0], counts[BUCKETS - 1], counts.sum()) == (3, 1, 4)


def test_nothing_is_known_without_scores():
    assert margin_of(np.zeros(BUCKETS, dtype=np.int64), 0.1) == UNKNOWN
    assert margin_for({}, 20_000, 0.1) == UNKNOWN


@pytest.mark.parametrize(("scores", "proven"), [(98, False), (99, True)])
def test_a_promise_of_one_in_a_hundred_takes_ninety_nine_scores(scores, proven):
    assert margin_of(count_scores(np.ones(scores)), 0.01).proven is proven


def test_a_week_is_looked_at_and_more_only_where_it_is_too_little():
    today, ones, tens = 20_000, count_scores(np.ones(1000)), count_scores(np.full(1000, 10.0))
    days = {today - age: ones for age in range(LEAST_DAYS + 1)} | {today - LEAST_DAYS - 1: tens}
    assert margin_for(days, today, 0.1).score < 1.03
    assert margin_for(days, today, 1e-4).score > 9.9
    long_ago = {today - MOST_DAYS - 1: tens, today: ones}
    assert margin_for(long_ago, today, 1e-4).score < 1.03


def test_less_than_a_week_of_days_is_taken_cautiously():
    today, counts = 20_000, count_scores(np.geomspace(1, 100, 1000))
    week = {today - age: counts for age in range(LEAST_DAYS)}
    short = {today - age: counts for age in range(LEAST_DAYS - 1)}
    assert margin_for(short, today, 0.1).score > margin_for(week, today, 0.1).score


@pytest.mark.parametrize("risk", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("tail", ["light", "heavy"])
def test_the_promise_is_kept_where_what_comes_is_like_what_was(risk, tail):
    """The number of scores above the margin lies within four standard deviations of what was asked, and not below."""
    random = np.random.default_rng(7)
    past, trials = 200, 40_000
    above = intervals = 0
    days: dict[int, Int64Array] = {}
    for day in range(past):
        scores = random.lognormal(0, 1, trials // past) if tail == "light" else random.pareto(1.5, trials // past) + 1
        if day >= MOST_DAYS:
            above += int((scores > margin_for(days, day, risk).score).sum())
            intervals += len(scores)
        days[day] = count_scores(scores)
    deviation = math.sqrt(intervals * risk)
    assert above <= intervals * risk + 4 * deviation
    # A bucket is up to two per cent wide, which the margin is above the score: in a heavy tail that is little.
    assert above >= 0.85 * intervals * risk - 4 * deviation
