"""A cluster of 500 containers with 8 days of usage, as its snapshot shows it and as cAdvisor measured it.

Nodes are scraped every 15 or 30 s in the hours that statistics look at closely, and every minute in between: that is
what an instant query a minute can tell apart, and a third of the samples. A third of the nodes have no pressure
figures, or zeros. Pods are old, young and new, were restarted, had their counters reset, or are gone by now.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cruise.domain.cluster import ClusterSnapshot, Container, Node, Pod, Workload, WorkloadRef
from cruise.domain.resources import Resources
from tests import cadvisor
from tests.cadvisor import ContainerLifetime, ContainerLocation, RawSeries
from tests.prometheus_server import kept_blocks

HOUR = 3600
DAY = 24 * HOUR
# Ten minutes before the hour: the look-ahead reaches into the next one.
END = 1_767_225_600 + 16 * HOUR + 50 * 60
START = END - 8 * DAY
NODES = 20
CONTAINERS = 500
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
GIBIBYTE = 2**30


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """One pod's part in a workload; `gone`: the pod was deleted."""

    namespace: str
    name: str
    workload: WorkloadRef | None
    identity: str
    containers: tuple[str, ...]
    node: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class MeasuredUsage:
    """A container and all that was measured of it."""

    member: ClusterMember
    container: str
    life: ContainerLifetime
    series: tuple[RawSeries, ...]


def snapshot() -> ClusterSnapshot:
    """The cluster as its API server shows it at the end."""
    live = [member for member in members() if not member.gone]
    workloads = {(member.namespace, member.workload) for member in live if member.workload is not None}
    return ClusterSnapshot(
        nodes=tuple(Node(f"node-{index:02d}", Resources(16_000, 64 * GIBIBYTE)) for index in range(NODES)),
        pods=tuple(sorted((_pod(member) for member in live), key=lambda pod: (pod.namespace, pod.name))),
        workloads={(namespace, ref): Workload(namespace, ref) for namespace, ref in workloads},
    )


def _pod(member: ClusterMember) -> Pod:
    return Pod(
        member.namespace,
        member.name,
        f"uid-{member.namespace}-{member.name}",
        tuple(Container(name) for name in member.containers),
        node=f"node-{member.node:02d}",
        workload=member.workload,
        identity=member.identity,
    )


def members() -> list[ClusterMember]:
    """All pods, deleted ones included."""
    found: list[ClusterMember] = []
    for index in range(60):
        web = ClusterMember(f"team-{index % 10}", "", WorkloadRef("Deployment", f"web-{index}"), "", ("app",), 0)
        web = replace(web, containers=("app", "proxy")) if index % 6 == 0 else web
        for number in range(4):
            found.append(_replica(web, f"web-{index}-{_letters(index, 9)}", index * 7 + number))
        if index % 3 == 0:
            found.append(replace(_replica(web, f"web-{index}-{_letters(index + 1, 9)}", 5000 + index), gone=True))
    for index in range(10):
        database = ClusterMember("data", "", WorkloadRef("StatefulSet", f"db-{index}"), "", ("db",), 0)
        for number in range(6):
            name = f"db-{index}-{number}"
            found.append(replace(database, name=name, identity=str(number), node=(index + 3 * number) % NODES))
    for index in range(4):
        agent = ClusterMember("agents", "", WorkloadRef("DaemonSet", f"agent-{index}"), "", ("agent",), 0)
        for node in range(NODES):
            name = f"agent-{index}-{_letters(1000 * index + node, 5)}"
            found.append(replace(agent, name=name, identity=f"node-{node:02d}", node=node))
        gone = f"agent-{index}-{_letters(7000 + index, 5)}"
        found.append(replace(agent, name=gone, identity="node-03", node=3, gone=True))
    live = sum(len(member.containers) for member in found if not member.gone)
    bare = [
        ClusterMember("default", f"bare-{index}", None, "", ("main",), index % NODES)
        for index in range(CONTAINERS - live)
    ]
    return found + bare


def _replica(of: ClusterMember, replica_set: str, number: int) -> ClusterMember:
    return replace(of, name=f"{replica_set}-{_letters(number, 5)}", node=number % NODES)


def _letters(number: int, length: int) -> str:
    """Letters as Kubernetes generates them, the same for the same number."""
    random = np.random.default_rng(number)
    return "".join(LETTERS[place] for place in random.integers(len(LETTERS), size=length))


def measure_usage() -> Iterator[MeasuredUsage]:
    """Every container with its series, in the members' order."""
    pairs = [(member, container) for member in members() for container in member.containers]
    demands = cadvisor.demands(len(pairs), START, (END - START) // 60, seed=3)
    times: dict[int, np.ndarray] = {}
    for number, ((member, container), demand) in enumerate(zip(pairs, demands, strict=True)):
        place = ContainerLocation(
            member.namespace,
            member.name,
            container,
            f"node-{member.node:02d}",
            scrape_seconds=30 if member.node % 2 else 15,
            scrape_offset=1.003 + 0.717 * member.node,
        )
        if member.node not in times:
            times[member.node] = cadvisor.scrape_times(place, _spans())
        life = _life(member, number)
        yield MeasuredUsage(member, container, life, tuple(cadvisor.scrape(place, life, demand, times[member.node])))


def _spans() -> list[tuple[int, int, int | None]]:
    """When nodes are scraped as often as they are, and when every minute."""
    close = [
        (day * DAY + END // HOUR * HOUR - HOUR // 2, day * DAY + END // HOUR * HOUR + 2 * HOUR) for day in range(-8, 0)
    ]
    close.append((END - 2 * HOUR, END + 1))
    spans: list[tuple[int, int, int | None]] = []
    at = START
    for first, last in close:
        spans += [(at, max(at, first), 60), (max(at, first), last, None)]
        at = max(at, last)
    return [span for span in spans if span[0] < span[1]]


def _life(member: ClusterMember, number: int) -> ContainerLifetime:
    start, end, restarts, resets = START, END + 1, [], []
    if member.gone:
        start, end = END - 6 * DAY, END - (1 + number % 3) * DAY + 37
    elif member.name == "db-9-5":
        start = END - 25 * 60
    elif member.workload is not None and member.workload.kind == "Deployment":
        ages = {2: 3 * DAY, 3: 2 * HOUR, 5: 26 * 60, 7: 19 * 60, 11: 5 * 60 + 7}
        start = END - ages[number % 17] if number % 17 in ages else START
    if number % 10 == 1:
        restarts = [at for at in (END - 5 * DAY + 13, END - 26 * HOUR + 41, END - 6 * 60 - 20) if start < at < end - 60]
    if number % 20 == 4:
        resets = [at for at in (END - 3 * DAY + 5, END - 40 * 60 - 11) if start < at < end - 60]
    pressure = "present" if member.node < 13 else "absent" if member.node < 17 else "zero"
    return ContainerLifetime(start, end, tuple(restarts), tuple(resets), pressure)


def write_openmetrics(path: Path) -> None:
    """Write all series for promtool."""
    cadvisor.write_openmetrics([series for one in measure_usage() for series in one.series], path)


def blocks() -> Path:
    """The blocks of the cluster, made once; skips the test where there is no promtool."""
    sources = [Path(__file__), Path(cadvisor.__file__), *cadvisor.trace_files()]
    return kept_blocks("cluster", write_openmetrics, sources)
