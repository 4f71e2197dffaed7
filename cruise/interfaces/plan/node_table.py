"""One node's plan in full for people: every container, what it requests now, what is written, and its target."""

from collections.abc import Collection, Iterator, Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.sizing.container_sizes import ContainerSize
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Container, Pod
from cruise.interfaces.amounts import cpu_text, memory_text
from cruise.interfaces.plan.table import arrow
from cruise.interfaces.reasons import detail_words

_NAME_COLUMNS = 24
_NUMBER_COLUMNS = (14, 16, 16)

# CPU, memory and memory limit.
_Size = tuple[int, int, int]


def node_table(
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
    for name, (state, style) in sorted(states_of(plan, killed).items()):
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


def states_of(plan: NodePlan, killed: Collection[tuple[str, str]] = ()) -> dict[tuple[str, str], tuple[str, str]]:
    """Return what becomes of each pod, in words and colour; `killed` are those with a kill for lack of memory."""
    states = {
        place: ("at risk: killed for lack of memory", "bold red") if place in killed else ("settled", "dim")
        for place in {(target.namespace, target.pod) for target in plan.targets}
    }
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


def _size(container: Container, planned: ContainerTarget | None) -> _Size:
    """Return a container's requests and memory limit once the plan is written, 0 for what is absent."""
    requests = container.requests if planned is None else planned.requests
    limits = container.limits if planned is None else planned.limits
    return requests.cpu_millicores or 0, requests.memory_bytes or 0, limits.memory_bytes or 0


def _wanted(target: ContainerSize) -> _Size:
    return target.cpu_millicores, target.memory_bytes, target.memory_limit_bytes


def _texts(size: _Size) -> tuple[str, str, str]:
    return cpu_text(size[0]), memory_text(size[1]), memory_text(size[2])


def _cells(container: Container, planned: _Size) -> tuple[Text, ...]:
    return (
        Text(f"  {container.name}"),
        *map(arrow, _texts(_size(container, None)), _texts(planned)),
    )
