"""A packing plan for people: what it achieves, what is proved, what was pending, its steps, the nodes after it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.packing import Arrival, Proposal, Sizes, TierLine
from cruise.domain.requests import counted_requests
from cruise.domain.unplaced import Unplaced
from cruise.interfaces.amounts import count_text, cpu_text, memory_text
from cruise.interfaces.packing.fleet import fleet_part, fleet_proof
from cruise.interfaces.packing.later_words import later_words
from cruise.interfaces.packing.nodes import node_parts
from cruise.interfaces.packing.note_words import note_words
from cruise.interfaces.packing.sizes import Pods
from cruise.interfaces.packing.steps import step_parts
from cruise.interfaces.packing.unplaced_words import unplaced_words
from cruise.interfaces.plan.table import WIDE_COLUMNS, plain_table
from cruise.packer.answer import Status

_MOST_PENDING, _MOST_PLACES, _MOST_TIERS = 30, 3, 12
_PROVED = {
    Sizes.FIXED: "places more pods at the sizes that they request, a higher priority first, or then leaves more where "
    "they are",
    Sizes.RIGHTSIZED: "places more pods, a higher priority first, or then needs fewer evictions",
}


def pack_table(
    proposal: Proposal, snapshot: Snapshot, pods: Pods, seconds: float, console: Console, in_full: bool = False
) -> Iterator[RenderableType]:
    """Yield the parts of the report; `pods` are the snapshot's by (namespace, name), `in_full` leaves nothing out."""
    yield _headline(proposal, seconds)
    if proposal.later is not None:
        yield Group(*(Text(said) for said in later_words(proposal.later)), "")
    if proposal.fleet is not None:
        yield fleet_part(proposal.fleet, snapshot)
    if proposal.placed or proposal.unplaced:
        yield _pending(proposal, pods, console.width >= WIDE_COLUMNS, in_full)
    yield from step_parts(proposal, pods, console, in_full)
    yield from node_parts(snapshot, proposal, pods, console, in_full)
    tiers = _tiers(proposal.by_priority)
    if tiers is not None:
        yield tiers
    if proposal.notes:
        yield Group("", *(Text(f"Note: {note_words(note)}.", style="yellow") for note in proposal.notes))


def _headline(proposal: Proposal, seconds: float) -> Group:
    waiting = len(proposal.placed) + len(proposal.unplaced)
    found = (
        f"{len(proposal.placed):,} of {count_text(waiting, 'pending pod')} placed" if waiting else "No pod is pending"
    )
    changes = [
        f"{len(changed):,} {one if len(changed) == 1 else many}"
        for changed, one, many in (
            (proposal.moves, "moves", "move"),
            (proposal.preempted, "is preempted", "are preempted"),
            (proposal.resizes, "is resized", "are resized"),
        )
        if changed
    ]
    if proposal.placed and not proposal.moves and not proposal.preempted:
        changes.append("no pod is evicted" if changes else "nothing else is touched")
    proved = proposal.status.proved
    return Group(
        Text(f"{found}; {', '.join(changes)}." if changes else f"{found}.", style="bold"),
        Text.assemble(
            (proposal.status.value, "green" if proved else "yellow"),
            f" in {time_text(seconds)}: {proof_words(proposal)}.\n",
        ),
    )


def proof_words(proposal: Proposal) -> str:
    """Say what is proved of a plan, and how far it is from that else."""
    if proposal.fleet is not None:
        return fleet_proof(proposal.fleet)
    match proposal.status:
        case Status.OPTIMAL | Status.ALREADY_OPTIMAL:
            no_plan = "no plan" if proposal.later is None else "no plan in one go"
            return f"proved that {no_plan} {_PROVED[proposal.sizes]}"
        case Status.FEASIBLE:
            return f"better than now; {_open(proposal)}"
        case Status.NO_IMPROVEMENT:
            return f"nothing better than now was found in the time; {_open(proposal)}"


def _open(proposal: Proposal) -> str:
    """Say how far from proved a plan is."""
    evicted, least = len(proposal.evicted), proposal.least_evicted
    for tier in proposal.by_priority:
        if tier.most > tier.placed:
            more = count_text(tier.most - tier.placed, "more pod")
            words = f"not proved to be the best: at most {more} of priority {tier.priority} could be placed"
            return f"{words}; {_gap(evicted, least)}" if 0 < least else words
    if not 0 < least < evicted:
        return "no plan places more pods, whether one needs fewer evictions is open"
    return f"no plan places more pods, proved; {_gap(evicted, least)}"


def _gap(evicted: int, least: int) -> str:
    apart = f" (gap {math.ceil(100 * (evicted - least) / evicted)} %)" if evicted > least else ""
    return f"it evicts {evicted:,}, and to place as many takes at least {least:,}{apart}"


def time_text(seconds: float) -> str:
    """Write a short time: `5 ms`, `0.41 s`, `12 s`."""
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


@dataclass(slots=True)
class _Waiting:
    """Pending pods of one owner that ask for the same, and of which the same becomes."""

    pods: list[Pod]
    becomes: Text
    stays: bool


def _pending(proposal: Proposal, pods: Pods, wide: bool, in_full: bool) -> RenderableType:
    rows = sorted(_waiting(proposal, pods), key=lambda row: (not row.stays, -row.pods[0].priority))
    most = len(rows) if in_full else _MOST_PENDING
    shown, left = rows[:most], rows[most:]
    table = plain_table("Pending")
    table.add_column("POD", overflow="fold", max_width=None if wide else 26)
    table.add_column("PRIORITY" if wide else "PRIO", justify="right", no_wrap=True)
    table.add_column("CPU", justify="right", no_wrap=True)
    table.add_column("MEMORY", justify="right", no_wrap=True)
    table.add_column("BECOMES", overflow="fold")
    for row in shown:
        first = row.pods[0]
        more = f" and {len(row.pods) - 1:,} more" if len(row.pods) > 1 else ""
        counted = counted_requests(first)
        cpu, memory = cpu_text(counted.cpu_millicores), memory_text(counted.memory_bytes)
        name = Text.assemble(f"{first.namespace}/{first.name}", (more, "dim"))
        table.add_row(name, f"{first.priority:,}", cpu, memory, row.becomes)
    if not left:
        return table
    hidden = sum(len(row.pods) for row in left)
    return Group(table, Text(f"{count_text(hidden, 'more pending pod')}: --full has all.", style="dim"))


def _waiting(proposal: Proposal, pods: Pods) -> list[_Waiting]:
    found: dict[tuple[object, ...], _Waiting] = {}
    for one in proposal.unplaced:
        pod = pods[one.key]
        words = unplaced_words(one)
        row = found.setdefault((*_alike(pod), words, one.impossible), _Waiting([], _stays(one, words), True))
        row.pods.append(pod)
    placed: dict[tuple[object, ...], list[Arrival]] = {}
    for arrival in proposal.placed:
        placed.setdefault(_alike(pods[arrival.key]), []).append(arrival)
    for arrivals in placed.values():
        waiting = [pods[one.key] for one in arrivals]
        found["placed", *_alike(waiting[0])] = _Waiting(waiting, _places(arrivals), False)
    return list(found.values())


def _alike(pod: Pod) -> tuple[object, ...]:
    """What pods of one line have in common."""
    return (pod.namespace, pod.owner_name or pod.name, pod.priority, counted_requests(pod))


def _places(arrivals: Sequence[Arrival]) -> Text:
    nodes = sorted({arrival.target for arrival in arrivals})
    more = len(nodes) - _MOST_PLACES
    return Text(f"on {', '.join(nodes[:_MOST_PLACES])}{f' and {more:,} more' if more > 0 else ''}", style="green")


def _stays(one: Unplaced, words: str) -> Text:
    reason = words or ", ".join(one.blocked_by) or "no room was found in the time"
    style = "red" if one.impossible else "yellow"
    return Text.assemble(("impossible: " if one.impossible else "stays pending: ", style), reason)


def _tiers(tiers: Sequence[TierLine]) -> RenderableType | None:
    """Show the priorities at which something changes or is open."""
    telling = [tier for tier in tiers if tier.placed != tier.bound or tier.most != tier.placed]
    if len(tiers) < 2 or not telling:
        return None
    table = plain_table("Pods with a place")
    for heading in ("PRIORITY", "NOW", "AFTER", "AT MOST"):
        table.add_column(heading, justify="right", no_wrap=True)
    for tier in telling[:_MOST_TIERS]:
        most = Text(f"{tier.most:,}", style="dim" if tier.most == tier.placed else "yellow")
        table.add_row(f"{tier.priority:,}", f"{tier.bound:,}", f"{tier.placed:,}", most)
    return Group("", table)
