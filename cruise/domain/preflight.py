"""What a preflight finds out about the surroundings; None where it could not be found out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.records import RiskDay
from cruise.domain.resources import Float64Array
from cruise.domain.usage import ContainerKey, SampleBlock

# What kubelets say themselves of containers whose use is read from elsewhere.


@dataclass(frozen=True, slots=True)
class KubeletReport:
    """What a kubelet told of its containers at a time, in Unix seconds; one entry a container and id of the runtime.

    NaN where it did not tell.
    """

    node: str
    at: float
    keys: Sequence[ContainerKey]
    series: Sequence[str]
    cpu_seconds: Float64Array
    memory_bytes: Float64Array


class MetricMismatch(NamedTuple):
    """A figure of a container that its kubelet contradicts: seconds counted, or bytes."""

    node: str
    resource: str
    prometheus_value: float
    kubelet_value: float


@dataclass(slots=True)
class CrossCheckResult:
    """How many nodes were asked and could not be read, which containers were compared, and which figures differ."""

    nodes: int = 0
    unreadable_nodes: int = 0
    compared: set[ContainerKey] = field(default_factory=set)
    disagreements: dict[ContainerKey, MetricMismatch] = field(default_factory=dict)
    unreadable_reason: str = ""


@dataclass(frozen=True, slots=True)
class CrossCheckCounts:
    """Comparisons of a process so far: nodes asked, those of them that could not be read, and containers compared."""

    nodes: int = 0
    unreadable: int = 0
    agreeing: int = 0
    disagreeing: int = 0

    def add(self, found: CrossCheckResult) -> "CrossCheckCounts":
        """Return it with one pass more."""
        disagreeing = len(found.disagreements)
        return CrossCheckCounts(
            self.nodes + found.nodes,
            self.unreadable + found.unreadable_nodes,
            self.agreeing + len(found.compared) - disagreeing,
            self.disagreeing + disagreeing,
        )


@dataclass(frozen=True, slots=True)
class RequiredAccess:
    """A verb on a resource of an API group; no namespace means all of them."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Name it as RBAC rules do, such as `patch pods/resize`."""
        return f"{self.verb} {self.resource}{'/' if self.subresource else ''}{self.subresource}"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the API server serves; `version` is for people."""

    version: str
    resizes_pods: bool
    evicts_pods: bool


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """Who asks, and what of the needs is denied.

    `held` tells whether policies hold cruise's accounts to their own writes, None where that cannot be looked at.
    """

    account: str | None
    denied: tuple[RequiredAccess, ...]
    restricted_by_policy: bool | None = None


@dataclass(frozen=True, slots=True)
class IgnoredExporter:
    """An exporter that is not read, by the labels that tell it from others, and a container or node that it names."""

    exporter: str
    example: str


@dataclass(frozen=True, slots=True)
class ClusterSeriesFacts:
    """Which series of a server are this cluster's, where it holds those of several.

    `matchers` select them, empty where nothing else is known to be there. `others` has the labels of other clusters,
    and `left_out` how many of their series there were, such as those of container `example`. `strangers` names some
    pods that the matchers select and that this cluster does not have, of `strangers_in_all`: no label tells them apart.
    """

    matchers: str = ""
    other_clusters: tuple[str, ...] = ()
    ignored_series: int = 0
    example: ContainerKey | None = None
    unknown_pods: tuple[str, ...] = ()
    unknown_pod_count: int = 0

    @property
    def distinguishes_clusters(self) -> bool:
        """Tell whether series that are selected are this cluster's."""
        return self.unknown_pod_count == 0


@dataclass(frozen=True, slots=True)
class UsageFacts:
    """What a Prometheus server holds of a sample of the running containers.

    `with_cpu` and `with_memory` count those of the `queried` containers that have series under the labels that are set;
    `labels` are the labels of any such series where none was found under these. `samples_in_10_minutes` is what half
    of the series have at least; `newest_at` is when the newest was scraped; `history_days` how far back samples reach,
    as far as was queried. Nodes are counted by what their containers' pressure is: seen, all zero, or absent; `loaded`
    have a reading of their load, and `loads` has the load average of each of them; `disputed_nodes` have several that
    differ. `exporters` are those that containers are read from, where that was looked up, and `left_out` those that are
    not read beside them. `cluster` tells series of this cluster from others'. `recent` has the samples of the last
    minutes.
    """

    queried: int
    with_cpu: int
    with_memory: int
    labels: tuple[str, ...] = ()
    nodes_labelled: bool = True
    samples_in_10_minutes: float | None = None
    newest_at: datetime | None = None
    history_days: float = 0.0
    nodes: int = 0
    pressured: int = 0
    nodes_without_series: int = 0
    loaded: int = 0
    loads: Mapping[str, float] = field(default_factory=dict)
    exporters: tuple[str, ...] = ()
    ignored_exporters: tuple[IgnoredExporter, ...] = ()
    ignored_load_exporters: tuple[IgnoredExporter, ...] = ()
    disputed_nodes: tuple[str, ...] = ()
    recent: SampleBlock | None = None
    cluster: ClusterSeriesFacts = ClusterSeriesFacts()


@dataclass(frozen=True, slots=True)
class PrometheusFacts:
    """Where Prometheus is, whether that is set or was found, and what it holds, or why that is not known."""

    place: str
    is_set: bool
    usage: UsageFacts | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class KubeletFacts:
    """How many kubelets were asked for usage, how many answered and tell of pressure, and why the first did not."""

    queried: int
    read: int
    pressured: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The database; `exists` is False for an embedded one that is yet to be made, `problem` why it cannot be used.

    `verified`: it is known to be the server that is meant. `risk_days` say how stated risks were kept.
    """

    place: str
    embedded: bool
    exists: bool = True
    revision: str | None = None
    expected: str | None = None
    problem: str = ""
    verified: bool = True
    risk_days: Sequence[RiskDay] = ()


@dataclass(frozen=True, slots=True)
class WebhookFacts:
    """The registration of the webhook.

    `trusts` tells whether the CA that is published vouches for the certificate in use, None where the certificate
    cannot be looked at; `fails_open` whether pods are created without the webhook too, `verifies_clients` whether it asks
    for the API server's certificate.
    """

    present: bool
    published: bool = False
    trusts_certificate: bool | None = None
    expires_at: datetime | None = None
    fails_open: bool = True
    verifies_clients: bool = False


@dataclass(frozen=True, slots=True)
class HelmRelease:
    """What installed cruise in a cluster, by the notes that Helm leaves on objects."""

    name: str
    namespace: str


@dataclass(frozen=True, slots=True)
class PreflightFacts:
    """All that was found out; `problems` has (area, name, why) of what could not be."""

    server: ServerFacts | None = None
    access: AccessFacts | None = None
    snapshot: ClusterSnapshot | None = None
    unreadable: Sequence[str] = ()
    prometheus: PrometheusFacts | None = None
    store: StoreFacts | None = None
    webhook: WebhookFacts | None = None
    problems: Sequence[tuple[str, str, str]] = ()
    cross_check: CrossCheckResult | None = None
    kubelets: KubeletFacts | None = None
    release: HelmRelease | None = None
