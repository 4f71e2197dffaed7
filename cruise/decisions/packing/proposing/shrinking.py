"""The fewest pods whose shrinking makes the room that is needed."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

# With so many candidates all pairs are tried before the greedy choice.
_PAIRS_AMONG = 64


class Candidate(NamedTuple):
    """A pod, by index, and what it would give back."""

    pod: int
    cpu: int
    memory: int


def fewest(candidates: Sequence[Candidate], cpu: int, memory: int) -> tuple[int, ...] | None:
    """Choose pods that give back so much CPU and memory; None where all of them do not.

    One or two are found if they are enough; beyond that, no one chosen can be spared.
    """
    if cpu <= 0 and memory <= 0:
        return ()
    useful = [one for one in candidates if (cpu > 0 and one.cpu > 0) or (memory > 0 and one.memory > 0)]
    sizes = (1, 2) if len(useful) <= _PAIRS_AMONG else (1,)
    for size in sizes:
        for some in combinations(useful, size):
            if _enough(some, cpu, memory):
                return tuple(one.pod for one in some)
    if not _enough(useful, cpu, memory):
        return None
    chosen: list[Candidate] = []
    while not _enough(chosen, cpu, memory):
        lacks_cpu = cpu - sum(one.cpu for one in chosen)
        lacks_memory = memory - sum(one.memory for one in chosen)
        best = max(useful, key=lambda one: _share(one.cpu, lacks_cpu) + _share(one.memory, lacks_memory))
        useful.remove(best)
        chosen.append(best)
    for one in list(chosen):
        others = [other for other in chosen if other is not one]
        if _enough(others, cpu, memory):
            chosen = others
    return tuple(sorted(one.pod for one in chosen))


def _enough(some: Sequence[Candidate], cpu: int, memory: int) -> bool:
    return sum(one.cpu for one in some) >= cpu and sum(one.memory for one in some) >= memory


def _share(gives: int, lacks: int) -> float:
    return min(gives, lacks) / lacks if lacks > 0 else 0.0
