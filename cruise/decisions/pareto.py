"""Which of several policies no one would choose: another is as good in everything, and better in something."""

from collections.abc import Callable, Mapping, Sequence

from cruise.domain.backtest import PolicyScore

NEVER_RIVALS = frozenset({"clairvoyant", "clairvoyant-1h", "clairvoyant-24h", "oracle"})
"""Policies that know the future: nobody can choose them, so they put nobody else out of the question."""

FEW_RESIZES = 5.0
"""So many a container and day are as good as none: no API server and no operator feels them."""

AXES: Mapping[str, Callable[[PolicyScore], float | None]] = {
    "CPU slack": lambda score: score.cpu.relative_slack,
    "memory slack": lambda score: score.memory.relative_slack if score.memory is not None else None,
    "CPU starvation": lambda score: score.cpu.starved_share,
    "out-of-memory kills": lambda score: score.oom_per_1000_container_days if score.memory is not None else None,
    "own evictions": lambda score: score.own_evictions_per_1000_pod_days,
    "mean nodes": lambda score: score.nodes_mean,
    f"resizes beyond {FEW_RESIZES:g} a container and day": lambda score: max(
        0.0, score.resizes_per_container_day - FEW_RESIZES
    ),
}
"""What policies are compared by, less is better; None where nothing was recorded.

Resizes count, since any policy wastes less that follows use at every pass.
Consolidation's moves are left out: the less a policy requests, the more nodes can be emptied, and that is the point.
"""


def find_dominated(policies: Mapping[str, PolicyScore]) -> Mapping[str, str]:
    """Return the dominated policies, each with the first that dominates it and is not dominated itself.

    Axes on which some policy has no figure do not count.
    """
    rows = {name: [axis(score) for axis in AXES.values()] for name, score in policies.items()}
    known = [at for at in range(len(AXES)) if all(row[at] is not None for row in rows.values())]
    costs = {name: [row[at] or 0.0 for at in known] for name, row in rows.items()}
    rivals = [name for name in costs if name not in NEVER_RIVALS]
    front = [name for name in rivals if not any(dominates(costs[rival], costs[name]) for rival in rivals)]
    found = {}
    for name, row in costs.items():
        winner = next((rival for rival in front if dominates(costs[rival], row)), None)
        if winner is not None:
            found[name] = winner
    return found


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Tell whether one row of costs is nowhere above another, and somewhere below it."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
