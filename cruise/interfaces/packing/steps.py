"""The stages of a packing plan for people, each step a line."""

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cruise.domain.packing import Arrival, Preemption, Proposal, Stage
from cruise.domain.requests import counted_requests
from cruise.domain.resources import Resources
from cruise.interfaces.amounts import count_text, cpu_text, memory_text
from cruise.interfaces.packing.sizes import Pods, counted_as, size_on_arrival
from cruise.interfaces.plan.table import WIDE_COLUMNS, arrow, plain_table

_MOST_STEPS = 40


def step_parts(proposal: Proposal, pods: Pods, console: Console, in_full: bool = False) -> Iterator[RenderableType]:
    """Yield the steps in their order; of a long plan the first."""
    steps = [
        (number, step)
        for number, stage in enumerate(proposal.stages, start=1)
        for step in _steps(stage, pods, console.width >= WIDE_COLUMNS)
    ]
    if not steps:
        return
    table = plain_table("Steps")
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
        left = count_text(len(steps) - len(shown), "more step")
        notes.append(f"{left} in {count_text(len(proposal.stages), 'stage')}: --full has all.")
    if proposal.moves:
        notes.append("A moved pod is evicted, and the one that replaces it steered to its node.")
    if len(proposal.stages) > 1:
        notes.append("A stage begins when the one before is done; within it resizes come first, then evictions.")
    yield Group("", table, *(Text(note, style="dim") for note in notes))


def _steps(stage: Stage, pods: Pods, wide: bool) -> Iterator[tuple[Text, Text, Text, Text]]:
    for resize in stage.resizes:
        pod = pods[resize.key]
        size = _size(counted_requests(pod), counted_as(pod, resize.containers))
        yield Text("resize", style="cyan"), Text(f"{pod.namespace}/{pod.name}"), Text(resize.node or ""), size
    alone = stage.leaves[0] if len(stage.leaves) == 1 else None
    # A pod that leaves alone and comes first arrives at once: one step to a reader.
    moves = isinstance(alone, Arrival) and stage.arrivals[:1] == (alone,)
    for leave in () if moves else stage.leaves:
        yield _leave(leave, wide)
    for arrival in stage.arrivals:
        now = counted_requests(pods[arrival.key])
        size = _size(now, size_on_arrival(arrival, pods)) if arrival.containers else Text("")
        name = Text(f"{arrival.namespace}/{arrival.pod}")
        if moves and arrival is stage.arrivals[0]:
            yield Text("move", style="yellow"), name, arrow(arrival.source or "", arrival.target), size
        else:
            yield Text("place", style="green"), name, Text(f"on {arrival.target}" if wide else arrival.target), size


def _leave(leave: Arrival | Preemption, wide: bool) -> tuple[Text, Text, Text, Text]:
    pod, node = Text(f"{leave.namespace}/{leave.pod}"), leave.source or ""
    match leave:
        case Preemption():
            return Text("preempt", style="red"), pod, Text(f"from {node}" if wide else node), Text("")
        case Arrival():
            where = Text(f"from {node}, to run on {leave.target}") if wide else arrow(node, leave.target)
            return Text("evict", style="yellow"), pod, where, Text("")


def _size(now: Resources, after: Resources) -> Text:
    return Text.assemble(
        arrow(cpu_text(now.cpu_millicores), cpu_text(after.cpu_millicores)),
        "  ",
        arrow(memory_text(now.memory_bytes), memory_text(after.memory_bytes)),
    )
