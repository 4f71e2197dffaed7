"""What pages show of a rehearsal: its figures as `cruise backtest --against` writes them."""

from collections.abc import Sequence
from dataclasses import dataclass

from cruise.domain.cluster import WorkloadRef
from cruise.domain.rehearsal import Comparison, Rehearsal, Stage
from cruise.interfaces.backtest.difference_words import NAMES, delta_text, interval_text, value_text
from cruise.interfaces.http.view import Rehearsing


@dataclass(frozen=True, slots=True)
class Row:
    """One figure under both; `better` is None where nothing changes."""

    title: str
    today: str
    proposed: str
    change: str
    interval: str
    better: bool | None


@dataclass(frozen=True, slots=True)
class Panel:
    """What a page shows of rehearsals: its own, with its rows, or that one of something else runs."""

    is_possible: bool
    own: Rehearsal | None = None
    rows: Sequence[Row] = ()
    busy: bool = False


def panel_of(stage: Rehearsing | None, namespace: str | None = None, workload: WorkloadRef | None = None) -> Panel:
    """Return what the page of a workload, or that of the cluster, shows."""
    if stage is None:
        return Panel(is_possible=False)
    last = stage.last()
    if last is None:
        return Panel(is_possible=True)
    if (last.proposal.namespace, last.proposal.workload) != (namespace, workload):
        return Panel(is_possible=True, busy=last.stage is Stage.RUNNING)
    return Panel(is_possible=True, own=last, rows=() if last.comparison is None else rows_of(last.comparison))


def rows_of(found: Comparison) -> Sequence[Row]:
    """Return a row for each figure; less is better of all of them."""
    return [
        Row(
            NAMES[figure],
            value_text(figure, one.against),
            value_text(figure, one.here),
            delta_text(figure, one.delta),
            interval_text(figure, one),
            None if delta_text(figure, one.delta) == "0" else one.delta < 0,
        )
        for figure, one in found.figures.items()
    ]
