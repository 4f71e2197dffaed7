"""Every reason that prevents sizing in a random cluster is named in the report."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from cruise.decisions.packing.eviction_rules import EvictionRules
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.quotas import allows_one_more_pod
from cruise.decisions.preflight.preflight import decide_preflight
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.autoscalers import NodeAutoscalerKind, ResourceQuota
from cruise.domain.cluster import (
    ClusterSnapshot,
    HorizontalPodAutoscaler,
    VerticalPodAutoscaler,
    WorkloadRef,
)
from cruise.domain.policy import Mode, Policy
from cruise.domain.preflight import PreflightFacts
from cruise.domain.resources import ResourceName
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.interfaces.check_report import render_check_table
from tests.builders import (
    NOW,
    make_amounts,
    make_budget,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)
from tests.shown import render_to_text

FULL = Policy(mode=Mode.FULL)
NAMESPACES, APPS = ("shop", "bank"), ("web", "api", "db")
DRAWS = 300


def drawn(seed: int) -> ClusterSnapshot:
    """Two namespaces of three workloads, one of them an operator's, with all that may hold cruise back."""
    random = Random(seed)
    pods = [
        make_pod(f"{app}-0", namespace, "n1", workload=f"Deployment/{app}", labels={"app": app})
        for namespace in NAMESPACES
        for app in APPS
    ]

    def target() -> WorkloadRef:
        return random.choice([WorkloadRef("Deployment", random.choice(APPS)), WorkloadRef("Kafka", "db")])

    def selector() -> LabelSelector:
        some = tuple(random.sample(APPS, random.randint(1, 2)))
        return random.choice([LabelSelector(), LabelSelector((LabelRequirement("app", SelectorOperator.IN, some),))])

    vertical = tuple(
        VerticalPodAutoscaler(random.choice(NAMESPACES), f"vpa{number}", target(), random.choice(["Off", "Auto", ""]))
        for number in range(random.randint(0, 3))
    )
    scaling = tuple(
        HorizontalPodAutoscaler(
            random.choice(NAMESPACES), f"hpa{number}", target(), frozenset(random.sample(list(ResourceName), 1))
        )
        for number in range(random.randint(0, 3))
    )
    budgets = [
        replace(
            make_budget(f"pdb{number}", random.choice(NAMESPACES), selector(), random.randint(0, 1)),
            blocks_all_evictions=random.random() < 0.3,
        )
        for number in range(random.randint(0, 3))
    ]
    budgets = [replace(one, disruptions_allowed=0) if one.blocks_all_evictions else one for one in budgets]
    quotas = {
        namespace: (
            ResourceQuota(make_amounts(random.choice([None, 0, 50, 9000])), make_amounts(random.choice([None, 9000]))),
        )
        for namespace in NAMESPACES
        if random.random() < 0.5
    }
    whole = make_snapshot(
        pods,
        [make_node("n1", cpu=64000, kubelet_version=(1, 36))],
        [make_workload(f"Deployment/{app}", namespace) for namespace in NAMESPACES for app in APPS],
        budgets,
        scaling,
        node_autoscaler=random.choice([None, *NodeAutoscalerKind]),
    )
    # Some scales were not read, some targets have none, and some select pods.
    scales = {
        (namespace, WorkloadRef("Kafka", "db")): random.choice([None, selector()])
        for namespace in NAMESPACES
        if random.random() < 0.5
    }
    return replace(whole, vertical_autoscalers=vertical, quotas=quotas, scales=scales)


def lines_of(snapshot: ClusterSnapshot, width: int) -> dict[str, str]:
    """The report by what was looked at, each finding and its fix in one line."""
    items = decide_preflight(PreflightFacts(snapshot=snapshot), Mode.FULL, NOW)
    text = render_to_text(lambda console: render_check_table(items, Mode.FULL, console), width)
    assert max(map(len, text.splitlines())) <= width
    header, *body = text.partition("\n\n")[0].splitlines()
    column, fixes = header.index("FOUND"), header.index("FIX") if "FIX" in header else width
    rows: list[tuple[str, list[str], list[str]]] = []
    for line in body:
        if line.startswith(("ok ", "warn ", "red ")):
            rows.append((line.split()[0], [], []))
        rows[-1][1].append(line[column:fixes])
        rows[-1][2].append(line[fixes:])
    said = [" ".join([level, *" ".join((*found, *fix)).split()]) for level, found, fix in rows]
    return {item.name: one for item, one in zip(items, said, strict=True)}


def holding(snapshot: ClusterSnapshot) -> Iterator[tuple[str, str, str]]:
    """What prevents sizing of each pod: the item that reports it, its name there, and a part of the fix."""
    table = make_table(*(make_statistic_for(pod) for pod in snapshot.pods))
    eligibility, leaving = Eligibility(snapshot, table, {}, FULL, NOW), EvictionRules(snapshot, FULL, {})
    for pod in snapshot.pods:
        claimed = eligibility.get_autoscaler_claims(pod)
        if claimed.sized_by:
            verdict = eligibility.check(pod)
            assert isinstance(verdict, SkippedPod)
            assert verdict.reason is ReasonCode.MANAGED_BY_OTHER_AUTOSCALER
            yield "VPAs", f"{pod.namespace}/{claimed.sized_by.partition(': ')[2]}", 'updateMode to "Off"'
        if claimed.scaled_by:
            # A pod may be scaled by several HPAs; the report has a name for each.
            for name in claimed.scaled_by.partition(": ")[2].split(", "):
                yield "HPAs", f"{pod.namespace}/{name}", "AverageValue"
        if claimed.pending or "may-be" in f"{claimed.sized_by}{claimed.scaled_by}":
            yield "targets", f"{pod.namespace}/Kafka/db", "scale subresource"
        covering = leaving.disruption_budgets.find_for_pod(pod)
        if len(covering) > 1:
            yield "several PDBs", pod.namespace, "let one PDB select each pod"
        for budget in covering:
            if not budget.disruptions_allowed:
                name = "strict PDBs" if budget.blocks_all_evictions else "PDBs"
                yield name, f"{budget.namespace}/{budget.name}", "maxUnavailable 1"
        if not allows_one_more_pod(pod, snapshot.quotas.get(pod.namespace, ())):
            yield "quotas", pod.namespace, "raise these quotas"


@pytest.mark.parametrize("width", [80, 160])
def test_every_cause_that_keeps_a_pod_is_named_with_its_fix(width, seeds):
    told = dict.fromkeys(("VPAs", "HPAs", "targets", "PDBs", "strict PDBs", "several PDBs", "quotas"), 0)
    autoscalers = {
        NodeAutoscalerKind.KARPENTER: "Karpenter: ",
        NodeAutoscalerKind.CLUSTER_AUTOSCALER: "cluster-autoscaler: ",
    }
    drawings = seeds(DRAWS)
    for seed in drawings:
        snapshot = drawn(seed)
        lines = lines_of(snapshot, width)
        for item, name, fix in set(holding(snapshot)):
            told[item] += 1
            assert name in lines[item], seed
            assert fix in lines[item], seed
        shown_as = "none found: " if snapshot.node_autoscaler is None else autoscalers[snapshot.node_autoscaler]
        assert shown_as in lines["node autoscaler"]
    # All of it came up.
    assert min(told.values()) > len(drawings) / 10
