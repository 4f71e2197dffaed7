"""Owners and requests of pods that may no longer exist, from kube-state-metrics.

Owners are labels, so they are read from the index. Requests are read for every hour; the first value counts, with which
the pod was created. If the scraper kept its own labels, those of the metrics begin with `exported_`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.queries import (
    MatrixDecoder,
    SeriesMatrix,
    build_selector,
    query_range_in_parts,
    quote_promql,
)
from cruise.adapters.prometheus.recording import DAY, retry_when_unavailable
from cruise.adapters.prometheus.seen_pods import PARTITIONS, get_partition
from cruise.adapters.prometheus.series_selectors import LOOKBACK_SECONDS, SeriesListing, create_series_decoder
from cruise.adapters.prometheus.settings import PrometheusSettings, SeriesLabels
from cruise.domain.resources import Resources
from cruise.domain.usage import ContainerKey

REQUESTS = "kube_pod_container_resource_requests"
HOUR = 3600

PodKey = tuple[str, str]
OwnerKey = tuple[str, str, str]
Owner = tuple[str, str]


@dataclass(frozen=True, slots=True)
class KubeStateMetrics:
    """Owners as (kind, name): of pods by (namespace, name), of ReplicaSets and Jobs by (namespace, kind, name)."""

    owner_of_pod: dict[PodKey, Owner] = field(default_factory=dict)
    owner_of_controller: dict[OwnerKey, Owner] = field(default_factory=dict)
    requests: dict[ContainerKey, Resources] = field(default_factory=dict)


def read_kube_state(settings: PrometheusSettings, client: PrometheusClient, start: int, end: int) -> KubeStateMetrics:
    """Return the owners and requests of pods between two times in Unix seconds, which may be empty; blocks.

    Raises BadInputError, ThrottledError and UnavailableError.
    """
    return _KubeStateReader(settings, client).read(start, end)


@dataclass(frozen=True, slots=True)
class _OwnerSeries:
    """The labels of an owner series; `exported` if the scraper kept its own labels."""

    namespace: str
    pod: str
    exported: bool
    controller: str
    owner: Owner | None


class _KubeStateReader:
    def __init__(self, settings: PrometheusSettings, client: PrometheusClient) -> None:
        self._settings = settings
        self._client = client
        self._found = KubeStateMetrics()
        self._job = ""

    def read(self, start: int, end: int) -> KubeStateMetrics:
        # Full hours, so that every read uses the same times.
        for first in range(start // HOUR * HOUR, end, DAY):
            last = min(first + DAY - HOUR, end)
            self._job = self._find_job(first, last + HOUR)
            self._read_owners(first, last + HOUR)
            self._read_requests(first, last)
        return self._found

    def _find_job(self, first: int, last: int) -> str:
        """Return the matcher of the job that reports most pods, because any pod may expose such series."""
        settings = self._settings
        if settings.kube_state_matchers or not settings.plausible:
            return ""
        decode = create_series_decoder({"job": "job"}, settings.accept_partial)
        series = build_selector("kube_pod_owner", settings.matchers)
        found = decode(
            retry_when_unavailable(partial(self._client.query_series, [series], first - LOOKBACK_SECONDS, last))
        )
        jobs = Counter(one.job for one in found)
        return f"job={quote_promql(jobs.most_common(1)[0][0])}" if jobs else ""

    def _selector(self, family: str, *matchers: str) -> str:
        return build_selector(family, *matchers, self._settings.matchers, self._settings.kube_state_matchers, self._job)

    def _read_owners(self, first: int, last: int) -> None:
        for one in self._read_owner_series("kube_pod_owner", first, last):
            if one.owner is not None:
                self._found.owner_of_pod[one.namespace, one.pod] = one.owner
        for family, kind, label in (
            ("kube_replicaset_owner", "ReplicaSet", "replicaset"),
            ("kube_job_owner", "Job", "job_name"),
        ):
            for one in self._read_owner_series(family, first, last, label):
                if one.owner is not None:
                    self._found.owner_of_controller[one.namespace, kind, one.controller] = one.owner

    def _read_owner_series(
        self, family: str, first: int, last: int, controller: str = "", matchers: str = ""
    ) -> Iterator[_OwnerSeries]:
        labels = {"kind": "owner_kind", "owner": "owner_name", "controller": controller or "controller"}
        for name in ("namespace", "pod"):
            labels |= {name: name, f"exported_{name}": f"exported_{name}"}
        decode = create_series_decoder(labels, self._settings.accept_partial)
        series = self._selector(family, matchers)
        for one in decode(
            retry_when_unavailable(partial(self._client.query_series, [series], first - LOOKBACK_SECONDS, last))
        ):
            # Without an owner, the labels are <none>.
            has_owner = one.kind and one.owner and not one.owner.startswith("<")
            yield _OwnerSeries(
                one.exported_namespace or one.namespace,
                one.exported_pod or one.pod,
                bool(one.exported_pod),
                one.controller,
                (one.kind, one.owner) if has_owner else None,
            )

    def _read_requests(self, first: int, last: int) -> None:
        resource_matcher = 'resource=~"cpu|memory"'
        counts = {name: Counter[str]() for name in PARTITIONS}
        prefix = ""
        for one in self._read_owner_series(REQUESTS, first, last, matchers=resource_matcher):
            prefix = "exported_" if one.exported else prefix
            counts[get_partition(one.pod)][one.pod] += 1
        listing = SeriesListing(series_of_pod=counts)
        # The resource distinguishes the series of one container, in place of the runtime's id.
        labels = SeriesLabels(f"{prefix}namespace", f"{prefix}pod", f"{prefix}container", id="resource", node="")
        decoder = MatrixDecoder(labels, self._settings.accept_partial)
        points = listing.count_samples((last - first) // HOUR + 1, self._settings)
        for start in range(first, last + 1, points * HOUR):
            end = min(start + (points - 1) * HOUR, last // HOUR * HOUR)
            for piece in listing.split_into_pieces(points, self._settings):
                series = self._selector(REQUESTS, resource_matcher, f"{labels.pod}=~{quote_promql(piece)}")
                by = ", ".join((labels.namespace, labels.pod, labels.container, labels.id))
                query = f"max by ({by}) ({series})"
                self._add_requests(
                    retry_when_unavailable(
                        partial(query_range_in_parts, self._client, decoder, query, start, end, HOUR)
                    )
                )

    def _add_requests(self, matrix: SeriesMatrix) -> None:
        requests: dict[ContainerKey, Resources] = {}
        for name, values in zip(matrix.series, matrix.values, strict=True):
            key = ContainerKey(name.namespace, name.pod, name.container)
            samples = values[~np.isnan(values)]
            if key in self._found.requests or not len(samples):
                continue
            one = float(samples[0])
            amount = Resources(cpu_millicores=round(one * 1000)) if name.id == "cpu" else Resources(0, round(one))
            requests[key] = requests.get(key, Resources()) + amount
        self._found.requests.update(requests)
