"""Nodes before and after a packing plan, for people."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.packing import Proposal
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.interfaces.amounts import cores_text, count_text, gibibytes_text, share_text
from cruise.interfaces.packing.sizes import Pods, size_on_arrival, sizes_after
from cruise.interfaces.plan.table import WIDE_COLUMNS, arrow, plain_table

_MOST_NODES = 20


@dataclass(slots=True)
class Load:
    """What counts on a node, and how many pods there are."""

    counted: Resources = NO_RESOURCES
    pods: int = 0
    extended: Counter[str] = field(default_factory=Counter)

    def take(self, pod: Pod, size: Resources) -> None:
        """Add a pod."""
        self.pods += 1
        self.counted += size
        self.extended.update(dict(pod.extended_requests))


def loads(snapshot: Snapshot, proposal: Proposal, pods: Pods) -> tuple[dict[str, Load], dict[str, Load]]:
    """Return what every node holds now and once the plan is carried out."""
    sized = sizes_after(proposal, pods)
    gone = {one.key for one in (*proposal.moves, *proposal.preempted)}
    now: dict[str, Load] = {node.name: Load() for node in snapshot.nodes}
    after: dict[str, Load] = {node.name: Load() for node in snapshot.nodes}
    for pod in snapshot.pods:
        if pod.terminal or pod.node not in now:
            continue
        key, counted = (pod.namespace, pod.name), counted_requests(pod)
        now[pod.node].take(pod, counted)
        if key not in gone:
            after[pod.node].take(pod, sized[key][1] if key in sized else counted)
    for arrival in (*proposal.placed, *proposal.moves):
        after[arrival.target].take(pods[arrival.key], size_on_arrival(arrival, pods))
    return now, after


def node_parts(
    snapshot: Snapshot, proposal: Proposal, pods: Pods, console: Console, in_full: bool = False
) -> Iterator[RenderableType]:
    """Yield the nodes that the plan changes with a sum of all nodes; of many those that change most."""
    touched = _touched(proposal)
    if not touched:
        return
    now, after = loads(snapshot, proposal, pods)
    wide = console.width >= WIDE_COLUMNS
    nodes = {node.name: node for node in snapshot.nodes}
    ranked = sorted(touched, key=lambda name: (-touched[name], name))
    shown = sorted(ranked if in_full else ranked[:_MOST_NODES])
    extended = _extended(nodes, touched)
    table = _table(wide, extended)
    for name in shown:
        table.add_row(*_row(name, now[name], after[name], nodes[name].allocatable, wide, extended))
    table.add_section()
    room = sum((node.allocatable for node in nodes.values()), NO_RESOURCES)
    every = f"all {count_text(len(nodes), 'node')}"
    table.add_row(*_row(every, _sum(now), _sum(after), room, wide, extended), style="bold")
    notes = []
    if len(shown) < len(touched):
        left = len(touched) - len(shown)
        notes.append(f"{count_text(left, 'more node')} {'changes' if left == 1 else 'change'}: --full has all.")
    yield Group("", table, *(Text(note, style="dim") for note in notes))


def _touched(proposal: Proposal) -> dict[str, int]:
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
    table = plain_table("Nodes, now → after the plan")
    table.add_column("NODE", overflow="ellipsis", no_wrap=True)
    table.add_column("PODS", justify="right", no_wrap=True)
    for heading in ("CPU CORES" if wide else "CPU", "MEMORY GIB" if wide else "MEMORY"):
        table.add_column(heading, justify="right", no_wrap=True)
        if wide:
            table.add_column("FULL", justify="right", no_wrap=True)
    for resource in extended:
        table.add_column(resource.rpartition("/")[2].upper(), justify="right", no_wrap=True)
    return table


def _row(name: str, now: Load, after: Load, room: Resources, wide: bool, extended: list[str]) -> list[Text]:
    cpu = now.counted.cpu_millicores, after.counted.cpu_millicores, room.cpu_millicores
    memory = now.counted.memory_bytes, after.counted.memory_bytes, room.memory_bytes
    cells = [Text(name), arrow(f"{now.pods:,}", f"{after.pods:,}")]
    for (before, then, whole), text in ((cpu, cores_text), (memory, gibibytes_text)):
        share = arrow(share_text(before, whole), share_text(then, whole))
        cells += [arrow(text(before), text(then)), share] if wide else [share]
    cells += [arrow(f"{now.extended[name]:,}", f"{after.extended[name]:,}") for name in extended]
    return cells


def _sum(of: Mapping[str, Load]) -> Load:
    whole = Load()
    for load in of.values():
        whole.pods += load.pods
        whole.counted += load.counted
        whole.extended.update(load.extended)
    return whole
