"""Which of a server's series are of this cluster: behind Thanos, Mimir or a shared Prometheus there are others.

Namespaces, workloads, nodes and StatefulSet pods of two clusters have the same names. What is certain are the series of
pods that run here: by the pod's uid in the control group's id, where series carry it, else by a generated name. Their
labels say which values are ours, today and days ago. Values of the labels that name clusters which no such pod has are
another cluster's. Where those labels tell nothing, other labels do that are the same for all of ours: pods that live in
the server, and that this cluster does not have, show which. Where no label tells such pods from ours, series of pods
that were never seen here may be another cluster's, and do not count.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType

import structlog

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.queries import (
    VectorRow,
    build_matcher,
    build_usage_selector,
    create_decoder,
    join_matchers,
    quote_promql,
)
from cruise.adapters.prometheus.seen_pods import ObservedPods, extract_pod_uid, has_generated_name
from cruise.adapters.prometheus.series_selectors import sample_pods
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.preflight import ClusterSeriesFacts
from cruise.domain.usage import ContainerKey
from cruise.errors import CruiseError

log = structlog.get_logger()

# Asked for whether ours have them or not; labels of ours that are called similarly are looked at too.
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
# What differs within one cluster, or between families of series.
SERIES_LABELS = frozenset(
    "__name__ id name image uid pod_uid container_id cpu instance node job metrics_path endpoint service scope".split()
)
PAST_SECONDS = tuple(int(days * 86_400) for days in (0.1, 0.5, 1, 2, 4, 6.9))
# A pod that lived then and lives now did so whenever the snapshot was taken.
MIN_LIFETIME_SECONDS = 900
# Scraped so shortly before the newest sample of all: alive.
MAX_AGE_SECONDS = 75
MAX_PODS = 100
MAX_NAMESPACES = 300
MAX_LABELS = 4
MAX_NAMED = 5

PodName = tuple[str, str]
Values = tuple[str, ...]
Labels = Mapping[str, str]
# By label, the values of this cluster.
Selection = Mapping[str, Sequence[str]]
NO_SELECTION: Selection = MappingProxyType({})


def find_cluster(
    settings: PrometheusSettings, client: PrometheusClient, snapshot: ClusterSnapshot, at: int, seen: ObservedPods
) -> ClusterSeriesFacts:
    """Look up which series are of the snapshot's cluster; blocks. `seen` has the pods of this and earlier snapshots.

    Raises BadInputError, Throttled, Unavailable.
    """
    return _ClusterFinder(settings, client, snapshot, at, seen).find()


def select_cluster(
    settings: PrometheusSettings, snapshot: ClusterSnapshot, at: int
) -> tuple[PrometheusSettings, ClusterSeriesFacts]:
    """Return the settings that select the snapshot's cluster, as of one look, and what that found; blocks.

    Raises BadInputError, Throttled, Unavailable.
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
    """Pods that live in the server and not in this cluster, of some of them the labels; `certain` by their uid."""

    pods: list[PodName]
    rows: list[Labels]
    certain: bool


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
        few = build_matcher(settings.labels.namespace, namespaces) if 0 < len(namespaces) <= MAX_NAMESPACES else ""
        self._settings = replace(settings, matchers=join_matchers(settings.matchers, few))
        self._client = client
        self._at = at
        self._seen = seen
        self._decode = create_decoder("vector", VectorRow, settings.accept_partial)
        self._pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        self._nodes = {node.name for node in snapshot.nodes}
        self._sample = sample_pods(snapshot, datetime.fromtimestamp(at, UTC))
        self._labels: Values = CLUSTER_LABELS
        self._ids_have_uids = False

    def find(self) -> ClusterSeriesFacts:
        rows = self._rows([pod.name for pod in self._sample], self._at)
        self._ids_have_uids = any(self._by_uid(row) for row in rows)
        more = {name for row in rows for name in row if "cluster" in name.lower()}
        # Of labels that do as well, the one that is usual.
        self._labels = (*CLUSTER_LABELS, *sorted(more - set(CLUSTER_LABELS)))
        ours = [row for row in rows if self._is_ours(row)] or self._probably_ours(rows)
        selection, others = self._by_cluster_labels(ours) if ours else (NO_SELECTION, {})
        found = ClusterSeriesFacts(
            other_clusters=tuple(sorted(map(self._named, others))), ignored_series=sum(others.values())
        )
        if others:
            found = replace(found, example=self._example(max(others, key=lambda one: (others[one], one))))
        strangers = self._strangers(rows, selection)
        if not ours and len({self._values(row) for row in rows}) > 1:
            # Pods of fixed names alone, under the labels of several clusters.
            strangers = _UnknownPods(list(dict.fromkeys(map(self._name_of, rows))), rows, certain=True)
        for _ in range(MAX_LABELS):
            label = self._label_against(ours, strangers) if ours and self._matter(strangers) else None
            if label is None:
                break
            selection = {**selection, label[0]: [label[1]]}
            found = replace(
                found,
                other_clusters=(*found.other_clusters, f"{label[0]}={quote_promql(label[2])}"),
                ignored_series=found.ignored_series + len(strangers.pods),
                example=found.example or self._container_of(strangers.rows[0]),
            )
            strangers = self._strangers(rows, selection)
        if self._matter(strangers):
            named = tuple(f"{namespace}/{pod}" for namespace, pod in strangers.pods[:MAX_NAMED])
            found = replace(found, unknown_pods=named, unknown_pod_count=len(strangers.pods))
        return replace(found, matchers=join_matchers(*_matchers(selection)))

    def _probably_ours(self, rows: Sequence[Labels]) -> list[Labels]:
        """Return the series of pods of fixed names on their own nodes, where all are of one cluster by its labels."""
        node = self._settings.labels.node
        found = [row for row in rows if (pod := self._pod_of(row)) is not None and row.get(node) == pod.node]
        return found if len({self._values(row) for row in found}) == 1 else []

    # Labels that name clusters.

    def _by_cluster_labels(self, ours: Sequence[Labels]) -> tuple[Selection, Mapping[Values, int]]:
        """Return what selects our values, and the others' values with how many series they have now."""
        groups = self._groups(self._at)
        now = {self._values(row) for row in ours}
        others_now, mine, others = groups.keys() - now, set(now), groups.keys() - now
        before: set[Values] = set()
        for back in PAST_SECONDS:
            then, ours_then = self._past(back)
            mine |= ours_then - others_now
            before |= then
            # Values that never stood beside ours may be what ours were called before.
            others |= then - mine if then & mine else set()
        others -= mine
        if not others:
            return self._against_newcomers(now, before), {}
        missing = self._missing(self._selecting(mine, others))
        mine |= {self._values(row) for row in self._rows(missing, self._at) if self._is_ours(row)}
        others -= mine
        return self._selecting(mine, others), {one: groups.get(one, 0) for one in others}

    def _against_newcomers(self, now: Collection[Values], before: Collection[Values]) -> Selection:
        """Return what selects the values that there are and were, where ours have a usual label of one value.

        Another cluster that comes to the server is then left out from the start.
        """
        for place, label in enumerate(CLUSTER_LABELS):
            value, *more = {one[place] for one in now}
            if value and not more:
                selection = {label: sorted({value, *(one[place] for one in before)})}
                return NO_SELECTION if self._missing(selection) else selection
        return NO_SELECTION

    def _example(self, values: Values) -> ContainerKey | None:
        theirs = {label: [value] for label, value in zip(self._labels, values, strict=True)}
        rows = self._ask(f"topk(1, {self._selector(theirs)})", self._at)
        return self._container_of(rows[0].metric) if rows else None

    def _past(self, back: int) -> tuple[set[Values], set[Values]]:
        """Return which values there were some time ago, and which pods of ours had that run still."""
        at = self._at - back
        lived = [pod for pod in self._sample if pod.created_at is not None and pod.created_at.timestamp() < at - 300]
        try:
            rows = self._rows([pod.name for pod in lived], at) if lived else []
            return set(self._groups(at)), {self._values(row) for row in rows if self._is_ours(row)}
        except CruiseError:
            # Servers may keep less, and Thanos then has no store to ask.
            return set(), set()

    def _selecting(self, mine: Collection[Values], others: Collection[Values]) -> Selection:
        """Return as few labels as leave out the others, with our values."""
        values = {label: {one[place] for one in mine} for place, label in enumerate(self._labels)}
        chosen: dict[str, Sequence[str]] = {}
        left = set(others)
        while left:
            without = {
                label: {one for one in left if one[place] not in values[label]}
                for place, label in enumerate(self._labels)
            }
            best = max(self._labels, key=lambda label: len(without[label]))
            if not without[best]:
                break
            chosen[best] = sorted(values[best])
            left -= without[best]
        return chosen

    def _missing(self, selection: Selection) -> list[str]:
        """Return which pods of ours would have no series any more."""
        alive = self._alive(selection)
        return [
            pod.name
            for pod in self._sample
            if has_generated_name(pod)
            and self._age(pod) > MIN_LIFETIME_SECONDS
            and (pod.namespace, pod.name) not in alive
        ]

    # Pods that are not of this cluster.

    def _strangers(self, rows: Sequence[Labels], selection: Selection) -> _UnknownPods:
        """Return the pods that live in the server and are in no snapshot, and those of our names under another uid."""
        alive = self._alive(selection)
        newest = max(alive.values(), default=0.0)
        unknown = sorted(one for one, at in alive.items() if at >= newest - MAX_AGE_SECONDS and one not in self._seen)
        # Pods that began since the snapshot did not live so long ago.
        before = self._rows([name for _, name in unknown[:MAX_PODS]], self._at - MIN_LIFETIME_SECONDS, selection)
        lived = [row for row in before if self._name_of(row) in set(unknown)]
        doubles = [
            row
            for row in rows
            if self._is_double(row) and all(row.get(label, "") in values for label, values in selection.items())
        ]
        found = dict.fromkeys(self._name_of(row) for row in (*lived, *doubles))
        return _UnknownPods(list(found), [*lived, *doubles], bool(doubles))

    def _matter(self, strangers: _UnknownPods) -> bool:
        """Tell whether there are more than pods of ours that have just ended: about as many as have just begun."""
        if strangers.certain or self._seen.is_covered(self._at) >= MIN_LIFETIME_SECONDS:
            return bool(strangers.pods)
        return len(strangers.pods) > sum(self._age(pod) < MIN_LIFETIME_SECONDS for pod in self._pods.values())

    def _label_against(self, ours: Sequence[Labels], strangers: _UnknownPods) -> tuple[str, str, str] | None:
        """Return the label, alike in all of ours, that tells most strangers apart, with our value and one of theirs."""
        best: tuple[int, str, str, str] = (0, "", "", "")
        names = self._settings.labels
        own = SERIES_LABELS | {names.namespace, names.pod, names.container, names.id, names.node}
        for label in sorted({name for row in (*ours, *strangers.rows) for name in row} - own):
            value, *more = {row.get(label, "") for row in ours}
            # What follows from the node is another value on the next node.
            if more or any(node in value for node in self._nodes):
                continue
            others = [other for row in strangers.rows if (other := row.get(label, "")) != value]
            if len(others) > best[0]:
                best = (len(others), label, value, others[0])
        return best[1:] if best[0] else None

    # What is certain of a series.

    def _is_ours(self, row: Labels) -> bool:
        pod = self._pod_of(row)
        if pod is None:
            return False
        by_uid = self._by_uid(row)
        return by_uid if self._ids_have_uids and by_uid is not None else has_generated_name(pod)

    def _is_double(self, row: Labels) -> bool:
        """Tell whether a series is of another pod of the same name, and not of the one before ours."""
        pod = self._pod_of(row)
        if pod is None or not self._ids_have_uids or self._age(pod) < MIN_LIFETIME_SECONDS:
            return False
        return self._by_uid(row) is False

    def _by_uid(self, row: Labels) -> bool | None:
        pod, uid = self._pod_of(row), extract_pod_uid(row.get(self._settings.labels.id, ""))
        return None if pod is None or not uid or pod.mirror else uid == pod.uid

    def _pod_of(self, row: Labels) -> Pod | None:
        return self._pods.get(self._name_of(row))

    def _name_of(self, row: Labels) -> PodName:
        labels = self._settings.labels
        return row.get(labels.namespace, ""), row.get(labels.pod, "")

    def _container_of(self, row: Labels) -> ContainerKey:
        return ContainerKey(*self._name_of(row), row.get(self._settings.labels.container, ""))

    def _age(self, pod: Pod) -> float:
        return float("inf") if pod.created_at is None else self._at - pod.created_at.timestamp()

    def _values(self, row: Labels) -> Values:
        return tuple(row.get(label, "") for label in self._labels)

    def _named(self, values: Values) -> str:
        named = [f"{label}={quote_promql(value)}" for label, value in zip(self._labels, values, strict=True) if value]
        return ",".join(named) or "no label of a cluster"

    # Queries.

    def _rows(self, names: Sequence[str], at: int, selection: Selection = NO_SELECTION) -> list[Labels]:
        """Return the labels of the CPU series of pods of some names."""
        if not names:
            return []
        pods = "|".join(sorted({name.replace(".", "[.]") for name in names}))
        return [row.metric for row in self._ask(self._selector(selection, pods), at)]

    def _groups(self, at: int) -> dict[Values, int]:
        """Return how many series there are of each combination of the labels of clusters."""
        query = f"count by ({', '.join(self._labels)}) ({self._selector(NO_SELECTION)})"
        return {self._values(row.metric): int(row.value[1]) for row in self._ask(query, at)}

    def _alive(self, selection: Selection) -> dict[PodName, float]:
        """Return when each pod was scraped last."""
        labels = self._settings.labels
        query = f"max by ({labels.namespace}, {labels.pod}) (timestamp({self._selector(selection)}))"
        return {self._name_of(row.metric): row.value[1] for row in self._ask(query, self._at)}

    def _selector(self, selection: Selection, pods: str | None = None) -> str:
        settings = replace(self._settings, matchers=join_matchers(self._settings.matchers, *_matchers(selection)))
        return build_usage_selector(settings, settings.metrics.cpu, pods)

    def _ask(self, query: str, at: int) -> list[VectorRow]:
        return [row for rows in self._decode(self._client.query(query, at)) for row in rows]


def _matchers(selection: Selection) -> Iterator[str]:
    return (build_matcher(label, values) for label, values in selection.items())


def log_cluster_selection(found: ClusterSeriesFacts) -> None:
    """Log what a look-up found."""
    if found.other_clusters:
        log.info(
            "series of other clusters are left out",
            read=found.matchers,
            others=list(found.other_clusters),
            series=found.ignored_series,
            such_as="/".join(found.example or ()),
        )
    if not found.distinguishes_clusters:
        log.warning(
            "series may be another cluster's: only pods that were seen here count; set prometheus_matchers",
            pods=found.unknown_pod_count,
            such_as=list(found.unknown_pods),
        )
