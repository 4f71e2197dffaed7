"""Bounds updated from snapshot to snapshot equal those computed from scratch."""

from dataclasses import replace

import numpy as np

from cruise.decisions.usage.usage_bounds import UsageBoundColumns, UsageBounds
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.usage import ContainerKey
from tests.builders import make_container, make_node, make_pod, make_snapshot

NAMES = [f"web-{number}" for number in range(6)]
KEYS = [ContainerKey("shop", name, container) for name in NAMES for container in ("app", "proxy", "gone")]
NODES = ["n1", "n2", ""] * 6


def drawn(random: np.random.Generator, before: Pod | None, name: str) -> Pod | None:
    """Keep, delete, recreate, resize or bind a pod."""
    fate = int(random.integers(8))
    if fate < 3 or fate == 3:
        return before if fate < 3 else None
    cpu, mebibytes = int(random.choice([200, 400])), int(random.choice([128, 512]))
    containers = [make_container("app", cpu_limit=cpu, memory_limit_mib=mebibytes), make_container("proxy")]
    uid = before.uid if before is not None and fate > 4 else f"uid-{random.integers(1000)}"
    return replace(make_pod(name, node=str(random.choice(["n1", "n2"])), containers=containers), uid=uid)


def expected(now: ClusterSnapshot, before: ClusterSnapshot, since: int) -> list[tuple[float, ...]]:
    """The same, one container at a time."""
    capacities = {node.name: (node.allocatable.cpu_millicores, node.allocatable.memory_bytes) for node in now.nodes}
    largest = tuple(max(one) for one in zip(*capacities.values(), strict=True))
    pods, earlier = ({pod.name: pod for pod in one.pods} for one in (now, before))
    found = []
    for key, node in zip(KEYS, NODES, strict=True):
        pod, old = pods.get(key.pod), earlier.get(key.pod)
        limits = [
            container.limits
            for one in (pod, old)
            if one
            for container in one.containers
            if container.name == key.container
        ]
        same = old is not None and pod is not None and old.uid == pod.uid
        row = [*capacities.get(node if pod is None else pod.node or "", largest), np.inf, np.inf]
        if pod is not None and limits:
            counted = limits if same else limits[:1]
            row[2] = max(one.cpu_millicores or np.inf for one in counted)
            row[3] = max(one.memory_bytes or np.inf for one in counted)
        found.append((*row, since if same and pod is not None else 0))
    return found


def rows(found: UsageBoundColumns) -> list[tuple[float, ...]]:
    columns = (found.node_cpu, found.node_memory, found.limit_cpu, found.limit_memory, found.limit_since)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_updated_bounds_equal_recomputed_ones():
    random = np.random.default_rng(7)
    pods: dict[str, Pod] = {}
    bounds: UsageBounds | None = None
    before = make_snapshot([], [make_node("n1"), make_node("n2", 8000)])
    for number in range(400):
        changed = {name: drawn(random, pods.get(name), name) for name in NAMES}
        pods = {name: pod for name, pod in changed.items() if pod is not None}
        nodes = [make_node("n1"), make_node("n2", 8000 + 1000 * (number // 50))]
        now = make_snapshot(list(pods.values()), nodes)
        bounds = UsageBounds.create(now, number, bounds)
        found = bounds.get_rows(KEYS, NODES)
        if number:
            limited = [row if row[2] < np.inf or row[3] < np.inf else (*row[:4], 0) for row in rows(found)]
            wanted = [
                row if row[2] < np.inf or row[3] < np.inf else (*row[:4], 0)
                for row in expected(now, before, number - 1)
            ]
            assert limited == wanted, number
        else:
            assert all(row[2:4] == (np.inf, np.inf) for row in rows(found))
        # Rows of deleted pods are dropped at times.
        assert bounds.columns.shape[1] < 2 * len(KEYS) + 1200
        before = now


def test_unchanged_pods_are_not_recomputed():
    pods = [make_pod(name, containers=[make_container("app", cpu_limit=200)]) for name in NAMES]
    shown = make_snapshot(pods, [make_node("n1")])
    second = UsageBounds.create(shown, 300, UsageBounds.create(shown, 0))
    other = make_snapshot([*pods[1:], replace(pods[0], labels={"a": "b"})], [make_node("n1")])
    third = UsageBounds.create(other, 600, second)
    assert second.changed == frozenset()
    assert third.changed == {("shop", "web-0")}
    assert third.columns.shape[1] == second.columns.shape[1] + 1
    assert third.get_rows(KEYS[:4], ()).limit_since.tolist()[::3] == [300, 300]
