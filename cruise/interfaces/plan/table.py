"""Node plans for people: what every node would request, which pods would go, what changes most, what is held."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.sizing.outlook import estimate_counted_after, estimate_counted_at_targets
from cruise.domain.cluster import Pod
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.interfaces.amounts import cores_text, count_text, gibibytes_text, share_text

WIDE_COLUMNS = 110
_FEW_NODES = 60
_MOST_NODES = 30
_MOST_EVICTIONS = 20
_MOST_CHANGES = 12


@dataclass(frozen=True, slots=True)
class _Line:
    plan: NodePlan
    after: Resources
    at_targets: Resources


@dataclass(slots=True)
class _Change:
    """What the resizes of one container of one workload add up to."""

    namespace: str
    workload: str
    container: str
    pods: int = 0
    before: Resources = NO_RESOURCES
    after: Resources = NO_RESOURCES

    @property
    def freed(self) -> Resources:
        """What the resizes give back, negative where they take."""
        return self.before - self.after


def plan_table(
    plans: Sequence[NodePlan], pods: Mapping[tuple[str, str], Pod], console: Console, in_full: bool = False
) -> Iterator[RenderableType]:
    """Yield the parts of the report; `in_full` leaves no node out. `pods` are the snapshot's by (namespace, name).

    Where the nodes are shown in full elsewhere, what changes most is not picked out here.
    """
    lines = [_Line(plan, estimate_counted_after(plan, pods), estimate_counted_at_targets(plan, pods)) for plan in plans]
    wide = console.width >= WIDE_COLUMNS
    yield _nodes(lines, wide, in_full)
    if any(plan.evict for plan in plans):
        yield _evictions(plans, wide, in_full)
    changes = [] if in_full else _changes(plans, pods)
    if changes:
        yield _biggest(changes, plans, wide)
    holds = Counter(hold.reason.value for plan in plans for hold in plan.hold)
    if holds:
        yield _holds(holds)


def plain_table(title: str = "") -> Table:
    """Begin a table without lines, with a title where there is one."""
    return Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )


def _nodes(lines: Sequence[_Line], wide: bool, in_full: bool) -> RenderableType:
    table = plain_table()
    table.add_column("NODE", overflow="ellipsis", no_wrap=True, ratio=1 if not wide else None)
    table.add_column("FITS", no_wrap=True)
    for heading in ("CPU CORES", "MEMORY GIB"):
        table.add_column(heading, justify="right", no_wrap=True)
        if wide:
            table.add_column("NEEDS", justify="right", no_wrap=True)
    table.add_column("EVICT" if wide else "EVI", justify="right")
    table.add_column("RESIZE" if wide else "RES", justify="right")
    table.add_column("HELD", overflow="ellipsis", no_wrap=True, justify="left" if wide else "right")
    shown = lines if in_full or len(lines) <= _FEW_NODES else _most_telling(lines)
    for line in shown:
        table.add_row(*_node_cells(line, wide))
    if len(lines) > 1:
        table.add_section()
        table.add_row(*_total_cells(lines, wide), style="bold")
    notes = [_terms(lines)]
    if len(shown) < len(lines):
        notes.append(
            f"{count_text(len(lines) - len(shown), 'more node')} not shown: those that change least. "
            "--format json has all, --node NAME one in full."
        )
    if wide:
        notes.append("NEEDS: base + shared headroom, as a share of what pods may have.")
    return Group(table, *(Text(note, style="dim") for note in notes))


def _terms(lines: Sequence[_Line]) -> str:
    """Say what the two sides of an arrow are, and what the targets come to, which are no side of any."""
    targets = NO_RESOURCES
    for line in lines:
        targets += line.at_targets
    return (
        "requested → planned: what this plan writes. Targets, what every container should have, come to "
        f"{cores_text(targets.cpu_millicores)} cores and {gibibytes_text(targets.memory_bytes)} GiB. A resize may "
        "write more than the target, so that the next rise needs none; what is not worth a write yet stays."
    )


def _most_telling(lines: Sequence[_Line]) -> list[_Line]:
    """Pick what does not fit or evicts, then what changes most, in the nodes' own order."""

    def telling(at: int) -> tuple[bool, int, float]:
        line = lines[at]
        return (line.plan.fits, -len(line.plan.evict), -_share(line.plan.counted - line.after, line.plan.allocatable))

    chosen = sorted(range(len(lines)), key=telling)[:_MOST_NODES]
    return [lines[at] for at in sorted(chosen)]


def _share(amount: Resources, whole: Resources) -> float:
    """Return how much of a whole the resources are, CPU and memory weighed alike."""
    return abs(amount.cpu_millicores) / max(1, whole.cpu_millicores) + abs(amount.memory_bytes) / max(
        1, whole.memory_bytes
    )


def _node_cells(line: _Line, wide: bool) -> list[Text]:
    plan, need = line.plan, line.plan.base + line.plan.headroom
    holds = Counter(hold.reason.value for hold in plan.hold)
    cells = [Text(plan.node), Text("yes", style="green") if plan.fits else Text("no", style="bold red")]
    cells.append(arrow(cores_text(plan.counted.cpu_millicores), cores_text(line.after.cpu_millicores)))
    if wide:
        cells.append(Text(share_text(need.cpu_millicores, plan.available.cpu_millicores)))
    cells.append(arrow(gibibytes_text(plan.counted.memory_bytes), gibibytes_text(line.after.memory_bytes)))
    if wide:
        cells.append(Text(share_text(need.memory_bytes, plan.available.memory_bytes)))
    cells.append(_count(len(plan.evict), "red"))
    cells.append(_count(len(plan.resize), "cyan"))
    cells.append(Text(_reasons(holds), style="dim") if wide else _count(len(plan.hold), "dim"))
    return cells


def _total_cells(lines: Sequence[_Line], wide: bool) -> list[Text]:
    before = after = NO_RESOURCES
    for line in lines:
        before += line.plan.counted
        after += line.after
    plans = [line.plan for line in lines]
    held = sum(len(plan.hold) for plan in plans)
    fitting = sum(plan.fits for plan in plans)
    cells = [Text(count_text(len(lines), "node")), Text("all" if fitting == len(plans) else f"{fitting:,}")]
    cells.append(arrow(cores_text(before.cpu_millicores), cores_text(after.cpu_millicores)))
    if wide:
        cells.append(Text(""))
    cells.append(arrow(gibibytes_text(before.memory_bytes), gibibytes_text(after.memory_bytes)))
    if wide:
        cells.append(Text(""))
    cells.append(Text(f"{sum(len(plan.evict) for plan in plans):,}"))
    cells.append(Text(f"{sum(len(plan.resize) for plan in plans):,}"))
    cells.append(Text(f"{held:,}"))
    return cells


def arrow(before: str, after: str) -> Text:
    """Write a value and what becomes of it, or once what stays."""
    return Text(before) if before == after else Text.assemble(before, (" → ", "dim"), after)


def _count(number: int, style: str) -> Text:
    return Text(f"{number:,}", style=style) if number else Text("·", style="dim")


def _reasons(holds: Counter[str]) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in holds.most_common()) or "·"


def _evictions(plans: Sequence[NodePlan], wide: bool, in_full: bool) -> RenderableType:
    evictions = [(plan.node, eviction) for plan in plans for eviction in plan.evict]
    table = plain_table("Evictions")
    table.add_column("POD", overflow="fold")
    table.add_column("NODE", overflow="ellipsis", no_wrap=True)
    table.add_column("RANKING", no_wrap=True)
    table.add_column("WHY", no_wrap=True)
    shown = evictions if in_full else evictions[:_MOST_EVICTIONS]
    for node, one in shown:
        why = f"the {one.resource} of all pods does not fit" if wide else one.resource.value
        table.add_row(f"{one.namespace}/{one.pod}", node, one.ranking.label, why)
    if len(shown) < len(evictions):
        more = Text(f"{len(evictions) - len(shown):,} more evictions: --format json has all.", style="dim")
        return Group("", table, more)
    return Group("", table)


def _changes(plans: Sequence[NodePlan], pods: Mapping[tuple[str, str], Pod]) -> list[_Change]:
    found: dict[tuple[str, str, str], _Change] = {}
    for plan in plans:
        for resize in plan.resize:
            now = {container.name: container for container in pods[(resize.namespace, resize.pod)].containers}
            workload = str(resize.workload) if resize.workload is not None else resize.pod
            for target in resize.containers:
                key = (resize.namespace, workload, target.container)
                change = found.setdefault(key, _Change(*key))
                change.pods += 1
                change.before += now[target.container].requests.resources
                change.after += target.requests.resources
    return list(found.values())


def _biggest(changes: Sequence[_Change], plans: Sequence[NodePlan], wide: bool) -> RenderableType:
    whole = NO_RESOURCES
    for plan in plans:
        whole += plan.allocatable
    ranked = sorted(changes, key=lambda one: (-_share(one.freed, whole), one.namespace, one.workload, one.container))
    table = plain_table("Biggest changes, requested → planned")
    table.add_column("WORKLOAD", overflow="fold", ratio=None if wide else 1)
    table.add_column("CONTAINER", overflow="ellipsis", no_wrap=True)
    table.add_column("PODS", justify="right", no_wrap=True)
    table.add_column("CPU CORES" if wide else "CORES", justify="right", no_wrap=True)
    table.add_column("MEMORY GIB" if wide else "GIB", justify="right", no_wrap=True)
    for change in ranked[:_MOST_CHANGES]:
        table.add_row(
            f"{change.namespace}/{change.workload}",
            change.container,
            f"{change.pods:,}",
            _coloured(change, ResourceName.CPU),
            _coloured(change, ResourceName.MEMORY),
        )
    return Group("", table)


def _coloured(change: _Change, resource: ResourceName) -> Text:
    if resource is ResourceName.CPU:
        before, after = change.before.cpu_millicores, change.after.cpu_millicores
        cell = arrow(cores_text(before), cores_text(after))
    else:
        before, after = change.before.memory_bytes, change.after.memory_bytes
        cell = arrow(gibibytes_text(before), gibibytes_text(after))
    cell.stylize("green" if after < before else "yellow" if after > before else "dim")
    return cell


def _holds(holds: Counter[str]) -> RenderableType:
    table = plain_table("Left as they are")
    table.add_column("REASON")
    table.add_column("PODS", justify="right")
    for reason, number in holds.most_common():
        table.add_row(reason, f"{number:,}")
    return Group("", table)
