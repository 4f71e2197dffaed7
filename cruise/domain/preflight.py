"""Findings of the preflight checks, None where something could not be determined, and items that word them."""

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from cruise.domain.arrays import Float64Array
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.records import RiskDay
from cruise.domain.usage import ContainerKey, SampleBlock, StatisticsTable

# Comparison of Prometheus with the kubelets.


@dataclass(frozen=True, slots=True)
class KubeletContainerUsage:
    """Usage that a kubelet reported, at a time in Unix seconds; one entry a container and runtime id.

    NaN: not reported.
    """

    node: str
    at: float
    keys: Sequence[ContainerKey]
    series: Sequence[str]
    cpu_seconds: Float64Array
    memory_bytes: Float64Array


class MetricMismatch(NamedTuple):
    """A metric of a container that its kubelet contradicts, in CPU seconds or bytes."""

    node: str
    resource: str
    prometheus_value: float
    kubelet_value: float


@dataclass(slots=True)
class CrossCheckResult:
    """The containers that were compared with their kubelets, and the mismatches."""

    nodes: int = 0
    unreadable_nodes: int = 0
    compared: set[ContainerKey] = field(default_factory=set)
    disagreements: dict[ContainerKey, MetricMismatch] = field(default_factory=dict)
    unreadable_reason: str = ""


@dataclass(frozen=True, slots=True)
class CrossCheckCounts:
    """Totals of the comparisons of this process."""

    nodes: int = 0
    unreadable: int = 0
    agreeing: int = 0
    disagreeing: int = 0

    def add(self, found: CrossCheckResult) -> "CrossCheckCounts":
        """Return the totals with one more comparison."""
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
        """Format as in RBAC rules, such as `patch pods/resize`."""
        return f"{self.verb} {self.resource}{'/' if self.subresource else ''}{self.subresource}"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The API server's version and subresources."""

    version: str
    resizes_pods: bool
    evicts_pods: bool


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """The account, and the denied ones of the required rights.

    `restricted_by_policy`: admission policies restrict the account to cruise's own writes; None if unknown.
    """

    account: str | None
    denied: tuple[RequiredAccess, ...]
    restricted_by_policy: bool | None = None


@dataclass(frozen=True, slots=True)
class IgnoredExporter:
    """An exporter that is not read, identified by labels, and a container or node that it reports."""

    exporter: str
    example: str


@dataclass(frozen=True, slots=True)
class ClusterSeriesFacts:
    """Which series of a Prometheus server belong to this cluster, if it stores several clusters.

    `matchers` select them, empty if there are no others. `other_clusters` has the labels of other clusters, whose
    `ignored_series` include those of container `example`. `unknown_pods` are some of the `unknown_pod_count` pods that
    the matchers select and this cluster does not have: no label distinguishes them.
    """

    matchers: str = ""
    other_clusters: tuple[str, ...] = ()
    ignored_series: int = 0
    example: ContainerKey | None = None
    unknown_pods: tuple[str, ...] = ()
    unknown_pod_count: int = 0

    @property
    def distinguishes_clusters(self) -> bool:
        """Whether all selected series belong to this cluster."""
        return self.unknown_pod_count == 0


@dataclass(frozen=True, slots=True)
class UsageFacts:
    """What a Prometheus server stores about a sample of the running containers.

    `containers_with_cpu` and `containers_with_memory` count those of the `queried_containers` that have series under
    the configured labels; `labels` has the labels of any such series if none was found. Half of the series have at
    least `samples_in_10_minutes`. `history_days` ends at the oldest queried time. `nodes_with_pressure` have pressure
    above zero, `nodes_without_series` no pressure series. `loads` has the load average of each of the
    `nodes_with_load`; `disputed_nodes` have several that differ. `exporters` are those read. `recent` has the samples
    of the last minutes.
    """

    queried_containers: int
    containers_with_cpu: int
    containers_with_memory: int
    labels: tuple[str, ...] = ()
    nodes_labelled: bool = True
    samples_in_10_minutes: float | None = None
    newest_at: datetime | None = None
    history_days: float = 0.0
    nodes: int = 0
    nodes_with_pressure: int = 0
    nodes_without_series: int = 0
    nodes_with_load: int = 0
    loads: Mapping[str, float] = field(default_factory=dict)
    exporters: tuple[str, ...] = ()
    ignored_exporters: tuple[IgnoredExporter, ...] = ()
    ignored_load_exporters: tuple[IgnoredExporter, ...] = ()
    disputed_nodes: tuple[str, ...] = ()
    recent: SampleBlock | None = None
    cluster: ClusterSeriesFacts = ClusterSeriesFacts()


@dataclass(frozen=True, slots=True)
class PrometheusFacts:
    """The Prometheus server, and its contents or the problem; `is_set`: the address comes from the settings."""

    location: str
    is_set: bool
    usage: UsageFacts | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class KubeletFacts:
    """How many kubelets were asked for usage, answered and reported pressure, and the first error."""

    queried: int
    answered: int
    reporting_pressure: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The database; `exists` is False for an embedded one that is not created yet.

    `is_server_verified`: the server's identity is verified. `risk_days` has observed risks, `statistics` those of the
    last usage pass, None if they could not be read.
    """

    location: str
    is_embedded: bool
    exists: bool = True
    revision: str | None = None
    expected_revision: str | None = None
    problem: str = ""
    is_server_verified: bool = True
    risk_days: Sequence[RiskDay] = ()
    statistics: StatisticsTable | None = None


@dataclass(frozen=True, slots=True)
class WebhookFacts:
    """The registration of the webhook.

    `trusts_certificate`: the published CA signed the certificate in use, None if it cannot be read. `fails_open`: pods
    are created while the webhook does not answer. `verifies_clients`: it requires the API server's client certificate.
    """

    present: bool
    published: bool = False
    trusts_certificate: bool | None = None
    expires_at: datetime | None = None
    fails_open: bool = True
    verifies_clients: bool = False


@dataclass(frozen=True, slots=True)
class HelmRelease:
    """The Helm release that installed cruise, from the annotations on its objects."""

    name: str
    namespace: str


@dataclass(frozen=True, slots=True)
class PreflightFacts:
    """All findings; `problems` has (area, name, reason) of checks that failed to run."""

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


_MOST_NAMED = 3


class CheckLevel(StrEnum):
    """The severity of a finding; with red, cruise cannot do its task in this mode."""

    OK = "ok"
    WARN = "warn"
    RED = "red"


@dataclass(frozen=True, slots=True)
class CheckItem:
    """What was checked, what was found, and what to do about it (empty if nothing)."""

    area: str
    name: str
    level: CheckLevel
    finding: str
    fix: str = ""


def format_item_count(things: Sized, noun: str) -> str:
    """Return the number of things with their noun."""
    return f"{len(things):,} {noun}{'' if len(things) == 1 else 's'}"


def format_names(names: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _MOST_NAMED:,} more" if len(listed) > _MOST_NAMED else ""
    return ", ".join(listed[:_MOST_NAMED]) + more


def format_install_command(release: HelmRelease | None, files: Iterable[str], *values: str) -> str:
    """Return the command that applies files of deploy/, or sets the values by which the chart renders the same."""
    if release is None:
        return "kubectl apply " + " ".join(f"-f deploy/{file}" for file in files)
    command = f"helm upgrade {release.name} deploy/chart --namespace {release.namespace} --reset-then-reuse-values"
    return " ".join((command, *(f"--set {value}" for value in values)))
