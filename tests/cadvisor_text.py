"""What kubelets would answer: the text of /metrics/cadvisor and /metrics/resource at a time."""

from collections.abc import Iterable, Sequence

import numpy as np

from tests.cadvisor import LOOKBACK, RawSeries

_OTHERS = """# HELP cadvisor_version_info A metric with a constant '1' value labeled by kernel version.
# TYPE cadvisor_version_info gauge
cadvisor_version_info{cadvisorRevision="",kernelVersion="6.1.0"} 1
"""


def cadvisor_text(series: Iterable[RawSeries], node: str, at: float) -> bytes:
    """Return what a node's /metrics/cadvisor says at a time, of series that were measured as `series` has it."""
    seen = [(one, place) for one in series if one.node == node and (place := _newest(one, at)) is not None]
    text = [_OTHERS]
    for family, kind in (
        ("container_cpu_usage_seconds_total", "counter"),
        ("container_memory_rss", "gauge"),
        ("container_memory_working_set_bytes", "gauge"),
        ("container_pressure_cpu_waiting_seconds_total", "counter"),
    ):
        text.append(f"# HELP {family} As cAdvisor has it.\n# TYPE {family} {kind}\n")
        text += [line for one, place in seen if (line := _cadvisor_line(family, one, place))]
    return "".join(text).encode()


def resource_text(series: Iterable[RawSeries], node: str, at: float) -> bytes:
    """Return what a node's /metrics/resource says at a time."""
    seen = [(one, place) for one in series if one.node == node and (place := _newest(one, at)) is not None]
    containers = _latest_of_each([(one, place) for one, place in seen if one.id != "/"])
    roots = [(one, place) for one, place in seen if one.id == "/"]
    text = []
    for family, kind in (("cpu_usage_seconds_total", "counter"), ("memory_working_set_bytes", "gauge")):
        for prefix, chosen in (("container", containers), ("node", roots)):
            name = f"{prefix}_{family}"
            text.append(f"# HELP {name} [STABLE] As the kubelet has it.\n# TYPE {name} {kind}\n")
            text += [
                f"{name}{_plain_labels(one)} {_value(family, one, place)} {round(one.times[place] * 1000)}\n"
                for one, place in chosen
            ]
    name = "container_start_time_seconds"
    text.append(f"# HELP {name} [STABLE] Start.\n# TYPE {name} gauge\n")
    text += [
        f"{name}{_plain_labels(one)} {one.times[0]} {round(one.times[place] * 1000)}\n" for one, place in containers
    ]
    return "".join(text).encode()


def _newest(one: RawSeries, at: float) -> int | None:
    place = int(np.searchsorted(one.times, at, side="right")) - 1
    return place if place >= 0 and one.times[place] > at - LOOKBACK else None


def _latest_of_each(seen: Sequence[tuple[RawSeries, int]]) -> list[tuple[RawSeries, int]]:
    """Keep the newest of a container's series: this endpoint knows no ids."""
    latest = {(one.namespace, one.pod, one.container): (one, place) for one, place in seen}
    return list(latest.values())


def _cadvisor_line(family: str, one: RawSeries, place: int) -> str:
    cpu = 'cpu="total",' if "cpu_usage" in family else ""
    if "pressure" in family:
        if one.waiting is None:
            return ""
        value = f"{one.waiting[place]:.3f}"
    else:
        value = _value(family, one, place)
    image = "registry.example.com/app:1" if one.container else ""
    labels = f'container="{one.container}",{cpu}id="{one.id}",image="{image}",name="{one.id[-12:]}"'
    labels += f',namespace="{one.namespace}",pod="{one.pod}"'
    return f"{family}{{{labels}}} {value} {round(one.times[place] * 1000)}\n"


def _plain_labels(one: RawSeries) -> str:
    if one.id == "/":
        return ""
    return f'{{container="{one.container}",namespace="{one.namespace}",pod="{one.pod}"}}'


def _value(family: str, one: RawSeries, place: int) -> str:
    # As Go writes numbers.
    return f"{one.cpu[place]:.3f}" if "cpu" in family else f"{one.memory[place]:.9e}"
