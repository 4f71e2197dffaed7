"""What a plan makes of the nodes, for people."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cruise.domain.cluster import NodeAutoscaler, Snapshot
from cruise.domain.packing import FleetChange, Measure, Ordered
from cruise.interfaces.amounts import count_text
from cruise.interfaces.reasons import detail_words

_MOST_EMPTIED, _MOST_DETAILS = 20, 5
_PRICED, _SIZED = ("a lower price", "a price below {}"), ("less size", "less size than that of {} cores")
_STAY = {True: "stays", False: "stay"}
AUTOSCALERS = {NodeAutoscaler.KARPENTER: "Karpenter", NodeAutoscaler.CLUSTER_AUTOSCALER: "cluster-autoscaler"}


def is_proved(fleet: FleetChange) -> bool:
    """Tell whether no plan needs less of what nodes are measured by."""
    if fleet.price_after is not None and fleet.price_bound is not None:
        return fleet.price_after <= fleet.price_bound
    return fleet.nodes_after <= fleet.nodes_bound


def fleet_proof(fleet: FleetChange) -> str:
    """Say what is proved of how few nodes suffice."""
    if fleet.price_after is not None and fleet.price_bound is not None:
        less, more = _PRICED if fleet.measure is Measure.PRICE else _SIZED
        if is_proved(fleet):
            return f"proved that no plan needs nodes of {less}"
        return f"no plan needs nodes of {more.format(_price(fleet.price_bound))}; whether one does is open"
    if is_proved(fleet):
        return "proved that no plan needs fewer nodes"
    return f"no plan needs fewer than {count_text(fleet.nodes_bound, 'node')}; whether one does with fewer is open"


def type_words(one: Ordered) -> str:
    """Name a type that is ordered, with the NodePool that it comes from."""
    return f"{one.type} from NodePool {one.pool}" if one.pool else one.type


def ordered_words(one: Ordered) -> str:
    """Say how many nodes of which type are to be ordered."""
    return f"{count_text(one.count, 'node')} of type {type_words(one)}"


def silent_words(fleet: FleetChange) -> list[str]:
    """Say for each NodePool that offers no type why that is."""
    return [f"NodePool {name} is left out: {detail_words(detail)}." for name, detail in fleet.silent]


def fleet_part(fleet: FleetChange, snapshot: Snapshot) -> Group:
    """Show the nodes in use before the plan and after it, those emptied in their order, and those to add."""
    table = Table(title="Nodes in use", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("", "NOW", "AFTER", "AT LEAST"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    table.add_row("nodes", *(f"{count:,}" for count in (fleet.nodes_before, fleet.nodes_after, fleet.nodes_bound)))
    if fleet.price_before is not None and fleet.price_after is not None and fleet.price_bound is not None:
        named = "price" if fleet.measure is Measure.PRICE else "size, in cores"
        table.add_row(named, *map(_price, (fleet.price_before, fleet.price_after, fleet.price_bound)))
    lines = [*_emptied(fleet, snapshot)]
    lines += [Text(f"Add {ordered_words(one)}.", style="green") for one in fleet.added]
    lines += [Text(line, style="yellow") for line in silent_words(fleet)]
    for detail, nodes in fleet.kept[:_MOST_DETAILS]:
        lines.append(
            Text(f"{count_text(nodes, 'node')} {_STAY[nodes == 1]} in use: {detail_words(detail)}.", style="dim")
        )
    for constraint, nodes in fleet.without:
        lines.append(Text(f"Without {constraint} {count_text(nodes, 'node')} would do.", style="yellow"))
    return Group(table, *lines, "")


def _emptied(fleet: FleetChange, snapshot: Snapshot) -> list[Text]:
    if not fleet.emptied:
        return []
    shown = ", ".join(fleet.emptied[:_MOST_EMPTIED])
    more = len(fleet.emptied) - _MOST_EMPTIED
    lines = [Text(f"Emptied in this order: {shown}{f' and {more:,} more' if more > 0 else ''}.")]
    autoscaler = snapshot.node_autoscaler
    if autoscaler is not None:
        lines.append(Text(f"{AUTOSCALERS[autoscaler]} removes nodes that are empty.", style="dim"))
    return lines


def _price(price: float) -> str:
    return f"{price:,.4g}"
