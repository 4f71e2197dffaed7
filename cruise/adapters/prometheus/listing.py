"""Which series a server had in a time, from its index alone: what a query will cost is known before it is asked."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.completeness import refuse_incomplete
from cruise.adapters.prometheus.partitions import DEEPEST, PARTITIONS, selectors
from cruise.adapters.prometheus.queries import usage_selector
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.usage import ContainerKey
from cruise.errors import UNDECODABLE, BadInput

# How far back a server looks for the sample that holds at a time; five minutes, unless it was set otherwise.
LOOK_BACK_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Listing:
    """The containers of a time, and by partition how many series of one family each pod's name has."""

    containers: set[ContainerKey] = field(default_factory=set)
    series_of_pod: dict[str, Counter[str]] = field(default_factory=dict)

    def most_together(self) -> int:
        """Return how many series no selector can keep apart: those of pods whose names end alike for very long."""
        together = Counter[str]()
        for counts in self.series_of_pod.values():
            for pod, count in counts.items():
                together[pod[-DEEPEST:]] += count
        return max(together.values(), default=0)

    def pieces(self, points: int, settings: PrometheusSettings) -> list[str]:
        """Return selectors of all pods, none of which makes a query of so many points too large."""
        limit = max(1, min(settings.max_series_per_query, settings.max_samples_per_query // points))
        return [
            piece for name, counts in self.series_of_pod.items() if counts for piece in selectors(name, counts, limit)
        ]

    def points(self, wanted: int, settings: PrometheusSettings) -> int:
        """Return for how many points a query may ask, `wanted` at most. Raises BadInput where it may for none."""
        together = self.most_together()
        points = min(wanted, settings.max_samples_per_query // max(1, together))
        if points < 1:
            raise BadInput(
                f"prometheus_max_samples_per_query is {settings.max_samples_per_query:,}, and {together:,} series "
                "belong to pods whose names cannot be told apart in a query: set it higher"
            )
        return points


def usage_listing(settings: PrometheusSettings, client: PrometheusClient, first: int, last: int) -> Listing:
    """Return what there was of the usage families at the times from `first` to `last`.

    Raises BadInput, Throttled, Unavailable.
    """
    labels, metrics = settings.labels, settings.metrics
    families = tuple(dict.fromkeys((metrics.cpu, metrics.cpu_waiting, metrics.memory)))
    fields = {"family": "__name__", "namespace": labels.namespace, "pod": labels.pod, "container": labels.container}
    decode = series_decoder(fields, settings.accept_partial)
    listing = Listing()
    for partition in PARTITIONS:
        (pods,) = selectors(partition, {}, 1)
        asked = [usage_selector(settings, family, pods) for family in families]
        counts: dict[str, Counter[str]] = {family: Counter() for family in families}
        for one in decode(client.series(asked, first - LOOK_BACK_SECONDS, last)):
            if one.family in counts:
                counts[one.family][one.pod] += 1
            if one.family == metrics.cpu and one.namespace and one.pod and one.container:
                listing.containers.add(ContainerKey(one.namespace, one.pod, one.container))
        most = Counter[str]()
        for count in counts.values():
            most |= count
        listing.series_of_pod[partition] = most
    return listing


def series_decoder(labels: Mapping[str, str], accept_partial: bool) -> Callable[[bytes], Sequence[Any]]:
    """Return what decodes a list of series into objects with the named labels, empty where a series has none.

    It raises BadInput for what is no such list, Unavailable for one that the server calls incomplete.
    """
    fields = [(name, str, "") for name, label in labels.items() if label]
    one = msgspec.defstruct("One", fields, rename={name: label for name, label in labels.items() if label}, gc=False)
    answer = msgspec.json.Decoder(
        msgspec.defstruct(
            "Series",
            [
                ("status", str),
                ("data", list[one] | None),  # type: ignore[valid-type]
                ("warnings", list[str] | None, None),
                ("isPartial", bool, False),
            ],
        )
    )

    def decode(body: bytes) -> Sequence[Any]:
        try:
            document: Any = answer.decode(body)
        except UNDECODABLE as error:
            raise BadInput(f"Prometheus answered with something else than a list of series: {error}") from error
        refuse_incomplete(document.warnings, document.isPartial, accept_partial)
        return document.data or ()

    return decode
