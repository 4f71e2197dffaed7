"""Explanations agree with the plan under every headroom model."""

import random
from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.replacement_pods import predict_replacement_pods
from cruise.decisions.explanation.pod_explanation import explain_pod
from cruise.decisions.explanation.size_steps import ContainerSteps
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.headroom import HeadroomModel
from cruise.decisions.sizing.node_plans import NodePlan, SizingContext, decide_node_plans, size_cluster
from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.arrays import round_up
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ClusterSnapshot, ContainerRole
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.domain.usage import StatisticsTable
from tests.builders import (
    NOW,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
)
from tests.decisions.sizing.models import every_model, models
from tests.decisions.sizing.test_laws import situations

FULL = Policy(mode=Mode.FULL)
UNITS = {"cpu": 1, "memory": MEBIBYTE}


def check_against_plan(snapshot: ClusterSnapshot, table: StatisticsTable, headroom: HeadroomModel) -> int:
    """Compare every step of every container with the plan; return how many containers shared headroom by base."""
    plans = decide_node_plans(snapshot, table, FULL, NOW, headroom=headroom, replacements=predict_replacement_pods)
    targets = {target[:3]: target for plan in plans for target in plan.targets}
    written = written_by(plans)
    explained = {
        (pod.namespace, pod.name, steps.container): (explanation.node, steps)
        for pod in snapshot.pods
        for explanation in [explain_pod(pod, snapshot, table, FULL, NOW, context=SizingContext(headroom=headroom))]
        for steps in explanation.steps
    }
    assert explained.keys() == targets.keys()
    by_base = 0
    for key, (node, steps) in explained.items():
        target, patch = targets[key], written.get(key)
        assert (steps.cpu.base, steps.cpu.headroom) == (target.cpu_base_millicores, target.cpu_headroom_millicores)
        assert (steps.memory.base, steps.memory.headroom) == (target.memory_base_bytes, target.memory_headroom_bytes)
        assert steps.cpu.final == target.cpu_millicores
        assert steps.memory.final == target.memory_bytes
        assert steps.memory_limit.final == target.memory_limit_bytes
        assert (steps.cpu.written is None) == (steps.memory.written is None) == (patch is None)
        if patch is not None:
            assert steps.cpu.written == (patch.requests.cpu_millicores or 0)
            assert steps.memory.written == (patch.requests.memory_bytes or 0)
        assert node is not None
        check_steps(steps)
        by_base += steps.cpu.by_base or steps.memory.by_base
    return by_base


def check_steps(container: ContainerSteps) -> None:
    """Each step of a request follows from the one before."""
    for steps, unit in ((container.cpu, 1), (container.memory, MEBIBYTE)):
        if not steps.managed:
            assert steps.final == steps.current
            continue
        weight = steps.base if steps.by_base else steps.headroom
        most = float(max(steps.peak_with_margin - steps.base, 0))
        proportional = steps.unallocated * weight / steps.unallocated_total if steps.unallocated_total else 0.0
        share = most if steps.at_peak else proportional
        assert steps.share <= most
        assert abs(steps.share - share) <= 1e-9 * max(1.0, share)
        assert steps.rounded - unit < steps.base + steps.share <= steps.rounded + 1e-6 * unit
        assert steps.rounded % unit == 0
        clamped = max(steps.rounded, steps.lower.value or 0)
        clamped = clamped if steps.upper.value is None else min(clamped, steps.upper.value)
        assert steps.clamped == (clamped if steps.may_grow else min(clamped, steps.current))
        granted = steps.user_minimum.granted if steps.user_minimum is not None else 0
        assert steps.final == steps.clamped - steps.trimmed + granted


def written_by(plans: Sequence[NodePlan]) -> Mapping[tuple[str, ...], ContainerTarget]:
    return {
        (resize.namespace, resize.pod, target.container): target
        for plan in plans
        for resize in plan.resize
        if resize.reason is ReasonCode.RIGHTSIZED
        for target in resize.containers
    }


@given(situations(), st.data())
def test_every_final_size_is_the_plans_and_every_step_leads_to_it(cluster, data):
    check_against_plan(cluster.snapshot, cluster.statistics, data.draw(models(cluster.statistics)))


def generated(seed: int) -> tuple[ClusterSnapshot, StatisticsTable]:
    """Nodes that may be too small, pods of one to three containers; in every third cluster none has headroom."""
    draw = random.Random(seed)
    pods, rows = [], []
    for index in range(draw.randint(1, 12)):
        name = f"web-{index}"
        names = ["app", "log", "proxy"][: draw.randint(1, 3)]
        annotations = draw.choice([{}, {}, {}, {"cruise.io/resources": "cpu"}, {"cruise.io/cpu-max": "300m"}])
        containers = [
            make_container(
                one,
                cpu=draw.choice([None, 50, 200, 900]),
                memory_mib=draw.choice([64, 300]),
                memory_limit_mib=draw.choice([None, 700]),
                role=ContainerRole.SIDECAR if one == "proxy" else ContainerRole.MAIN,
            )
            for one in names
        ]
        pod = make_pod(
            name,
            containers=containers,
            annotations=annotations,
            node=f"n{draw.randint(1, 2)}",
            workload=f"Deployment/{name}",
        )
        pods.append(pod)
        for one in names:
            base, memory = draw.randint(1, 400), draw.randint(10, 300)
            more = 0 if seed % 3 == 0 else draw.choice([0, 100, 700])
            rows.append(
                make_statistic_for(
                    pod,
                    container=one,
                    cpu_base=base,
                    cpu_peak=base + more,
                    memory_base_mib=memory,
                    memory_peak_mib=memory + more,
                    memory_7d_max_mib=memory + more,
                )
            )
    nodes = [
        make_node(f"n{index}", cpu=draw.choice([900, 4000]), memory_mib=draw.choice([800, 9000])) for index in (1, 2)
    ]
    ranges = {"shop": (LimitRangeItem(False, maximum=make_amounts(None, 250)),)} if seed % 7 == 0 else {}
    return make_snapshot(pods, nodes=nodes, limit_ranges=ranges), make_table(*rows)


def test_generated_clusters_are_explained_as_planned_under_every_headroom_model(seeds):
    by_base = 0
    for seed in seeds(50):
        snapshot, table = generated(seed)
        for model in every_model(table, np.random.default_rng(seed)).values():
            by_base += check_against_plan(snapshot, table, model)
    assert by_base


def test_no_size_is_above_its_own_peak_and_a_tenth_and_nodes_keep_their_headroom(seeds):
    """Under every model, for targets and written sizes; these clusters have no annotations or quotas."""
    capped = 0
    for seed in seeds(50):
        snapshot, table = generated(seed)
        for model in every_model(table, np.random.default_rng(seed)).values():
            eligibility = Eligibility(snapshot, table, {}, FULL, NOW)
            sized = size_cluster(snapshot, eligibility, FULL, NOW, SizingContext(headroom=model)).result
            columns, there = sized.columns, sized.fit.remains[sized.columns.candidates.pod_of_container]
            for resource, unit in ((ResourceName.CPU, 1), (ResourceName.MEMORY, MEBIBYTE)):
                demand, targets = columns.table.get_resource(resource), sized.targets.get_requests(resource)
                peaks = np.maximum(demand.raw_base, demand.peak)
                most = np.maximum(round_up(1.1 * peaks, unit), demand.lower)
                assert (targets <= most)[demand.managed & there].all()
                grown = demand.managed & there & (sized.sizes_to_write.get_requests(resource) > demand.current)
                assert (sized.sizes_to_write.get_requests(resource) <= most)[grown].all()
                capped += int(sized.headroom_shares[resource].at_peak.sum())
                # Bounds and ceilings of single containers leave headroom that no other container gets.
                bound = demand.managed & (
                    sized.headroom_shares[resource].clamped < sized.headroom_shares[resource].rounded
                )
                free = columns.sum_containers_by_node(np.where(bound & there, 1, 0)) == 0
                promised = sized.node_needs[resource].base + sized.node_needs[resource].shared
                together = columns.sum_containers_by_node(np.where(demand.managed & there, peaks, 0))
                given = columns.sum_containers_by_node(
                    np.where(demand.managed & there, sized.headroom_shares[resource].clamped, 0)
                )
                assert (given >= np.minimum(promised, together) - 1e-3)[free].all()
    assert capped
