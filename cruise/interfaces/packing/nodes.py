"""Nodes before and after a packing plan, for people."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.sizing.planned_requests import count_requests_when_resized
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import ClusterSnapshot, Node, NodeAutoscalerKind, Pod
from cruise.domain.packing_plan import AddedNodes, NodeCostMeasure, NodeCountChange, PackingProposal, PlannedPlacement
from cruise.domain.pod_resources import count_container_requests, count_pod_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.interfaces.packing.descriptions import describe_condition
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS, create_plain_table, format_change
from cruise.interfaces.reasons import describe_detail
from cruise.interfaces.text import format_cores, format_count, format_gibibytes, format_share
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult

# What pods count before a packing plan and after it.

PodsByName = Mapping[tuple[str, str], Pod]


def compute_sizes_after_plan(
    proposal: PackingProposal, pods: PodsByName
) -> dict[tuple[str, str], tuple[str, Resources]]:
    """Return for every pod that gets another size the node where it then is, and what will count for it.

    Keys and `pods` are by (namespace, name).
    """
    found = {}
    for resize in proposal.resizes:
        key = resize.key
        found[key] = (resize.node or "", count_requests_with(pods[key], resize.containers))
    for arrival in (*proposal.placed, *proposal.moves):
        if arrival.containers:
            found[arrival.key] = (arrival.target, compute_size_on_arrival(arrival, pods))
    return found


def compute_size_on_arrival(arrival: PlannedPlacement, pods: PodsByName) -> Resources:
    """Return what counts for a pod once it runs on its target."""
    pod = pods[arrival.key]
    return count_requests_with(pod, arrival.containers) if arrival.containers else count_pod_requests(pod)


def count_requests_with(pod: Pod, targets: Sequence[ContainerTarget]) -> Resources:
    """Return what counts for a pod whose containers ask for these values."""
    containers = {container.name: container for container in pod.containers}
    sizes = {}
    for target in targets:
        now, wanted = count_container_requests(containers[target.container]), target.requests
        sizes[target.container] = Resources(
            now.cpu_millicores if wanted.cpu_millicores is None else wanted.cpu_millicores,
            now.memory_bytes if wanted.memory_bytes is None else wanted.memory_bytes,
        )
    return count_requests_when_resized(pod, sizes)


_MOST_NODES = 20


@dataclass(slots=True)
class NodeLoadSummary:
    """What counts on a node, and how many pods there are."""

    requests: Resources = NO_RESOURCES
    pods: int = 0
    extended: Counter[str] = field(default_factory=Counter)

    def add(self, pod: Pod, size: Resources) -> None:
        """Add a pod."""
        self.pods += 1
        self.requests += size
        self.extended.update(dict(pod.extended_requests))


def compute_node_loads(
    snapshot: ClusterSnapshot, proposal: PackingProposal, pods: PodsByName
) -> tuple[dict[str, NodeLoadSummary], dict[str, NodeLoadSummary]]:
    """Return what every node holds now and once the plan is carried out."""
    sized = compute_sizes_after_plan(proposal, pods)
    gone = {one.key for one in (*proposal.moves, *proposal.preempted)}
    now: dict[str, NodeLoadSummary] = {node.name: NodeLoadSummary() for node in snapshot.nodes}
    after: dict[str, NodeLoadSummary] = {node.name: NodeLoadSummary() for node in snapshot.nodes}
    for pod in snapshot.pods:
        if pod.is_finished or pod.node not in now:
            continue
        key, counted = (pod.namespace, pod.name), count_pod_requests(pod)
        now[pod.node].add(pod, counted)
        if key not in gone:
            after[pod.node].add(pod, sized[key][1] if key in sized else counted)
    for arrival in (*proposal.placed, *proposal.moves):
        after[arrival.target].add(pods[arrival.key], compute_size_on_arrival(arrival, pods))
    return now, after


def render_nodes(
    snapshot: ClusterSnapshot, proposal: PackingProposal, pods: PodsByName, console: Console, in_full: bool = False
) -> Iterator[RenderableType]:
    """Yield the nodes that the plan changes with a sum of all nodes; of many those that change most."""
    touched = _touched(proposal)
    if not touched:
        return
    now, after = compute_node_loads(snapshot, proposal, pods)
    wide = console.width >= WIDE_TABLE_COLUMNS
    nodes = {node.name: node for node in snapshot.nodes}
    ranked = sorted(touched, key=lambda name: (-touched[name], name))
    shown = sorted(ranked if in_full else ranked[:_MOST_NODES])
    extended = _extended(nodes, touched)
    table = _table(wide, extended)
    for name in shown:
        table.add_row(*_row(name, now[name], after[name], nodes[name].allocatable, wide, extended))
    table.add_section()
    room = sum((node.allocatable for node in nodes.values()), NO_RESOURCES)
    every = f"all {format_count(len(nodes), 'node')}"
    table.add_row(*_row(every, _sum(now), _sum(after), room, wide, extended), style="bold")
    notes = []
    if len(shown) < len(touched):
        left = len(touched) - len(shown)
        notes.append(f"{format_count(left, 'more node')} {'changes' if left == 1 else 'change'}: --full has all.")
    yield Group("", table, *(Text(note, style="dim") for note in notes))


def _touched(proposal: PackingProposal) -> dict[str, int]:
    """Return the nodes that a plan changes, and at how many pods."""
    arrivals = (*proposal.placed, *proposal.moves)
    nodes = [node for one in arrivals for node in (one.target, one.source)]
    nodes += [one.source for one in proposal.preempted] + [one.node for one in proposal.resizes]
    return Counter(node for node in nodes if node is not None)


def _extended(nodes: Mapping[str, Node], touched: Mapping[str, int]) -> list[str]:
    """Return the extended resources of the nodes that change, the most widespread first; two have room."""
    counts = Counter(
        resource
        for name in touched
        for resource, amount in nodes[name].allocatable_extended.items()
        if amount and not resource.startswith(("hugepages-", "ephemeral-storage"))
    )
    return sorted(counts, key=lambda resource: (-counts[resource], resource))[:2]


def _table(wide: bool, extended: list[str]) -> Table:
    table = create_plain_table("Nodes, now → after the plan")
    table.add_column("NODE", overflow="ellipsis", no_wrap=True)
    table.add_column("PODS", justify="right", no_wrap=True)
    for heading in ("CPU CORES" if wide else "CPU", "MEMORY GIB" if wide else "MEMORY"):
        table.add_column(heading, justify="right", no_wrap=True)
        if wide:
            table.add_column("FULL", justify="right", no_wrap=True)
    for resource in extended:
        table.add_column(resource.rpartition("/")[2].upper(), justify="right", no_wrap=True)
    return table


def _row(
    name: str, now: NodeLoadSummary, after: NodeLoadSummary, room: Resources, wide: bool, extended: list[str]
) -> list[Text]:
    cpu = now.requests.cpu_millicores, after.requests.cpu_millicores, room.cpu_millicores
    memory = now.requests.memory_bytes, after.requests.memory_bytes, room.memory_bytes
    cells = [Text(name), format_change(f"{now.pods:,}", f"{after.pods:,}")]
    for (before, then, whole), text in ((cpu, format_cores), (memory, format_gibibytes)):
        share = format_change(format_share(before, whole), format_share(then, whole))
        cells += [format_change(text(before), text(then)), share] if wide else [share]
    cells += [format_change(f"{now.extended[name]:,}", f"{after.extended[name]:,}") for name in extended]
    return cells


def _sum(of: Mapping[str, NodeLoadSummary]) -> NodeLoadSummary:
    whole = NodeLoadSummary()
    for load in of.values():
        whole.pods += load.pods
        whole.requests += load.requests
        whole.extended.update(load.extended)
    return whole


# What a plan makes of the nodes, for people.

_MOST_EMPTIED, _MOST_DETAILS = 20, 5
_PRICED, _SIZED = ("a lower price", "a price below {}"), ("less size", "less size than that of {} cores")
_STAY = {True: "stays", False: "stay"}
AUTOSCALER_NAMES = {
    NodeAutoscalerKind.KARPENTER: "Karpenter",
    NodeAutoscalerKind.CLUSTER_AUTOSCALER: "cluster-autoscaler",
}


def is_node_count_proved(fleet: NodeCountChange) -> bool:
    """Tell whether no plan needs less of what nodes are measured by."""
    if fleet.price_after is not None and fleet.price_bound is not None:
        return fleet.price_after <= fleet.price_bound
    return fleet.nodes_after <= fleet.nodes_bound


def describe_node_count_proof(fleet: NodeCountChange) -> str:
    """Say what is proved of how few nodes suffice."""
    if fleet.price_after is not None and fleet.price_bound is not None:
        less, more = _PRICED if fleet.measure is NodeCostMeasure.PRICE else _SIZED
        if is_node_count_proved(fleet):
            return f"proved that no plan needs nodes of {less}"
        return f"no plan needs nodes of {more.format(_price(fleet.price_bound))}; whether one does is open"
    if is_node_count_proved(fleet):
        return "proved that no plan needs fewer nodes"
    return f"no plan needs fewer than {format_count(fleet.nodes_bound, 'node')}; whether one does with fewer is open"


def describe_node_type(one: AddedNodes) -> str:
    """Name a type that is ordered, with the NodePool that it comes from."""
    return f"{one.type} from NodePool {one.pool}" if one.pool else one.type


def describe_nodes_to_add(one: AddedNodes) -> str:
    """Say how many nodes of which type are to be ordered."""
    return f"{format_count(one.count, 'node')} of type {describe_node_type(one)}"


def describe_pools_without_types(fleet: NodeCountChange) -> list[str]:
    """Say for each NodePool that offers no type why that is."""
    return [f"NodePool {name} is left out: {describe_detail(detail)}." for name, detail in fleet.pools_without_types]


def render_node_count_change(fleet: NodeCountChange, snapshot: ClusterSnapshot) -> Group:
    """Show the nodes in use before the plan and after it, those emptied in their order, and those to add."""
    table = Table(title="Nodes in use", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("", "NOW", "AFTER", "AT LEAST"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    table.add_row("nodes", *(f"{count:,}" for count in (fleet.nodes_before, fleet.nodes_after, fleet.nodes_bound)))
    if fleet.price_before is not None and fleet.price_after is not None and fleet.price_bound is not None:
        named = "price" if fleet.measure is NodeCostMeasure.PRICE else "size, in cores"
        table.add_row(named, *map(_price, (fleet.price_before, fleet.price_after, fleet.price_bound)))
    lines = [*_emptied(fleet, snapshot)]
    lines += [Text(f"Add {describe_nodes_to_add(one)}.", style="green") for one in fleet.added]
    lines += [Text(line, style="yellow") for line in describe_pools_without_types(fleet)]
    for detail, nodes in fleet.kept_by_reason[:_MOST_DETAILS]:
        lines.append(
            Text(f"{format_count(nodes, 'node')} {_STAY[nodes == 1]} in use: {describe_detail(detail)}.", style="dim")
        )
    for constraint, nodes in fleet.nodes_after_by_lifted_constraint:
        lines.append(Text(f"Without {constraint} {format_count(nodes, 'node')} would do.", style="yellow"))
    return Group(table, *lines, "")


def _emptied(fleet: NodeCountChange, snapshot: ClusterSnapshot) -> list[Text]:
    if not fleet.drained:
        return []
    shown = ", ".join(fleet.drained[:_MOST_EMPTIED])
    more = len(fleet.drained) - _MOST_EMPTIED
    lines = [Text(f"Emptied in this order: {shown}{f' and {more:,} more' if more > 0 else ''}.")]
    autoscaler = snapshot.node_autoscaler
    if autoscaler is not None:
        lines.append(Text(f"{AUTOSCALER_NAMES[autoscaler]} removes nodes that are empty.", style="dim"))
    return lines


def _price(price: float) -> str:
    return f"{price:,.4g}"


# With how few nodes a cluster would do, in words.

_MOST_EMPTY = 10
_SUFFICE = {True: "suffices", False: "suffice"}


@dataclass(frozen=True, slots=True)
class NodeCountByReason:
    """A number of nodes, and the reason, constraint or type that it is of."""

    reason: str
    nodes: int


def count_kept_nodes(fleet: NodeCountChange) -> list[NodeCountByReason]:
    """Return for each reason how many nodes stay in use for it alone."""
    return [NodeCountByReason(describe_detail(detail), nodes) for detail, nodes in fleet.kept_by_reason]


def describe_consolidation(done: ConsolidationPassResult) -> Sequence[str]:
    """Say with how few nodes the cluster would do, what is proved of it, and what stops fewer; or why nothing is said.

    The first sentence stands for all.
    """
    fleet = done.fleet
    if fleet is None or done.plan is None:
        return [f"No advice: {describe_condition(done.condition)}."]
    now = f"{format_count(fleet.nodes_before, 'node')} in use"
    proved = is_node_count_proved(fleet)
    if fleet.added:
        return [f"{now}; pending pods need {_added(fleet)}.", *describe_pools_without_types(fleet)]
    if fleet.nodes_after >= fleet.nodes_before:
        first = f"{now}; none can be spared, proved." if proved else f"{now}; no way was found to spare one."
    else:
        moves = format_count(len(done.plan.moves), "move")
        bound = "proved" if proved else f"at least {fleet.nodes_bound:,} in any plan"
        first = f"{now}; {fleet.nodes_after:,} {_SUFFICE[fleet.nodes_after == 1]} after {moves}, {bound}."
    lines = [first]
    lines += [
        f"Without {constraint} {nodes:,} would do." for constraint, nodes in fleet.nodes_after_by_lifted_constraint
    ]
    if done.started is not None:
        lines.append(f"{format_count(len(done.started.proposal.moves), 'move')} of them begun.")
    elif done.waiting_reason and fleet.drained:
        lines.append(f"No pod moves now: {describe_condition(done.waiting_reason)}.")
    return [*lines, *describe_pools_without_types(fleet), *_empty_words(done)]


def describe_added_nodes(done: ConsolidationPassResult | None) -> Sequence[str]:
    """Say which nodes are to be added for pods that are pending, and which NodePools offer none; empty for neither."""
    if done is None or done.fleet is None:
        return []
    added = [f"Pending pods need {_added(done.fleet)}."] if done.fleet.added else []
    return [*added, *describe_pools_without_types(done.fleet)]


def _added(fleet: NodeCountChange) -> str:
    return f"{' and '.join(map(describe_nodes_to_add, fleet.added))} more{', proved' if is_node_count_proved(fleet) else ''}"


def _empty_words(done: ConsolidationPassResult) -> list[str]:
    if done.autoscaler is not None:
        return (
            [f"{AUTOSCALER_NAMES[done.autoscaler]} removes nodes that are empty."]
            if done.fleet and done.fleet.drained
            else []
        )
    if not done.empty_nodes:
        return []
    shown = ", ".join(done.empty_nodes[:_MOST_EMPTY]) + (" and more" if len(done.empty_nodes) > _MOST_EMPTY else "")
    return [f"{format_count(len(done.empty_nodes), 'node')} empty: {shown}; cruise removes none."]
