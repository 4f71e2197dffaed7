"""Node plans for people: what every node would request, which pods would go, what changes most, what is held."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.sizing.container_sizes import PlannedContainerSize
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.sizing.planned_requests import estimate_requests_after_plan, estimate_requests_at_targets
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Container, Pod
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.interfaces.reasons import describe_detail
from cruise.interfaces.text import format_cores, format_count, format_cpu, format_gibibytes, format_memory, format_share

WIDE_TABLE_COLUMNS = 110
_FEW_NODES = 60
_MOST_NODES = 30
_MOST_EVICTIONS = 20
_MOST_CHANGES = 12


@dataclass(frozen=True, slots=True)
class _NodeRow:
    plan: NodePlan
    after: Resources
    at_targets: Resources


@dataclass(slots=True)
class _ContainerChangeRow:
    """What the resizes of one container of one workload add up to."""

    namespace: str
    workload: str
    container: str
    pods: int = 0
    before: Resources = NO_RESOURCES
    after: Resources = NO_RESOURCES

    @property
    def reclaimed(self) -> Resources:
        """What the resizes give back, negative where they take."""
        return self.before - self.after


def render_plan_table(
    plans: Sequence[NodePlan], pods: Mapping[tuple[str, str], Pod], console: Console, in_full: bool = False
) -> Iterator[RenderableType]:
    """Yield the parts of the report; `in_full` leaves no node out. `pods` are the snapshot's by (namespace, name).

    Where the nodes are shown in full elsewhere, what changes most is not picked out here.
    """
    lines = [
        _NodeRow(plan, estimate_requests_after_plan(plan, pods), estimate_requests_at_targets(plan, pods))
        for plan in plans
    ]
    wide = console.width >= WIDE_TABLE_COLUMNS
    yield _nodes(lines, wide, in_full)
    if any(plan.evict for plan in plans):
        yield _evictions(plans, wide, in_full)
    changes = [] if in_full else _changes(plans, pods)
    if changes:
        yield _biggest(changes, plans, wide)
    holds = Counter(hold.reason.value for plan in plans for hold in plan.skipped)
    if holds:
        yield _holds(holds)


def create_plain_table(title: str = "") -> Table:
    """Begin a table without lines, with a title where there is one."""
    return Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )


def _nodes(lines: Sequence[_NodeRow], wide: bool, in_full: bool) -> RenderableType:
    table = create_plain_table()
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
            f"{format_count(len(lines) - len(shown), 'more node')} not shown: those that change least. "
            "--format json has all, --node NAME one in full."
        )
    if wide:
        notes.append("NEEDS: base + shared headroom, as a share of what pods may have.")
    return Group(table, *(Text(note, style="dim") for note in notes))


def _terms(lines: Sequence[_NodeRow]) -> str:
    """Say what the two sides of an arrow are, and what the targets come to, which are no side of any."""
    targets = NO_RESOURCES
    for line in lines:
        targets += line.at_targets
    return (
        "requested → planned: what this plan writes. Targets, what every container should have, come to "
        f"{format_cores(targets.cpu_millicores)} cores and {format_gibibytes(targets.memory_bytes)} GiB. A resize may "
        "write more than the target, so that the next rise needs none; what is not worth a write yet stays."
    )


def _most_telling(lines: Sequence[_NodeRow]) -> list[_NodeRow]:
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


def _node_cells(line: _NodeRow, wide: bool) -> list[Text]:
    plan, need = line.plan, line.plan.base + line.plan.headroom
    holds = Counter(hold.reason.value for hold in plan.skipped)
    cells = [Text(plan.node), Text("yes", style="green") if plan.fits else Text("no", style="bold red")]
    cells.append(format_change(format_cores(plan.counted.cpu_millicores), format_cores(line.after.cpu_millicores)))
    if wide:
        cells.append(Text(format_share(need.cpu_millicores, plan.available.cpu_millicores)))
    cells.append(format_change(format_gibibytes(plan.counted.memory_bytes), format_gibibytes(line.after.memory_bytes)))
    if wide:
        cells.append(Text(format_share(need.memory_bytes, plan.available.memory_bytes)))
    cells.append(_count(len(plan.evict), "red"))
    cells.append(_count(len(plan.resize), "cyan"))
    cells.append(Text(_reasons(holds), style="dim") if wide else _count(len(plan.skipped), "dim"))
    return cells


def _total_cells(lines: Sequence[_NodeRow], wide: bool) -> list[Text]:
    before = after = NO_RESOURCES
    for line in lines:
        before += line.plan.counted
        after += line.after
    plans = [line.plan for line in lines]
    held = sum(len(plan.skipped) for plan in plans)
    fitting = sum(plan.fits for plan in plans)
    cells = [Text(format_count(len(lines), "node")), Text("all" if fitting == len(plans) else f"{fitting:,}")]
    cells.append(format_change(format_cores(before.cpu_millicores), format_cores(after.cpu_millicores)))
    if wide:
        cells.append(Text(""))
    cells.append(format_change(format_gibibytes(before.memory_bytes), format_gibibytes(after.memory_bytes)))
    if wide:
        cells.append(Text(""))
    cells.append(Text(f"{sum(len(plan.evict) for plan in plans):,}"))
    cells.append(Text(f"{sum(len(plan.resize) for plan in plans):,}"))
    cells.append(Text(f"{held:,}"))
    return cells


def format_change(before: str, after: str) -> Text:
    """Write a value and what becomes of it, or once what stays."""
    return Text(before) if before == after else Text.assemble(before, (" → ", "dim"), after)


def _count(number: int, style: str) -> Text:
    return Text(f"{number:,}", style=style) if number else Text("·", style="dim")


def _reasons(holds: Counter[str]) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in holds.most_common()) or "·"


def _evictions(plans: Sequence[NodePlan], wide: bool, in_full: bool) -> RenderableType:
    evictions = [(plan.node, eviction) for plan in plans for eviction in plan.evict]
    table = create_plain_table("Evictions")
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


def _changes(plans: Sequence[NodePlan], pods: Mapping[tuple[str, str], Pod]) -> list[_ContainerChangeRow]:
    found: dict[tuple[str, str, str], _ContainerChangeRow] = {}
    for plan in plans:
        for resize in plan.resize:
            now = {container.name: container for container in pods[(resize.namespace, resize.pod)].containers}
            workload = str(resize.workload) if resize.workload is not None else resize.pod
            for target in resize.containers:
                key = (resize.namespace, workload, target.container)
                change = found.setdefault(key, _ContainerChangeRow(*key))
                change.pods += 1
                change.before += now[target.container].requests.resources
                change.after += target.requests.resources
    return list(found.values())


def _biggest(changes: Sequence[_ContainerChangeRow], plans: Sequence[NodePlan], wide: bool) -> RenderableType:
    whole = NO_RESOURCES
    for plan in plans:
        whole += plan.allocatable
    ranked = sorted(
        changes, key=lambda one: (-_share(one.reclaimed, whole), one.namespace, one.workload, one.container)
    )
    table = create_plain_table("Biggest changes, requested → planned")
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


def _coloured(change: _ContainerChangeRow, resource: ResourceName) -> Text:
    if resource is ResourceName.CPU:
        before, after = change.before.cpu_millicores, change.after.cpu_millicores
        cell = format_change(format_cores(before), format_cores(after))
    else:
        before, after = change.before.memory_bytes, change.after.memory_bytes
        cell = format_change(format_gibibytes(before), format_gibibytes(after))
    cell.stylize("green" if after < before else "yellow" if after > before else "dim")
    return cell


def _holds(holds: Counter[str]) -> RenderableType:
    table = create_plain_table("Left as they are")
    table.add_column("REASON")
    table.add_column("PODS", justify="right")
    for reason, number in holds.most_common():
        table.add_row(reason, f"{number:,}")
    return Group("", table)


# One node's plan in full for people: every container, what it requests now, what is written, and its target.

_NAME_COLUMNS = 24
_NUMBER_COLUMNS = (14, 16, 16)

# CPU, memory and memory limit.
_Size = tuple[int, int, int]


def render_node_plan(
    plan: NodePlan, pods: Mapping[tuple[str, str], Pod], killed: Collection[tuple[str, str]] = ()
) -> Iterator[RenderableType]:
    """Yield the pods of a node one by one; `pods` are the snapshot's by (namespace, name), `killed` some of them."""
    targets = {(target.namespace, target.pod, target.container): target for target in plan.targets}
    yield Text.assemble(
        (f"\nContainers on {plan.node}", "bold"),
        ("  CPU, memory, memory limit: requested → planned, and the target where it is another", "dim"),
    )
    planned = {
        (resize.namespace, resize.pod, one.container): one for resize in plan.resize for one in resize.containers
    }
    for name, (state, style) in sorted(describe_pod_states(plan, killed).items()):
        yield Text.assemble((f"{name[0]}/{name[1]}", "bold"), "  ", (state, style))
        rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        rows.add_column(width=_NAME_COLUMNS, no_wrap=True, overflow="ellipsis")
        for width in _NUMBER_COLUMNS:
            rows.add_column(min_width=width, justify="right", no_wrap=True)
        for container in pods[name].containers:
            key = (*name, container.name)
            target, size = targets.get(key), _size(container, planned.get(key))
            rows.add_row(*_cells(container, size), style=None if target is not None else "dim")
            if target is not None and size != (wanted := _wanted(target)):
                rows.add_row("    target", *_texts(wanted), style="dim")
        yield rows


def describe_pod_states(
    plan: NodePlan, killed: Collection[tuple[str, str]] = ()
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return what becomes of each pod, in words and colour; `killed` are those with a kill for lack of memory."""
    states = {
        place: ("at risk: killed for lack of memory", "bold red") if place in killed else ("no-change-needed", "dim")
        for place in {(target.namespace, target.pod) for target in plan.targets}
    }
    for hold in plan.skipped:
        detail = f" ({describe_detail(hold.detail)})" if hold.detail else ""
        states[hold.namespace, hold.pod] = (f"left: {hold.reason.value}{detail}", "yellow")
    for resize in plan.resize:
        grows = resize.growth.cpu_millicores or resize.growth.memory_bytes
        why = f"{resize.cause or resize.reason.value}, {'grows' if grows else 'shrinks'}"
        states[resize.namespace, resize.pod] = (why, "cyan")
    for eviction in plan.evict:
        states[eviction.namespace, eviction.pod] = (f"evicted: the {eviction.resource} of all pods does not fit", "red")
    return states


def _size(container: Container, planned: ContainerTarget | None) -> _Size:
    """Return a container's requests and memory limit once the plan is written, 0 for what is absent."""
    requests = container.requests if planned is None else planned.requests
    limits = container.limits if planned is None else planned.limits
    return requests.cpu_millicores or 0, requests.memory_bytes or 0, limits.memory_bytes or 0


def _wanted(target: PlannedContainerSize) -> _Size:
    return target.cpu_millicores, target.memory_bytes, target.memory_limit_bytes


def _texts(size: _Size) -> tuple[str, str, str]:
    return format_cpu(size[0]), format_memory(size[1]), format_memory(size[2])


def _cells(container: Container, planned: _Size) -> tuple[Text, ...]:
    return (
        Text(f"  {container.name}"),
        *map(format_change, _texts(_size(container, None)), _texts(planned)),
    )
