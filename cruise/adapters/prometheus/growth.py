"""What counters grew by in each step, from the values that scrapes saw."""

from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import BoolArray, Float64Array, Int64Array

# Of a step: over a shorter time, what a scrape lasts counts.
LEAST_BETWEEN = 0.1


@dataclass(frozen=True, slots=True)
class Spreading:
    """Over how many steps growth is spread, and over how many it is known that there was none.

    `falls_are_resets`: any lower value is one of a counter that began anew; else only one that is less than half.
    """

    span: int
    rest: int
    falls_are_resets: bool


def growth_by_step(
    counters: Float64Array,
    observed: BoolArray,
    ages: Float64Array,
    absent_at: Int64Array,
    most_a_step: float,
    spreading: Spreading,
) -> Float64Array:
    """Return the growth of counters over each step, NaN where unknown; one row a series and one column a step.

    Only `observed` values count, and what lies between two of them is spread evenly; `ages` tells by how many steps
    their scrapes preceded their columns. `absent_at` has for each row the column of a scrape at which its container
    ran and this series was not there yet, -1 where nothing is known of that: its first value is then what it has
    counted since.
    """
    width = counters.shape[1]
    places = np.arange(width)
    last = np.maximum.accumulate(np.where(observed, places, -1), axis=1)
    previous = np.column_stack((np.full(len(counters), -1), last[:, :-1]))
    first = observed & (previous < 0) & (absent_at >= 0)[:, None]
    apart = places - np.where(first, absent_at[:, None], previous)
    between = apart - np.where(first, 0.0, ages - np.take_along_axis(ages, np.maximum(previous, 0), axis=1))
    earlier = np.where(previous >= 0, np.take_along_axis(counters, np.maximum(previous, 0), axis=1), np.nan)
    fell = counters < earlier
    anew = first | (fell if spreading.falls_are_resets else fell & (2 * counters < earlier))
    growth = np.where(anew, np.where(counters <= most_a_step * between, counters, np.nan), counters - earlier)
    growth[fell & ~anew] = np.nan
    unknown = ~observed | (between < LEAST_BETWEEN) | (apart > np.where(growth == 0, spreading.rest, spreading.span))
    growth[unknown] = np.nan
    following = np.minimum.accumulate(np.where(observed, places, width)[:, ::-1], axis=1)[:, ::-1]
    spread = np.take_along_axis(growth / np.where(unknown, 1.0, between), np.minimum(following, width - 1), axis=1)
    spread[(following == width) | ((last < 0) & (places <= absent_at[:, None]))] = np.nan
    return spread
