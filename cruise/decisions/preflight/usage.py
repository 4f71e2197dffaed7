"""Checks the sources of usage: whether their series exist, under which labels, how fresh, how old and how plausible."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cruise.decisions.node_load import compute_relative_load, is_plausible_load
from cruise.decisions.usage.plausibility import CheckedSampleBlock, reject_implausible_samples
from cruise.decisions.usage.usage_bounds import UsageBounds
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.preflight import (
    CheckItem,
    CheckLevel,
    ClusterSeriesFacts,
    CrossCheckResult,
    HelmRelease,
    KubeletFacts,
    PrometheusFacts,
    UsageFacts,
    format_item_count,
    format_names,
)

USAGE_AREA = "metrics"
CLUSTER_FIX = (
    "give each cluster's series their own label (external_labels), or select this cluster's by prometheus_matchers, "
    'such as cluster="prod"'
)


def check_series_and_samples(usage: UsageFacts, snapshot: ClusterSnapshot, now: datetime) -> Iterator[CheckItem]:
    """Yield who exposes series, which are not read, and which samples are rejected."""
    if usage.exporters:
        yield _check_exporters(usage)
    yield from check_cluster_series(usage.cluster)
    if usage.recent is not None:
        yield _check_samples(usage, snapshot, now)
    if usage.disputed_nodes or usage.ignored_load_exporters:
        yield _check_node_exporters(usage)


def _check_exporters(usage: UsageFacts) -> CheckItem:
    words = f"containers are read from {' and '.join(usage.exporters)}"
    if not usage.ignored_exporters:
        return CheckItem(USAGE_AREA, "exporters", CheckLevel.OK, words)
    others = format_names(f"{one.exporter} (such as {one.example})" for one in usage.ignored_exporters)
    fix = "check who exposes these; to read them too, select all series to read by prometheus_cadvisor_matchers"
    return CheckItem(USAGE_AREA, "exporters", CheckLevel.WARN, f"{words}; not from {others}", fix)


def check_cluster_series(found: ClusterSeriesFacts) -> Iterator[CheckItem]:
    """Yield an item if a server holds series of several clusters."""
    words = describe_cluster_series(found)
    if not words:
        return
    level = CheckLevel.OK if found.distinguishes_clusters else CheckLevel.WARN
    yield CheckItem(USAGE_AREA, "clusters", level, words, "" if found.distinguishes_clusters else CLUSTER_FIX)


def describe_cluster_series(found: ClusterSeriesFacts) -> str:
    """Describe which series of a server with several clusters are read; empty if there is only one."""
    parts = []
    if found.other_clusters:
        example = f", such as {'/'.join(found.example)}" if found.example is not None else ""
        parts.append(
            f"series of this cluster have {found.matchers}; {found.ignored_series:,} of others are not read "
            f"({format_names(found.other_clusters)}{example})"
        )
    if not found.distinguishes_clusters:
        pods = f"{found.unknown_pod_count:,} pod{'' if found.unknown_pod_count == 1 else 's'}"
        parts.append(
            f"Prometheus has series of {pods} not in this cluster, such as {format_names(found.unknown_pods)}, "
            "and no label distinguishes them: only pods that were seen in this cluster count, not former pods of their "
            "workloads"
        )
    return "; ".join(parts)


def _check_samples(usage: UsageFacts, snapshot: ClusterSnapshot, now: datetime) -> CheckItem:
    assert usage.recent is not None
    at = int(now.timestamp())
    # Limits are assumed to be unchanged for ten minutes.
    check = reject_implausible_samples(usage.recent, UsageBounds.create(snapshot, at, UsageBounds.create(snapshot, 0)))
    if not check.counts:
        return CheckItem(USAGE_AREA, "plausible", CheckLevel.OK, "all samples of the last 10 minutes are plausible")
    containers = [key for key, bits in zip(usage.recent.keys, check.reasons.tolist(), strict=True) if bits]
    words = f"samples of {format_item_count(containers, 'container')} are implausible: {_describe_rejections(check)}"
    fix = "check who exposes these series, and select cAdvisor's by prometheus_cadvisor_matchers; they are skipped now"
    return CheckItem(USAGE_AREA, "plausible", CheckLevel.WARN, words, fix)


def _describe_rejections(check: CheckedSampleBlock) -> str:
    parts = []
    for reason, count in check.counts.items():
        one = check.examples[reason]
        words = (
            f"{count:,} {reason.value}, such as {'/'.join(one.container)} at {datetime.fromtimestamp(one.at, UTC):%R}"
        )
        if one.value is not None and one.maximum is not None:
            unit, scale = ("m", 1) if one.resource == "cpu" else ("Mi", 1 << 20)
            words += f" ({one.resource} {one.value / scale:,.0f}{unit} of {one.maximum / scale:,.0f}{unit})"
        parts.append(words)
    return "; ".join(parts)


def _check_node_exporters(usage: UsageFacts) -> CheckItem:
    parts = []
    if usage.disputed_nodes:
        parts.append(f"the load of {format_names(usage.disputed_nodes)} is unknown: exporters disagree")
    if usage.ignored_load_exporters:
        ignored = format_names(f"{one.exporter} of {one.example}" for one in usage.ignored_load_exporters)
        parts.append(f"loads not read: {ignored}")
    fix = "check who exposes node_load1, and select node-exporter's by prometheus_node_load_matchers"
    return CheckItem(USAGE_AREA, "node exporters", CheckLevel.WARN, "; ".join(parts), fix)


_ENOUGH_SHARE = 0.95
_STALE = timedelta(minutes=3)
_OLD = timedelta(minutes=10)
_FEW_SAMPLES = 8
_WEEK_DAYS = 7.0
_CPU, _MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
_SCRAPE = "scrape the kubelets' /metrics/cadvisor"


def check_usage_sources(
    facts: PrometheusFacts, snapshot: ClusterSnapshot | None, now: datetime, release: HelmRelease | None = None
) -> Iterator[CheckItem]:
    """Yield the items; only one if the server does not answer."""
    setting = "prometheus_url" if release is None else "the chart's prometheus.url"
    if facts.problem or facts.usage is None:
        yield CheckItem(
            USAGE_AREA, "prometheus", CheckLevel.RED, facts.problem, f"set {setting} to a server that answers"
        )
        return
    if facts.is_set:
        yield CheckItem(USAGE_AREA, "prometheus", CheckLevel.OK, f"answers at {facts.location}")
    else:
        fix = f"set {setting} to its address within the cluster; `cruise serve` does not search for it"
        yield CheckItem(
            USAGE_AREA, "prometheus", CheckLevel.WARN, f"answers at {facts.location}; prometheus_url is not set", fix
        )
    usage = facts.usage
    if not usage.queried_containers:
        yield CheckItem(USAGE_AREA, "series", CheckLevel.WARN, "no container is running, so no series were queried")
        return
    yield _check_metric("cpu series", _CPU, usage.containers_with_cpu, usage)
    yield _check_metric("memory series", _MEMORY, usage.containers_with_memory, usage)
    if not usage.containers_with_cpu:
        yield from check_cluster_series(usage.cluster)
        return
    yield _check_node_label(usage)
    yield _check_freshness(usage, now)
    yield _check_interval(usage)
    yield _check_history(usage)
    yield _check_pressure(usage)
    yield from check_series_and_samples(usage, snapshot or ClusterSnapshot(), now)
    yield _check_loads(usage, snapshot or ClusterSnapshot())


def _check_metric(name: str, metric: str, found: int, usage: UsageFacts) -> CheckItem:
    words = f"{found:,} of {usage.queried_containers:,} queried running containers have {metric}"
    if found >= _ENOUGH_SHARE * usage.queried_containers:
        return CheckItem(USAGE_AREA, name, CheckLevel.OK, words)
    if found:
        return CheckItem(
            USAGE_AREA, name, CheckLevel.WARN, words, f"{_SCRAPE} of all nodes; containers without series are skipped"
        )
    if usage.labels:
        listed = ", ".join(usage.labels)
        fix = "set prometheus_namespace_label, prometheus_pod_label, prometheus_container_label, or the matchers: "
        fix += "prometheus_matchers, prometheus_cadvisor_matchers"
        return CheckItem(USAGE_AREA, name, CheckLevel.RED, f"{words}; other series have the labels {listed}", fix)
    return CheckItem(USAGE_AREA, name, CheckLevel.RED, words, f"{_SCRAPE}, or set the metric's name")


def _check_node_label(usage: UsageFacts) -> CheckItem:
    if usage.nodes_labelled:
        return CheckItem(USAGE_AREA, "node label", CheckLevel.OK, "series name their node")
    fix = "set prometheus_node_label, or label the series; without it all nodes are checked for pressure as one"
    return CheckItem(USAGE_AREA, "node label", CheckLevel.WARN, "series do not name their node", fix)


def _check_freshness(usage: UsageFacts, now: datetime) -> CheckItem:
    if usage.newest_at is None:
        return CheckItem(USAGE_AREA, "freshness", CheckLevel.WARN, "the newest sample's time is unknown")
    age = now - usage.newest_at
    words = f"the newest sample is {max(0, round(age.total_seconds())):,} s old"
    if age <= _STALE:
        return CheckItem(USAGE_AREA, "freshness", CheckLevel.OK, words)
    level = CheckLevel.WARN if age <= _OLD else CheckLevel.RED
    return CheckItem(USAGE_AREA, "freshness", level, words, "check that scraping continues, and that the clocks agree")


def _check_interval(usage: UsageFacts) -> CheckItem:
    count = usage.samples_in_10_minutes or 0.0
    words = f"half of the series have {count:.0f} samples in 10 minutes or more"
    if count >= _FEW_SAMPLES:
        return CheckItem(USAGE_AREA, "interval", CheckLevel.OK, words)
    return CheckItem(
        USAGE_AREA, "interval", CheckLevel.WARN, words, "scrape cAdvisor at least once a minute: peaks are missed"
    )


def _check_history(usage: UsageFacts) -> CheckItem:
    days = usage.history_days
    if days <= 0:
        fix = "wait for an hour of samples; workloads without are skipped"
        return CheckItem(USAGE_AREA, "history", CheckLevel.RED, "no samples from an hour ago", fix)
    words = f"samples reach back {days:.0f} d or more" if days >= 1 else f"samples reach back {24 * days:.0f} h or more"
    if days >= _WEEK_DAYS:
        return CheckItem(USAGE_AREA, "history", CheckLevel.OK, words)
    fix = "keep 7 days for peaks by the hour of the day; until then the available samples count"
    return CheckItem(USAGE_AREA, "history", CheckLevel.WARN, words, fix)


def _check_pressure(usage: UsageFacts) -> CheckItem:
    absent = usage.nodes - usage.nodes_with_pressure - usage.nodes_without_series
    words = f"pressure (PSI) seen on {usage.nodes_with_pressure:,} of {usage.nodes:,} nodes"
    words += f", all zero on {usage.nodes_without_series:,}" if usage.nodes_without_series else ""
    words += f", absent on {absent:,}" if absent > 0 else ""
    if usage.nodes_with_pressure >= usage.nodes:
        return CheckItem(USAGE_AREA, "pressure", CheckLevel.OK, words)
    fix = "needs Kubernetes 1.34, cgroup v2 and psi=1 on the kernel's command line; without it CPU demand is its usage"
    return CheckItem(USAGE_AREA, "pressure", CheckLevel.WARN, words, fix)


def _check_loads(usage: UsageFacts, snapshot: ClusterSnapshot) -> CheckItem:
    found = {
        node.name: load
        for node in snapshot.nodes
        if (load := compute_relative_load(usage.loads.get(node.name), node)) is not None
    }
    impossible = sorted(node for node, load in found.items() if not is_plausible_load(load))
    busy = sum(load > 1 for load in found.values())
    if impossible:
        nodes = format_item_count(impossible, "node")
        words = f"the load of {nodes} is implausible and ignored: {format_names(impossible)}"
        fix = "check what else exports node_load1, and set prometheus_node_load_matchers to node-exporter's job"
        return CheckItem(USAGE_AREA, "node load", CheckLevel.WARN, words, fix)
    if 2 * busy > len(snapshot.nodes):
        words = f"{busy:,} of {len(snapshot.nodes):,} nodes are overloaded, too many to taint"
        fix = "check that node_load1 is right; if it is, add nodes: with taints, pods could not be scheduled"
        return CheckItem(USAGE_AREA, "node load", CheckLevel.WARN, words, fix)
    words = f"{usage.nodes_with_load:,} of {usage.nodes:,} nodes have a load reading"
    if usage.nodes_with_load >= usage.nodes:
        return CheckItem(USAGE_AREA, "node load", CheckLevel.OK, words)
    fix = 'scrape node-exporter (node_load1), or keep cAdvisor\'s series of id="/"; other nodes are never tainted'
    return CheckItem(USAGE_AREA, "node load", CheckLevel.WARN, words, fix)


def check_kubelets(facts: KubeletFacts) -> Iterator[CheckItem]:
    """Yield the items of a cluster with usage from its kubelets."""
    words = f"{facts.answered:,} of {facts.queried:,} queried kubelets can be read"
    if not facts.answered:
        yield CheckItem(
            "metrics",
            "kubelets",
            CheckLevel.RED,
            facts.problem or "no node is ready",
            "fix that, or set prometheus_url",
        )
        return
    if facts.problem:
        fix = "the pods of nodes that cannot be read are skipped"
        yield CheckItem("metrics", "kubelets", CheckLevel.WARN, f"{words}: {facts.problem}", fix)
    else:
        yield CheckItem("metrics", "kubelets", CheckLevel.OK, f"{words}; history begins when `cruise serve` starts")
    pressure = f"pressure (PSI) seen on {facts.reporting_pressure:,} of {facts.answered:,} nodes"
    if facts.reporting_pressure:
        yield CheckItem("metrics", "pressure", CheckLevel.OK, pressure)
        return
    fix = "needs Kubernetes 1.34, cgroup v2, psi=1 on the kernel's command line, and kubelet_endpoint=cadvisor"
    yield CheckItem("metrics", "pressure", CheckLevel.WARN, pressure, f"{fix}; without it CPU demand is its usage")


def check_kubelet_cross_check(found: CrossCheckResult) -> CheckItem:
    """Return the result of comparing Prometheus with kubelets."""
    asked = f"{found.nodes - found.unreadable_nodes:,} of {found.nodes:,} nodes"
    if found.disagreements:
        containers = ["/".join(key) for key in sorted(found.disagreements)]
        words = f"the kubelets of {asked} contradict the figures of {format_item_count(containers, 'container')}"
        fix = "check who exposes these series, and select cAdvisor's by prometheus_cadvisor_matchers"
        return CheckItem("metrics", "kubelets", CheckLevel.WARN, f"{words}: {format_names(containers)}", fix)
    if found.compared:
        words = f"the kubelets of {asked} agree with the figures of {len(found.compared):,} containers"
        return CheckItem("metrics", "kubelets", CheckLevel.OK, words)
    return CheckItem(
        "metrics", "kubelets", CheckLevel.OK, f"not compared with kubelets: {found.unreadable_reason or 'no pods'}"
    )
