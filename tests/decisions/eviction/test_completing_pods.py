"""Random clusters under pressure: a pod that runs to completion is not evicted or shrunk below its peak."""

import random
from datetime import timedelta

import pytest

from cruise.decisions.oom import OomContext, build_oom_record, decide_oom_reaction
from cruise.decisions.packing.movability import MovabilityCheck
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.actions import EvictPod
from cruise.domain.cluster import ClusterSnapshot, OomKill, Pod, WorkloadRef
from cruise.domain.policy import Mode, OomReaction, Policy
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES
from cruise.domain.run_to_completion_operators import LASTING_KINDS, OPERATORS
from cruise.domain.usage import Statistic
from tests.builders import NOW, make_container, make_node, make_pod, make_snapshot, make_statistic_for, make_table

FULL = Policy(mode=Mode.FULL)
# Kind of the controller, kind of the workload, restartPolicy.
RUNS = [
    *((kind, kind, "Always") for one in OPERATORS for kind in sorted(one.owner_kinds)),
    *((None, kind, "Never") for one in OPERATORS for kind, _ in one.groups if not one.owner_kinds),
    *((kind, "Workload", "Always") for kind in (None, "Custom", "Job")),
    *(("Custom", "Custom", policy) for policy in ("Never", "OnFailure")),
    ("Job", "CronJob", "OnFailure"),
]
SERVICES = [(kind, kind, "Always") for kind in sorted(LASTING_KINDS - {"CronJob", "DaemonSet", "ScaledJob"})]


def draw_pod(draw: random.Random, number: int) -> tuple[Pod, Statistic]:
    """A pod that uses about as much as it requests, on one of two nodes, and its statistic."""
    owner, kind, policy = draw.choice(RUNS if draw.random() < 0.5 else SERVICES)
    cpu, memory = draw.randint(50, 900), draw.randint(64, 1200)
    name = f"pod-{number}"
    pod = make_pod(
        name,
        node=draw.choice(["n1", "n2"]),
        workload=WorkloadRef(kind, f"of-{name}"),
        owner_kind=owner,
        owner_name=None if owner is None else f"of-{name}",
        restart_policy=policy,
        containers=[make_container("app", cpu, memory)],
        annotations=draw.choice([{}, {}, {"cruise.io/eviction-ranking": draw.choice(["medium", "high"])}]),
    )
    base = [int(amount * draw.uniform(0.1, 2.5)) for amount in (cpu, memory)]
    peak = [int(amount * draw.uniform(1, 2)) for amount in base]
    return pod, make_statistic_for(
        pod, cpu_base=base[0], cpu_peak=peak[0], memory_base_mib=base[1], memory_peak_mib=peak[1]
    )


def draw_cluster(seed: int) -> tuple[ClusterSnapshot, list[Statistic]]:
    """A cluster of two nodes that hold what is requested, and an empty one."""
    draw = random.Random(seed)
    drawn = [draw_pod(draw, number) for number in range(draw.randint(3, 9))]
    nodes = [make_node("n3")]
    for name in ("n1", "n2"):
        requested = [pod.containers[0].requests.resources for pod, _ in drawn if pod.node == name]
        memory = sum(one.memory_bytes for one in requested) // MEBIBYTE
        nodes.append(make_node(name, sum(one.cpu_millicores for one in requested) + 100, memory + 100))
    return make_snapshot([pod for pod, _ in drawn], nodes=nodes, workloads=()), [row for _, row in drawn]


@pytest.mark.parametrize("block", range(10))
def test_no_path_evicts_a_pod_that_runs_to_completion(seeds, block: int):
    evicted = resized = kept = 0
    for seed in (block * 2000 + number for number in seeds(2000)):
        snapshot, rows = draw_cluster(seed)
        statistics = make_table(*rows)
        pods = {pod.name: pod for pod in snapshot.pods}
        peaks = {row.key.pod: row for row in rows}
        for plan in decide_node_plans(snapshot, statistics, FULL, NOW):
            evicted += len(plan.evict)
            assert not [one.pod for one in plan.evict if pods[one.pod].runs_to_completion], seed
            for resize in plan.resize:
                resized += 1
                pod, peak = pods[resize.pod], peaks[resize.pod]
                for target in resize.containers if pod.runs_to_completion else ():
                    before, after = pod.containers[0].requests.resources, target.requests.resources
                    assert after.cpu_millicores >= min(before.cpu_millicores, peak.cpu_peak_millicores), seed
                    assert after.memory_bytes >= min(before.memory_bytes, peak.memory_peak_bytes), seed
        eligibility = Eligibility(snapshot, statistics, {}, FULL, NOW)
        movability = MovabilityCheck(snapshot, eligibility, FULL)
        for number, pod in enumerate(snapshot.pods):
            if pod.runs_to_completion:
                kept += 1
                assert movability.check(pod, number).immovable_reason is not None, seed
        pod = snapshot.pods[seed % len(snapshot.pods)]
        assert not (isinstance(react(pod, peaks[pod.name], eligibility), EvictPod) and pod.runs_to_completion), seed
    assert evicted and resized and kept


def react(pod: Pod, row: Statistic, eligibility: Eligibility) -> object:
    """What follows an OOM kill of the pod on a full node."""
    limit = pod.containers[0].requests.memory_bytes
    kill = OomKill(
        pod.namespace,
        pod.name,
        pod.uid,
        "app",
        pod.workload,
        "",
        pod.node,
        NOW - timedelta(seconds=20),
        limit,
        limit,
        limit,
        runs_to_completion=pod.runs_to_completion,
    )
    context = OomContext(make_node(pod.node or "n1"), NO_RESOURCES, {"app": row})
    policy = Policy(mode=Mode.FULL, oom_reaction=OomReaction.EVICT)
    return decide_oom_reaction(build_oom_record(kill, row), pod, context, eligibility, policy, NOW)
