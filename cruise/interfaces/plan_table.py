"""Node plans as tables: each node, the evictions, the largest changes, the skipped pods, and one node in full."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from cruise.decisions.sizing.container_sizes import PlannedContainerSize
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.sizing.planned_requests import count_node_requests_after_plan, count_node_requests_at_targets
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Container, Pod
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.interfaces.reasons import describe_detail
from cruise.interfaces.text import (
    format_cores,
    format_count,
    format_cpu,
    format_gibibytes,
    format_mebibytes,
    format_share,
)

WIDE_TABLE_COLUMNS = 110
# A larger cluster is shown by its `_MAX_NODES` most changed nodes.
_FEW_NODES = 60
_MAX_NODES = 30
_MAX_EVICTIONS = 20
_MAX_CHANGES = 12


@dataclass(frozen=True, slots=True)
class _NodeRow:
    plan: NodePlan
    planned: Resources
    target: Resources


@dataclass(slots=True)
class _ContainerChangeRow:
    """The sum of the resizes of one container of one workload."""

    namespace: str
    workload: str
    container: str
    pods: int = 0
    requested: Resources = NO_RESOURCES
    planned: Resources = NO_RESOURCES

    @property
    def decrease(self) -> Resources:
        """The decrease of the requests, negative for an increase."""
        return self.requested - self.planned


def render_plan_table(
    plans: Sequence[NodePlan], pods: Mapping[tuple[str, str], Pod], console: Console, in_full: bool = False
) -> Iterator[RenderableType]:
    """Yield the parts of the report; `in_full` lists all nodes, without the table of the largest changes.

    `pods` are the snapshot's by (namespace, name).
    """
    rows = [
        _NodeRow(plan, count_node_requests_after_plan(plan, pods), count_node_requests_at_targets(plan, pods))
        for plan in plans
    ]
    wide = console.width >= WIDE_TABLE_COLUMNS
    yield _render_nodes(rows, wide, in_full)
    if any(plan.evict for plan in plans):
        yield _render_evictions(plans, wide, in_full)
    changes = [] if in_full else _sum_changes(plans, pods)
    if changes:
        yield _render_changes(changes, plans, wide)
    skipped = Counter(one.reason.value for plan in plans for one in plan.skipped)
    if skipped:
        yield _render_skipped(skipped)


def create_plain_table(title: str = "") -> Table:
    """Return a table without lines."""
    return Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )


_MIN_NAME_COLUMNS = 12
_UNLIMITED_COLUMNS = 10_000


@dataclass(frozen=True, slots=True)
class NamedRowTable:
    """A table whose names have lines of their own if they and the numbers do not fit next to each other.

    `headings` has the columns of a table without rows, whose cells must not be wrapped; a row has a name, the other
    cells, and a style.
    """

    headings: Callable[[], Table]
    rows: Sequence[tuple[str, Sequence[Text], str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, or its lines with those of the long names."""
        table = self.build()
        width = Measurement.get(console, options.update(max_width=_UNLIMITED_COLUMNS), table).maximum
        if width <= options.max_width:
            yield table
            return
        longest = max(len(name) for name, _, _ in self.rows)
        name_width = max(_MIN_NAME_COLUMNS, longest - (width - options.max_width))
        heading, *lines = console.render_lines(self.build(name_width), options, pad=False)
        yield from (*heading, Segment.line())
        for (name, _, style), line in zip(self.rows, lines, strict=True):
            if len(name) > name_width:
                yield Text(name, style=style)
            yield from (*line, Segment.line())

    def build(self, name_width: int | None = None) -> Table:
        """Return the table; with a width of the names, those that are longer are left out."""
        table = self.headings()
        table.columns[0].width = name_width
        for name, cells, style in self.rows:
            table.add_row(name if name_width is None or len(name) <= name_width else "", *cells, style=style)
        return table


def _create_node_headings(wide: bool) -> Table:
    table = create_plain_table()
    table.add_column("NODE", overflow="fold")
    table.add_column("FITS", no_wrap=True)
    for heading, target_heading in (("CPU CORES", "TARGET"), ("MEMORY GIB", "TARGET")):
        table.add_column(heading, justify="right", no_wrap=True)
        if wide:
            table.add_column(target_heading, justify="right", no_wrap=True)
    for heading in ("EVICT", "RESIZE"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("SKIPPED", overflow="fold", no_wrap=not wide, justify="left" if wide else "right")
    return table


def _render_nodes(rows: Sequence[_NodeRow], wide: bool, in_full: bool) -> RenderableType:
    shown = rows if in_full or len(rows) <= _FEW_NODES else _select_rows(rows)
    lines = [(row.plan.node, _node_cells(row, wide), "") for row in shown]
    if len(rows) > 1:
        lines.append((format_count(len(rows), "node"), _total_cells(rows, wide), "bold"))
    notes = [_explain_columns(rows)]
    if len(shown) < len(rows):
        notes.append(
            f"{format_count(len(rows) - len(shown), 'more node')} with smaller changes not shown. "
            "--format json has all nodes, --node NAME shows one in full."
        )
    if wide:
        notes.append("TARGET: base + shared headroom, as a share of the capacity available to sized pods.")
    named = NamedRowTable(partial(_create_node_headings, wide), lines)
    # Skip reasons are wrapped in a wide table.
    table = named.build() if wide else named
    return Group(table, *(Text(note, style="dim") for note in notes))


def _explain_columns(rows: Sequence[_NodeRow]) -> str:
    targets = NO_RESOURCES
    for row in rows:
        targets += row.target
    return (
        "requested → planned: what this plan writes. The targets, what every container should request, sum up to "
        f"{format_cores(targets.cpu_millicores)} cores and {format_gibibytes(targets.memory_bytes)} GiB. A resize may "
        "write more than the target, so that the next rise needs no resize; small changes are not written."
    )


def _select_rows(rows: Sequence[_NodeRow]) -> list[_NodeRow]:
    """Return the nodes that do not fit or evict, then those that change most, in the present order."""

    def sort_key(index: int) -> tuple[bool, int, float]:
        row = rows[index]
        change = row.plan.counted - row.planned
        return (row.plan.reason is None, -len(row.plan.evict), -_compute_share(change, row.plan.allocatable))

    selected = sorted(range(len(rows)), key=sort_key)[:_MAX_NODES]
    return [rows[index] for index in sorted(selected)]


def _compute_share(amount: Resources, total: Resources) -> float:
    """Return the sum of the shares of CPU and memory in a total."""
    cpu = abs(amount.cpu_millicores) / max(1, total.cpu_millicores)
    return cpu + abs(amount.memory_bytes) / max(1, total.memory_bytes)


def _node_cells(row: _NodeRow, wide: bool) -> list[Text]:
    plan, need = row.plan, row.plan.base + row.plan.headroom
    skipped = Counter(one.reason.value for one in plan.skipped)
    cells = [_format_fit(plan)]
    cells.append(format_change(format_cores(plan.counted.cpu_millicores), format_cores(row.planned.cpu_millicores)))
    if wide:
        cells.append(Text(format_share(need.cpu_millicores, plan.available.cpu_millicores)))
    cells.append(format_change(format_gibibytes(plan.counted.memory_bytes), format_gibibytes(row.planned.memory_bytes)))
    if wide:
        cells.append(Text(format_share(need.memory_bytes, plan.available.memory_bytes)))
    cells.append(_format_number(len(plan.evict), "red"))
    cells.append(_format_number(len(plan.resize), "cyan"))
    cells.append(Text(_format_reasons(skipped), style="dim") if wide else _format_number(len(plan.skipped), "dim"))
    return cells


def _total_cells(rows: Sequence[_NodeRow], wide: bool) -> list[Text]:
    requested = planned = NO_RESOURCES
    for row in rows:
        requested += row.plan.counted
        planned += row.planned
    plans = [row.plan for row in rows]
    fitting = sum(plan.reason is None for plan in plans)
    cells = [Text("all" if fitting == len(plans) else f"{fitting:,} of {len(plans):,}")]
    cells.append(format_change(format_cores(requested.cpu_millicores), format_cores(planned.cpu_millicores)))
    if wide:
        cells.append(Text(""))
    cells.append(format_change(format_gibibytes(requested.memory_bytes), format_gibibytes(planned.memory_bytes)))
    if wide:
        cells.append(Text(""))
    cells.append(Text(f"{sum(len(plan.evict) for plan in plans):,}"))
    cells.append(Text(f"{sum(len(plan.resize) for plan in plans):,}"))
    cells.append(Text(f"{sum(len(plan.skipped) for plan in plans):,}"))
    return cells


def _format_fit(plan: NodePlan) -> Text:
    if plan.reason is None:
        return Text("yes", style="green")
    return Text("no", style="bold red") if plan.has_working_kubelet else Text("not ready", style="bold red")


def format_change(before: str, after: str) -> Text:
    """Write `before → after`, or one value if they are equal."""
    return Text(before) if before == after else Text.assemble(before, (" → ", "dim"), after)


def _format_number(number: int, style: str) -> Text:
    return Text(f"{number:,}", style=style) if number else Text("·", style="dim")


def _format_reasons(skipped: Counter[str]) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in skipped.most_common()) or "·"


def _render_evictions(plans: Sequence[NodePlan], wide: bool, in_full: bool) -> RenderableType:
    evictions = [(plan.node, eviction) for plan in plans for eviction in plan.evict]
    table = create_plain_table("Evictions")
    table.add_column("POD", overflow="fold")
    table.add_column("NODE", overflow="fold")
    table.add_column("RANKING", no_wrap=True)
    table.add_column("REASON", no_wrap=True)
    shown = evictions if in_full else evictions[:_MAX_EVICTIONS]
    for node, one in shown:
        reason = f"the {one.resource.display_name} of all pods does not fit" if wide else one.resource.display_name
        table.add_row(f"{one.namespace}/{one.pod}", node, one.ranking.label, reason)
    if len(shown) < len(evictions):
        more = Text(f"{len(evictions) - len(shown):,} more evictions: --format json has all.", style="dim")
        return Group("", table, more)
    return Group("", table)


def _sum_changes(plans: Sequence[NodePlan], pods: Mapping[tuple[str, str], Pod]) -> list[_ContainerChangeRow]:
    changes: dict[tuple[str, str, str], _ContainerChangeRow] = {}
    for plan in plans:
        for resize in plan.resize:
            containers = {part.name: part for part in pods[(resize.namespace, resize.pod)].resizable_parts}
            workload = str(resize.workload) if resize.workload is not None else resize.pod
            for planned in resize.containers:
                key = (resize.namespace, workload, planned.container)
                change = changes.setdefault(key, _ContainerChangeRow(*key))
                change.pods += 1
                change.requested += containers[planned.container].requests.resources
                change.planned += planned.requests.resources
    return list(changes.values())


def _render_changes(changes: Sequence[_ContainerChangeRow], plans: Sequence[NodePlan], wide: bool) -> RenderableType:
    allocatable = NO_RESOURCES
    for plan in plans:
        allocatable += plan.allocatable
    ranked = sorted(
        changes,
        key=lambda one: (-_compute_share(one.decrease, allocatable), one.namespace, one.workload, one.container),
    )
    table = create_plain_table("Largest changes, requested → planned")
    table.add_column("WORKLOAD", overflow="fold", ratio=None if wide else 1)
    table.add_column("CONTAINER", overflow="fold")
    table.add_column("PODS", justify="right", no_wrap=True)
    table.add_column("CPU CORES" if wide else "CORES", justify="right", no_wrap=True)
    table.add_column("MEMORY GIB" if wide else "GIB", justify="right", no_wrap=True)
    for change in ranked[:_MAX_CHANGES]:
        table.add_row(
            f"{change.namespace}/{change.workload}",
            change.container,
            f"{change.pods:,}",
            _format_coloured(change, ResourceName.CPU),
            _format_coloured(change, ResourceName.MEMORY),
        )
    return Group("", table)


def _format_coloured(change: _ContainerChangeRow, resource: ResourceName) -> Text:
    write = format_cores if resource is ResourceName.CPU else format_gibibytes
    requested, planned = change.requested.get(resource), change.planned.get(resource)
    cell = format_change(write(requested), write(planned))
    cell.stylize("green" if planned < requested else "yellow" if planned > requested else "dim")
    return cell


def _render_skipped(skipped: Counter[str]) -> RenderableType:
    table = create_plain_table("Skipped pods")
    table.add_column("SKIP REASON")
    table.add_column("PODS", justify="right")
    for reason, number in skipped.most_common():
        table.add_row(reason, f"{number:,}")
    return Group("", table)


# The plan of one node in full.

_NAME_COLUMNS = 24
_NUMBER_COLUMNS = (16, 18, 18)

# CPU, memory and memory limit.
_Size = tuple[int, int, int]


def render_node_plan(
    plan: NodePlan, pods: Mapping[tuple[str, str], Pod], killed: Collection[tuple[str, str]] = ()
) -> Iterator[RenderableType]:
    """Yield each pod of a node; `pods` are the snapshot's by (namespace, name), `killed` those with an OOM kill."""
    targets = {(target.namespace, target.pod, target.container): target for target in plan.targets}
    yield Text.assemble(
        (f"\nContainers on {plan.node}", "bold"),
        ("  CPU, memory, memory limit: requested → planned, and the target if it differs", "dim"),
    )
    planned = {
        (resize.namespace, resize.pod, one.container): one for resize in plan.resize for one in resize.containers
    }
    for name, (state, style) in sorted(describe_pod_states(plan, killed).items()):
        yield Text.assemble((f"{name[0]}/{name[1]}", "bold"), "  ", (state, style))
        rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        rows.add_column(width=_NAME_COLUMNS, overflow="fold")
        for width in _NUMBER_COLUMNS:
            rows.add_column(min_width=width, justify="right", no_wrap=True)
        for container in pods[name].containers:
            key = (*name, container.name)
            target, size = targets.get(key), _get_size(container, planned.get(key))
            rows.add_row(*_container_cells(container, size), style=None if target is not None else "dim")
            if target is not None and size != (target_size := _get_target_size(target)):
                rows.add_row("    target", *_format_size(target_size), style="dim")
        yield rows


def describe_pod_states(
    plan: NodePlan, killed: Collection[tuple[str, str]] = ()
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the plan for each pod as text and colour; `killed` are the pods with an OOM kill."""
    states = {
        key: ("at risk: OOM killed", "bold red") if key in killed else ("no-change-needed", "dim")
        for key in {(target.namespace, target.pod) for target in plan.targets}
    }
    for skipped in plan.skipped:
        detail = f" ({describe_detail(skipped.detail)})" if skipped.detail else ""
        states[skipped.namespace, skipped.pod] = (f"skipped: {skipped.reason.value}{detail}", "yellow")
    for resize in plan.resize:
        grows = resize.growth.cpu_millicores or resize.growth.memory_bytes
        text = f"{resize.cause or resize.reason.value}, {'grows' if grows else 'shrinks'}"
        states[resize.namespace, resize.pod] = (text, "cyan")
    for eviction in plan.evict:
        states[eviction.namespace, eviction.pod] = (f"evicted: the {eviction.resource} of all pods does not fit", "red")
    return states


def _get_size(container: Container, planned: ContainerTarget | None) -> _Size:
    """Return the planned requests and memory limit of a container, 0 if absent."""
    requests = container.requests if planned is None else planned.requests
    limits = container.limits if planned is None else planned.limits
    return requests.cpu_millicores or 0, requests.memory_bytes or 0, limits.memory_bytes or 0


def _get_target_size(target: PlannedContainerSize) -> _Size:
    return target.cpu_millicores, target.memory_bytes, target.memory_limit_bytes


def _format_size(size: _Size) -> tuple[str, str, str]:
    return format_cpu(size[0]), format_mebibytes(size[1]), format_mebibytes(size[2])


def _container_cells(container: Container, planned: _Size) -> tuple[Text, ...]:
    return (
        Text(f"  {container.name}"),
        *map(format_change, _format_size(_get_size(container, None)), _format_size(planned)),
    )
