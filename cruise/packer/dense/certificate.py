"""What a solve claims about its plan, and how far from proved the rest is."""

from dataclasses import dataclass

from cruise.packer.answer import Status
from cruise.packer.arrays import IntArray
from cruise.packer.dense.entries import entries_of, key_of
from cruise.packer.dense.instance import Instance


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """An assignment, its `key` and that of what runs now, and the proved bounds.

    `bounds` has for each entry of the key what no plan surpasses that is as good in the entries before; `about_stays`
    tells which entries are about staying.
    """

    assignment: IntArray
    status: Status
    now: tuple[int, ...]
    key: tuple[int, ...]
    bounds: tuple[int, ...]
    about_stays: tuple[bool, ...]

    @property
    def proved(self) -> bool:
        """Whether no plan is better."""
        return self.status in (Status.OPTIMAL, Status.ALREADY_OPTIMAL)

    @property
    def counts_proved(self) -> bool:
        """Whether no plan as good for the higher priorities places more of any priority."""
        entries = zip(self.key, self.bounds, self.about_stays, strict=True)
        return all(stays or figure == bound for figure, bound, stays in entries)


def certify(instance: Instance, assignment: IntArray, bounds: IntArray) -> Solution:
    """The solution that an assignment and its bounds make."""
    now, key = key_of(instance, instance.running), key_of(instance, assignment)
    proved = key == tuple(bounds.tolist())
    if key > now:
        status = Status.OPTIMAL if proved else Status.FEASIBLE
    else:
        status = Status.ALREADY_OPTIMAL if proved else Status.NO_IMPROVEMENT
    return Solution(assignment, status, now, key, tuple(bounds.tolist()), entries_of(instance).stays)
