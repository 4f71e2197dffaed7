"""Finds the series of this cluster on a server that also has those of others (Thanos, Mimir, shared Prometheus).

Namespaces, workloads, nodes and StatefulSet pods of two clusters may have the same names. Certain are the series of
pods that run here: by the pod's uid in the control group's id, else by a generated name. Their labels show the values
of this cluster, now and days ago. Other values of labels that name clusters are of another cluster. If those labels
show nothing, another label that is equal for all our series may distinguish pods that this cluster does not have. If no
label does, only series of pods that were seen here count.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType

import structlog

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.queries import (
    VectorSample,
    build_matcher,
    build_usage_selector,
    create_answer_decoder,
    join_matchers,
    quote_promql,
)
from cruise.adapters.prometheus.seen_pods import ObservedPods, extract_pod_uid, has_generated_name
from cruise.adapters.prometheus.series_selectors import choose_sample_pods
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.preflight import ClusterSeriesFacts
from cruise.domain.usage import ContainerKey
from cruise.errors import CruiseError

log = structlog.get_logger()

# Queried in any case; similar labels of our own series are added.
CLUSTER_LABELS = (
    "cluster",
    "cluster_id",
    "cluster_name",
    "clusterID",
    "clusterName",
    "k8s_cluster",
    "k8s_cluster_name",
    "kube_cluster",
    "kubernetes_cluster",
)
# Labels that differ within one cluster, or between metrics.
SERIES_LABELS = frozenset(
    "__name__ id name image uid pod_uid container_id cpu instance node job metrics_path endpoint service scope".split()
)
PAST_SECONDS = tuple(int(days * 86_400) for days in (0.1, 0.5, 1, 2, 4, 6.9))
# A pod that ran that long ago and runs now ran when the snapshot was taken.
MIN_LIFETIME_SECONDS = 900
# A pod counts as running if it was scraped at most so long before the newest sample.
MAX_AGE_SECONDS = 75
MAX_PODS = 100
MAX_NAMESPACES = 300
MAX_LABELS = 4
MAX_EXAMPLES = 5

PodName = tuple[str, str]
Values = tuple[str, ...]
Labels = Mapping[str, str]
# The values of this cluster by label.
Selection = Mapping[str, Sequence[str]]
NO_SELECTION: Selection = MappingProxyType({})


def find_cluster(
    settings: PrometheusSettings, client: PrometheusClient, snapshot: ClusterSnapshot, at: int, seen: ObservedPods
) -> ClusterSeriesFacts:
    """Find the series of the snapshot's cluster; blocks. `seen` has the pods of this and earlier snapshots.

    Raises BadInputError, ThrottledError and UnavailableError.
    """
    return _ClusterFinder(settings, client, snapshot, at, seen).find()


def select_cluster(
    settings: PrometheusSettings, snapshot: ClusterSnapshot, at: int
) -> tuple[PrometheusSettings, ClusterSeriesFacts]:
    """Return the settings that select the snapshot's cluster, and the facts found; blocks.

    Raises BadInputError, ThrottledError and UnavailableError.
    """
    seen = ObservedPods()
    seen.add_snapshot(snapshot, at)
    client = PrometheusClient(settings)
    try:
        found = find_cluster(settings, client, snapshot, at, seen)
    finally:
        client.close()
    return replace(settings, matchers=join_matchers(settings.matchers, found.matchers)), found


@dataclass(slots=True)
class _UnknownPods:
    """Running pods on the server that are not in this cluster, and labels of some; `is_certain` by their uid."""

    pods: list[PodName]
    rows: list[Labels]
    is_certain: bool


class _ClusterFinder:
    def __init__(
        self,
        settings: PrometheusSettings,
        client: PrometheusClient,
        snapshot: ClusterSnapshot,
        at: int,
        seen: ObservedPods,
    ) -> None:
        namespaces = sorted({pod.namespace for pod in snapshot.pods} | {name for name, _ in snapshot.workloads})
        namespace_matcher = (
            build_matcher(settings.labels.namespace, namespaces) if 0 < len(namespaces) <= MAX_NAMESPACES else ""
        )
        self._settings = replace(settings, matchers=join_matchers(settings.matchers, namespace_matcher))
        self._client = client
        self._at = at
        self._seen = seen
        self._decode = create_answer_decoder("vector", VectorSample, settings.accept_partial)
        self._pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        self._nodes = {node.name for node in snapshot.nodes}
        self._sample = choose_sample_pods(snapshot, datetime.fromtimestamp(at, UTC))
        self._labels: Values = CLUSTER_LABELS
        self._ids_have_uids = False

    def find(self) -> ClusterSeriesFacts:
        rows = self._query_rows([pod.name for pod in self._sample], self._at)
        self._ids_have_uids = any(self._has_our_uid(row) for row in rows)
        extra = {name for row in rows for name in row if "cluster" in name.lower()}
        # Common labels first, so that they are chosen over others that select as well.
        self._labels = (*CLUSTER_LABELS, *sorted(extra - set(CLUSTER_LABELS)))
        ours = [row for row in rows if self._is_ours(row)] or self._find_probable(rows)
        selection, others = self._select_by_cluster_labels(ours) if ours else (NO_SELECTION, {})
        found = ClusterSeriesFacts(
            other_clusters=tuple(sorted(map(self._format_values, others))), ignored_series=sum(others.values())
        )
        if others:
            found = replace(found, example=self._find_example(max(others, key=lambda one: (others[one], one))))
        unknown = self._find_unknown(rows, selection)
        if not ours and len({self._get_values(row) for row in rows}) > 1:
            # Only pods with fixed names, with the labels of several clusters.
            unknown = _UnknownPods(list(dict.fromkeys(map(self._get_name, rows))), rows, is_certain=True)
        for _ in range(MAX_LABELS):
            label = self._find_distinguishing_label(ours, unknown) if ours and self._is_significant(unknown) else None
            if label is None:
                break
            selection = {**selection, label[0]: [label[1]]}
            found = replace(
                found,
                other_clusters=(*found.other_clusters, f"{label[0]}={quote_promql(label[2])}"),
                ignored_series=found.ignored_series + len(unknown.pods),
                example=found.example or self._get_container(unknown.rows[0]),
            )
            unknown = self._find_unknown(rows, selection)
        if self._is_significant(unknown):
            examples = tuple(f"{namespace}/{pod}" for namespace, pod in unknown.pods[:MAX_EXAMPLES])
            found = replace(found, unknown_pods=examples, unknown_pod_count=len(unknown.pods))
        return replace(found, matchers=join_matchers(*_matchers(selection)))

    def _find_probable(self, rows: Sequence[Labels]) -> list[Labels]:
        """Return the series of pods with fixed names on their own nodes, if all have the same cluster labels."""
        node = self._settings.labels.node
        found = [row for row in rows if (pod := self._get_pod(row)) is not None and row.get(node) == pod.node]
        return found if len({self._get_values(row) for row in found}) == 1 else []

    def _select_by_cluster_labels(self, ours: Sequence[Labels]) -> tuple[Selection, Mapping[Values, int]]:
        """Return the selection of our values, and the others' values with their numbers of series."""
        groups = self._count_by_labels(self._at)
        now = {self._get_values(row) for row in ours}
        others_now, mine, others = groups.keys() - now, set(now), groups.keys() - now
        before: set[Values] = set()
        for back in PAST_SECONDS:
            all_then, ours_then = self._read_past(back)
            mine |= ours_then - others_now
            before |= all_then
            # Values that never occurred together with ours may be earlier values of ours.
            others |= all_then - mine if all_then & mine else set()
        others -= mine
        if not others:
            return self._select_known_values(now, before), {}
        missing = self._find_missing(self._choose_selection(mine, others))
        mine |= {self._get_values(row) for row in self._query_rows(missing, self._at) if self._is_ours(row)}
        others -= mine
        return self._choose_selection(mine, others), {one: groups.get(one, 0) for one in others}

    def _select_known_values(self, now: Collection[Values], before: Collection[Values]) -> Selection:
        """Return the selection of all present and past values, if ours have one value of a common label.

        A cluster that is added to the server later is then ignored from the start.
        """
        for place, label in enumerate(CLUSTER_LABELS):
            value, *more = {one[place] for one in now}
            if value and not more:
                selection = {label: sorted({value, *(one[place] for one in before)})}
                return NO_SELECTION if self._find_missing(selection) else selection
        return NO_SELECTION

    def _find_example(self, values: Values) -> ContainerKey | None:
        their_values = {label: [value] for label, value in zip(self._labels, values, strict=True)}
        rows = self._query(f"topk(1, {self._build_selector(their_values)})", self._at)
        return self._get_container(rows[0].metric) if rows else None

    def _read_past(self, back: int) -> tuple[set[Values], set[Values]]:
        """Return the values some time ago, and those of our pods that still run."""
        at = self._at - back
        running = [pod for pod in self._sample if pod.created_at is not None and pod.created_at.timestamp() < at - 300]
        try:
            rows = self._query_rows([pod.name for pod in running], at) if running else []
            return set(self._count_by_labels(at)), {self._get_values(row) for row in rows if self._is_ours(row)}
        except CruiseError:
            # The server may have a shorter retention; Thanos then has no store to query.
            return set(), set()

    def _choose_selection(self, mine: Collection[Values], others: Collection[Values]) -> Selection:
        """Return our values of as few labels as exclude the others."""
        values = {label: {one[place] for one in mine} for place, label in enumerate(self._labels)}
        chosen: dict[str, Sequence[str]] = {}
        remaining = set(others)
        while remaining:
            left_out = {
                label: {one for one in remaining if one[place] not in values[label]}
                for place, label in enumerate(self._labels)
            }
            best = max(self._labels, key=lambda label: len(left_out[label]))
            if not left_out[best]:
                break
            chosen[best] = sorted(values[best])
            remaining -= left_out[best]
        return chosen

    def _find_missing(self, selection: Selection) -> list[str]:
        """Return our pods that would have no series any more."""
        last_scrapes = self._read_last_scrapes(selection)
        return [
            pod.name
            for pod in self._sample
            if has_generated_name(pod)
            and self._get_age(pod) > MIN_LIFETIME_SECONDS
            and (pod.namespace, pod.name) not in last_scrapes
        ]

    def _find_unknown(self, rows: Sequence[Labels], selection: Selection) -> _UnknownPods:
        """Return running pods on the server that are in no snapshot, and those of our names with another uid."""
        last_scrapes = self._read_last_scrapes(selection)
        newest = max(last_scrapes.values(), default=0.0)
        unseen = sorted(
            one for one, at in last_scrapes.items() if at >= newest - MAX_AGE_SECONDS and one not in self._seen
        )
        # Pods that started after the snapshot did not run so long ago.
        before = self._query_rows([name for _, name in unseen[:MAX_PODS]], self._at - MIN_LIFETIME_SECONDS, selection)
        lived = [row for row in before if self._get_name(row) in set(unseen)]
        namesakes = [
            row
            for row in rows
            if self._is_namesake(row) and all(row.get(label, "") in values for label, values in selection.items())
        ]
        found = dict.fromkeys(self._get_name(row) for row in (*lived, *namesakes))
        return _UnknownPods(list(found), [*lived, *namesakes], bool(namesakes))

    def _is_significant(self, unknown: _UnknownPods) -> bool:
        """Return whether there are more unknown pods than pods of ours that may just have ended."""
        if unknown.is_certain or self._seen.get_covered_seconds(self._at) >= MIN_LIFETIME_SECONDS:
            return bool(unknown.pods)
        return len(unknown.pods) > sum(self._get_age(pod) < MIN_LIFETIME_SECONDS for pod in self._pods.values())

    def _find_distinguishing_label(self, ours: Sequence[Labels], unknown: _UnknownPods) -> tuple[str, str, str] | None:
        """Return the label, equal in all our series, that excludes most unknown pods, our value and one of theirs."""
        best: tuple[int, str, str, str] = (0, "", "", "")
        names = self._settings.labels
        own = SERIES_LABELS | {names.namespace, names.pod, names.container, names.id, names.node}
        for label in sorted({name for row in (*ours, *unknown.rows) for name in row} - own):
            value, *more = {row.get(label, "") for row in ours}
            # A label that contains the node name differs between nodes.
            if more or any(node in value for node in self._nodes):
                continue
            others = [other for row in unknown.rows if (other := row.get(label, "")) != value]
            if len(others) > best[0]:
                best = (len(others), label, value, others[0])
        return best[1:] if best[0] else None

    def _is_ours(self, row: Labels) -> bool:
        pod = self._get_pod(row)
        if pod is None:
            return False
        matches = self._has_our_uid(row)
        return matches if self._ids_have_uids and matches is not None else has_generated_name(pod)

    def _is_namesake(self, row: Labels) -> bool:
        """Return whether a series is of another cluster's pod with the same name, and not of our pod's predecessor."""
        pod = self._get_pod(row)
        if pod is None or not self._ids_have_uids or self._get_age(pod) < MIN_LIFETIME_SECONDS:
            return False
        return self._has_our_uid(row) is False

    def _has_our_uid(self, row: Labels) -> bool | None:
        pod, uid = self._get_pod(row), extract_pod_uid(row.get(self._settings.labels.id, ""))
        return None if pod is None or not uid or pod.is_mirror_pod else uid == pod.uid

    def _get_pod(self, row: Labels) -> Pod | None:
        return self._pods.get(self._get_name(row))

    def _get_name(self, row: Labels) -> PodName:
        labels = self._settings.labels
        return row.get(labels.namespace, ""), row.get(labels.pod, "")

    def _get_container(self, row: Labels) -> ContainerKey:
        return ContainerKey(*self._get_name(row), row.get(self._settings.labels.container, ""))

    def _get_age(self, pod: Pod) -> float:
        return float("inf") if pod.created_at is None else self._at - pod.created_at.timestamp()

    def _get_values(self, row: Labels) -> Values:
        return tuple(row.get(label, "") for label in self._labels)

    def _format_values(self, values: Values) -> str:
        parts = [f"{label}={quote_promql(value)}" for label, value in zip(self._labels, values, strict=True) if value]
        return ",".join(parts) or "no label of a cluster"

    def _query_rows(self, names: Sequence[str], at: int, selection: Selection = NO_SELECTION) -> list[Labels]:
        """Return the labels of the CPU series of pods by name."""
        if not names:
            return []
        pods = "|".join(sorted({name.replace(".", "[.]") for name in names}))
        return [row.metric for row in self._query(self._build_selector(selection, pods), at)]

    def _count_by_labels(self, at: int) -> dict[Values, int]:
        """Return the number of series for each combination of cluster labels."""
        query = f"count by ({', '.join(self._labels)}) ({self._build_selector(NO_SELECTION)})"
        return {self._get_values(row.metric): int(row.value[1]) for row in self._query(query, at)}

    def _read_last_scrapes(self, selection: Selection) -> dict[PodName, float]:
        """Return the last scrape of each pod."""
        labels = self._settings.labels
        query = f"max by ({labels.namespace}, {labels.pod}) (timestamp({self._build_selector(selection)}))"
        return {self._get_name(row.metric): row.value[1] for row in self._query(query, self._at)}

    def _build_selector(self, selection: Selection, pods: str | None = None) -> str:
        settings = replace(self._settings, matchers=join_matchers(self._settings.matchers, *_matchers(selection)))
        return build_usage_selector(settings, settings.metrics.cpu, pods)

    def _query(self, query: str, at: int) -> list[VectorSample]:
        return [row for rows in self._decode(self._client.query(query, at)) for row in rows]


def _matchers(selection: Selection) -> Iterator[str]:
    return (build_matcher(label, values) for label, values in selection.items())


def log_cluster_selection(found: ClusterSeriesFacts) -> None:
    """Log the result of a search."""
    if found.other_clusters:
        log.info(
            "series of other clusters are ignored",
            selected=found.matchers,
            others=list(found.other_clusters),
            series=found.ignored_series,
            example="/".join(found.example or ()),
        )
    if not found.distinguishes_clusters:
        log.warning(
            "series may be of another cluster: only those of pods seen in this cluster are used; set "
            "prometheus_matchers",
            pods=found.unknown_pod_count,
            example=list(found.unknown_pods),
        )
