"""One pass for people: what was done to each container, what packing planned, and what was left as it is, by reason."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cruise.domain.actions import EvictPod, Hold, Outcome, Reason, ResizePod, Verdict
from cruise.domain.notices import NOBODY_TOLD, Told
from cruise.domain.packing import PackingPlan, Phase, Proposal
from cruise.domain.policy import Mode
from cruise.interfaces.amounts import count_text, cpu_text, memory_text
from cruise.interfaces.once.changes import ContainerChange, Pods, changes_of, pods_of
from cruise.interfaces.packing.halt_words import halt_words, plan_halt_words
from cruise.interfaces.packing.later_words import later_words
from cruise.interfaces.packing.table import proof_words, time_text
from cruise.interfaces.packing.unplaced_words import unplaced_words
from cruise.interfaces.plan.table import WIDE_COLUMNS, arrow, plain_table
from cruise.interfaces.reasons import WORDS, in_words
from cruise.runtime.packing.packing_pass import PackingPass
from cruise.runtime.sizing.node_pass import NodePass

_MOST_ROWS = 200
_STYLES = {
    Verdict.DONE: "green",
    Verdict.OBSERVED: "dim",
    Verdict.HELD: "yellow",
    Verdict.REFUSED: "red",
    Verdict.FAILED: "bold red",
}
_MOST_PLACES = 50
_PHASE_STYLES = {Phase.FINISHED: "green", Phase.DROPPED: "yellow", Phase.UNDER_WAY: "yellow", Phase.SHOWN: "dim"}


def once_table(
    done: NodePass,
    mode: Mode,
    paused: bool,
    console: Console,
    packing: PackingPass | None = None,
    packed: Sequence[Outcome] = (),
    told: Told = NOBODY_TOLD,
) -> Iterator[RenderableType]:
    """Yield the parts of the report; `packing` is the packing pass after it, and `packed` what that did."""
    wide = console.width >= WIDE_COLUMNS
    yield Text(_headline(done, mode, paused))
    if done.outcomes:
        yield _outcomes(done.outcomes, done, wide)
    if packing is not None:
        yield from _packing(packing)
        if packed:
            yield _outcomes(packed, done, wide)
    holds = [*done.waiting, *(hold for plan in done.plans for hold in plan.hold)]
    if holds:
        yield _holds(holds)
    yield from _told(told)


def _told(told: Told) -> Iterator[RenderableType]:
    parts = []
    if told.published:
        parts.append(f"{count_text(told.published, 'VerticalPodAutoscaler')} written")
    if told.sent or told.dropped:
        dropped = f", {told.dropped:,} not (see the log)" if told.dropped else ""
        parts.append(f"{count_text(told.sent, 'notice')} sent{dropped}")
    if parts:
        yield Text(f"\nShown to others: {'; '.join(parts)}.")


def _headline(done: NodePass, mode: Mode, paused: bool) -> str:
    ended = Counter(outcome.verdict for outcome in done.outcomes)
    parts = ", ".join(f"{ended[verdict]:,} {verdict.value}" for verdict in Verdict if ended[verdict])
    oversubscribed = sum(plan.reason is Reason.OVERSUBSCRIBED for plan in done.plans)
    why_not = " Nothing was written: cruise is paused." if paused else ""
    if mode is Mode.OBSERVE:
        why_not = " Nothing was written: mode observe."
    return (
        f"{count_text(len(done.plans), 'node')}, {oversubscribed:,} oversubscribed; mode {mode.label}; "
        f"{count_text(len(done.outcomes), 'action')}{f': {parts}' if parts else ''}.{why_not}"
    )


def _outcomes(outcomes: Sequence[Outcome], done: NodePass, wide: bool) -> RenderableType:
    table = plain_table()
    if wide:
        table.add_column("NODE", overflow="ellipsis", no_wrap=True)
    table.add_column("POD", overflow="fold")
    table.add_column("CONTAINER" if wide else "CONT", overflow="ellipsis", no_wrap=True)
    table.add_column("CPU", no_wrap=True)
    table.add_column("MEMORY", no_wrap=True)
    table.add_column("VERDICT", no_wrap=True)
    table.add_column("REASON", overflow="fold")
    pods = pods_of(done)
    shown = outcomes[:_MOST_ROWS]
    for outcome in shown:
        for cells in _rows(outcome, pods):
            table.add_row(*(cells if wide else cells[1:]))
    if len(shown) < len(outcomes):
        more = f"{len(outcomes) - len(shown):,} more actions: --format json has all."
        return Group("", table, Text(more, style="dim"))
    return Group("", table)


def _rows(outcome: Outcome, pods: Pods) -> Iterator[Sequence[RenderableType]]:
    action = outcome.action
    ending = (Text(outcome.verdict.value, style=_STYLES[outcome.verdict]), Text(_why(outcome)))
    match action:
        case ResizePod():
            name = f"{action.namespace}/{action.pod}"
            for change in changes_of(outcome, pods):
                yield (action.node or "–", name, change.container, *_sizes(change), *ending)
        case EvictPod():
            yield (action.node or "–", f"{action.namespace}/{action.pod}", "all", "evict", "", *ending)
        case _:
            yield (action.node, "–", "–", "taint", "", *ending)


def _sizes(change: ContainerChange) -> tuple[Text, Text]:
    before, after = change.requests_before, change.requests_after
    memory = arrow(memory_text(before.memory_bytes or 0), memory_text(after.memory_bytes or 0))
    limit = change.limits_after.memory_bytes
    if before == after and limit is not None and limit != change.limits_before.memory_bytes:
        # Else the row would show nothing of what the resize is about.
        memory = Text(f"limit {memory_text(limit)}")
    return arrow(cpu_text(before.cpu_millicores or 0), cpu_text(after.cpu_millicores or 0)), memory


def _why(outcome: Outcome) -> str:
    if outcome.verdict in (Verdict.DONE, Verdict.OBSERVED):
        return in_words(outcome.action.reason, outcome.detail)
    return in_words(outcome.reason, outcome.detail)


def _holds(holds: Sequence[Hold]) -> RenderableType:
    table = plain_table("Left as they are")
    table.add_column("REASON", no_wrap=True)
    table.add_column("PODS", justify="right")
    table.add_column("MEANING", style="dim")
    for reason, number in Counter(hold.reason for hold in holds).most_common():
        table.add_row(reason.value, f"{number:,}", WORDS[reason])
    return Group("", table)


def _packing(done: PackingPass) -> Iterator[RenderableType]:
    """Yield what a packing pass planned, what is proved, and how it ended."""
    yield Text()
    waiting = f"Packing: {count_text(done.waiting, 'pod')} found no node"
    if done.plan is None:
        yield Text(f"{waiting}; {halt_words(done.why)}.")
        return
    plan, proposal = done.plan, done.plan.proposal
    yield Text(
        f"{waiting}; {len(proposal.placed):,} placed, {len(proposal.moves):,} moved, {len(proposal.preempted):,} "
        f"preempted, {len(proposal.resizes):,} resized; {proposal.status.value} in {time_text(plan.seconds)}: "
        f"{proof_words(proposal)}."
    )
    yield _ending(plan)
    yield from (Text(said) for said in later_words(proposal.later))
    if proposal.stages or proposal.unplaced:
        yield _places(proposal)


def _ending(plan: PackingPlan) -> Text:
    detail = f": {plan_halt_words(plan)}" if plan.halt else ""
    stages = f" ({plan.stage} of {count_text(len(plan.proposal.stages), 'stage')} done)" if plan.proposal.stages else ""
    return Text(f"The plan is {plan.phase.value}{stages}{detail}.", style=_PHASE_STYLES[plan.phase])


def _places(proposal: Proposal) -> RenderableType:
    table = plain_table()
    table.add_column("POD", overflow="fold")
    table.add_column("FROM", overflow="fold")
    table.add_column("TO", overflow="fold")
    rows = [(one.namespace, one.pod, "pending", one.target) for one in proposal.placed]
    rows += [(one.namespace, one.pod, one.source or "", one.target) for one in proposal.moves]
    rows += [(one.namespace, one.pod, one.source, "preempted") for one in proposal.preempted]
    rows += [(one.namespace, one.pod, "pending", f"stays: {unplaced_words(one)}") for one in proposal.unplaced]
    for namespace, pod, source, target in rows[:_MOST_PLACES]:
        table.add_row(f"{namespace}/{pod}", source, target)
    if len(rows) > _MOST_PLACES:
        table.add_row(f"{len(rows) - _MOST_PLACES:,} more: --format json has all", "", "")
    return table
