"""One node's plan in full for people: every container, what it requests now and what it gets."""

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.sizing.container_sizes import ContainerSize
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.domain.cluster import Container, Pod
from cruise.interfaces.amounts import cpu_text, memory_text
from cruise.interfaces.plan.table import arrow
from cruise.interfaces.reasons import detail_words

_NAME_COLUMNS = 24
_NUMBER_COLUMNS = (14, 16, 16)


def node_table(plan: NodePlan, pods: Mapping[tuple[str, str], Pod]) -> Iterator[RenderableType]:
    """Yield the pods of a node one by one; `pods` are the snapshot's by (namespace, name)."""
    targets = {(target.namespace, target.pod, target.container): target for target in plan.targets}
    yield Text.assemble(
        (f"\nContainers on {plan.node}", "bold"), ("  CPU, memory, memory limit: now → after the plan", "dim")
    )
    for name, (state, style) in sorted(states_of(plan).items()):
        yield Text.assemble((f"{name[0]}/{name[1]}", "bold"), "  ", (state, style))
        rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        rows.add_column(width=_NAME_COLUMNS, no_wrap=True, overflow="ellipsis")
        for width in _NUMBER_COLUMNS:
            rows.add_column(min_width=width, justify="right", no_wrap=True)
        for container in pods[name].containers:
            target = targets.get((*name, container.name))
            rows.add_row(*_cells(container, target), style=None if target is not None else "dim")
        yield rows


def states_of(plan: NodePlan) -> dict[tuple[str, str], tuple[str, str]]:
    """Return what becomes of each pod, in words and colour."""
    states = {(target.namespace, target.pod): ("settled", "dim") for target in plan.targets}
    for hold in plan.hold:
        detail = f" ({detail_words(hold.detail)})" if hold.detail else ""
        states[hold.namespace, hold.pod] = (f"left: {hold.reason.value}{detail}", "yellow")
    for resize in plan.resize:
        grows = resize.growth.cpu_millicores or resize.growth.memory_bytes
        why = f"{resize.cause or resize.reason.value}, {'grows' if grows else 'shrinks'}"
        states[resize.namespace, resize.pod] = (why, "cyan")
    for eviction in plan.evict:
        states[eviction.namespace, eviction.pod] = (f"evicted: the {eviction.resource} of all pods does not fit", "red")
    return states


def _cells(container: Container, target: ContainerSize | None) -> tuple[Text, Text, Text, Text]:
    now, limit = container.requests.resources, container.limits.memory_bytes or 0
    cpu, memory, limit_after = now.cpu_millicores, now.memory_bytes, limit
    if target is not None:
        cpu, memory, limit_after = target.cpu_millicores, target.memory_bytes, target.memory_limit_bytes
    return (
        Text(f"  {container.name}"),
        arrow(cpu_text(now.cpu_millicores), cpu_text(cpu)),
        arrow(memory_text(now.memory_bytes), memory_text(memory)),
        arrow(memory_text(limit), memory_text(limit_after)),
    )
