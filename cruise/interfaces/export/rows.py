"""The rows of a report on templates: one for each container and resource, for tables of a terminal and of Markdown."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cruise.decisions.exporting.templates import ContainerSizes, TemplateSizes
from cruise.decisions.scan.waste import Prices
from cruise.domain.resources import ResourceName, Resources
from cruise.interfaces.amounts import cores_text, count_text, cpu_text, gibibytes_text, memory_text, money_text


@dataclass(frozen=True, slots=True)
class Row:
    """One resource of one container, all in words: what is stated, what shall be, and the figures behind it."""

    container: str
    resource: str
    request: tuple[str, str]
    limit: tuple[str, str]
    usual: str
    peak: str
    largest: str


def freed_words(freed: Resources, prices: Prices) -> str:
    """Say what is requested less or more, and what that is worth."""
    cpu, memory, month = freed.cpu_millicores, freed.memory_bytes, prices.month(freed)
    return (
        f"{cores_text(abs(cpu))} cores {_less(cpu)} and {gibibytes_text(abs(memory))} GiB {_less(memory)}, "
        f"about {money_text(abs(month))} a month {_less(month)}"
    )


def _less(freed: float) -> str:
    return "less" if freed >= 0 else "more"


def injected_words(changed: Iterable[TemplateSizes]) -> str:
    """Name the containers that pods have and templates do not, with their workloads; empty where there are none."""
    found: dict[str, list[str]] = {}
    for one in changed:
        for name in one.injected:
            found.setdefault(name, []).append(f"{one.namespace}/{one.workload}")
    named = [
        f"{name} ({where[0] if len(where) == 1 else count_text(len(where), 'workload')})"
        for name, where in sorted(found.items())
    ]
    return f"not in the templates, so in no patch: {', '.join(named)}" if named else ""


def rows_of(sizes: TemplateSizes) -> Iterator[Row]:
    """Yield the rows of what changes."""
    for one in sizes.containers:
        for resource in ResourceName:
            row = _row(one, resource)
            if row.request[0] != row.request[1] or row.limit[0] != row.limit[1]:
                yield row


def _row(sizes: ContainerSizes, resource: ResourceName) -> Row:
    evidence, write = sizes.evidence, cpu_text if resource is ResourceName.CPU else memory_text

    def pair(before: int | None, after: int | None) -> tuple[str, str]:
        return write(before or 0), write(after or 0)

    requests = pair(sizes.requests.of(resource), sizes.new_requests.of(resource))
    limits = pair(sizes.limits.of(resource), sizes.new_limits.of(resource))
    if resource is ResourceName.CPU:
        usual, peak = write(evidence.cpu_base_millicores), write(evidence.cpu_peak_millicores)
        return Row(sizes.name, "CPU", requests, limits, usual, peak, "")
    usual, peak = write(evidence.memory_base_bytes), write(evidence.memory_peak_bytes)
    largest = write(max(evidence.memory_7d_max_bytes, evidence.oom_memory_bytes))
    return Row(sizes.name, "memory", requests, limits, usual, peak, largest)
