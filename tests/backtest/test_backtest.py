"""Several policies over one recording."""

import pytest

from cruise.backtest.backtest import backtest
from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.replay.replay import replay
from cruise.backtest.replay.terms import Terms
from tests.backtest.replay.test_replay import made_up


def test_policies_are_replayed_one_after_the_other_in_the_order_asked():
    recording, terms = made_up(hours=1, step=300), Terms()
    told: list[tuple[str, float]] = []
    result = backtest(
        recording,
        ["cruise", "as-requested"],
        terms,
        on_progress=lambda name, share: told.append((name, share)),
        watched_node="node-001",
    )
    assert list(result.policies) == ["cruise", "as-requested"]
    assert [name for name, share in told if share == 1.0] == ["cruise", "as-requested"]
    assert (result.trace, result.containers, result.step_seconds) == ("made-up", 12, 300)
    assert (result.days, result.node) == (1 / 24, terms.node)
    for score in result.policies.values():
        assert score.seconds > 0
        assert score.time_line is not None and score.time_line.node == "node-001"


def test_a_score_does_not_depend_on_who_was_replayed_before():
    recording, terms = made_up(hours=1), Terms()
    result = backtest(recording, ["cruise", "as-requested"], terms)
    alone = replay(recording, POLICIES["as-requested"](recording, terms), terms)
    assert result.policies["as-requested"].cpu == alone.cpu
    assert result.policies["as-requested"].worst == alone.worst


def test_a_policy_that_does_not_exist_is_a_key_error():
    with pytest.raises(KeyError):
        backtest(made_up(hours=1), ["guesswork"], Terms())
