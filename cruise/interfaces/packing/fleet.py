"""What a plan makes of the nodes, for people."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cruise.domain.cluster import NodeAutoscaler, Snapshot
from cruise.domain.packing import FleetChange
from cruise.interfaces.amounts import count_text
from cruise.interfaces.reasons import detail_words

_MOST_EMPTIED, _MOST_DETAILS = 20, 5
_STAY = {True: "stays", False: "stay"}
AUTOSCALERS = {NodeAutoscaler.KARPENTER: "Karpenter", NodeAutoscaler.CLUSTER_AUTOSCALER: "cluster-autoscaler"}


def fleet_proof(fleet: FleetChange) -> str:
    """Say what is proved of how few nodes suffice."""
    if fleet.price_after is not None and fleet.price_bound is not None:
        if fleet.price_after <= fleet.price_bound:
            return "proved that no plan needs nodes of a lower price"
        return f"no plan needs nodes of a price below {_price(fleet.price_bound)}; whether one does is open"
    if fleet.nodes_after <= fleet.nodes_bound:
        return "proved that no plan needs fewer nodes"
    return f"no plan needs fewer than {count_text(fleet.nodes_bound, 'node')}; whether one does with fewer is open"


def fleet_part(fleet: FleetChange, snapshot: Snapshot) -> Group:
    """Show the nodes in use before the plan and after it, those emptied in their order, and those to add."""
    table = Table(title="Nodes in use", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("", "NOW", "AFTER", "AT LEAST"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    table.add_row("nodes", *(f"{count:,}" for count in (fleet.nodes_before, fleet.nodes_after, fleet.nodes_bound)))
    if fleet.price_before is not None and fleet.price_after is not None and fleet.price_bound is not None:
        table.add_row("price", *map(_price, (fleet.price_before, fleet.price_after, fleet.price_bound)))
    lines = [*_emptied(fleet, snapshot)]
    lines += [Text(f"Add {count_text(count, 'node')} of type {name}.", style="green") for name, count in fleet.added]
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
