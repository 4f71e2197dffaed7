"""What a preflight says of series that cannot be true: who exposes them, which are not read, which are refused."""

from collections.abc import Iterator
from datetime import UTC, datetime

from cruise.decisions.preflight.items import CheckItem, Level, count_of, named
from cruise.decisions.usage.plausibility import Judgement, judge
from cruise.decisions.usage.usage_bounds import UsageBounds
from cruise.domain.cluster import Snapshot
from cruise.domain.preflight import ClusterFacts, UsageFacts

AREA = "metrics"
CLUSTER_FIX = (
    "give each cluster's series a label of its own (external_labels), or select this cluster's by prometheus_matchers, "
    'such as cluster="prod"'
)


def plausibility_items(usage: UsageFacts, snapshot: Snapshot, now: datetime) -> Iterator[CheckItem]:
    """Yield the items."""
    if usage.exporters:
        yield _exporters(usage)
    yield from cluster_items(usage.cluster)
    if usage.recent is not None:
        yield _samples(usage, snapshot, now)
    if usage.disputed_nodes or usage.loads_left_out:
        yield _node_exporters(usage)


def _exporters(usage: UsageFacts) -> CheckItem:
    words = f"containers are read from {' and '.join(usage.exporters)}"
    if not usage.left_out:
        return CheckItem(AREA, "exporters", Level.OK, words)
    others = named(f"{one.exporter} (such as {one.example})" for one in usage.left_out)
    fix = "see who exposes these; to read them too, select all that is to be read by prometheus_cadvisor_matchers"
    return CheckItem(AREA, "exporters", Level.WARN, f"{words}; not from {others}", fix)


def cluster_items(found: ClusterFacts) -> Iterator[CheckItem]:
    """Yield an item where a server holds series of several clusters."""
    words = cluster_words(found)
    if not words:
        return
    level = Level.OK if found.told_apart else Level.WARN
    yield CheckItem(AREA, "clusters", level, words, "" if found.told_apart else CLUSTER_FIX)


def cluster_words(found: ClusterFacts) -> str:
    """Say which series of a server that holds several clusters are read, empty where there is but one."""
    parts = []
    if found.others:
        example = f", such as {'/'.join(found.example)}" if found.example is not None else ""
        parts.append(
            f"series of this cluster are those with {found.matchers}; {found.left_out:,} of others are not read "
            f"({named(found.others)}{example})"
        )
    if not found.told_apart:
        pods = f"{found.strangers_in_all:,} pod{'' if found.strangers_in_all == 1 else 's'}"
        parts.append(
            f"Prometheus has series of {pods} that this cluster does not have, such as {named(found.strangers)}, and "
            "no label tells them from its own: only pods that were seen here count, and their workloads' former pods "
            "do not"
        )
    return "; ".join(parts)


def _samples(usage: UsageFacts, snapshot: Snapshot, now: datetime) -> CheckItem:
    assert usage.recent is not None
    at = int(now.timestamp())
    # Of limits it is taken that they were the same ten minutes ago.
    judgement = judge(usage.recent, UsageBounds.of(snapshot, at, UsageBounds.of(snapshot, 0)))
    if not judgement.counts:
        return CheckItem(AREA, "plausible", Level.OK, "all samples of the last 10 minutes can be true")
    containers = [key for key, bits in zip(usage.recent.keys, judgement.reasons.tolist(), strict=True) if bits]
    words = f"samples of {count_of(containers, 'container')} cannot be true: {_by_reason(judgement)}"
    fix = (
        "see who exposes these series, and select cAdvisor's by prometheus_cadvisor_matchers; until then they are held"
    )
    return CheckItem(AREA, "plausible", Level.WARN, words, fix)


def _by_reason(judgement: Judgement) -> str:
    parts = []
    for reason, count in judgement.counts.items():
        one = judgement.examples[reason]
        words = (
            f"{count:,} {reason.value}, such as {'/'.join(one.container)} at {datetime.fromtimestamp(one.at, UTC):%R}"
        )
        if one.value is not None and one.most is not None:
            unit, scale = ("m", 1) if one.resource == "cpu" else ("Mi", 1 << 20)
            words += f" ({one.resource} {one.value / scale:,.0f}{unit} of {one.most / scale:,.0f}{unit})"
        parts.append(words)
    return "; ".join(parts)


def _node_exporters(usage: UsageFacts) -> CheckItem:
    parts = []
    if usage.disputed_nodes:
        parts.append(f"the load of {named(usage.disputed_nodes)} is not known, as several exporters differ")
    if usage.loads_left_out:
        parts.append(f"loads not read: {named(f'{one.exporter} of {one.example}' for one in usage.loads_left_out)}")
    fix = "see who exposes node_load1, and select node-exporter's by prometheus_node_load_matchers"
    return CheckItem(AREA, "node exporters", Level.WARN, "; ".join(parts), fix)
