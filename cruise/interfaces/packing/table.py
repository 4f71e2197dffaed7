"""Renders a packing plan for people: what it achieves and proves, pending pods, steps and nodes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cruise.domain.cluster import ClusterSnapshot, Pod, PodsByName
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
    compute_size_on_arrival,
    count_requests_with_targets,
    describe_node_count_proof,
    render_node_count_change,
    render_node_table,
)
from cruise.interfaces.packing.unschedulable import describe_unplaced_pod
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS, create_plain_table, format_change
from cruise.interfaces.text import format_count, format_cpu, format_mebibytes
from cruise.packer.answer import Packing, PackingStatus
from cruise.packer.problem import PackingObjective

_MOST_STEPS = 40


def render_steps(
    proposal: PackingProposal, pods: PodsByName, console: Console, in_full: bool = False
) -> Iterator[RenderableType]:
    """Yield the table of steps in order; of a long plan the first ones."""
    steps = [
        (number, step)
        for number, stage in enumerate(proposal.stages, start=1)
        for step in _format_steps(stage, pods, console.width >= WIDE_TABLE_COLUMNS)
    ]
    if not steps:
        return
    table = create_plain_table("Steps")
    table.add_column("STAGE", justify="right", no_wrap=True)
    table.add_column("STEP", no_wrap=True)
    table.add_column("POD", overflow="fold")
    table.add_column("NODE", overflow="fold")
    shown, last = steps if in_full else steps[:_MOST_STEPS], 0
    has_sizes = any(cells[-1] for _, cells in shown)
    for heading in ("CPU", "MEMORY") if has_sizes else ():
        table.add_column(heading, justify="right", no_wrap=True)
    for number, cells in shown:
        table.add_row(Text(f"{number:,}" if number != last else ""), *(cells if has_sizes else cells[:-2]))
        last = number
    notes = []
    if len(shown) < len(steps):
        hidden = format_count(len(steps) - len(shown), "more step")
        notes.append(f"{hidden} in {format_count(len(proposal.stages), 'stage')}: --full shows all.")
    if proposal.moves:
        notes.append("A moved pod is evicted, and its replacement gets a placement hint for its node.")
    if len(proposal.stages) > 1:
        notes.append("A stage begins when the one before is done; within it resizes come first, then evictions.")
    yield Group("", table, *(Text(note, style="dim") for note in notes))


# What the step does, the pod, its node, and its requests of CPU and memory, where they change.
_Step = tuple[Text, Text, Text, Text, Text]
_SAME_SIZE = (Text(""), Text(""))


def _format_steps(stage: PlanStage, pods: PodsByName, wide: bool) -> Iterator[_Step]:
    for resize in stage.resizes:
        pod = pods[resize.key]
        size = _format_sizes(count_pod_requests(pod), count_requests_with_targets(pod, resize.containers))
        yield Text("resize", style="cyan"), Text(f"{pod.namespace}/{pod.name}"), Text(resize.node or ""), *size
    only_eviction = stage.evictions[0] if len(stage.evictions) == 1 else None
    # A pod that is evicted alone and arrives first is shown as one step.
    moves = isinstance(only_eviction, PlannedPlacement) and stage.arrivals[:1] == (only_eviction,)
    for eviction in () if moves else stage.evictions:
        yield _format_eviction(eviction, wide)
    for arrival in stage.arrivals:
        now = count_pod_requests(pods[arrival.key])
        size = _format_sizes(now, compute_size_on_arrival(arrival, pods)) if arrival.containers else _SAME_SIZE
        name = Text(f"{arrival.namespace}/{arrival.pod}")
        if moves and arrival is stage.arrivals[0]:
            yield Text("move", style="yellow"), name, format_change(arrival.source or "", arrival.target), *size
        else:
            yield Text("place", style="green"), name, _format_node("", arrival.target, wide), *size


def _format_node(before: str, after: str, wide: bool) -> Text:
    """Write `pending → n1` or `n1 → pending`, in a narrow table `→ n1` or `n1 →`."""
    if wide:
        return format_change(before or "pending", after or "pending")
    return Text(f"{before} →" if before else f"→ {after}")


def _format_eviction(eviction: PlannedPlacement | PlannedPreemption, wide: bool) -> _Step:
    pod, nodes = Text(f"{eviction.namespace}/{eviction.pod}"), _format_node(eviction.source or "", "", wide)
    match eviction:
        case PlannedPreemption():
            return Text("preempt", style="red"), pod, nodes, *_SAME_SIZE
        case PlannedPlacement():
            return Text("evict", style="yellow"), pod, nodes, *_SAME_SIZE


def _format_sizes(now: Resources, after: Resources) -> tuple[Text, Text]:
    return (
        format_change(format_cpu(now.cpu_millicores), format_cpu(after.cpu_millicores)),
        format_change(format_mebibytes(now.memory_bytes), format_mebibytes(after.memory_bytes)),
    )


_MOST_PENDING, _MOST_PLACES, _MOST_TIERS = 30, 3, 12
_PROVED = {
    PackingSizes.FIXED: (
        "places more pods at the sizes that they request, a higher priority first, or then leaves more where they are"
    ),
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
    """Yield the parts of the report; `pods` by (namespace, name), `in_full` omits nothing."""
    yield _render_headline(proposal, seconds)
    if proposal.remaining_rounds is not None:
        yield Group("", *(Text(sentence) for sentence in describe_remaining_rounds(proposal.remaining_rounds)))
    if proposal.node_count_change is not None:
        yield render_node_count_change(proposal.node_count_change, snapshot)
    if proposal.placed or proposal.unplaced:
        yield _render_pending_pods(proposal, pods, console.width >= WIDE_TABLE_COLUMNS, in_full)
    yield from render_steps(proposal, pods, console, in_full)
    yield from render_node_table(snapshot, proposal, pods, console, in_full)
    priorities = _render_priorities(proposal.by_priority)
    if priorities is not None:
        yield priorities
    if proposal.notes:
        yield Group("", *(Text(f"Note: {describe_note(note)}.", style="yellow") for note in proposal.notes))


def _render_headline(proposal: PackingProposal, seconds: float) -> Group:
    pending_count = len(proposal.placed) + len(proposal.unplaced)
    summary = (
        f"{len(proposal.placed):,} of {format_count(pending_count, 'pending pod')} placed"
        if pending_count
        else "No pod is pending"
    )
    changes = [
        f"{len(changed):,} {singular if len(changed) == 1 else plural}"
        for changed, singular, plural in (
            (proposal.moves, "moves", "move"),
            (proposal.preempted, "is preempted", "are preempted"),
            (proposal.resizes, "is resized", "are resized"),
        )
        if changed
    ]
    if proposal.placed and not proposal.moves and not proposal.preempted:
        changes.append("no pod is evicted" if changes else "nothing else changes")
    is_proved = proposal.status.is_proved
    return Group(
        Text(f"{summary}; {', '.join(changes)}." if changes else f"{summary}.", style="bold"),
        Text.assemble(
            (proposal.status.value, "green" if is_proved else "yellow"),
            f" in {format_solve_time(seconds)}: {describe_proof(proposal)}.",
        ),
    )


def describe_proof(proposal: PackingProposal) -> str:
    """Describe what is proved about a plan, or how far it is from that."""
    if proposal.node_count_change is not None:
        return describe_node_count_proof(proposal.node_count_change)
    match proposal.status:
        case PackingStatus.OPTIMAL | PackingStatus.ALREADY_OPTIMAL:
            no_plan = "no plan" if proposal.remaining_rounds is None else "no plan in one round"
            return f"proved that {no_plan} {_PROVED[proposal.sizes]}"
        case PackingStatus.FEASIBLE:
            return f"better than now; {_describe_unproved(proposal)}"
        case PackingStatus.NO_IMPROVEMENT:
            return f"nothing better than now was found in time; {_describe_unproved(proposal)}"


def _describe_unproved(proposal: PackingProposal) -> str:
    """Describe how far a plan is from proved."""
    evicted, least = len(proposal.evicted), proposal.min_evicted
    for priority in proposal.by_priority:
        if priority.maximum > priority.placed:
            pods = format_count(priority.maximum - priority.placed, "more pod")
            description = f"not proved to be the best: at most {pods} of priority {priority.priority} could be placed"
            return f"{description}; {_describe_gap(evicted, least)}" if 0 < least else description
    if not 0 < least < evicted:
        return "no plan places more pods, whether one needs fewer evictions is open"
    return f"no plan places more pods, proved; {_describe_gap(evicted, least)}"


def _describe_gap(evicted: int, least: int) -> str:
    gap = f" (gap {math.ceil(100 * (evicted - least) / evicted)} %)" if evicted > least else ""
    return f"it evicts {evicted:,}, and to place as many takes at least {least:,}{gap}"


def format_solve_time(seconds: float) -> str:
    """Write a short time: `5 ms`, `0.41 s`, `12 s`."""
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


@dataclass(slots=True)
class _PendingPodRow:
    """Pending pods of one owner with the same requests and the same result."""

    pods: list[Pod]
    result: Text
    stays: bool


def _render_pending_pods(proposal: PackingProposal, pods: PodsByName, wide: bool, in_full: bool) -> RenderableType:
    rows = sorted(_build_pending_rows(proposal, pods), key=lambda row: (not row.stays, -row.pods[0].priority))
    row_limit = len(rows) if in_full else _MOST_PENDING
    shown, hidden_rows = rows[:row_limit], rows[row_limit:]
    table = create_plain_table("Pending")
    table.add_column("POD", overflow="fold", max_width=None if wide else 26)
    table.add_column("PRIORITY", justify="right", no_wrap=True)
    table.add_column("CPU", justify="right", no_wrap=True)
    table.add_column("MEMORY", justify="right", no_wrap=True)
    table.add_column("RESULT", overflow="fold")
    for row in shown:
        first = row.pods[0]
        more = f" and {len(row.pods) - 1:,} more" if len(row.pods) > 1 else ""
        requests = count_pod_requests(first)
        cpu, memory = format_cpu(requests.cpu_millicores), format_mebibytes(requests.memory_bytes)
        name = Text.assemble(f"{first.namespace}/{first.name}", (more, "dim"))
        table.add_row(name, f"{first.priority:,}", cpu, memory, row.result)
    if not hidden_rows:
        return Group("", table)
    hidden_pods = sum(len(row.pods) for row in hidden_rows)
    return Group("", table, Text(f"{format_count(hidden_pods, 'more pending pod')}: --full shows all.", style="dim"))


def _build_pending_rows(proposal: PackingProposal, pods: PodsByName) -> list[_PendingPodRow]:
    rows: dict[tuple[object, ...], _PendingPodRow] = {}
    for one in proposal.unplaced:
        pod = pods[one.key]
        description = describe_unplaced_pod(one)
        row = rows.setdefault(
            (*_get_row_key(pod), description, one.impossible),
            _PendingPodRow([], _format_unplaced(one, description), True),
        )
        row.pods.append(pod)
    placed: dict[tuple[object, ...], list[PlannedPlacement]] = {}
    for arrival in proposal.placed:
        placed.setdefault(_get_row_key(pods[arrival.key]), []).append(arrival)
    for arrivals in placed.values():
        placed_pods = [pods[one.key] for one in arrivals]
        rows["placed", *_get_row_key(placed_pods[0])] = _PendingPodRow(placed_pods, _format_nodes(arrivals), False)
    return list(rows.values())


def _get_row_key(pod: Pod) -> tuple[object, ...]:
    """Return what the pods of one row have in common."""
    return (pod.namespace, pod.owner_name or pod.name, pod.priority, count_pod_requests(pod))


def _format_nodes(arrivals: Sequence[PlannedPlacement]) -> Text:
    nodes = sorted({arrival.target for arrival in arrivals})
    more = len(nodes) - _MOST_PLACES
    return Text(f"on {', '.join(nodes[:_MOST_PLACES])}{f' and {more:,} more' if more > 0 else ''}", style="green")


def _format_unplaced(one: UnplacedPod, description: str) -> Text:
    style = "red" if one.impossible else "yellow"
    return Text.assemble(("impossible: " if one.impossible else "stays pending: ", style), description)


def _render_priorities(priorities: Sequence[PriorityResult]) -> RenderableType | None:
    """Render the priorities at which something changes or is not proved."""
    shown = [
        priority
        for priority in priorities
        if priority.placed != priority.running or priority.maximum != priority.placed
    ]
    if len(priorities) < 2 or not shown:
        return None
    table = create_plain_table("Placed pods")
    for heading in ("PRIORITY", "NOW", "AFTER", "AT MOST"):
        table.add_column(heading, justify="right", no_wrap=True)
    for priority in shown[:_MOST_TIERS]:
        maximum = Text(f"{priority.maximum:,}", style="dim" if priority.maximum == priority.placed else "yellow")
        table.add_row(f"{priority.priority:,}", f"{priority.running:,}", f"{priority.placed:,}", maximum)
    return Group("", table)


def format_best_packing(packing: Packing, objective: PackingObjective, pods: int) -> str:
    """Write the best packing so far and its bound: `131 of 140 pods placed, at most 133; 4 evicted`."""
    if objective is PackingObjective.CONSOLIDATION:
        least = -packing.bound[len(packing.planned.priorities)]
        return f"nodes at {packing.planned.price:,} of {packing.current.price:,}, at least {least:,}"
    placed = sum(priority.placed for priority in packing.planned.priorities)
    stayed = sum(priority.not_moved for priority in packing.planned.priorities)
    running = sum(priority.placed for priority in packing.current.priorities)
    entries_per_priority = 2 if objective is PackingObjective.PAPER else 1
    counts = packing.bound[: entries_per_priority * len(packing.planned.priorities) : entries_per_priority]
    maximum = min(pods, sum(counts))
    bound = f", at most {maximum:,}" if maximum > placed else ", no more can be"
    return f"{placed:,} of {format_count(pods, 'pod')} placed{bound}; {running - stayed:,} evicted"
