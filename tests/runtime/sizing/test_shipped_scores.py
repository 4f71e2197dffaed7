"""What comes with cruise is whole, and speaks for the risks that people state."""

from dataclasses import replace

import numpy as np
import pytest

from cruise.decisions.sizing.headroom.margins import margin_for
from cruise.decisions.sizing.headroom.scores import BUCKETS, MEASURE
from cruise.domain.policy import HeadroomStart, Policy
from cruise.domain.resources import ResourceName
from cruise.domain.rules import SEEDS
from cruise.runtime.sizing.shipped_scores import packed, shipped_priors, shipped_scores


def test_every_place_has_whole_counts_of_today_s_measure():
    found = shipped_scores()
    assert len({(one.place, one.resource) for one in found}) == len(found) >= 9
    for one in found:
        assert one.measure == MEASURE
        assert one.first_day.sum() > 10_000
        assert len(one.first_day) == len(one.later) == BUCKETS


@pytest.mark.parametrize("resource", list(ResourceName))
def test_a_first_pass_keeps_to_one_in_a_thousand_and_to_less_only_with_all_headrooms(resource):
    prior = shipped_priors(Policy())[resource]
    margins = [margin_for({}, 20_000, risk, prior) for risk in (7e-2, 1e-2, 1e-3, 1e-4)]
    assert [one.proven for one in margins] == [True, True, True, False]
    assert 0 < margins[0].score < margins[1].score < margins[2].score <= margins[3].score


@pytest.mark.parametrize("start", [HeadroomStart.SHARED_MAX, HeadroomStart.SUM_OF_PEAKS])
def test_other_starts_borrow_nothing(start):
    assert shipped_priors(Policy(headroom_start=start)) == {}


def test_the_first_design_borrows_nothing_and_starts_as_it_did():
    policy = Policy(rules=SEEDS)
    assert shipped_priors(policy) == {}
    assert policy.starts_with is HeadroomStart.SHARED_MAX
    assert replace(policy, headroom_start=HeadroomStart.SUM_OF_PEAKS).starts_with is HeadroomStart.SUM_OF_PEAKS
    assert Policy().starts_with is HeadroomStart.PRIOR


def test_only_counts_are_written():
    counts = np.zeros(BUCKETS, dtype=np.int64)
    counts[[3, 700]] = 5, 1
    assert packed(counts) == "3:5 700:1"
