"""What a rehearsal showed, as rows of a table: today, proposed, and the difference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cruise.domain.cluster import WorkloadRef
from cruise.domain.rehearsal import Comparison, Rehearsal
from cruise.interfaces.http.view import Rehearsing


@dataclass(frozen=True, slots=True)
class Row:
    """One figure under both; `change` is signed, and `better` None where nothing changes."""

    title: str
    today: str
    proposed: str
    change: str
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
    busy = last.stage == "running"
    if (last.proposal.namespace, last.proposal.workload) != (namespace, workload):
        return Panel(is_possible=True, busy=busy)
    rows = () if last.comparison is None else tuple(rows_of(last.comparison))
    return Panel(is_possible=True, own=last, rows=rows, busy=busy)


def rows_of(found: Comparison) -> Iterator[Row]:
    """Yield the figures that both replays have; less is better of all of them."""
    today, proposed = found.today, found.proposed
    yield _share("Slack of CPU", today.cpu_slack, proposed.cpu_slack, 1)
    if today.memory_slack is not None and proposed.memory_slack is not None:
        yield _share("Slack of memory", today.memory_slack, proposed.memory_slack, 1)
    yield _number("Kills for lack of memory, per 1,000 container days", today.kills, proposed.kills)
    yield _share("Starved of CPU, share of the time", today.cpu_starved, proposed.cpu_starved, 3)
    if today.memory_starved is not None and proposed.memory_starved is not None:
        yield _share("Starved of memory, share of the time", today.memory_starved, proposed.memory_starved, 3)
    yield _number("Writes per container and day", today.writes, proposed.writes)
    yield _number("Evictions per 1,000 pod days", today.evictions, proposed.evictions)
    yield _number("Nodes, on average", today.nodes, proposed.nodes)


def _share(title: str, today: float, proposed: float, digits: int) -> Row:
    return _row(title, 100 * today, 100 * proposed, digits, " %")


def _number(title: str, today: float, proposed: float) -> Row:
    return _row(title, today, proposed, 2, "")


def _row(title: str, today: float, proposed: float, digits: int, unit: str) -> Row:
    change = round(proposed - today, digits)
    words = f"{change:+.{digits}f}".replace("-", "−") if change else "0"
    return Row(
        title, f"{today:.{digits}f}{unit}", f"{proposed:.{digits}f}{unit}", words, change < 0 if change else None
    )
