"""With how few nodes a cluster would do, in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from cruise.domain.packing import FleetChange
from cruise.interfaces.amounts import count_text
from cruise.interfaces.packing.fleet import AUTOSCALERS, is_proved, ordered_words, silent_words
from cruise.interfaces.packing.halt_words import halt_words
from cruise.interfaces.reasons import detail_words
from cruise.runtime.packing.consolidation_pass import ConsolidationPass

_MOST_EMPTY = 10
_SUFFICE = {True: "suffices", False: "suffice"}


@dataclass(frozen=True, slots=True)
class NodeCount:
    """A number of nodes, and the reason, constraint or type that it is of."""

    of: str
    nodes: int


def nodes_kept(fleet: FleetChange) -> list[NodeCount]:
    """Return for each reason how many nodes stay in use for it alone."""
    return [NodeCount(detail_words(detail), nodes) for detail, nodes in fleet.kept]


def nodes_lines(done: ConsolidationPass) -> Sequence[str]:
    """Say with how few nodes the cluster would do, what is proved of it, and what stops fewer; or why nothing is said.

    The first sentence stands for all.
    """
    fleet = done.fleet
    if fleet is None or done.plan is None:
        return [f"No advice: {halt_words(done.why)}."]
    now = f"{count_text(fleet.nodes_before, 'node')} in use"
    proved = is_proved(fleet)
    if fleet.added:
        return [f"{now}; pending pods need {_added(fleet)}.", *silent_words(fleet)]
    if fleet.nodes_after >= fleet.nodes_before:
        first = f"{now}; none can be spared, proved." if proved else f"{now}; no way was found to spare one."
    else:
        moves = count_text(len(done.plan.moves), "move")
        bound = "proved" if proved else f"at least {fleet.nodes_bound:,} in any plan"
        first = f"{now}; {fleet.nodes_after:,} {_SUFFICE[fleet.nodes_after == 1]} after {moves}, {bound}."
    lines = [first]
    lines += [f"Without {constraint} {nodes:,} would do." for constraint, nodes in fleet.without]
    if done.begun is not None:
        lines.append(f"{count_text(len(done.begun.proposal.moves), 'move')} of them begun.")
    elif done.waits and fleet.emptied:
        lines.append(f"No pod moves now: {halt_words(done.waits)}.")
    return [*lines, *silent_words(fleet), *_empty_words(done)]


def adding_lines(done: ConsolidationPass | None) -> Sequence[str]:
    """Say which nodes are to be added for pods that are pending, and which NodePools offer none; empty for neither."""
    if done is None or done.fleet is None:
        return []
    added = [f"Pending pods need {_added(done.fleet)}."] if done.fleet.added else []
    return [*added, *silent_words(done.fleet)]


def _added(fleet: FleetChange) -> str:
    return f"{' and '.join(map(ordered_words, fleet.added))} more{', proved' if is_proved(fleet) else ''}"


def _empty_words(done: ConsolidationPass) -> list[str]:
    if done.autoscaler is not None:
        return (
            [f"{AUTOSCALERS[done.autoscaler]} removes nodes that are empty."]
            if done.fleet and done.fleet.emptied
            else []
        )
    if not done.empty:
        return []
    shown = ", ".join(done.empty[:_MOST_EMPTY]) + (" and more" if len(done.empty) > _MOST_EMPTY else "")
    return [f"{count_text(len(done.empty), 'node')} empty: {shown}; cruise removes none."]
