"""Autopilot's meta-learner: many simple models propose a limit, and each job follows the one that served it best.

Source: Rzadca et al., EuroSys 2020, section 3.2.3, equations 4 to 9. The paper's: the equations, and how their weights
are found: by a sweep over recorded usage for what wastes least without more overruns or changes of limits than the
moving windows have. The models and weights themselves are not published.

Ours: over- and underruns are shares of a window's samples, not counts, so that a weight means the same at any number of
tasks and samples; a margin is a number of buckets, hence a limit is always a boundary; equation 9 compares with the
limit of the window before; ties go to the lower limit and the first model. Models and weights come from such a sweep:
133 settings for CPU and 93 for memory, on the first 7 days of at most 40 series (every other one of a trace) of
bitbrains, google2011, nezha-trainticket and, for CPU, azure2017. These are the settings of least slack that overran in
no more than 1.05 times as many samples as the moving windows. No setting wasted less than those at as few overruns:
mean slack over traces .657 against .632 for CPU and .369 against .362 for memory, though limits changed less often (1.2
against 4.1 and .75 against .83 times a container-day). So the moving windows are the baseline, and this is an option.
"""

import math
from dataclasses import dataclass

import numpy as np

from cruise.backtest.baselines.autopilot.signal import BUCKETS, Signal
from cruise.domain.arrays import Float32Array, Float64Array, Int64Array


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The models, one for each pair of a half-life and a margin (in buckets), and the five weights."""

    half_lives_seconds: tuple[float, ...]
    margins: tuple[int, ...]
    overrun: float
    underrun: float
    limit_change: float
    model_change: float
    cost_half_life_seconds: float


_HOUR = 3600.0
CPU_ENSEMBLE = Ensemble((0.25 * _HOUR, _HOUR, 4 * _HOUR, 16 * _HOUR), (3,), 30.0, 1.0, 0.3, 0.0, 12 * _HOUR)
MEMORY_ENSEMBLE = Ensemble((_HOUR, 6 * _HOUR, 24 * _HOUR, 96 * _HOUR), (5,), 300.0, 1.0, 0.3, 0.1, 12 * _HOUR)


class MetaLearner:
    """The limits of J jobs, kept as places among the boundaries of buckets; -1 is none yet."""

    def __init__(self, jobs: int, bounds: Float64Array, ensemble: Ensemble, window_seconds: int) -> None:
        """Start with no history."""
        self._bounds = bounds
        self._ensemble = ensemble
        self._decays = [decay_of(half_life, window_seconds) for half_life in ensemble.half_lives_seconds]
        self._cost_decay = decay_of(ensemble.cost_half_life_seconds, window_seconds)
        rates, models = len(self._decays), len(self._decays) * len(ensemble.margins)
        self._up_to: Float32Array = np.zeros((rates, jobs, BUCKETS), dtype=np.float32)
        self._base: Int64Array = np.full((rates, jobs), -1, dtype=np.int64)
        self._proposal: Int64Array = np.full((models, jobs), -1, dtype=np.int64)
        self._cost = np.zeros((models, jobs))
        self._model: Int64Array = np.full(jobs, -1, dtype=np.int64)
        self._limit: Int64Array = np.full(jobs, -1, dtype=np.int64)

    def learn(self, signal: Signal) -> None:
        """Take in a window; a job without a sample in it stays as it is."""
        counts = np.bincount(signal.jobs, minlength=len(self._limit))
        sampled = np.flatnonzero(counts)
        if not sampled.size:
            return
        places = np.bincount(signal.jobs * BUCKETS + signal.buckets, minlength=len(counts) * BUCKETS)
        shares = places.reshape(-1, BUCKETS)[sampled] / counts[sampled, None]
        up_to = np.cumsum(shares, axis=1).astype(np.float32)
        for rate, decay in enumerate(self._decays):
            self._propose(rate, decay, sampled, up_to)
        self._judge(sampled, up_to)
        self._choose(sampled)

    def _propose(self, rate: int, decay: float, sampled: Int64Array, up_to: Float32Array) -> None:
        """Pick L'_m, the limit of least cost (equations 4 to 6)."""
        weights = self._ensemble
        smooth = self._up_to[rate, sampled]
        smooth += np.float32(decay) * (up_to - smooth)
        self._up_to[rate, sampled] = smooth
        cost = np.float32(-weights.overrun) * smooth
        cost[:, 1:] += np.float32(weights.underrun) * smooth[:, :-1]
        before = self._base[rate, sampled]
        known = np.flatnonzero(before >= 0)
        cost[known, before[known]] -= np.float32(weights.limit_change)
        self._base[rate, sampled] = np.argmin(cost, axis=1)

    def _judge(self, sampled: Int64Array, up_to: Float32Array) -> None:
        """Add the margins, and smooth what each model costs (equations 7 and 8)."""
        weights = self._ensemble
        rows = np.arange(len(sampled))
        for rate in range(len(self._decays)):
            for number, margin in enumerate(weights.margins):
                model = rate * len(weights.margins) + number
                proposal = np.minimum(self._base[rate, sampled] + margin, BUCKETS - 1)
                overrun = 1.0 - up_to[rows, proposal]
                underrun = np.where(proposal > 0, up_to[rows, proposal - 1], 0.0)
                changed = proposal != self._proposal[model, sampled]
                cost = weights.overrun * overrun + weights.underrun * underrun + weights.limit_change * changed
                self._cost[model, sampled] += self._cost_decay * (cost - self._cost[model, sampled])
                self._proposal[model, sampled] = proposal

    def _choose(self, sampled: Int64Array) -> None:
        """Follow the model of least cost, loath to change it or the limit (equation 9)."""
        weights = self._ensemble
        proposals = self._proposal[:, sampled]
        models = np.arange(len(proposals))[:, None]
        cost = (
            self._cost[:, sampled]
            + weights.model_change * (models != self._model[sampled])
            + weights.limit_change * (proposals != self._limit[sampled])
        )
        best = np.argmin(cost, axis=0)
        self._model[sampled] = best
        self._limit[sampled] = proposals[best, np.arange(len(sampled))]

    def recommend(self) -> Float64Array:
        """Return the limit of every job, NaN for one that has no history."""
        return np.where(self._limit >= 0, self._bounds[self._limit], np.nan)


def decay_of(half_life_seconds: float, window_seconds: int) -> float:
    """Return the share d by which each window replaces what was before it, so that half is left after a half-life."""
    return 1.0 - math.exp2(-window_seconds / half_life_seconds)
