"""A packing plan for people: what it achieves, what is proved, what was pending, its steps, the nodes after it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.packing_plan import (
    PackingProposal,
    PackingSizes,
    PlannedPlacement,
    PlannedPreemption,
    PlanStage,
    PriorityResult,
)
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.reasons import UnplacedPod
from cruise.domain.resources import Resources
from cruise.interfaces.packing.descriptions import describe_note, describe_remaining_rounds
from cruise.interfaces.packing.nodes import (
    PodsByName,
    compute_size_on_arrival,
    count_requests_with,
    describe_node_count_proof,
    render_node_count_change,
    render_nodes,
)
from cruise.interfaces.packing.unschedulable import describe_unplaced_pod
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS, create_plain_table, format_change
from cruise.interfaces.text import format_count, format_cpu, format_memory
from cruise.packer.answer import Packing, PackingStatus
from cruise.packer.problem import PackingObjective

# The stages of a packing plan for people, each step a line.

_MOST_STEPS = 40


def render_steps(
    proposal: PackingProposal, pods: PodsByName, console: Console, in_full: bool = False
) -> Iterator[RenderableType]:
    """Yield the steps in their order; of a long plan the first."""
    steps = [
        (number, step)
        for number, stage in enumerate(proposal.stages, start=1)
        for step in _steps(stage, pods, console.width >= WIDE_TABLE_COLUMNS)
    ]
    if not steps:
        return
    table = create_plain_table("Steps")
    table.add_column("STAGE", justify="right", no_wrap=True)
    table.add_column("STEP", no_wrap=True)
    table.add_column("POD", overflow="fold")
    table.add_column("NODE", overflow="fold")
    shown, last = steps if in_full else steps[:_MOST_STEPS], 0
    sized = any(cells[-1] for _, cells in shown)
    if sized:
        table.add_column("SIZE", no_wrap=True)
    for number, cells in shown:
        table.add_row(Text(f"{number:,}" if number != last else ""), *(cells if sized else cells[:-1]))
        last = number
    notes = []
    if len(shown) < len(steps):
        left = format_count(len(steps) - len(shown), "more step")
        notes.append(f"{left} in {format_count(len(proposal.stages), 'stage')}: --full has all.")
    if proposal.moves:
        notes.append("A moved pod is evicted, and the one that replaces it steered to its node.")
    if len(proposal.stages) > 1:
        notes.append("A stage begins when the one before is done; within it resizes come first, then evictions.")
    yield Group("", table, *(Text(note, style="dim") for note in notes))


def _steps(stage: PlanStage, pods: PodsByName, wide: bool) -> Iterator[tuple[Text, Text, Text, Text]]:
    for resize in stage.resizes:
        pod = pods[resize.key]
        size = _size(count_pod_requests(pod), count_requests_with(pod, resize.containers))
        yield Text("resize", style="cyan"), Text(f"{pod.namespace}/{pod.name}"), Text(resize.node or ""), size
    alone = stage.evictions[0] if len(stage.evictions) == 1 else None
    # A pod that leaves alone and comes first arrives at once: one step to a reader.
    moves = isinstance(alone, PlannedPlacement) and stage.arrivals[:1] == (alone,)
    for leave in () if moves else stage.evictions:
        yield _leave(leave, wide)
    for arrival in stage.arrivals:
        now = count_pod_requests(pods[arrival.key])
        size = _size(now, compute_size_on_arrival(arrival, pods)) if arrival.containers else Text("")
        name = Text(f"{arrival.namespace}/{arrival.pod}")
        if moves and arrival is stage.arrivals[0]:
            yield Text("move", style="yellow"), name, format_change(arrival.source or "", arrival.target), size
        else:
            yield Text("place", style="green"), name, Text(f"on {arrival.target}" if wide else arrival.target), size


def _leave(leave: PlannedPlacement | PlannedPreemption, wide: bool) -> tuple[Text, Text, Text, Text]:
    pod, node = Text(f"{leave.namespace}/{leave.pod}"), leave.source or ""
    match leave:
        case PlannedPreemption():
            return Text("preempt", style="red"), pod, Text(f"from {node}" if wide else node), Text("")
        case PlannedPlacement():
            where = Text(f"from {node}, to run on {leave.target}") if wide else format_change(node, leave.target)
            return Text("evict", style="yellow"), pod, where, Text("")


def _size(now: Resources, after: Resources) -> Text:
    return Text.assemble(
        format_change(format_cpu(now.cpu_millicores), format_cpu(after.cpu_millicores)),
        "  ",
        format_change(format_memory(now.memory_bytes), format_memory(after.memory_bytes)),
    )


_MOST_PENDING, _MOST_PLACES, _MOST_TIERS = 30, 3, 12
_PROVED = {
    PackingSizes.FIXED: "places more pods at the sizes that they request, a higher priority first, or then leaves more where "
    "they are",
    PackingSizes.RIGHTSIZED: "places more pods, a higher priority first, or then needs fewer evictions",
}


def render_pack_table(
    proposal: PackingProposal,
    snapshot: ClusterSnapshot,
    pods: PodsByName,
    seconds: float,
    console: Console,
    in_full: bool = False,
) -> Iterator[RenderableType]:
    """Yield the parts of the report; `pods` are the snapshot's by (namespace, name), `in_full` leaves nothing out."""
    yield _headline(proposal, seconds)
    if proposal.remaining_rounds is not None:
        yield Group(*(Text(said) for said in describe_remaining_rounds(proposal.remaining_rounds)), "")
    if proposal.node_count_change is not None:
        yield render_node_count_change(proposal.node_count_change, snapshot)
    if proposal.placed or proposal.unplaced:
        yield _pending(proposal, pods, console.width >= WIDE_TABLE_COLUMNS, in_full)
    yield from render_steps(proposal, pods, console, in_full)
    yield from render_nodes(snapshot, proposal, pods, console, in_full)
    tiers = _tiers(proposal.by_priority)
    if tiers is not None:
        yield tiers
    if proposal.notes:
        yield Group("", *(Text(f"Note: {describe_note(note)}.", style="yellow") for note in proposal.notes))


def _headline(proposal: PackingProposal, seconds: float) -> Group:
    waiting = len(proposal.placed) + len(proposal.unplaced)
    found = (
        f"{len(proposal.placed):,} of {format_count(waiting, 'pending pod')} placed" if waiting else "No pod is pending"
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
    proved = proposal.status.is_proved
    return Group(
        Text(f"{found}; {', '.join(changes)}." if changes else f"{found}.", style="bold"),
        Text.assemble(
            (proposal.status.value, "green" if proved else "yellow"),
            f" in {format_solve_time(seconds)}: {describe_proof(proposal)}.\n",
        ),
    )


def describe_proof(proposal: PackingProposal) -> str:
    """Say what is proved of a plan, and how far it is from that else."""
    if proposal.node_count_change is not None:
        return describe_node_count_proof(proposal.node_count_change)
    match proposal.status:
        case PackingStatus.OPTIMAL | PackingStatus.ALREADY_OPTIMAL:
            no_plan = "no plan" if proposal.remaining_rounds is None else "no plan in one go"
            return f"proved that {no_plan} {_PROVED[proposal.sizes]}"
        case PackingStatus.FEASIBLE:
            return f"better than now; {_open(proposal)}"
        case PackingStatus.NO_IMPROVEMENT:
            return f"nothing better than now was found in the time; {_open(proposal)}"


def _open(proposal: PackingProposal) -> str:
    """Say how far from proved a plan is."""
    evicted, least = len(proposal.evicted), proposal.least_evicted
    for tier in proposal.by_priority:
        if tier.maximum > tier.placed:
            more = format_count(tier.maximum - tier.placed, "more pod")
            words = f"not proved to be the best: at most {more} of priority {tier.priority} could be placed"
            return f"{words}; {_gap(evicted, least)}" if 0 < least else words
    if not 0 < least < evicted:
        return "no plan places more pods, whether one needs fewer evictions is open"
    return f"no plan places more pods, proved; {_gap(evicted, least)}"


def _gap(evicted: int, least: int) -> str:
    apart = f" (gap {math.ceil(100 * (evicted - least) / evicted)} %)" if evicted > least else ""
    return f"it evicts {evicted:,}, and to place as many takes at least {least:,}{apart}"


def format_solve_time(seconds: float) -> str:
    """Write a short time: `5 ms`, `0.41 s`, `12 s`."""
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


@dataclass(slots=True)
class _PendingPodRow:
    """Pending pods of one owner that ask for the same, and of which the same becomes."""

    pods: list[Pod]
    becomes: Text
    stays: bool


def _pending(proposal: PackingProposal, pods: PodsByName, wide: bool, in_full: bool) -> RenderableType:
    rows = sorted(_waiting(proposal, pods), key=lambda row: (not row.stays, -row.pods[0].priority))
    most = len(rows) if in_full else _MOST_PENDING
    shown, left = rows[:most], rows[most:]
    table = create_plain_table("Pending")
    table.add_column("POD", overflow="fold", max_width=None if wide else 26)
    table.add_column("PRIORITY" if wide else "PRIO", justify="right", no_wrap=True)
    table.add_column("CPU", justify="right", no_wrap=True)
    table.add_column("MEMORY", justify="right", no_wrap=True)
    table.add_column("BECOMES", overflow="fold")
    for row in shown:
        first = row.pods[0]
        more = f" and {len(row.pods) - 1:,} more" if len(row.pods) > 1 else ""
        counted = count_pod_requests(first)
        cpu, memory = format_cpu(counted.cpu_millicores), format_memory(counted.memory_bytes)
        name = Text.assemble(f"{first.namespace}/{first.name}", (more, "dim"))
        table.add_row(name, f"{first.priority:,}", cpu, memory, row.becomes)
    if not left:
        return table
    hidden = sum(len(row.pods) for row in left)
    return Group(table, Text(f"{format_count(hidden, 'more pending pod')}: --full has all.", style="dim"))


def _waiting(proposal: PackingProposal, pods: PodsByName) -> list[_PendingPodRow]:
    found: dict[tuple[object, ...], _PendingPodRow] = {}
    for one in proposal.unplaced:
        pod = pods[one.key]
        words = describe_unplaced_pod(one)
        row = found.setdefault((*_alike(pod), words, one.impossible), _PendingPodRow([], _stays(one, words), True))
        row.pods.append(pod)
    placed: dict[tuple[object, ...], list[PlannedPlacement]] = {}
    for arrival in proposal.placed:
        placed.setdefault(_alike(pods[arrival.key]), []).append(arrival)
    for arrivals in placed.values():
        waiting = [pods[one.key] for one in arrivals]
        found["placed", *_alike(waiting[0])] = _PendingPodRow(waiting, _places(arrivals), False)
    return list(found.values())


def _alike(pod: Pod) -> tuple[object, ...]:
    """What pods of one line have in common."""
    return (pod.namespace, pod.owner_name or pod.name, pod.priority, count_pod_requests(pod))


def _places(arrivals: Sequence[PlannedPlacement]) -> Text:
    nodes = sorted({arrival.target for arrival in arrivals})
    more = len(nodes) - _MOST_PLACES
    return Text(f"on {', '.join(nodes[:_MOST_PLACES])}{f' and {more:,} more' if more > 0 else ''}", style="green")


def _stays(one: UnplacedPod, words: str) -> Text:
    style = "red" if one.impossible else "yellow"
    return Text.assemble(("impossible: " if one.impossible else "stays pending: ", style), words)


def _tiers(tiers: Sequence[PriorityResult]) -> RenderableType | None:
    """Show the priorities at which something changes or is open."""
    telling = [tier for tier in tiers if tier.placed != tier.running or tier.maximum != tier.placed]
    if len(tiers) < 2 or not telling:
        return None
    table = create_plain_table("Pods with a place")
    for heading in ("PRIORITY", "NOW", "AFTER", "AT MOST"):
        table.add_column(heading, justify="right", no_wrap=True)
    for tier in telling[:_MOST_TIERS]:
        most = Text(f"{tier.maximum:,}", style="dim" if tier.maximum == tier.placed else "yellow")
        table.add_row(f"{tier.priority:,}", f"{tier.running:,}", f"{tier.placed:,}", most)
    return Group("", table)


# One line on how far a search has got.


def format_progress(packing: Packing, objective: PackingObjective, pods: int) -> str:
    """Write the best packing so far and what none surpasses: `131 of 140 pods placed, at most 133; 4 leave`."""
    if objective is PackingObjective.FLEET:
        least = -packing.bound[len(packing.planned.priorities)]
        return f"nodes at {packing.planned.price:,} of {packing.current.price:,}, at least {least:,}"
    placed = sum(tier.placed for tier in packing.planned.priorities)
    stayed = sum(tier.not_moved for tier in packing.planned.priorities)
    ran = sum(tier.placed for tier in packing.current.priorities)
    step = 2 if objective is PackingObjective.PAPER else 1
    counts = packing.bound[: step * len(packing.planned.priorities) : step]
    most = min(pods, sum(counts))
    bound = f", at most {most:,}" if most > placed else ", no more can be"
    return f"{placed:,} of {format_count(pods, 'pod')} placed{bound}; {ran - stayed:,} leave"
