"""The queries: one sample a series and step, and nothing computed by the server but the rates of whole nodes."""

import re
from collections.abc import Collection, Sequence

from cruise.adapters.prometheus.matrix import ALL_CORES, CORE_LABEL
from cruise.adapters.prometheus.settings import PrometheusSettings

ROOT_GROUP_RANGE = "3m"


def usage_query(settings: PrometheusSettings, metric: str, pods: str, spared: Collection[str] = ()) -> str:
    """Return the query for a metric of all containers whose pod's name matches the regular expression `pods`.

    An instant selector costs the server one sample a step. `max by` drops the labels that are not read and folds
    twins, such as those of a highly available pair of servers.
    """
    labels = settings.labels
    kept = dict.fromkeys((labels.namespace, labels.pod, labels.container, labels.id, labels.node, CORE_LABEL))
    return f"max by ({', '.join(filter(None, kept))}) ({usage_selector(settings, metric, pods, spared)})"


def usage_selector(
    settings: PrometheusSettings, metric: str, pods: str | None = None, spared: Collection[str] = ()
) -> str:
    """Return what selects the series that `usage_query` reads, each of which costs a sample a step.

    Without `pods` these are the series of all pods; those whose pods are called as one of `spared` are left out.
    """
    labels = settings.labels
    named = [f"{labels.pod}=~{quoted(pods)}"] if pods is not None else []
    if spared:
        named.append(f"{labels.pod}!~{quoted(_one_of(spared))}")
    containers = (f'{labels.container}!=""', f'{labels.container}!="POD"')
    return selector(metric, *containers, *cadvisor_matchers(settings, metric), *named)


def cadvisor_matchers(settings: PrometheusSettings, metric: str) -> tuple[str, ...]:
    """Return the matchers of the series that one of cAdvisor's metrics is read from."""
    return settings.matchers, settings.cadvisor_matchers, settings.pins.get(metric, "")


def selector(metric: str, *matchers: str) -> str:
    """Return the selector of a metric; empty matchers are left out."""
    return f"{metric}{{{joined(*matchers)}}}"


def joined(*matchers: str) -> str:
    """Return matchers as one text; empty ones are left out."""
    return ",".join(filter(None, matchers))


def matcher(label: str, values: Sequence[str]) -> str:
    """Return what selects some values of a label; an empty one stands for its absence."""
    if len(values) == 1:
        return f"{label}={quoted(values[0])}"
    return f"{label}=~{quoted('|'.join(map(re.escape, values)))}"


def node_load_query(settings: PrometheusSettings) -> str:
    """Return the query for the 1-minute load averages of all nodes."""
    return _by_exporter(settings.node_load_label, _node_exporters(settings, settings.metrics.node_load))


def node_load_time_query(settings: PrometheusSettings) -> str:
    """Return the query for when each load average was taken: an answer's own time is that of the question."""
    series = _node_exporters(settings, settings.metrics.node_load)
    return _by_exporter(settings.node_load_label, f"timestamp({series})")


def node_name_query(settings: PrometheusSettings) -> str:
    """Return the query for the names that node exporters report of their machines."""
    return _by_exporter("nodename", _node_exporters(settings, "node_uname_info"))


def root_group_query(settings: PrometheusSettings, metric: str) -> str:
    """Return the query for the rate of a counter of each node's root control group."""
    # Between the last two scrapes: over the whole range, a node that is scraped for a moment would seem to be idle.
    whole = f"irate({_root_group(settings, metric)}[{ROOT_GROUP_RANGE}])"
    # Where each processor has a series of its own, and there may be none of all.
    one_core = f"{CORE_LABEL}!~{quoted(f'|{ALL_CORES}')}"
    of_cores = f"irate({_root_group(settings, metric, one_core)}[{ROOT_GROUP_RANGE}])"
    return _by_node(settings.labels.node, f"{whole} or sum without ({CORE_LABEL}) ({of_cores})")


def root_group_time_query(settings: PrometheusSettings, metric: str) -> str:
    """Return the query for when that counter was scraped last."""
    return _by_node(settings.labels.node, f"timestamp({_root_group(settings, metric)})")


def root_group_selector(settings: PrometheusSettings, metric: str, nodes: Collection[str]) -> str:
    """Return what selects a metric of the root control groups of some nodes."""
    return _root_group(settings, metric, f"{settings.labels.node}=~{quoted(_one_of(nodes))}")


def _root_group(settings: PrometheusSettings, metric: str, *matchers: str) -> str:
    return selector(metric, f'{settings.labels.id}="/"', *cadvisor_matchers(settings, metric), *matchers)


def _node_exporters(settings: PrometheusSettings, metric: str) -> str:
    return selector(metric, settings.matchers, settings.node_load_matchers)


def _by_exporter(label: str, values: str) -> str:
    """Keep what tells exporters apart: replicas of a server scrape the same ones."""
    return f"max by ({', '.join(filter(None, dict.fromkeys((label, 'instance', 'job'))))}) ({values})"


def _by_node(label: str, values: str) -> str:
    return f"max by ({', '.join(filter(None, dict.fromkeys((label, 'instance'))))}) ({values})"


def _one_of(names: Collection[str]) -> str:
    return "|".join(name.replace(".", "[.]") for name in names)


def quoted(text: str) -> str:
    """Return a PromQL string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
