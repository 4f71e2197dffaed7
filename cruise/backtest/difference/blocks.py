"""How often each hour counts in hours drawn anew: in blocks, since neighbouring hours are alike."""

from statistics import NormalDist

import numpy as np

from cruise.domain.arrays import Float64Array

# A block of a third leaves three of them, fewer than which say nothing of how they vary.
_FEWEST_BLOCKS = 3


def draw_hours(rng: np.random.Generator, hours: int, drawn: int, block: int, draws: int) -> Float64Array:
    """Return a matrix (draws, hours): how often each was drawn, `drawn` in all, in blocks that go on at the start."""
    starts = rng.integers(0, hours, (draws, -(-drawn // block)))
    places = ((starts[:, :, None] + np.arange(block)) % hours).reshape(draws, -1)[:, :drawn]
    cells = places + hours * np.arange(draws)[:, None]
    return np.bincount(cells.ravel(), minlength=draws * hours).reshape(draws, hours).astype(np.float64)


def few_blocks_factor(blocks: float, confidence: float) -> float:
    """Return how much wider an interval is to be, since few blocks vary less than what they were drawn from.

    It is Student's t over the normal quantile, for one degree of freedom fewer than there are blocks, at least 2.
    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z, freedom = NormalDist().inv_cdf((1 + confidence) / 2), max(blocks - 1, 2.0)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return 1 + sum(term / freedom ** (at + 1) for at, term in enumerate(terms)) / z


def block_length(series: Float64Array) -> int:
    """Return how many hours a block should have, from how long the series remembers.

    Source: Politis and White, "Automatic block-length selection for the dependent bootstrap", 2004, with the correction
    of Patton, Politis and White, 2009: circular blocks, a flat-top window as long as the autocorrelation is
    significant.
    """
    count = len(series)
    longest = max(1, count // _FEWEST_BLOCKS)
    centred = series - series.mean()
    # What is left of a constant series is rounding.
    if count < 2 * _FEWEST_BLOCKS or float(np.abs(centred).max()) <= 1e-12 * max(1.0, float(np.abs(series).max())):
        return longest if count < 2 * _FEWEST_BLOCKS else 1
    quiet = max(5, int(np.ceil(np.sqrt(np.log10(count)))))
    lags = min(int(np.ceil(np.sqrt(count))) + quiet, count - 1)
    covariance = np.array([centred[: count - lag] @ centred[lag:] for lag in range(lags + 1)]) / count
    window = min(2 * max(_memory(covariance / covariance[0], count, quiet), 1), lags)
    at = np.arange(-window, window + 1)
    taper = np.clip(2 * (1 - np.abs(at) / window), 0, 1)
    weighted = taper * covariance[np.abs(at)]
    spectrum = float(weighted.sum())
    if spectrum <= 0:
        return 1
    slope = float((np.abs(at) * weighted).sum())
    best = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * count ** (1 / 3)
    return int(np.clip(round(best), 1, longest))


def _memory(correlation: Float64Array, count: int, quiet: int) -> int:
    """Return the last lag before `quiet` insignificant ones, else the last significant one."""
    significant = np.abs(correlation[1:]) >= 2 * np.sqrt(np.log10(count) / count)
    for lag in range(len(significant) - quiet + 1):
        if not significant[lag : lag + quiet].any():
            return lag
    return int(np.flatnonzero(significant).max(initial=-1)) + 1
