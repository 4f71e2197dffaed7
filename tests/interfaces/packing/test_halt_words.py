from dataclasses import replace

import pytest

from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import Phase
from cruise.interfaces.packing.halt_words import halt_words, plan_halt_words
from tests.interfaces.packing.packing_plans import PLAN


@pytest.mark.parametrize("code", HaltCode)
def test_every_halt_has_words_with_what_is_behind_it(code):
    words = halt_words(Halt(code, "shop/web", "what is behind it"))
    assert words
    assert "{" not in words
    assert not words.endswith(".")


def test_more_of_a_kind_are_counted():
    assert halt_words(Halt(HaltCode.NODE_GONE, "n1", more=2)) == "node n1 is gone (and 2 more)"
    assert halt_words(None) == ""


@pytest.mark.parametrize(
    ("phase", "halt", "words"),
    [
        (Phase.SHOWN, Halt(HaltCode.MODE, "observe"), "mode observe: shown only"),
        (Phase.SHOWN, Halt(HaltCode.NO_EVICTIONS, "resize"), "mode resize evicts no pods: shown only"),
        (Phase.SHOWN, Halt(HaltCode.NOTHING_TO_DO), "nothing to do"),
        (Phase.DROPPED, Halt(HaltCode.MODE, "observe"), "mode observe"),
        (Phase.DROPPED, Halt(HaltCode.CANNOT_RESIZE, "shop/a", "n1"), "node n1 cannot resize shop/a as planned"),
        (Phase.UNDER_WAY, Halt(HaltCode.HELD, "shop/a", "budget-node"), "budget-node: shop/a"),
        (Phase.UNDER_WAY, None, ""),
    ],
)
def test_a_plan_that_is_only_shown_says_so(phase, halt, words):
    assert plan_halt_words(replace(PLAN, phase=phase, halt=halt)) == words
