"""What a preflight says about PodDisruptionBudgets: which keep cruise from evicting pods, for now or for good."""

from collections.abc import Iterator

from cruise.decisions.guidance.covering import CoveringBudgets
from cruise.decisions.preflight.items import CheckItem, Level, count_of, named
from cruise.domain.cluster import DisruptionBudget, Snapshot
from cruise.domain.policy import Mode

AREA = "objects"


def budget_items(snapshot: Snapshot, mode: Mode) -> Iterator[CheckItem]:
    """Yield the items; below mode full no pod is evicted, so nothing has to be done."""
    budgets = snapshot.budgets
    if not budgets:
        yield CheckItem(AREA, "PDBs", Level.OK, "none")
        return
    level = Level.WARN if mode >= Mode.FULL else Level.OK
    never = [_name(one) for one in budgets if one.never_allows]
    closed = [_name(one) for one in budgets if one.disruptions_allowed <= 0 and not one.never_allows]
    yield _closed(closed, len(budgets), level, mode)
    if never:
        words = (
            f"{count_of(never, 'PDB')} can never allow an eviction, since all replicas are asked for: {named(never)}"
        )
        fix = (
            "lower minAvailable, or set maxUnavailable 1; those pods are resized and never evicted, by no drain either"
        )
        yield CheckItem(AREA, "strict PDBs", level, words, fix)
    several = _pods_with_several(snapshot)
    if several:
        words = (
            f"{count_of(several, 'pod')} with more than one PDB, which the API server never evicts: {named(several)}"
        )
        fix = "let one PDB select each pod"
        yield CheckItem(AREA, "several PDBs", level, words, fix)


def _closed(closed: list[str], total: int, level: Level, mode: Mode) -> CheckItem:
    if not closed:
        return CheckItem(AREA, "PDBs", Level.OK, f"{total:,} PDB{'' if total == 1 else 's'}, none is used up")
    words = f"{len(closed):,} of {total:,} allow no eviction now: {named(closed)}"
    if level is Level.OK:
        return CheckItem(AREA, "PDBs", Level.OK, f"{words}; mode {mode.label} evicts no pods")
    fix = "give them room (more replicas, or maxUnavailable 1); until then those pods are resized and not evicted"
    return CheckItem(AREA, "PDBs", level, words, fix)


def _pods_with_several(snapshot: Snapshot) -> list[str]:
    covering = CoveringBudgets(snapshot.budgets)
    return [f"{pod.namespace}/{pod.name}" for pod in snapshot.pods if not pod.terminal and len(covering.of(pod)) > 1]


def _name(budget: DisruptionBudget) -> str:
    return f"{budget.namespace}/{budget.name}"
