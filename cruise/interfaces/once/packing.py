"""One packing pass for people: who waits, what is planned for whom, what is proved, and how it ended."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cruise.domain.packing import PackingPlan, Phase, Proposal
from cruise.interfaces.amounts import count_text
from cruise.interfaces.packing.unplaced_words import unplaced_words
from cruise.packer.answer import Status
from cruise.runtime.packing.packing_pass import PackingPass

_MOST_ROWS = 50
_PROOFS = {
    Status.OPTIMAL: "proved best",
    Status.FEASIBLE: "better than now, not proved best",
    Status.ALREADY_OPTIMAL: "proved: nothing to gain",
    Status.NO_IMPROVEMENT: "nothing better found in time",
}
_STYLES = {Phase.FINISHED: "green", Phase.DROPPED: "yellow", Phase.UNDER_WAY: "yellow", Phase.SHOWN: "dim"}


def packing_parts(done: PackingPass) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    yield Text()
    waiting = f"Packing: {count_text(done.waiting, 'pod')} found no node"
    if done.plan is None:
        yield Text(f"{waiting}; {done.why}.")
        return
    plan, proposal = done.plan, done.plan.proposal
    yield Text(
        f"{waiting}; {len(proposal.placed):,} placed, {len(proposal.moves):,} moved, {len(proposal.preempted):,} "
        f"preempted, {len(proposal.resizes):,} resized; {_PROOFS[proposal.status]}; {plan.seconds:.2f} s."
    )
    yield _ending(plan)
    if proposal.stages or proposal.unplaced:
        yield _table(proposal)


def _ending(plan: PackingPlan) -> Text:
    told = f": {plan.detail}" if plan.detail else ""
    stages = f" ({plan.stage} of {count_text(len(plan.proposal.stages), 'stage')} done)" if plan.proposal.stages else ""
    return Text(f"The plan is {plan.phase.value}{stages}{told}.", style=_STYLES[plan.phase])


def _table(proposal: Proposal) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("POD", overflow="fold")
    table.add_column("FROM", overflow="fold")
    table.add_column("TO", overflow="fold")
    rows = [(one.namespace, one.pod, "pending", one.target) for one in proposal.placed]
    rows += [(one.namespace, one.pod, one.source or "", one.target) for one in proposal.moves]
    rows += [(one.namespace, one.pod, one.source, "preempted") for one in proposal.preempted]
    rows += [(one.namespace, one.pod, "pending", f"stays: {unplaced_words(one)}") for one in proposal.unplaced]
    for namespace, pod, source, target in rows[:_MOST_ROWS]:
        table.add_row(f"{namespace}/{pod}", source, target)
    if len(rows) > _MOST_ROWS:
        table.add_row(f"{len(rows) - _MOST_ROWS:,} more: --format json has all", "", "")
    return table
