"""What a preflight says about Prometheus: whether the series are there, under these labels, fresh and old enough."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from cruise.decisions.node_load import is_plausible, load_of
from cruise.decisions.preflight.items import CheckItem, Level, count_of, named
from cruise.decisions.preflight.plausibility import cluster_items, plausibility_items
from cruise.domain.cluster import Snapshot
from cruise.domain.preflight import HelmRelease, PrometheusFacts, UsageFacts

AREA = "metrics"
_MOST = 0.95
_STALE = timedelta(minutes=3)
_OLD = timedelta(minutes=10)
_FEW_SAMPLES = 8
_WEEK_DAYS = 7.0
_CPU, _MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
_SCRAPE = "scrape the kubelets' /metrics/cadvisor"


def usage_items(
    facts: PrometheusFacts, snapshot: Snapshot | None, now: datetime, release: HelmRelease | None = None
) -> Iterator[CheckItem]:
    """Yield the items; where the server does not answer there is but one."""
    setting = "prometheus_url" if release is None else "the chart's prometheus.url"
    if facts.problem or facts.usage is None:
        yield CheckItem(AREA, "prometheus", Level.RED, facts.problem, f"set {setting} to a server that answers")
        return
    if facts.is_set:
        yield CheckItem(AREA, "prometheus", Level.OK, f"answers at {facts.place}")
    else:
        fix = f"set {setting} to its address as seen from the cluster; `cruise serve` does not look for it"
        yield CheckItem(AREA, "prometheus", Level.WARN, f"answers at {facts.place}; prometheus_url is not set", fix)
    usage = facts.usage
    if not usage.queried:
        yield CheckItem(AREA, "series", Level.WARN, "no container runs, so no series were looked for")
        return
    yield _family("cpu series", _CPU, usage.with_cpu, usage)
    yield _family("memory series", _MEMORY, usage.with_memory, usage)
    if not usage.with_cpu:
        yield from cluster_items(usage.cluster)
        return
    yield _nodes(usage)
    yield _freshness(usage, now)
    yield _interval(usage)
    yield _history(usage)
    yield _pressure(usage)
    yield from plausibility_items(usage, snapshot or Snapshot(), now)
    yield _loads(usage, snapshot or Snapshot())


def _family(name: str, metric: str, found: int, usage: UsageFacts) -> CheckItem:
    words = f"{found:,} of {usage.queried:,} running containers looked for have {metric}"
    if found >= _MOST * usage.queried:
        return CheckItem(AREA, name, Level.OK, words)
    if found:
        return CheckItem(AREA, name, Level.WARN, words, f"{_SCRAPE} of all nodes; containers without series are held")
    if usage.labels:
        listed = ", ".join(usage.labels)
        fix = "set prometheus_namespace_label, prometheus_pod_label, prometheus_container_label, or the matchers: "
        fix += "prometheus_matchers, prometheus_cadvisor_matchers"
        return CheckItem(AREA, name, Level.RED, f"{words}, but others have it, with the labels {listed}", fix)
    return CheckItem(AREA, name, Level.RED, words, f"{_SCRAPE}, or set the metric's name")


def _nodes(usage: UsageFacts) -> CheckItem:
    if usage.nodes_labelled:
        return CheckItem(AREA, "node label", Level.OK, "series name their node")
    fix = "set prometheus_node_label, or label the series; without it pressure is judged for all nodes as one"
    return CheckItem(AREA, "node label", Level.WARN, "series do not name their node", fix)


def _freshness(usage: UsageFacts, now: datetime) -> CheckItem:
    if usage.newest_at is None:
        return CheckItem(AREA, "freshness", Level.WARN, "the newest sample's time is not known")
    age = now - usage.newest_at
    words = f"the newest sample is {max(0, round(age.total_seconds())):,} s old"
    if age <= _STALE:
        return CheckItem(AREA, "freshness", Level.OK, words)
    level = Level.WARN if age <= _OLD else Level.RED
    return CheckItem(AREA, "freshness", level, words, "see whether scraping goes on, and whether the clocks agree")


def _interval(usage: UsageFacts) -> CheckItem:
    count = usage.samples_in_10_minutes or 0.0
    words = f"half of the series have {count:.0f} samples in 10 minutes or more"
    if count >= _FEW_SAMPLES:
        return CheckItem(AREA, "interval", Level.OK, words)
    return CheckItem(AREA, "interval", Level.WARN, words, "scrape cAdvisor at least once a minute: peaks are missed")


def _history(usage: UsageFacts) -> CheckItem:
    days = usage.history_days
    if days <= 0:
        fix = "wait for an hour of samples: workloads without are left alone"
        return CheckItem(AREA, "history", Level.RED, "no samples from an hour ago", fix)
    words = f"samples reach back {days:.0f} d or more" if days >= 1 else f"samples reach back {24 * days:.0f} h or more"
    if days >= _WEEK_DAYS:
        return CheckItem(AREA, "history", Level.OK, words)
    fix = "keep 7 days for peaks by the hour of the day; until then what there is counts"
    return CheckItem(AREA, "history", Level.WARN, words, fix)


def _pressure(usage: UsageFacts) -> CheckItem:
    absent = usage.nodes - usage.pressured - usage.silent
    words = f"pressure (PSI) seen on {usage.pressured:,} of {usage.nodes:,} nodes"
    words += f", all zero on {usage.silent:,}" if usage.silent else ""
    words += f", absent on {absent:,}" if absent > 0 else ""
    if usage.pressured >= usage.nodes:
        return CheckItem(AREA, "pressure", Level.OK, words)
    fix = "needs Kubernetes 1.34, cgroup v2 and psi=1 on the kernel's command line; without it CPU demand is its usage"
    return CheckItem(AREA, "pressure", Level.WARN, words, fix)


def _loads(usage: UsageFacts, snapshot: Snapshot) -> CheckItem:
    found = {
        node.name: load for node in snapshot.nodes if (load := load_of(usage.loads.get(node.name), node)) is not None
    }
    impossible = sorted(node for node, load in found.items() if not is_plausible(load))
    busy = sum(load > 1 for load in found.values())
    if impossible:
        words = f"the load of {count_of(impossible, 'node')} cannot be true, and taints none: {named(impossible)}"
        fix = (
            "see what exports node_load1 besides node-exporter, and set prometheus_node_load_matchers to that one's job"
        )
        return CheckItem(AREA, "node load", Level.WARN, words, fix)
    if 2 * busy > len(snapshot.nodes):
        words = f"{busy:,} of {len(snapshot.nodes):,} nodes are overloaded at once: so many are not tainted"
        fix = "see whether node_load1 is right; if it is, add nodes: a taint would leave pods nowhere to go"
        return CheckItem(AREA, "node load", Level.WARN, words, fix)
    words = f"{usage.loaded:,} of {usage.nodes:,} nodes have a reading of their load"
    if usage.loaded >= usage.nodes:
        return CheckItem(AREA, "node load", Level.OK, words)
    fix = 'scrape node-exporter (node_load1), or keep cAdvisor\'s series of id="/"; other nodes are never tainted'
    return CheckItem(AREA, "node load", Level.WARN, words, fix)
