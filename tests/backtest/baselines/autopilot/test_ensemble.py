from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cruise.backtest.baselines.autopilot.ensemble import Ensemble, MetaLearner, decay_of
from cruise.backtest.baselines.autopilot.signal import CPU_BOUNDS, Signal

WINDOW = 300
ONE_MODEL = Ensemble((WINDOW,), (0,), 4.0, 1.0, 0.0, 0.0, WINDOW)
History = list[list[int]]


def learner(ensemble: Ensemble, history: History, jobs: int = 1) -> MetaLearner:
    made = MetaLearner(jobs, CPU_BOUNDS, ensemble, WINDOW)
    for number, window in enumerate(history):
        made.learn(
            Signal(WINDOW * (number + 1), np.zeros(len(window), dtype=np.int64), np.array(window, dtype=np.int64))
        )
    return made


def place_of(made: MetaLearner) -> int:
    return int(np.argmin(np.abs(CPU_BOUNDS - made.recommend()[0])))


def plain(ensemble: Ensemble, history: History) -> int:
    """The equations of the paper one by one, for one job."""
    count = 20
    models = [(half_life, margin) for half_life in ensemble.half_lives_seconds for margin in ensemble.margins]
    over = {model: np.zeros(count) for model in models}
    under = {model: np.zeros(count) for model in models}
    base: dict[tuple[float, int], int] = {}
    proposal: dict[tuple[float, int], int] = {}
    cost = dict.fromkeys(models, 0.0)
    chosen: tuple[float, int] | None = None
    limit = -1
    cost_decay = decay_of(ensemble.cost_half_life_seconds, WINDOW)
    for window in history:
        if not window:
            continue
        used = np.array(window)
        for model in models:
            decay = decay_of(model[0], WINDOW)
            costs = np.zeros(count)
            for place in range(count):
                over[model][place] += decay * (np.mean(used > place) - over[model][place])
                under[model][place] += decay * (np.mean(used < place) - under[model][place])
                changed = model in base and place != base[model]
                costs[place] = ensemble.overrun * over[model][place] + ensemble.underrun * under[model][place]
                costs[place] += ensemble.limit_change * changed
            base[model] = int(np.argmin(costs.round(9)))
            before = proposal.get(model)
            proposal[model] = base[model] + model[1]
            now = ensemble.overrun * np.mean(used > proposal[model])
            now += ensemble.underrun * np.mean(used < proposal[model])
            now += ensemble.limit_change * (proposal[model] != before)
            cost[model] += cost_decay * (float(now) - cost[model])
        totals = [
            cost[model] + ensemble.model_change * (model != chosen) + ensemble.limit_change * (proposal[model] != limit)
            for model in models
        ]
        chosen = models[int(np.argmin(np.round(totals, 9)))]
        limit = proposal[chosen]
    return limit


def test_half_is_left_after_a_half_life() -> None:
    assert decay_of(300, 300) == pytest.approx(0.5)
    assert (1 - decay_of(3600, 300)) ** 12 == pytest.approx(0.5)


def test_a_limit_leaves_out_what_costs_less_to_overrun_than_to_hold() -> None:
    # Nine samples in bucket 5, one in bucket 9. At 5: overrun 0.1; at 9: underrun 0.9.
    window = [5] * 9 + [9]

    assert place_of(learner(replace(ONE_MODEL, overrun=8.9), [window])) == 5
    assert place_of(learner(replace(ONE_MODEL, overrun=9.1), [window])) == 9


def test_the_margin_is_added_to_the_limit() -> None:
    assert place_of(learner(replace(ONE_MODEL, margins=(4,)), [[7, 7]])) == 11


def test_a_limit_stays_while_a_change_costs_more_than_it_saves() -> None:
    # After buckets 5 and 9 at half weight each: at 5 the overrun costs 4 / 2, at 9 the underrun 1 / 4.
    history = [[5], [9]]

    assert place_of(learner(replace(ONE_MODEL, limit_change=1.7), history)) == 9
    assert place_of(learner(replace(ONE_MODEL, limit_change=1.8), history)) == 5


def test_a_job_follows_the_model_that_serves_it_better() -> None:
    # Both models stay at bucket 5 by their long memory when use rises to 9; what they cost is remembered for shorter.
    two = replace(ONE_MODEL, half_lives_seconds=(12 * 3600.0,), margins=(0, 4))

    assert place_of(learner(two, [[5]] * 60)) == 5
    assert place_of(learner(two, [[5]] * 60 + [[9]] * 4)) == 9


def test_a_job_without_samples_stays_as_it_is_and_one_without_history_has_no_limit() -> None:
    made = learner(ONE_MODEL, [[5], [], []], jobs=2)

    assert made.recommend()[0] == CPU_BOUNDS[5]
    assert np.isnan(made.recommend()[1])


@given(
    st.lists(st.lists(st.integers(0, 12), max_size=4), min_size=1, max_size=12),
    st.sampled_from([3.137, 17.29]),
    st.sampled_from([0.0, 0.1307, 1.723]),
)
def test_what_is_kept_up_for_all_jobs_at_once_is_what_the_equations_say(
    history: History, overrun: float, change: float
) -> None:
    ensemble = Ensemble((400.0, 1700.0), (0, 2, 5), overrun, 1.0, change, 0.07, 1100.0)
    assume(any(history))

    assert place_of(learner(ensemble, history)) == plain(ensemble, history)
