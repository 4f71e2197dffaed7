"""Resources as Helm values have them; where in its values a chart takes them, only the chart knows."""

from collections.abc import Iterator
from itertools import groupby

from cruise.decisions.exporting.templates import ContainerSizes, TemplateSizes
from cruise.domain.original_resources import amounts_json
from cruise.interfaces.export.patches import yaml_text
from cruise.interfaces.plain_text import plain
from cruise.interfaces.shapes import Shape


def values_files(changed: tuple[TemplateSizes, ...]) -> Iterator[tuple[str, str]]:
    """Yield path and text of the values of each namespace."""
    for namespace, group in groupby(changed, lambda one: one.namespace):
        yield f"{namespace}/values.yaml", "---\n".join(_of_workload(one) for one in group)


def values_text(changed: tuple[TemplateSizes, ...]) -> str:
    """Return all values, a document for each workload."""
    return "---\n".join(_of_workload(one) for one in changed)


def _of_workload(sizes: TemplateSizes) -> str:
    release = f", release {plain(sizes.release)}" if sizes.release else ""
    lines = [
        f"# {sizes.namespace}/{sizes.workload}{release}: put this where the chart takes this workload's resources\n"
    ]
    changed = [one for one in sizes.containers if one.changes]
    if len(sizes.containers) == 1 and not sizes.others:
        lines.append(yaml_text({"resources": _whole(changed[0])}))
    else:
        lines += [f"# container {one.name}\n{yaml_text({one.name: {'resources': _whole(one)}})}" for one in changed]
    return "".join(lines)


def _whole(sizes: ContainerSizes) -> dict[str, Shape]:
    """Return all resources, since a chart's defaults fill what is missing; null takes out a default limit."""
    limits: dict[str, Shape] = {**amounts_json(sizes.new_limits)}
    limits |= dict.fromkeys(amounts_json(sizes.limits).keys() - limits.keys())
    whole: dict[str, Shape] = {"requests": {**amounts_json(sizes.new_requests)}, "limits": limits}
    return {name: amounts for name, amounts in whole.items() if amounts}
