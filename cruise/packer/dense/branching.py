"""What a question leaves uncertain that a tree may branch on, and whether fillings are an answer to it."""

from dataclasses import replace

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.dense.phase import Phase

# The relaxed right-hand sides let fractions of this size in where everything is whole.
_WHOLE = 1e-2
# What nothing asks for is split as well, after all that something does.
_LEAST_PRICE = 1e-3


def of_single_nodes(phase: Phase) -> Phase:
    """The same question with each node as a group, in the order of the groups."""
    spread = np.repeat(np.arange(len(phase.group_size)), phase.group_size)
    return replace(
        phase,
        node_group=np.argsort(np.argsort(phase.node_group, kind="stable"), kind="stable"),
        group_size=np.ones(len(spread), dtype=np.int64),
        room=phase.room[spread],
        floor=phase.floor[spread],
        limits=phase.limits[spread],
        running=phase.running[spread],
        row_share=phase.row_share[:, spread],
    )


def uncertain(
    groups: IntArray, amounts: FloatArray, fillings: IntArray, prices: FloatArray
) -> tuple[int, int, int] | None:
    """A group, a class and so many of its copies that the group may have or not; None where all is certain.

    Of the uncertain ones the dearest, at `prices[group, class]`. `amounts[k]` tells how much a group uses of a filling.
    """
    means = np.zeros(prices.shape)
    np.add.at(means, groups, amounts[:, None] * fillings)
    least = np.floor(means + _WHOLE).astype(np.int64) + 1
    part = np.minimum(means - least + 1.0, least - means)
    if part.max(initial=0.0) <= _WHOLE:
        more = fillings >= least[groups]
        above, below = np.zeros_like(means), np.zeros_like(means)
        np.add.at(above, groups, amounts[:, None] * more)
        np.add.at(below, groups, amounts[:, None] * ~more)
        part = np.minimum(above, below)
    # What is worth most first: of two that are as uncertain it decides about more.
    weight = np.where(part > _WHOLE, part * (_LEAST_PRICE + np.maximum(prices, 0.0)), 0.0)
    if not weight.any():
        return None
    group, c = divmod(int(np.argmax(weight)), part.shape[1])
    return group, c, int(least[group, c])


def reaches(phase: Phase, groups: IntArray, fillings: IntArray, target: int) -> bool:
    """Tell whether one filling a node meets every demand and the target, in whole numbers."""
    placed = np.minimum(fillings.sum(axis=0), phase.counts)
    stayed = np.minimum(fillings, phase.running[groups]).sum(axis=0)
    if (np.bincount(groups, minlength=len(phase.group_size)) > phase.group_size).any():
        return False
    if (placed < phase.counts)[phase.must].any():
        return False
    for need in range(len(phase.need_least)):
        figures = stayed if phase.need_stays[need] else placed
        if figures[phase.need_members[need]].sum() < phase.need_least[need]:
            return False
    return phase.value(placed, stayed) >= target
