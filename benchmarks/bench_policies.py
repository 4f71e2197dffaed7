"""A node pass over 20,000 workloads with 2,000 policy objects, compared with the same pass without any, in turn.

`kept` is a pass that uses the policies found by an earlier one, as all passes do while policies stay the same.
"""

import gc
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.snapshot_generator import generate_cluster, write_snapshot, write_usage
from benchmarks.table import BenchmarkRow
from cruise.adapters.files import load_snapshot, load_usage
from cruise.decisions.pod_policy.policy_objects import PolicyIndex
from cruise.decisions.scan.policy_status import summarize_policies
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.actions import SkippedPod
from cruise.domain.annotations import Overrides
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Mode, Policy, ResizeDirection
from cruise.domain.rightsizing_policies import PolicySelector, RightsizingPolicy
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator

NAME = "policies"
NODES, POLICIES, ROUNDS = 5_700, 2_000, 7
# The default: the same sizes are decided, so that only finding and resolving policies differs.
STATED = Overrides(direction=ResizeDirection.BOTH)


def run() -> list[BenchmarkRow]:
    """Measure both passes alternately, and the summary of statuses."""
    with tempfile.TemporaryDirectory() as directory:
        snapshot_file, usage_file = Path(directory) / "snapshot.json", Path(directory) / "usage.json"
        cluster = generate_cluster(NODES)
        write_snapshot(cluster, snapshot_file)
        write_usage(cluster, usage_file)
        del cluster
        plain = load_snapshot(str(snapshot_file))
        statistics, now = load_usage(str(usage_file), plain)
    workloads = len({(pod.namespace, pod.workload) for pod in plain.pods})
    sizes = f"{workloads:,} workloads, {len(plain.pods):,} pods"
    policy = Policy(mode=Mode.FULL)
    seconds: dict[str, list[float]] = {}
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for name, snapshot in _worlds(plain):
                index = PolicyIndex(snapshot)
                skipped: list[SkippedPod] = []
                for title in (name, f"{name}: kept") if snapshot.rightsizing_policies else (name,):
                    start = time.process_time()
                    plans = decide_node_plans(snapshot, statistics, policy, now, policy_index=index)
                    seconds.setdefault(title, []).append(time.process_time() - start)
                    skipped = [one for plan in plans for one in plan.skipped]
                    # Each pass begins with the same memory: new pages take a tenth of its time.
                    del plans
                    gc.collect()
                if snapshot.rightsizing_policies:
                    start = time.process_time()
                    summarize_policies(snapshot, skipped, {}, index)
                    seconds.setdefault(f"{name}: statuses", []).append(time.process_time() - start)
                del skipped, index
                gc.collect()
    finally:
        gc.enable()
    without = median(seconds["without policies"])
    return [
        BenchmarkRow(
            NAME, f"{sizes}: {name}", median(values), "s", f"{without:.2f} s without", median(values) / without
        )
        for name, values in seconds.items()
    ]


def _worlds(plain: ClusterSnapshot) -> Iterator[tuple[str, ClusterSnapshot]]:
    yield "without policies", plain
    yield f"{POLICIES:,} policies by name and kind", replace(plain, rightsizing_policies=_draw(plain, by_label=False))
    yield f"{POLICIES:,} policies, a third by label", replace(plain, rightsizing_policies=_draw(plain, by_label=True))


def _draw(snapshot: ClusterSnapshot, *, by_label: bool) -> tuple[RightsizingPolicy, ...]:
    """Draw policies of namespaces and, one of ten, of the cluster."""
    source = random.Random(1)
    pods = [pod for pod in snapshot.pods if pod.workload is not None]
    found = []
    for number in range(POLICIES):
        pod = source.choice(pods)
        assert pod.workload is not None
        is_of_cluster = number % 10 == 0
        if by_label and number % 3 == 0:
            key, value = source.choice(sorted(pod.labels.items()))
            requirement = LabelRequirement(key, SelectorOperator.IN, (value,))
            selector = PolicySelector(pod_labels=LabelSelector((requirement,)))
        elif number % 5 == 0:
            selector = PolicySelector(kinds=frozenset({pod.workload.kind}))
        else:
            selector = PolicySelector(names=frozenset({pod.workload.name}))
        if is_of_cluster:
            selector = replace(selector, namespaces=frozenset({pod.namespace}))
        found.append(RightsizingPolicy("" if is_of_cluster else pod.namespace, f"p{number}", selector, STATED))
    return tuple(sorted(found, key=lambda one: one.key))
