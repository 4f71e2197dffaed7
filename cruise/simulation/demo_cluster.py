"""The demo's cluster: eight nodes that are full by requests but not by usage, with one of each kind of workload."""

from datetime import datetime, timedelta

from cruise.domain.annotations import HOSTNAME, OPERATING_SYSTEM
from cruise.domain.cluster import Container, ContainerRole, HorizontalPodAutoscaler, Node, Pod, WorkloadRef
from cruise.domain.resources import MEBIBYTE, ResourceName, Resources, StatedResources
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.cluster.workloads import SimulatedWorkload
from cruise.simulation.demand.demand import (
    BurstyDemand,
    ContainerProfile,
    CorrelatedDemand,
    DemandSource,
    DiurnalDemand,
    LeakingDemand,
    TraceMember,
    TraceUsage,
)
from cruise.simulation.demand.trace import SHIPPED_TRACE, Trace, read_trace
from cruise.simulation.usage_source import SimulatedUsageSource

NODES = 8
NODE_SIZE = Resources(8000, 32 * 1024 * MEBIBYTE)
REPLICAS = 2
OLD_AGE = timedelta(days=8)
YOUNG_AGE = timedelta(minutes=90)
_REPLICA_OFFSET_SECONDS = 7 * 3600
_SERIES_OFFSET_SECONDS = 61


def create_demo_cluster(start: datetime, seed: int = 0) -> tuple[SimulatedCluster, SimulatedUsageSource]:
    """Return the demo's cluster and its usage, the same for the same arguments."""
    trace = read_trace(SHIPPED_TRACE)
    workloads = [
        *_replayed(trace, start, seed),
        *_stateful(start, seed),
        *_partly_skipped(start, seed),
        *_batch(start, seed),
        *_unsteady(start, seed),
    ]
    cluster = SimulatedCluster(
        [_node(number) for number in range(1, NODES + 1)],
        workloads,
        start,
        SimulationSettings(seed=seed),
        budgets=[
            DisruptionBudgetSpec("data", "postgres", _app("postgres"), max_unavailable=1),
            DisruptionBudgetSpec("train", "gateway", _app("ts-gateway-service"), min_available=1),
        ],
        autoscalers=[HorizontalPodAutoscaler("shop", "search", _deployment("search"), frozenset({ResourceName.CPU}))],
    )
    return cluster, SimulatedUsageSource(cluster)


def _replayed(trace: Trace, start: datetime, seed: int) -> list[SimulatedWorkload]:
    """Return a Deployment for each series; its replicas replay the trace with offsets of hours."""
    shift = seed % len(trace.series) * 600
    replays = [
        TraceMember(row, shift + replica * _REPLICA_OFFSET_SECONDS + row * _SERIES_OFFSET_SECONDS)
        for row in range(len(trace.series))
        for replica in range(REPLICAS)
    ]
    usage = TraceUsage(trace, start, replays, loop=True)
    found = []
    for row, series in enumerate(trace.series):
        requests = StatedResources(series.requests.cpu_millicores, series.requests.memory_bytes)
        # Limits as in most charts: memory at its request, CPU at twice its request or without a limit.
        limits = StatedResources(2 * series.requests.cpu_millicores if row % 3 == 0 else None, requests.memory_bytes)
        members = tuple(range(row * REPLICAS, (row + 1) * REPLICAS))
        found.append(
            SimulatedWorkload(
                "train",
                _deployment(series.workload),
                _pod(series.workload, Container("app", requests=requests, limits=limits)),
                replicas=REPLICAS,
                profiles={"app": ContainerProfile(usage, members)},
                created_at=start - OLD_AGE,
            )
        )
    return found


def _stateful(start: datetime, seed: int) -> list[SimulatedWorkload]:
    """Return a StatefulSet, a DaemonSet and the cluster's DNS."""
    postgres = DiurnalDemand(seed + 1, 150, 600, _mib(1200), _mib(1900))
    agent = CorrelatedDemand(seed + 2, 20, 60, _mib(80), _mib(60))
    return [
        _workload(
            "data", WorkloadRef("StatefulSet", "postgres"), _main(1000, 4096, 6144), 3, postgres, start - OLD_AGE
        ),
        _workload("monitoring", WorkloadRef("DaemonSet", "agent"), _main(200, 256, 512), NODES, agent, start - OLD_AGE),
        _workload("kube-system", _deployment("dns"), _main(100, 70, 170), 2, agent, start - OLD_AGE),
    ]


def _partly_skipped(start: datetime, seed: int) -> list[SimulatedWorkload]:
    """Return workloads that are skipped in part: Guaranteed, scaled by an HPA, and with a sidecar."""
    ledger = Container("app", requests=_amounts(500, 1024), limits=_amounts(500, 1024))
    search = DiurnalDemand(seed + 3, 80, 350, _mib(300), _mib(500), peak_hour=12)
    checkout = CorrelatedDemand(seed + 4, 30, 150, _mib(180), _mib(120))
    proxy = CorrelatedDemand(seed + 5, 5, 20, _mib(40), _mib(20))
    members = tuple(range(2))
    return [
        _workload(
            "bank",
            _deployment("ledger"),
            ledger,
            1,
            DiurnalDemand(seed + 6, 60, 200, _mib(350), _mib(500)),
            start - OLD_AGE,
        ),
        _workload("shop", _deployment("search"), _main(500, 1024, 1536), 3, search, start - OLD_AGE),
        SimulatedWorkload(
            "shop",
            _deployment("checkout"),
            _pod(
                "checkout",
                Container("migrate", ContainerRole.INIT, _amounts(500, 256), _amounts(None, 512)),
                Container("proxy", ContainerRole.SIDECAR, _amounts(100, 128), _amounts(None, 256)),
                _main(250, 768, 1024),
            ),
            replicas=2,
            profiles={"app": ContainerProfile(checkout, members), "proxy": ContainerProfile(proxy, members)},
            created_at=start - OLD_AGE,
        ),
    ]


def _batch(start: datetime, seed: int) -> list[SimulatedWorkload]:
    """Return a CronJob and a Job."""
    report = BurstyDemand(seed + 7, 100, 250, _mib(150), _mib(350), period_seconds=240, burst_seconds=120)
    run = _pod("report", _main(300, 512, 1024))
    imports = _pod("import", _main(400, 512, 1024))
    return [
        SimulatedWorkload(
            "batch",
            WorkloadRef("CronJob", "report"),
            run,
            profiles={"app": ContainerProfile(report, tuple(range(8)))},
            created_at=start - OLD_AGE,
            period_seconds=900,
            duration_seconds=240,
        ),
        SimulatedWorkload(
            "batch",
            WorkloadRef("Job", "import"),
            imports,
            profiles={"app": ContainerProfile(report, (8,))},
            created_at=start,
            duration_seconds=1800,
        ),
    ]


def _unsteady(start: datetime, seed: int) -> list[SimulatedWorkload]:
    """Return a workload with a memory leak, one with bursts, and one whose pods are pending."""
    leak = LeakingDemand(seed + 8, 40, _mib(150), _mib(400))
    bursts = BurstyDemand(seed + 9, 30, 900, _mib(120), _mib(600), period_seconds=1800, burst_seconds=300)
    daily = DiurnalDemand(seed + 10, 100, 400, _mib(500), _mib(900))
    return [
        _workload("shop", _deployment("thumbnails"), _main(250, 512, 768), 2, leak, start - YOUNG_AGE),
        _workload("shop", _deployment("mailer"), _main(500, 512, 1024), 3, bursts, start - OLD_AGE),
        _workload("shop", _deployment("recommender"), _main(2500, 4096, 6144), 4, daily, start),
    ]


def _workload(
    namespace: str, ref: WorkloadRef, container: Container, replicas: int, source: DemandSource, created_at: datetime
) -> SimulatedWorkload:
    return SimulatedWorkload(
        namespace,
        ref,
        _pod(ref.name, container),
        replicas=replicas,
        profiles={container.name: ContainerProfile(source, tuple(range(replicas)))},
        created_at=created_at,
    )


def _node(number: int) -> Node:
    name = f"node-{number}"
    labels = {HOSTNAME: name, OPERATING_SYSTEM: "linux"}
    return Node(name, NODE_SIZE, labels=labels, kubelet_version=SimulationSettings().server_version)


def _pod(app: str, *containers: Container) -> Pod:
    return Pod("", "", "", containers, labels={"app": app})


def _main(cpu: int, memory: int, memory_limit: int) -> Container:
    return Container("app", requests=_amounts(cpu, memory), limits=_amounts(None, memory_limit))


def _amounts(cpu: int | None, mebibytes: int) -> StatedResources:
    return StatedResources(cpu, mebibytes * MEBIBYTE)


def _mib(mebibytes: int) -> float:
    return float(mebibytes * MEBIBYTE)


def _deployment(name: str) -> WorkloadRef:
    return WorkloadRef("Deployment", name)


def _app(name: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", SelectorOperator.IN, (name,)),))
