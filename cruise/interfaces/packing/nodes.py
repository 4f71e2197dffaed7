"""Renders the nodes before and after a packing plan, and what a consolidation saves."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.sizing.planned_requests import count_requests_when_resized
from cruise.domain.actions import ContainerTarget
from cruise.domain.autoscalers import NodeAutoscalerKind
from cruise.domain.cluster import ClusterSnapshot, Node, Pod, PodsByName
from cruise.domain.packing_plan import AddedNodes, NodeCostMeasure, NodeCountChange, PackingProposal, PlannedPlacement
from cruise.domain.pod_resources import count_container_requests, count_pod_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.interfaces.packing.descriptions import describe_condition
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS, NamedRowTable, create_plain_table, format_change
from cruise.interfaces.reasons import describe_detail
from cruise.interfaces.text import format_cores, format_count, format_gibibytes, format_share
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult


def compute_sizes_after_plan(
    proposal: PackingProposal, pods: PodsByName
) -> dict[tuple[str, str], tuple[str, Resources]]:
    """Return the node and requests after the plan of every pod whose size changes.

    Keys and `pods` are by (namespace, name).
    """
    sizes = {}
    for resize in proposal.resizes:
        key = resize.key
        sizes[key] = (resize.node or "", count_requests_with_targets(pods[key], resize.containers))
    for arrival in (*proposal.placed, *proposal.moves):
        if arrival.containers:
            sizes[arrival.key] = (arrival.target, compute_size_on_arrival(arrival, pods))
    return sizes


def compute_size_on_arrival(arrival: PlannedPlacement, pods: PodsByName) -> Resources:
    """Return the requests of a pod once it runs on its target."""
    pod = pods[arrival.key]
    return count_requests_with_targets(pod, arrival.containers) if arrival.containers else count_pod_requests(pod)


def count_requests_with_targets(pod: Pod, targets: Sequence[ContainerTarget]) -> Resources:
    """Return the requests of a pod whose containers have these targets."""
    containers = {part.name: part for part in pod.resizable_parts}
    sizes = {}
    for target in targets:
        now, requests = count_container_requests(containers[target.container]), target.requests
        sizes[target.container] = Resources(
            now.cpu_millicores if requests.cpu_millicores is None else requests.cpu_millicores,
            now.memory_bytes if requests.memory_bytes is None else requests.memory_bytes,
        )
    return count_requests_when_resized(pod, sizes)


_MOST_NODES = 20


@dataclass(slots=True)
class NodeRequestsSummary:
    """The requests and the number of pods on a node."""

    requests: Resources = NO_RESOURCES
    pods: int = 0
    extended: Counter[str] = field(default_factory=Counter)

    def add(self, pod: Pod, size: Resources) -> None:
        """Add a pod."""
        self.pods += 1
        self.requests += size
        self.extended.update(dict(pod.extended_requests))


def compute_node_requests(
    snapshot: ClusterSnapshot, proposal: PackingProposal, pods: PodsByName
) -> tuple[dict[str, NodeRequestsSummary], dict[str, NodeRequestsSummary]]:
    """Return the load of every node now and after the plan."""
    new_sizes = compute_sizes_after_plan(proposal, pods)
    evicted = {one.key for one in (*proposal.moves, *proposal.preempted)}
    now: dict[str, NodeRequestsSummary] = {node.name: NodeRequestsSummary() for node in snapshot.nodes}
    after: dict[str, NodeRequestsSummary] = {node.name: NodeRequestsSummary() for node in snapshot.nodes}
    for pod in snapshot.pods:
        if pod.is_finished or pod.node not in now:
            continue
        key, requests = (pod.namespace, pod.name), count_pod_requests(pod)
        now[pod.node].add(pod, requests)
        if key not in evicted:
            after[pod.node].add(pod, new_sizes[key][1] if key in new_sizes else requests)
    for arrival in (*proposal.placed, *proposal.moves):
        after[arrival.target].add(pods[arrival.key], compute_size_on_arrival(arrival, pods))
    return now, after


def render_node_table(
    snapshot: ClusterSnapshot, proposal: PackingProposal, pods: PodsByName, console: Console, in_full: bool = False
) -> Iterator[RenderableType]:
    """Yield the table of the nodes that the plan changes, those that change most, with a sum of all nodes."""
    changes = _count_changes(proposal)
    if not changes:
        return
    now, after = compute_node_requests(snapshot, proposal, pods)
    wide = console.width >= WIDE_TABLE_COLUMNS
    nodes = {node.name: node for node in snapshot.nodes}
    ranked = sorted(changes, key=lambda name: (-changes[name], name))
    shown = sorted(ranked if in_full else ranked[:_MOST_NODES])
    extended = _list_extended_resources(nodes, changes)
    rows: list[tuple[str, Sequence[Text], str]] = [
        (name, _format_cells(now[name], after[name], nodes[name].allocatable, wide, extended), "") for name in shown
    ]
    allocatable = sum((node.allocatable for node in nodes.values()), NO_RESOURCES)
    sums = _format_cells(_sum_requests(now), _sum_requests(after), allocatable, wide, extended)
    rows.append((f"all {format_count(len(nodes), 'node')}", sums, "bold"))
    table = NamedRowTable(partial(_create_headings, wide, extended), rows)
    notes = ["SHARE: what pods request of the allocatable resources."]
    if len(shown) < len(changes):
        hidden = len(changes) - len(shown)
        notes.append(f"{format_count(hidden, 'more node')} {'changes' if hidden == 1 else 'change'}: --full shows all.")
    title = Text("Nodes, now → after the plan", style="bold")
    yield Group("", title, table, *(Text(note, style="dim") for note in notes))


def _count_changes(proposal: PackingProposal) -> dict[str, int]:
    """Return the nodes that a plan changes, with the number of changed pods."""
    arrivals = (*proposal.placed, *proposal.moves)
    nodes = [node for one in arrivals for node in (one.target, one.source)]
    nodes += [one.source for one in proposal.preempted] + [one.node for one in proposal.resizes]
    return Counter(node for node in nodes if node is not None)


def _list_extended_resources(nodes: Mapping[str, Node], changes: Mapping[str, int]) -> list[str]:
    """Return the two most widespread extended resources of the nodes that change."""
    counts = Counter(
        resource
        for name in changes
        for resource, amount in nodes[name].allocatable_extended.items()
        if amount and not resource.startswith(("hugepages-", "ephemeral-storage"))
    )
    return sorted(counts, key=lambda resource: (-counts[resource], resource))[:2]


def _create_headings(wide: bool, extended: list[str]) -> Table:
    table = create_plain_table()
    table.add_column("NODE", overflow="fold")
    table.add_column("PODS", justify="right", no_wrap=True)
    for heading in ("CPU CORES", "MEMORY GIB") if wide else ("CPU SHARE", "MEMORY SHARE"):
        table.add_column(heading, justify="right", no_wrap=True)
        if wide:
            table.add_column("SHARE", justify="right", no_wrap=True)
    for resource in extended:
        table.add_column(resource.rpartition("/")[2].upper(), justify="right", no_wrap=True)
    return table


def _format_cells(
    now: NodeRequestsSummary, after: NodeRequestsSummary, allocatable: Resources, wide: bool, extended: list[str]
) -> list[Text]:
    cpu = now.requests.cpu_millicores, after.requests.cpu_millicores, allocatable.cpu_millicores
    memory = now.requests.memory_bytes, after.requests.memory_bytes, allocatable.memory_bytes
    cells = [format_change(f"{now.pods:,}", f"{after.pods:,}")]
    for (before, then, total), format_amount in ((cpu, format_cores), (memory, format_gibibytes)):
        share = format_change(format_share(before, total), format_share(then, total))
        cells += [format_change(format_amount(before), format_amount(then)), share] if wide else [share]
    cells += [format_change(f"{now.extended[name]:,}", f"{after.extended[name]:,}") for name in extended]
    return cells


def _sum_requests(loads: Mapping[str, NodeRequestsSummary]) -> NodeRequestsSummary:
    total = NodeRequestsSummary()
    for load in loads.values():
        total.pods += load.pods
        total.requests += load.requests
        total.extended.update(load.extended)
    return total


_MOST_EMPTIED, _MOST_DETAILS = 20, 5
_PRICED, _SIZED = ("a lower price", "a price below {}"), ("less size", "less size than that of {} cores")
_STAY = {True: "stays", False: "stay"}
AUTOSCALER_NAMES = {
    NodeAutoscalerKind.KARPENTER: "Karpenter",
    NodeAutoscalerKind.CLUSTER_AUTOSCALER: "cluster-autoscaler",
}


def is_node_count_proved(change: NodeCountChange) -> bool:
    """Return whether no plan needs fewer nodes, or a lower price."""
    if change.price_after is not None and change.price_bound is not None:
        return change.price_after <= change.price_bound
    return change.nodes_after <= change.nodes_bound


def describe_node_count_proof(change: NodeCountChange) -> str:
    """Describe what is proved about how few nodes are enough."""
    if change.price_after is not None and change.price_bound is not None:
        less, more = _PRICED if change.measure is NodeCostMeasure.PRICE else _SIZED
        if is_node_count_proved(change):
            return f"proved that no plan needs nodes of {less}"
        return f"no plan needs nodes of {more.format(_format_price(change.price_bound))}; whether one does is open"
    if is_node_count_proved(change):
        return "proved that no plan needs fewer nodes"
    if not change.nodes_bound:
        return f"whether fewer than {format_count(change.nodes_after, 'node')} are enough is open"
    least, now = format_count(change.nodes_bound, "node"), f"{change.nodes_after:,}"
    return f"every plan needs at least {least}; whether fewer than {now} are enough is open"


def format_node_type_name(added: AddedNodes) -> str:
    """Return the name of a node type, with its NodePool."""
    return f"{added.type} from NodePool {added.pool}" if added.pool else added.type


def describe_nodes_to_add(added: AddedNodes) -> str:
    """Describe how many nodes of a type must be ordered."""
    # Nodes without an instance type are named after one of them.
    of_type = "" if added.type.startswith("like ") else "of type "
    return f"{format_count(added.count, 'node')} {of_type}{format_node_type_name(added)}"


def describe_pools_without_types(change: NodeCountChange) -> list[str]:
    """Describe for each NodePool without a type why it has none."""
    return [f"NodePool {name} is ignored: {describe_detail(detail)}." for name, detail in change.pools_without_types]


def render_node_count_change(change: NodeCountChange, snapshot: ClusterSnapshot) -> Group:
    """Render the nodes in use before and after the plan, the drained nodes in order, and those to add."""
    table = create_plain_table("Nodes in use")
    for heading in ("", "NOW", "AFTER", "AT LEAST"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    table.add_row("nodes", *(f"{count:,}" for count in (change.nodes_before, change.nodes_after, change.nodes_bound)))
    if change.price_before is not None and change.price_after is not None and change.price_bound is not None:
        measure = "price" if change.measure is NodeCostMeasure.PRICE else "size, in cores"
        table.add_row(measure, *map(_format_price, (change.price_before, change.price_after, change.price_bound)))
    lines = [*_render_drained_nodes(change, snapshot)]
    lines += [Text(f"Add {describe_nodes_to_add(one)}.", style="green") for one in change.added]
    lines += [Text(line, style="yellow") for line in describe_pools_without_types(change)]
    for detail, nodes in change.kept_by_reason[:_MOST_DETAILS]:
        lines.append(
            Text(f"{format_count(nodes, 'node')} {_STAY[nodes == 1]} in use: {describe_detail(detail)}.", style="dim")
        )
    for constraint, nodes in change.nodes_after_by_lifted_constraint:
        lines.append(Text(f"Without {constraint} {format_count(nodes, 'node')} would be enough.", style="yellow"))
    return Group("", table, *lines)


def _render_drained_nodes(change: NodeCountChange, snapshot: ClusterSnapshot) -> list[Text]:
    if not change.drained:
        return []
    shown = ", ".join(change.drained[:_MOST_EMPTIED])
    more = len(change.drained) - _MOST_EMPTIED
    lines = [Text(f"Drained in this order: {shown}{f' and {more:,} more' if more > 0 else ''}.")]
    autoscaler = snapshot.node_autoscaler
    if autoscaler is not None:
        lines.append(Text(f"{AUTOSCALER_NAMES[autoscaler]} removes empty nodes.", style="dim"))
    return lines


def _format_price(price: float) -> str:
    return f"{price:,.4g}"


_MOST_EMPTY = 10
_SUFFICE = {True: "suffices", False: "suffice"}


@dataclass(frozen=True, slots=True)
class NodeCountByReason:
    """A number of nodes, and the reason, constraint or type it is for."""

    reason: str
    nodes: int


def count_kept_nodes(change: NodeCountChange) -> list[NodeCountByReason]:
    """Return for each reason the number of nodes that stay in use only because of it."""
    return [NodeCountByReason(describe_detail(detail), nodes) for detail, nodes in change.kept_by_reason]


def describe_consolidation(result: ConsolidationPassResult) -> Sequence[str]:
    """Describe how few nodes are enough, what is proved, and what prevents fewer; or why there is no advice.

    The first sentence is a summary.
    """
    change = result.node_count_change
    if change is None or result.plan is None:
        return [f"No advice: {describe_condition(result.condition)}."]
    now = f"{format_count(change.nodes_before, 'node')} in use"
    proved = is_node_count_proved(change)
    if change.added:
        return [f"{now}; pending pods need {_describe_all_added_nodes(change)}.", *describe_pools_without_types(change)]
    if change.nodes_after >= change.nodes_before:
        first = f"{now}; none can be drained, proved." if proved else f"{now}; no plan was found that drains one."
    else:
        moves = format_count(len(result.plan.moves), "move")
        bound = "proved" if proved else f"at least {change.nodes_bound:,} in any plan"
        first = f"{now}; {change.nodes_after:,} {_SUFFICE[change.nodes_after == 1]} after {moves}, {bound}."
    lines = [first]
    lines += [
        f"Without {constraint} {nodes:,} would be enough."
        for constraint, nodes in change.nodes_after_by_lifted_constraint
    ]
    if result.started is not None:
        lines.append(f"{format_count(len(result.started.proposal.moves), 'move')} of them started.")
    elif result.waiting_reason and change.drained:
        lines.append(f"No pod moves now: {describe_condition(result.waiting_reason)}.")
    return [*lines, *describe_pools_without_types(change), *_describe_empty_nodes(result)]


def describe_added_nodes(result: ConsolidationPassResult | None) -> Sequence[str]:
    """Describe the nodes that pending pods need, and the NodePools without types; empty if there are none."""
    if result is None or result.node_count_change is None:
        return []
    added = (
        [f"Pending pods need {_describe_all_added_nodes(result.node_count_change)}."]
        if result.node_count_change.added
        else []
    )
    return [*added, *describe_pools_without_types(result.node_count_change)]


def _describe_all_added_nodes(change: NodeCountChange) -> str:
    proved = ", proved" if is_node_count_proved(change) else ""
    return f"{' and '.join(map(describe_nodes_to_add, change.added))} more{proved}"


def _describe_empty_nodes(result: ConsolidationPassResult) -> list[str]:
    if result.autoscaler is not None:
        return (
            [f"{AUTOSCALER_NAMES[result.autoscaler]} removes empty nodes."]
            if result.node_count_change and result.node_count_change.drained
            else []
        )
    if not result.empty_nodes:
        return []
    shown = ", ".join(result.empty_nodes[:_MOST_EMPTY]) + (" and more" if len(result.empty_nodes) > _MOST_EMPTY else "")
    return [f"{format_count(len(result.empty_nodes), 'node')} empty: {shown}; cruise removes none."]
