"""Whether the series of one container agree: those of replicas do within a scrape, those of an impostor do not.

Replicas of a server scrape the same counter at other moments of a step. So what one shows at a step, the other has
passed two steps later, and neither falls. A container that was restarted has two ids for a while, of which the older
counts no more. Where series disagree it cannot be told which one is right, so the steps around have no sample.
"""

from collections.abc import Sequence

import numpy as np

from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.resources import MEBIBYTE

# By how many steps replicas may be apart: one for the moment of the scrape, one for values that the target has cached.
STEPS_APART = 2
# By how many steps one may be behind while its scrapes are missed: a server repeats a value for five minutes.
STEPS_BEHIND = 7
# Which steps around a contradiction of counters are in doubt.
STEPS_IN_DOUBT = 5
GAUGE_SHARE = 0.1
GAUGE_SLACK_BYTES = 16 * MEBIBYTE
COUNTER_SLACK_SECONDS = 0.01


def folded_counters(
    one: Float64Array, other: Float64Array, before: Float64Array, most_a_step: float
) -> tuple[Float64Array, BoolArray]:
    """Fold pairs of counters (a row a pair, a column a step) into one each, and tell where they disagree.

    `before` is what the fold was one step earlier, NaN where that is not known; no counter grows by more than
    `most_a_step`. The lower of two counts, unless it is behind what was seen already: of the steps of which it is not
    known yet whether both agree, the growth is then not overstated. Where it stands still beside the other there is
    none.
    """
    folded = np.fmax(one, other)
    # Where both were reset, or the one that is left, it counts from below what was seen.
    reset = (_spread(_fell(one), STEPS_APART) | np.isnan(one)) & (_spread(_fell(other), STEPS_APART) | np.isnan(other))
    latest = before.copy()
    for step in range(folded.shape[1]):
        earlier, low, high = latest, np.fmin(one[:, step], other[:, step]), folded[:, step]
        with np.errstate(invalid="ignore"):
            kept = np.where(low >= latest, low, np.where((high >= latest) | reset[:, step], high, latest))
        kept = np.where(np.isnan(latest) | np.isnan(high), high, kept)
        latest = np.where(np.isnan(kept), latest, kept)
        # One of them was not scraped, or rests beside an impostor: what came in between is not known.
        with np.errstate(invalid="ignore"):
            folded[:, step] = np.where((low == kept) & (low == earlier) & (high > low), np.nan, kept)
    with np.errstate(invalid="ignore"):
        far_apart = (np.abs(one - other) > STEPS_BEHIND * most_a_step) & ~reset
    return folded, _in_doubt(_contradicts(one, other) | _contradicts(other, one) | far_apart)


def gauges_disagree(one: Float64Array, other: Float64Array) -> BoolArray:
    """Tell where one of two gauges (a row a pair, a column a step) is beyond what the other shows around that step."""
    return _beyond(one, other) | _beyond(other, one)


def live_twice(counters: Float64Array, owners: Int64Array, count: int) -> BoolArray | None:
    """Tell of each container at which steps two of its ids count, as (containers, steps); None where none does.

    A row of `counters` is an id's, its first column is the step before; `owners` are the rows' containers.
    """
    found: BoolArray | None = None
    for owner, rows in _several(owners):
        conflicts = _conflicts(counters[rows])
        if conflicts is not None:
            if found is None:
                found = np.zeros((count, counters.shape[1] - 1), dtype=np.bool_)
            found[owner] = conflicts
    return found


def started_beside_another(counters: Float64Array, owners: Int64Array) -> BoolArray | None:
    """Tell at which steps an id was first seen while another id of its container still grew; None where none was.

    What it had counted by then is not known to be of that step.
    """
    found: BoolArray | None = None
    for _, rows in _several(owners):
        of_container = counters[rows]
        present, grew = ~np.isnan(of_container), _grew(of_container)
        first = present[:, 1:] & ~np.logical_or.accumulate(present, axis=1)[:, :-1]
        beside = first & (grew.sum(axis=0) > 0)
        if beside.any():
            if found is None:
                found = np.zeros((len(counters), counters.shape[1] - 1), dtype=np.bool_)
            found[rows] = beside
    return found


def _contradicts(one: Float64Array, other: Float64Array) -> BoolArray:
    """Tell where a counter shows less than the other did two steps before, or falls while the other does not."""
    found = np.zeros(one.shape, dtype=np.bool_)
    fresh = np.ones(one.shape, dtype=np.bool_)
    # A value that is repeated may be from before the other's: the scrape was missed.
    fresh[:, 1:] = one[:, 1:] != one[:, :-1]
    with np.errstate(invalid="ignore"):
        behind = one[:, STEPS_APART:] + COUNTER_SLACK_SECONDS < other[:, :-STEPS_APART]
        found[:, STEPS_APART:] = behind & fresh[:, STEPS_APART:]
    fell, both = _fell(one), ~np.isnan(one) & ~np.isnan(other)
    near = _spread(_fell(other), STEPS_APART)
    # Both were reset: what was before is not comparable to what came after.
    reset = _spread(fell & near, 2 * STEPS_APART)
    return (found & ~reset) | (fell & both & ~near)


def _fell(counters: Float64Array) -> BoolArray:
    found = np.zeros(counters.shape, dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        found[:, 1:] = counters[:, 1:] < counters[:, :-1]
    return found


def _grew(counters: Float64Array) -> BoolArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(counters[:, 1:] > counters[:, :-1], dtype=np.bool_)


def _in_doubt(contradicted: BoolArray) -> BoolArray:
    return _spread(contradicted, STEPS_IN_DOUBT) if contradicted.any() else contradicted


def _spread(marks: BoolArray, steps: int) -> BoolArray:
    """Mark the steps around each mark too."""
    spread = marks.copy()
    for shift in range(1, min(steps, marks.shape[1] - 1) + 1):
        spread[:, shift:] |= marks[:, :-shift]
        spread[:, :-shift] |= marks[:, shift:]
    return spread


def _beyond(one: Float64Array, other: Float64Array) -> BoolArray:
    low, high = other.copy(), other.copy()
    for shift in range(1, min(STEPS_APART, other.shape[1] - 1) + 1):
        low[:, shift:] = np.fmin(low[:, shift:], other[:, :-shift])
        low[:, :-shift] = np.fmin(low[:, :-shift], other[:, shift:])
        high[:, shift:] = np.fmax(high[:, shift:], other[:, :-shift])
        high[:, :-shift] = np.fmax(high[:, :-shift], other[:, shift:])
    with np.errstate(invalid="ignore"):
        over = one > high * (1 + GAUGE_SHARE) + GAUGE_SLACK_BYTES
        under = one < low * (1 - GAUGE_SHARE) - GAUGE_SLACK_BYTES
    return np.asarray(over | under, dtype=np.bool_)


def _several(owners: Int64Array) -> Sequence[tuple[int, Int64Array]]:
    """Return the containers that have more than one row, with their rows."""
    if not len(owners):
        return []
    several = np.flatnonzero(np.bincount(owners) > 1)
    if not len(several):
        return []
    order = np.argsort(owners, kind="stable")
    starts, ends = np.searchsorted(owners[order], several), np.searchsorted(owners[order], several, side="right")
    return [(int(one), order[start:end]) for one, start, end in zip(several, starts, ends, strict=True)]


def _conflicts(counters: Float64Array) -> BoolArray | None:
    """Tell at which steps an older id of one container goes on counting beside a newer one."""
    present, grew = ~np.isnan(counters), _grew(counters)
    rows = np.flatnonzero(present.any(axis=1))
    first = present.argmax(axis=1)
    found = np.zeros(counters.shape[1] - 1, dtype=np.bool_)
    for place, newer in enumerate(sorted(rows.tolist(), key=lambda row: int(first[row]))):
        for older in sorted(rows.tolist(), key=lambda row: int(first[row]))[:place]:
            both = present[older, 1:] & present[newer, 1:]
            both[: max(0, first[newer])] = False
            counts = both & grew[older]
            if not counts.any() or (first[older] == first[newer] and not (both & grew[newer]).any()):
                continue
            steps = np.flatnonzero(both)
            if not _alike(*(counters[row, steps[-1] + 1] - counters[row, steps[0]] for row in (older, newer))):
                found |= both
                found[max(0, first[newer] - 1)] = True
    return found if found.any() else None


def _alike(one: float, other: float) -> bool:
    """Tell whether two counters grew by the same, as two names of one control group do."""
    return abs(one - other) <= GAUGE_SHARE * max(one, other) + 1.0
